#include "formats/dataset/text/row_text.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"

#define CHUNK 8192 /* tokens that are decoded at once */
#define IDLE  16   /* readers that are kept */

/* A decoder that stands somewhere in a row. Somebody who reads a long row on, piece after piece,
 * finds the one that he has left. */
struct reader {
	struct reader *next; /* of those that are idle */
	struct mfs_named_decoder *dec;
	enum mfs_text_form_kind form;
	uint64_t row, token, end; /* the next token, and the row's end; row NO_ROW: none */
	bool is_done;		  /* the row's text has ended */
	uint64_t before;	  /* bytes of it before those at hand */
	struct mfs_buf text;	  /* at hand, in the form */
	struct mfs_buf plain;
	int64_t tokens[CHUNK];
};

#define NO_ROW UINT64_MAX

struct mfs_row_text {
	const struct mfs_rows *rows;
	const struct mfs_named_tokens *names;
	const struct mfs_text_lengths *lengths;
	pthread_mutex_t lock; /* of the two below */
	struct reader *idle;
	unsigned idle_count;
};

int mfs_row_text_new(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
		     const struct mfs_text_lengths *lengths, struct mfs_row_text **ret,
		     struct mfs_error *err)
{
	struct mfs_row_text *t = calloc(1, sizeof(*t));

