/* The pass over all tokens that finds how long the rows' texts are. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/text/text_lengths_i.h"

#define CHUNK	    8192 /* tokens that are decoded at once */
#define MAX_THREADS 64

struct measuring {
	const struct mfs_rows *rows;
	const struct mfs_named_tokens *names;
	struct mfs_text_lengths *lengths;
	_Atomic uint64_t next; /* block that nobody has taken; the end once something failed */
	pthread_mutex_t lock;  /* of all below */
	int rc;
	struct mfs_error err;
};

/* What one thread works with. */
struct worker {
	struct measuring *m;
	struct mfs_named_decoder *dec;
	struct mfs_buf text;
	uint64_t first, count; /* tokens at hand */
	int64_t tokens[CHUNK];
	uint64_t starts[MFS_TEXT_BLOCK + 1];
	struct mfs_text_length of[MFS_TEXT_BLOCK];
};

/* Bytes that a JSON string has more than the text in it: mfs_buf_add_json_part(). */
static uint64_t escapes_of(const struct mfs_buf *text)
{
	const unsigned char *p = (const unsigned char *)text->data;
	uint64_t more = 0;

	for (size_t i = 0; i < text->len; i++)
		more += p[i] < 0x20 ? 5 : p[i] == '"' || p[i] == '\\';
	return more;
}

/* Takes what was decoded into account. */
static void count(struct worker *w, uint64_t sums[MFS_TEXT_FORMS])
{
	sums[MFS_TEXT_PLAIN] += w->text.len;
	sums[MFS_TEXT_JSON] += w->text.len + escapes_of(&w->text);
	w->text.len = 0;
}

/* Tokens from t on, of which there are more up to `end`, which is the block's. */
static int tokens_at(struct worker *w, uint64_t t, uint64_t end, struct mfs_error *err)
{
	if (t - w->first < w->count)
		return 0;
	w->first = t;
	w->count = mfs_min_u64(CHUNK, end - t);
	return mfs_rows_read_int64(w->m->rows, t, w->count, w->tokens, err);
}

/* end: of the readable rows that follow. */
static int measure_row(struct worker *w, uint64_t i, uint64_t end, struct mfs_error *err)
{
	uint64_t sums[MFS_TEXT_FORMS] = {0}, n;
	int rc = 0;

	for (uint64_t t = w->starts[i]; t < w->starts[i + 1] && !rc; t += n) {
		rc = tokens_at(w, t, end, err);
		if (rc)
			return rc;
		n = mfs_min_u64(w->starts[i + 1], w->first + w->count) - t;
		rc = mfs_named_decode(w->dec, w->tokens + (t - w->first), n, &w->text, err);
		count(w, sums);
	}
	if (!rc)
		rc = mfs_named_decode_end(w->dec, &w->text, err);
	count(w, sums);
	for (int f = 0; f < MFS_TEXT_FORMS; f++)
		w->of[i].of[f] = (uint32_t)sums[f];
	if (!rc && sums[MFS_TEXT_JSON] > INT32_MAX)
		rc = mfs_fail(err, -ENOTSUP, "%s: a row's text has %llu bytes; 2^31 are too many",
			      w->m->rows->name, (unsigned long long)sums[MFS_TEXT_PLAIN]);
	return rc;
}

static bool is_bad(const struct mfs_rows *r, uint64_t row)
{
	return r->bad.count && mfs_row_ranges_have(&r->bad, row, row + 1);
}

static int measure_block(struct worker *w, uint64_t b, struct mfs_error *err)
{
	const struct mfs_rows *r = w->m->rows;
	const uint64_t row = b * MFS_TEXT_BLOCK, n = mfs_min_u64(MFS_TEXT_BLOCK, r->rows - row);
	struct text_sums *sums = &w->m->lengths->sums[b + 1];
	uint64_t end = 0;
	int rc = mfs_rows_starts(r, row, n + 1, w->starts, err);

	w->count = 0;
	for (uint64_t i = 0; i < n && !rc; i++) {
		w->of[i] = (struct mfs_text_length){0};
		if (is_bad(r, row + i))
			continue;
		for (; end <= i || (end < n && !is_bad(r, row + end)); end++)
			;
		rc = measure_row(w, i, w->starts[end], err);
		for (int f = 0; f < MFS_TEXT_FORMS; f++)
			sums->before[f] += w->of[i].of[f];
	}
	return rc ? rc : mfs_text_lengths_put(w->m->lengths, row, n, w->of, err);
}

static void fail(struct measuring *m, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&m->lock);
	if (!m->rc) {
		m->rc = rc;
		m->err = *err;
	}
	pthread_mutex_unlock(&m->lock);
	atomic_store(&m->next, m->lengths->blocks);
}

static int measure_blocks(struct worker *w, struct mfs_error *err)
{
	struct measuring *m = w->m;
	uint64_t b;
	int rc = mfs_named_decoder_new(m->names, &w->dec, err);

	while (!rc && (b = atomic_fetch_add(&m->next, 1)) < m->lengths->blocks) {
		rc = measure_block(w, b, err);
		mfs_rows_drop(m->rows);
	}
	return rc;
}

static void *work(void *arg)
{
	struct measuring *m = arg;
	struct worker *w = calloc(1, sizeof(*w));
	struct mfs_error err;
	int rc;

	if (w)
		w->m = m;
	rc = w ? measure_blocks(w, &err) : mfs_fail_nomem(&err);
	if (rc)
		fail(m, rc, &err);
	if (w) {
		mfs_named_decoder_free(w->dec);
		mfs_buf_release(&w->text);
	}
	free(w);
	return NULL;
}

int mfs_text_measure(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
		     unsigned threads, struct mfs_text_lengths *l, struct mfs_error *err)
{
	struct measuring m = {
		.rows = rows, .names = names, .lengths = l, .lock = PTHREAD_MUTEX_INITIALIZER};
	const unsigned most = (unsigned)mfs_min_u64(MAX_THREADS, l->blocks + 1);

	mfs_threads_run(mfs_threads_count(threads, most), work, &m);
	if (m.rc) {
		if (err)
			*err = m.err;
		return m.rc;
	}
	for (uint64_t b = 0; b < l->blocks; b++)
		for (int f = 0; f < MFS_TEXT_FORMS; f++)
			l->sums[b + 1].before[f] += l->sums[b].before[f];
	return 0;
}
