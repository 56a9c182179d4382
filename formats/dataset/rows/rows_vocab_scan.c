/* A pass over all tokens, which finds the rows that hold one outside of the vocabulary. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/rows/rows_vocab_i.h"

#define CHUNK	    (1u << 17) /* tokens that a thread takes at once: a megabyte at most */
#define MAX_THREADS 64

struct token_range {
	uint64_t first, end;
};

struct scan {
	const struct mfs_vocab_rows *v;
	struct token_range *skip; /* tokens of rows that are known to be bad, ascending */
	size_t skip_count;
	_Atomic uint64_t next; /* token that nobody has taken; the end once something failed */
	pthread_mutex_t lock;  /* of all below */
	struct mfs_row_ranges bad;
	int rc;
	struct mfs_error err;
};

/* What was known before: bad rows, and where their tokens lie. */
static int take_known(struct scan *s, struct mfs_error *err)
{
	const struct mfs_rows *of = s->v->of;

	s->skip = calloc(of->bad_count + 1, sizeof(*s->skip));
	if (!s->skip)
		return mfs_fail_nomem(err);
	for (; s->skip_count < of->bad_count; s->skip_count++) {
		const struct mfs_row_range *r = &of->bad[s->skip_count];
		struct token_range *t = &s->skip[s->skip_count];
		int rc = mfs_rows_start(of, r->first, &t->first, err);

		if (!rc)
			rc = mfs_rows_start(of, r->end, &t->end, err);
		if (!rc && mfs_row_ranges_add(&s->bad, r->first, r->end))
			rc = mfs_fail_nomem(err);
		if (rc)
			return rc;
	}
	return 0;
}

static int add_row(struct scan *s, uint64_t row, struct mfs_error *err)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = mfs_row_ranges_add(&s->bad, row, row + 1);
	pthread_mutex_unlock(&s->lock);
	if (rc == -ENOMEM)
		return mfs_fail_nomem(err);
	return rc ? mfs_fail(err, -ENOTSUP,
			     "%s: more than %d runs of rows hold tokens outside of a vocabulary of "
			     "%llu: is that its size?",
			     s->v->rows.name, MFS_ROW_RANGES_MAX, (unsigned long long)s->v->size)
		  : 0;
}

/* Tokens [first, end), as they were read. The rest of a row that is bad is not looked at. */
static int look_at_tokens(struct scan *s, uint64_t first, uint64_t end, const uint8_t *tokens,
			  struct mfs_error *err)
{
	const struct mfs_vocab_rows *v = s->v;
	uint64_t row, at = first;
	int rc = 0;

	while (!rc) {
		at += mfs_vocab_rows_outside(v, tokens + (at - first) * v->rows.token_size,
					     end - at);
		if (at == end)
			break;
		rc = mfs_rows_find(v->of, at, &row, err);
		if (!rc)
			rc = add_row(s, row, err);
		if (!rc)
			rc = mfs_rows_start(v->of, row + 1, &at, err);
		at = mfs_min_u64(at, end);
	}
	return rc;
}

/* Where many rows at once could not be read: those that cannot by themselves are bad, too. Such a token is one that
 * does not even fit the type that is shown. */
static int look_at_rows(struct scan *s, uint64_t first, uint64_t end, uint8_t *buf,
			struct mfs_error *err)
{
	const struct mfs_rows *of = s->v->of;
	uint64_t row, next;
	int rc = 0;

	for (uint64_t at = first; at < end && !rc; at = next) {
		rc = mfs_rows_find(of, at, &row, err);
		if (!rc)
			rc = mfs_rows_start(of, row + 1, &next, err);
		if (rc)
			return rc;
		next = mfs_min_u64(next, end);
		rc = mfs_rows_read(of, at, next - at, buf, err);
		if (!rc)
			rc = look_at_tokens(s, at, next, buf, err);
		else if (rc == -EIO)
			rc = add_row(s, row, err);
	}
	return rc;
}

/* At most CHUNK tokens, of rows that are not known to be bad. */
static int look_at_run(struct scan *s, uint64_t first, uint64_t end, uint8_t *buf,
		       struct mfs_error *err)
{
	int rc = mfs_rows_read(s->v->of, first, end - first, buf, err);

	if (rc == -EIO)
		return look_at_rows(s, first, end, buf, err);
	return rc ? rc : look_at_tokens(s, first, end, buf, err);
}

/* The same of tokens that may be among those of bad rows. */
static int look_at(struct scan *s, uint64_t first, uint64_t end, uint8_t *buf,
		   struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < s->skip_count && first < end && !rc; i++) {
		const uint64_t until = mfs_min_u64(s->skip[i].first, end);

		if (s->skip[i].end <= first)
			continue;
		if (first < until)
			rc = look_at_run(s, first, until, buf, err);
		first = s->skip[i].end;
	}
	return rc || first >= end ? rc : look_at_run(s, first, end, buf, err);
}

static void fail(struct scan *s, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&s->lock);
	if (!s->rc) {
		s->rc = rc;
		s->err = *err;
	}
	pthread_mutex_unlock(&s->lock);
	atomic_store(&s->next, s->v->rows.tokens);
}

static void *work(void *arg)
{
	struct scan *s = arg;
	const uint64_t tokens = s->v->rows.tokens;
	uint8_t *buf = malloc((size_t)CHUNK * s->v->rows.token_size);
	struct mfs_error err;
	int rc = buf ? 0 : mfs_fail_nomem(&err);

	while (!rc) {
		const uint64_t at = atomic_fetch_add(&s->next, CHUNK);

		if (at >= tokens)
			break;
		rc = look_at(s, at, mfs_min_u64(at + CHUNK, tokens), buf, &err);
		mfs_rows_drop(s->v->of);
	}
	if (rc)
		fail(s, rc, &err);
	free(buf);
	return NULL;
}

static void run(struct scan *s, unsigned threads)
{
	const uint64_t chunks = s->v->rows.tokens / CHUNK + 1;
	const unsigned most = (unsigned)mfs_min_u64(MAX_THREADS, chunks);

	mfs_threads_run(mfs_threads_count(threads, most), work, s);
}

int mfs_rows_vocab_scan(struct mfs_rows *rows, unsigned threads, struct mfs_error *err)
{
	struct mfs_vocab_rows *v = (struct mfs_vocab_rows *)rows;
	struct scan s = {.v = v, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc = take_known(&s, err);

	if (!rc) {
		run(&s, threads);
		rc = s.rc;
		if (rc && err)
			*err = s.err;
	}
	free(s.skip);
	if (rc) {
		mfs_row_ranges_release(&s.bad);
		return rc;
	}
	mfs_row_ranges_release(&v->bad);
	v->bad = s.bad;
	v->rows.bad = v->bad.list;
	v->rows.bad_count = v->bad.count;
	return 0;
}