	if (!t)
		return mfs_fail_nomem(err);
	t->rows = rows;
	t->names = names;
	t->lengths = lengths;
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

static void free_reader(struct reader *r)
{
	if (!r)
		return;
	mfs_named_decoder_free(r->dec);
	mfs_buf_release(&r->text);
	mfs_buf_release(&r->plain);
	free(r);
}

void mfs_row_text_free(struct mfs_row_text *t)
{
	if (!t)
		return;
	for (struct reader *r = t->idle, *next; r; r = next) {
		next = r->next;
		free_reader(r);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

const struct mfs_text_lengths *mfs_row_text_lengths(const struct mfs_row_text *t)
{
	return t->lengths;
}

/* ---- readers ---- */

static int new_reader(const struct mfs_row_text *t, struct reader **ret, struct mfs_error *err)
{
	struct reader *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return mfs_fail_nomem(err);
	r->row = NO_ROW;
	rc = mfs_named_decoder_new(t->names, &r->dec, err);
	if (rc)
		free_reader(r);
	else
		*ret = r;
	return rc;
}

static bool is_at(const struct reader *r, enum mfs_text_form_kind form, uint64_t row, uint64_t off)
{
	return r->row == row && r->form == form && r->before <= off;
}

/* The reader that stands in the row before that byte, or any. */
static int take_reader(struct mfs_row_text *t, enum mfs_text_form_kind form, uint64_t row,
		       uint64_t off, struct reader **ret, struct mfs_error *err)
{
	struct reader **at, *r;

	pthread_mutex_lock(&t->lock);
	for (at = &t->idle; *at && !is_at(*at, form, row, off); at = &(*at)->next)
		;
	if (!*at)
		at = &t->idle;
	r = *at;
	if (r) {
		*at = r->next;
		t->idle_count--;
	}
	pthread_mutex_unlock(&t->lock);
	*ret = r;
	return r ? 0 : new_reader(t, ret, err);
}

static void give_reader(struct mfs_row_text *t, struct reader *r)
{
	pthread_mutex_lock(&t->lock);
	if (t->idle_count < IDLE) {
		r->next = t->idle;
		t->idle = r;
		t->idle_count++;
		r = NULL;
	}
	pthread_mutex_unlock(&t->lock);
	free_reader(r);
}

/* ---- one row ---- */

static int begin_row(const struct mfs_row_text *t, struct reader *r, enum mfs_text_form_kind form,
		     uint64_t row, struct mfs_error *err)
{
	uint64_t starts[2];
	int rc = mfs_named_decode_end(r->dec, &r->plain, err);

	if (!rc)
		rc = mfs_rows_starts(t->rows, row, 2, starts, err);
	r->row = rc ? NO_ROW : row;
	r->form = form;
	r->before = r->text.len = r->plain.len = 0;
	r->is_done = false;
	if (!rc) {
		r->token = starts[0];
		r->end = starts[1];
	}
	return rc;
}

/* Goes on to the text of the tokens after those at hand. */
static int next_text(const struct mfs_row_text *t, struct reader *r, struct mfs_error *err)
{
	const uint64_t n = mfs_min_u64(CHUNK, r->end - r->token);
	struct mfs_buf *text = r->form == MFS_TEXT_PLAIN ? &r->text : &r->plain;
	int rc = n ? mfs_rows_read_int64(t->rows, r->token, n, r->tokens, err) : 0;

	if (rc)
		return rc;
	r->before += r->text.len;
	r->text.len = r->plain.len = 0;
	rc = mfs_named_decode(r->dec, r->tokens, n, text, err);
	r->token += n;
	r->is_done = r->token == r->end;
	if (!rc && r->is_done)
		rc = mfs_named_decode_end(r->dec, text, err);
	if (!rc && r->form == MFS_TEXT_JSON)
		mfs_buf_add_json_part(&r->text, r->plain.data, r->plain.len);
	return !rc && r->text.failed ? mfs_fail_nomem(err) : rc;
}

/* Bytes [off, off+len) of the text of a row, which has them, if it is as it was. */
static int read_row(const struct mfs_row_text *t, struct reader *r, uint64_t off, char *buf,
		    uint64_t len, struct mfs_error *err)
{
	while (len) {
		const uint64_t end = r->before + r->text.len;
		int rc;

		if (off < end) {
			const uint64_t n = mfs_min_u64(len, end - off);

			memcpy(buf, r->text.data + (off - r->before), n);
			off += n;
			buf += n;
			len -= n;
			continue;
		}
		if (r->is_done)
			return mfs_fail(err, -EIO,
					"%s: the text of row %llu has %llu bytes, fewer than when "
					"it was measured",
					t->rows->name, (unsigned long long)r->row,
					(unsigned long long)end);
		rc = next_text(t, r, err);
		if (rc) {
			r->row = NO_ROW;
			return rc;
		}
	}
	return 0;
}

/* ---- rows in a file ---- */

#define LENGTH_SIZE 4

static uint64_t len_of(const char *text)
{
	return text ? strlen(text) : 0;
}

static uint64_t around(const struct mfs_text_layout *l)
{
	return (l->has_length ? LENGTH_SIZE : 0) + len_of(l->head) + len_of(l->tail);
}

int mfs_row_text_at(const struct mfs_row_text *t, const struct mfs_text_layout *l, uint64_t row,
		    uint64_t *ret, struct mfs_error *err)
{
	int rc = mfs_text_lengths_at(t->lengths, l->form, row, ret, err);

	*ret += row * around(l);
	return rc;
}

/* What is asked for, and the rows of a block that it shows. */
struct request {
	struct mfs_row_text *t;
	const struct mfs_text_layout *l;
	uint64_t off, end; /* in the file */
	char *buf;
	struct reader *reader; /* NULL: none was needed yet */
	struct mfs_text_length of[MFS_TEXT_BLOCK];
};

/* What of bytes that begin at `at` in the file is asked for. */
static void put(const struct request *q, uint64_t at, const void *bytes, uint64_t len)
{
	const uint64_t from = mfs_max_u64(at, q->off), to = mfs_min_u64(at + len, q->end);

	if (from < to)
		memcpy(q->buf + (from - q->off), (const char *)bytes + (from - at), to - from);
}

/* The text of a row, which begins at `at`. */
static int put_text(struct request *q, uint64_t row, uint64_t at, uint64_t len,
		    struct mfs_error *err)
{
	const uint64_t from = mfs_max_u64(at, q->off), to = mfs_min_u64(at + len, q->end);
	int rc = 0;

	if (from >= to)
		return 0;
	if (!q->reader)
		rc = take_reader(q->t, q->l->form, row, from - at, &q->reader, err);
	if (!rc && !is_at(q->reader, q->l->form, row, from - at))
		rc = begin_row(q->t, q->reader, q->l->form, row, err);
	return rc ? rc
		  : read_row(q->t, q->reader, from - at, q->buf + (from - q->off), to - from, err);
}

static int put_row(struct request *q, uint64_t row, uint64_t at, uint32_t len,
		   struct mfs_error *err)
{
	const uint8_t length[LENGTH_SIZE] = {(uint8_t)len, (uint8_t)(len >> 8),
					     (uint8_t)(len >> 16), (uint8_t)(len >> 24)};
	const struct mfs_row_ranges *bad = &q->t->rows->bad;
	int rc;

	if (bad->count && mfs_row_ranges_have(bad, row, row + 1))
		return mfs_fail(err, -EIO, "%s: row %llu cannot be read", q->t->rows->name,
				(unsigned long long)row);
	if (q->l->has_length) {
		put(q, at, length, LENGTH_SIZE);
		at += LENGTH_SIZE;
	}
	put(q, at, q->l->head, len_of(q->l->head));
	at += len_of(q->l->head);
	rc = put_text(q, row, at, len, err);
	put(q, at + len, q->l->tail, len_of(q->l->tail));
	return rc;
}

static uint64_t block_at(const struct request *q, uint64_t b)
{
	const uint64_t rows = mfs_min_u64(b * MFS_TEXT_BLOCK, q->t->rows->rows);

	return mfs_text_lengths_before(q->t->lengths, q->l->form, b) + rows * around(q->l);
}

/* The lengths of a block's rows. Those of a file that was damaged are not believed. */
static int get_block(struct request *q, uint64_t b, uint64_t n, struct mfs_error *err)
{
	uint64_t at = block_at(q, b) + n * around(q->l);
	int rc = mfs_text_lengths_get(q->t->lengths, b * MFS_TEXT_BLOCK, n, q->of, err);

	for (uint64_t i = 0; i < n && !rc; i++)
		at += q->of[i].of[q->l->form];
	if (!rc && at != block_at(q, b + 1))
		rc = mfs_fail(err, -EIO, "%s: lengths of texts are not those that were measured",
			      q->t->rows->name);
	return rc;
}

static int put_block(struct request *q, uint64_t b, struct mfs_error *err)
{
	const uint64_t row = b * MFS_TEXT_BLOCK;
	const uint64_t n = mfs_min_u64(MFS_TEXT_BLOCK, q->t->rows->rows - row);
	uint64_t at = block_at(q, b);
	int rc = get_block(q, b, n, err);

	for (uint64_t i = 0; i < n && at < q->end && !rc; i++) {
		const uint32_t len = q->of[i].of[q->l->form];
		const uint64_t next = at + around(q->l) + len;

		if (next > q->off)
			rc = put_row(q, row + i, at, len, err);
		at = next;
	}
	return rc;
}

int mfs_row_text_read(struct mfs_row_text *t, const struct mfs_text_layout *l, uint64_t off,
		      void *buf, size_t len, struct mfs_error *err)
{
	const uint64_t blocks = mfs_text_lengths_blocks(t->lengths);
	struct request q = {.t = t, .l = l, .off = off, .end = off + len, .buf = buf};
	uint64_t b = mfs_last_while(i, blocks + 1, block_at(&q, i) <= off);
	int rc = mfs_rows_check(t->rows, err);

	for (; b < blocks && block_at(&q, b) < q.end && !rc; b++)
		rc = put_block(&q, b, err);
	/* A decoder or a buffer that has failed once fails for good. */
	if (rc)
		free_reader(q.reader);
	else if (q.reader)
		give_reader(t, q.reader);
	return rc;
}
