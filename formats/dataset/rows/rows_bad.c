/* A pass over all tokens that finds the rows which cannot be read. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/rows/rows_i.h"

#define CHUNK	    (1u << 17) /* tokens that a thread takes at once: a megabyte at most */
#define NEIGHBOURS  64	       /* rows whose ends are asked for together */
#define MAX_THREADS 64

struct search {
	const struct mfs_rows *rows;
	_Atomic uint64_t next; /* token that nobody has taken; the end once something failed */
	pthread_mutex_t lock;  /* of all below */
	struct mfs_row_ranges bad;
	int rc;
	struct mfs_error err;
};

static bool is_known(struct search *s, uint64_t first, uint64_t end)
{
	bool known;

	pthread_mutex_lock(&s->lock);
	known = mfs_row_ranges_have(&s->bad, first, end);
	pthread_mutex_unlock(&s->lock);
	return known;
}

static int add(struct search *s, uint64_t first, uint64_t end, struct mfs_error *err)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = mfs_row_ranges_add(&s->bad, first, end);
	pthread_mutex_unlock(&s->lock);
	if (rc == -ENOMEM)
		return mfs_fail_nomem(err);
	return rc ? mfs_fail(err, -ENOTSUP,
			     "%s: more than %d ranges of rows cannot be read, or hold tokens "
			     "outside of a vocabulary of %llu: is that its size?",
			     s->rows->name, MFS_ROW_RANGES_MAX,
			     (unsigned long long)s->rows->vocab_size)
		  : 0;
}

/* ---- tokens that were read ---- */

struct tokens {
	uint64_t first, end;
	const uint8_t *bytes;
};

/* The first token outside of the vocabulary, of tokens [from, to); `to` if there is none. */
static uint64_t outside(const struct mfs_rows *r, const struct tokens *t, uint64_t from,
			uint64_t to)
{
	return from +
	       mfs_rows_first_outside(r, t->bytes + (from - t->first) * r->token_size, to - from);
}

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most)
{
	return mfs_min_u64(mfs_max_u64(v, least), most);
}

/* Token *at is outside. Adds its row and the rows after it that are bad as well, NEIGHBOURS at
 * most, since bad rows mostly stand together. *at becomes the first token that was not looked at,
 * and moves even if starts of a damaged file do not ascend. */
static int add_neighbours(struct search *s, const struct tokens *t, uint64_t *at,
			  struct mfs_error *err)
{
	const struct mfs_rows *r = s->rows;
	uint64_t ends[NEIGHBOURS], row, n, from = *at + 1, to, bad = 0;
	int rc = mfs_rows_find(r, *at, &row, err);

	if (rc)
		return rc;
	n = mfs_min_u64(NEIGHBOURS, r->rows - row);
	rc = mfs_rows_starts(r, row + 1, n, ends, err);
	if (rc)
		return rc;
	do {
		from = clamp(ends[bad++], from, t->end);
		to = bad < n ? clamp(ends[bad], from, t->end) : from;
		*at = outside(r, t, from, to);
	} while (*at < to);
	return add(s, row, row + bad, err);
}

static int look_at_tokens(struct search *s, const struct tokens *t, struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t at = t->first; !rc; rc = add_neighbours(s, t, &at, err)) {
		at = outside(s->rows, t, at, t->end);
		if (at == t->end)
			break;
	}
	return rc;
}

/* ---- tokens that are to be read ---- */

/* Tokens [first, end), CHUNK at most. If they cannot be read together, their halves are tried, down
 * to tokens of one row. */
static int look_at(struct search *s, uint64_t first, uint64_t end, void *buf, struct mfs_error *err)
{
	const struct mfs_rows *r = s->rows;
	const uint64_t half = first + (end - first) / 2;
	uint64_t row, last;
	int rc = r->ops->read(r, first, end - first, buf, err);

	if (!rc && r->vocab_size)
		return look_at_tokens(s, &(struct tokens){first, end, buf}, err);
	if (rc != -EIO)
		return rc;
	rc = mfs_rows_find(r, first, &row, err);
	if (!rc)
		rc = mfs_rows_find(r, end - 1, &last, err);
	if (rc || is_known(s, row, last + 1))
		return rc;
	if (row == last)
		return add(s, row, row + 1, err);
	rc = look_at(s, first, half, buf, err);
	return rc ? rc : look_at(s, half, end, buf, err);
}

static void fail(struct search *s, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&s->lock);
	if (!s->rc) {
		s->rc = rc;
		s->err = *err;
	}
	pthread_mutex_unlock(&s->lock);
	atomic_store(&s->next, s->rows->tokens);
}

static void *work(void *arg)
{
	struct search *s = arg;
	const uint64_t tokens = s->rows->tokens;
	void *buf = malloc((size_t)CHUNK * s->rows->token_size);
	struct mfs_error err;
	int rc = buf ? 0 : mfs_fail_nomem(&err);

	while (!rc) {
		const uint64_t at = atomic_fetch_add(&s->next, CHUNK);

		if (at >= tokens)
			break;
		rc = look_at(s, at, mfs_min_u64(at + CHUNK, tokens), buf, &err);
		mfs_rows_drop(s->rows);
	}
	if (rc)
		fail(s, rc, &err);
	free(buf);
	return NULL;
}

/* What was known before. */
static int take_known(struct search *s, struct mfs_error *err)
{
	const struct mfs_row_ranges *known = &s->rows->bad;

	for (size_t i = 0; i < known->count; i++)
		if (mfs_row_ranges_add(&s->bad, known->list[i].first, known->list[i].end))
			return mfs_fail_nomem(err);
	return 0;
}

int mfs_rows_find_bad(struct mfs_rows *r, unsigned threads, struct mfs_error *err)
{
	struct search s = {.rows = r, .lock = PTHREAD_MUTEX_INITIALIZER};
	const unsigned most = (unsigned)mfs_min_u64(MAX_THREADS, r->tokens / CHUNK + 1);
	int rc = take_known(&s, err);

	if (!rc) {
		mfs_threads_run(mfs_threads_count(threads, most), work, &s);
		rc = s.rc;
		if (rc && err)
			*err = s.err;
	}
	if (rc) {
		mfs_row_ranges_release(&s.bad);
		return rc;
	}
	mfs_row_ranges_release(&r->bad);
	r->bad = s.bad;
	return 0;
}
