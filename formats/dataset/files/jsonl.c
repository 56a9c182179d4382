#include "formats/dataset/files/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"

#define CHUNK	  1024 /* rows, tokens at once */
#define HEAD	  "{\"input_ids\": ["
#define HEAD_LEN  (sizeof(HEAD) - 1)
#define MAX_WIDTH 20 /* of an int64 */

/* Where the value of a column stands after the tokens of a row. */
struct field {
	size_t at;
	unsigned width;
};

struct jsonl {
	const struct mfs_rows *rows;
	unsigned width;		     /* of a token's number */
	uint64_t per_row, per_token; /* bytes */
	struct mfs_buf tail;	     /* what follows the tokens, without the columns' values */
	struct field *fields;
};

/* ---- numbers ---- */

/* Right-justified in width characters; false if they are too few. */
static bool put_number(char *to, unsigned width, int64_t value)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	unsigned at = width;

	do {
		if (!at)
			return false;
		to[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (value < 0) {
		if (!at)
			return false;
		to[--at] = '-';
	}
	memset(to, ' ', at);
	return true;
}

static unsigned digits(uint64_t value)
{
	unsigned n = 1;

	while (value /= 10)
		n++;
	return n;
}

/* The width of the widest value of a dtype; 0: it does not hold integers. */
static unsigned dtype_width(enum mfs_dtype dtype)
{
	int64_t least, most;

	if (!mfs_dtype_range(dtype, &least, &most))
		return 0;
	return least ? 1 + digits(-(uint64_t)least) : digits((uint64_t)most);
}

/* ---- one read ---- */

/* The bytes that are asked for, and the end of the tokens that they show. */
struct request {
	const struct jsonl *j;
	uint64_t off, end; /* in the file */
	char *buf;
	uint64_t end_token;
	uint64_t chunk_first, chunk_count; /* tokens at hand */
	int64_t chunk[CHUNK];
};

/* A row: where it begins in the file, and its tokens. */
struct line {
	uint64_t row, at, token, tokens;
};

/* What of text, which begins at `at` in the file, lies in the window. */
static void put(const struct request *w, uint64_t at, const char *text, uint64_t len)
{
	const uint64_t from = mfs_max_u64(at, w->off), to = mfs_min_u64(at + len, w->end);

	if (from < to)
		memcpy(w->buf + (from - w->off), text + (from - at), to - from);
}

static uint64_t line_at(const struct jsonl *j, uint64_t row, uint64_t start)
{
	return row * j->per_row + start * j->per_token;
}

static int moved(const struct jsonl *j, uint64_t row, struct mfs_error *err)
{
	return mfs_fail(err, -EIO, "%s: row %llu does not begin after the one before it",
			j->rows->name, (unsigned long long)row);
}

static int line_of(const struct jsonl *j, uint64_t row, struct line *ret, struct mfs_error *err)
{
	uint64_t starts[2];
	int rc = mfs_rows_starts(j->rows, row, 2, starts, err);

	if (rc)
		return rc;
	if (starts[1] < starts[0])
		return moved(j, row, err);
	*ret = (struct line){row, line_at(j, row, starts[0]), starts[0], starts[1] - starts[0]};
	return 0;
}

/* The row that holds byte off of the file. */
static int find_line(const struct jsonl *j, uint64_t off, struct line *ret, struct mfs_error *err)
{
	const struct mfs_rows_scale scale = {j->per_row, j->per_token};
	uint64_t row;
	int rc = mfs_rows_find_scaled(j->rows, &scale, off, &row, err);

	return rc ? rc : line_of(j, row, ret, err);
}

/* Tokens of a line that begin before byte `end` of the file. */
static uint64_t tokens_before(const struct jsonl *j, const struct line *l, uint64_t end)
{
	const uint64_t from = l->at + HEAD_LEN;

	if (end <= from)
		return 0;
	return mfs_min_u64(l->tokens, (end - from + j->per_token - 1) / j->per_token);
}

/* Token t, which the bytes asked for show. Tokens that follow are read with it, as far as they
 * are shown. */
static int get_token(struct request *w, uint64_t t, int64_t *ret, struct mfs_error *err)
{
	if (t - w->chunk_first >= w->chunk_count) {
		const uint64_t n = t < w->end_token ? mfs_min_u64(CHUNK, w->end_token - t) : 1;
		int rc = mfs_rows_read_int64(w->j->rows, t, n, w->chunk, err);

		if (rc)
			return rc;
		w->chunk_first = t;
		w->chunk_count = n;
	}
	*ret = w->chunk[t - w->chunk_first];
	return 0;
}

static int put_tokens(struct request *w, const struct line *l, struct mfs_error *err)
{
	const struct jsonl *j = w->j;
	const uint64_t before = l->at + HEAD_LEN;
	uint64_t k = w->off > before ? mfs_min_u64(l->tokens, (w->off - before) / j->per_token) : 0;
	const uint64_t end = tokens_before(j, l, w->end);
	char text[1 + MAX_WIDTH];
	int64_t value;

	for (; k < end; k++) {
		int rc = get_token(w, l->token + k, &value, err);

		if (rc)
			return rc;
		text[0] = k ? ',' : ' ';
		if (!put_number(text + 1, j->width, value))
			return mfs_fail(err, -EIO,
					"%s: row %llu: token %lld has more than %u digits",
					j->rows->name, (unsigned long long)l->row, (long long)value,
					j->width);
		put(w, l->at + HEAD_LEN + k * j->per_token, text, j->per_token);
	}
	return 0;
}

static int put_tail(const struct request *w, const struct line *l, struct mfs_error *err)
{
	const struct jsonl *j = w->j;
	const uint64_t at = l->at + HEAD_LEN + l->tokens * j->per_token;
	char text[MAX_WIDTH];
	int64_t raw, value;

	put(w, at, j->tail.data, j->tail.len);
	for (size_t c = 0; c < j->rows->column_count && at < w->end; c++) {
		int rc = mfs_rows_column(j->rows, c, l->row, 1, &raw, err);

		if (rc)
			return rc;
		mfs_dtype_widen(j->rows->columns[c].dtype, &raw, 1, &value);
		put_number(text, j->fields[c].width, value);
		put(w, at + j->fields[c].at, text, j->fields[c].width);
	}
	return 0;
}

static int put_line(struct request *w, const struct line *l, struct mfs_error *err)
{
	const struct jsonl *j = w->j;
	int rc;

	put(w, l->at, HEAD, HEAD_LEN);
	rc = put_tokens(w, l, err);
	if (!rc && l->at + l->tokens * j->per_token + j->per_row > w->off)
		rc = put_tail(w, l, err);
	return rc;
}

/* Lines from row `first` on, until the window is full. */
static int put_lines(struct request *w, uint64_t first, struct mfs_error *err)
{
	const struct jsonl *j = w->j;
	uint64_t starts[CHUNK + 1];
	int rc = 0;

	for (uint64_t n; first < j->rows->rows; first += n) {
		n = mfs_min_u64(CHUNK, j->rows->rows - first);
		rc = mfs_rows_starts(j->rows, first, n + 1, starts, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			const struct line l = {first + i, line_at(j, first + i, starts[i]),
					       starts[i], starts[i + 1] - starts[i]};

			if (l.at >= w->end)
				return 0;
			rc = starts[i + 1] < starts[i] ? moved(j, l.row, err)
						       : put_line(w, &l, err);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int read_jsonl(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	struct request w = {.j = object, .off = off, .end = off + len, .buf = buf};
	struct line first, last;
	int rc = find_line(w.j, off, &first, err);

	if (!rc)
		rc = find_line(w.j, off + len - 1, &last, err);
	if (rc)
		return rc;
	if (first.at > off)
		return moved(w.j, first.row, err);
	w.end_token = last.token + tokens_before(w.j, &last, w.end);
	return put_lines(&w, first.row, err);
}

static const struct mfs_computed_ops computed = {.read = read_jsonl};

/* ---- building ---- */

static int add_fields(struct jsonl *j, struct mfs_error *err)
{
	const struct mfs_rows *rows = j->rows;

	j->fields = calloc(rows->column_count + 1, sizeof(*j->fields));
	if (!j->fields)
		return mfs_fail_nomem(err);
	mfs_buf_adds(&j->tail, "]");
	for (size_t c = 0; c < rows->column_count; c++) {
		const unsigned width = dtype_width(rows->columns[c].dtype);

		if (!width)
			return mfs_fail(err, -ENOTSUP, "%s: values of \"%s\" are not integers",
					rows->name, rows->columns[c].name);
		mfs_buf_adds(&j->tail, ", ");
		mfs_buf_add_json(&j->tail, rows->columns[c].name);
		mfs_buf_adds(&j->tail, ": ");
		j->fields[c] = (struct field){j->tail.len, width};
		mfs_buf_printf(&j->tail, "%*s", (int)width, "");
	}
	mfs_buf_adds(&j->tail, "}\n");
	return j->tail.failed ? mfs_fail_nomem(err) : 0;
}

static int measure(struct jsonl *j, uint64_t vocab_size, uint64_t *ret_size, struct mfs_error *err)
{
	const struct mfs_rows *rows = j->rows;
	uint64_t lines, tokens;

	j->width = dtype_width(rows->dtype);
	if (!j->width)
		return mfs_fail(err, -ENOTSUP, "%s: tokens of type %s are not integers", rows->name,
				mfs_dtype_torch(rows->dtype));
	if (vocab_size)
		j->width = (unsigned)mfs_min_u64(j->width, digits(vocab_size - 1));
	j->per_row = HEAD_LEN + j->tail.len;
	j->per_token = 1 + j->width;
	if (mfs_mul_overflows(rows->rows, j->per_row, &lines) ||
	    mfs_mul_overflows(rows->tokens, j->per_token, &tokens) ||
	    mfs_add_overflows(lines, tokens, ret_size) || *ret_size > INT64_MAX)
		return mfs_fail(err, -EINVAL, "%s: as text it would be larger than 2^63 bytes",
				rows->name);
	return 0;
}

static void free_jsonl(void *jsonl)
{
	struct jsonl *j = jsonl;

	mfs_buf_release(&j->tail);
	free(j->fields);
	free(j);
}

int mfs_rows_jsonl(const struct mfs_rows *rows, uint64_t vocab_size, struct mfs_vfile **ret,
		   struct mfs_error *err)
{
	struct jsonl *j;
	struct mfs_vfile *f;
	uint64_t size;
	int rc = mfs_vfile_new(&f, err);

	if (rc)
		return rc;
	j = calloc(1, sizeof(*j));
	if (j) {
		j->rows = rows;
		mfs_vfile_keep(f, j, free_jsonl);
	}
	rc = j ? add_fields(j, err) : mfs_fail_nomem(err);
	if (!rc)
		rc = measure(j, vocab_size, &size, err);
	if (!rc)
		rc = mfs_vfile_add_computed(f, &computed, j, 0, size, err);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}
