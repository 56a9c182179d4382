#include "formats/dataset/files/arrow_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/search.h"
#include "formats/dataset/files/elements.h"
#include "formats/dataset/files/rows_files.h"
#include "formats/dataset/files/text_lines.h"

#define MAX_TOKENS INT32_MAX  /* of a batch: its offsets are int32 */
#define MAX_ROWS   (1u << 26) /* of a batch; more than that only empty rows can be */
#define CHUNK	   4096	      /* starts that are read at once */

/* A place between rows: what comes before it. */
struct boundary {
	uint64_t row, token, text; /* bytes of text */
};

struct file {
	const struct mfs_arrow_image *view;
	uint32_t first, end; /* batches */
	uint64_t size;	     /* bytes */
};

struct column {
	const struct mfs_arrow_image *view;
	size_t number;
	struct mfs_elements values;
};

struct mfs_arrow_image {
	const struct mfs_rows *rows;
	struct mfs_arrow_field *fields; /* the tokens, then the columns */
	size_t field_count;
	struct column *columns;
	struct mfs_elements offsets, text_offsets;
	struct mfs_row_text *text; /* NULL: there is no such column */
	struct mfs_buf schema;	   /* its message, padded */
	struct boundary *batches;  /* where they begin, and where the last one ends */
	uint32_t batch_count;
	struct file *files;
	uint32_t file_count;
	uint64_t batch_tokens, file_tokens; /* about so many */
};

/* ---- computed bytes ---- */

/*
 * The offsets of all batches are one array. Those of batch b, one more than it has rows, begin at
 * element batches[b].row + b. What is asked for at once lies in one batch, as each batch is a part
 * of its own.
 */
static uint32_t batch_of_offset(const struct mfs_arrow_image *v, uint64_t element)
{
	return (uint32_t)mfs_last_while(i, v->batch_count, v->batches[i].row + i <= element);
}

/* What was read when batches were cut must still agree with what is there: readers follow offsets
 * blindly. */
static int offset_of(const struct mfs_arrow_image *v, uint32_t b, uint64_t row, uint64_t start,
		     int32_t *ret, struct mfs_error *err)
{
	const uint64_t first = v->batches[b].token, end = v->batches[b + 1].token;

	if (start < first || start > end)
		return mfs_fail(err, -EIO,
				"%s: row %llu begins at token %llu, outside of [%llu, %llu]",
				v->rows->name, (unsigned long long)row, (unsigned long long)start,
				(unsigned long long)first, (unsigned long long)end);
	*ret = (int32_t)(start - first);
	return 0;
}

static int get_offsets(const void *object, uint64_t first, uint64_t count, void *ret,
		       struct mfs_error *err)
{
	const struct mfs_arrow_image *v = object;
	const uint32_t b = batch_of_offset(v, first);
	uint64_t row = first - b, starts[CHUNK], n;
	int32_t *offsets = ret;
	int rc = 0;

	for (; count && !rc; row += n, offsets += n, count -= n) {
		n = mfs_min_u64(count, CHUNK);
		rc = mfs_rows_starts(v->rows, row, n, starts, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			rc = offset_of(v, b, row + i, starts[i], &offsets[i], err);
	}
	return rc;
}

static int get_column(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct column *c = object;

	return mfs_rows_column(c->view->rows, c->number, first, count, ret, err);
}

static const struct mfs_text_layout layout = {.form = MFS_TEXT_PLAIN};

static int read_text(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	return mfs_row_text_read(object, &layout, off, buf, len, err);
}

static const struct mfs_computed_ops computed_text = {.read = read_text};

/* Where the texts of rows [row, row+count) of batch b begin in it. The rows of a batch are all bad,
 * or none is. */
static int add_text_offsets(const struct mfs_arrow_image *v, uint32_t b, uint64_t row,
			    uint64_t count, int32_t *ret, struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	struct mfs_text_length of[CHUNK];
	uint64_t at;
	int rc = mfs_row_text_at(v->text, &layout, row, &at, err);

	if (!rc && mfs_row_ranges_have(&v->rows->bad, batch->row, batch->row + 1))
		rc = mfs_fail(err, -EIO, "%s: row %llu cannot be read", v->rows->name,
			      (unsigned long long)row);
	if (!rc && count > 1)
		rc = mfs_text_lengths_get(mfs_row_text_lengths(v->text), row, count - 1, of, err);
	for (uint64_t i = 0; i < count && !rc; i++) {
		if (at < batch->text || at > batch[1].text)
			return mfs_fail(err, -EIO, "%s: lengths of texts have changed",
					v->rows->name);
		ret[i] = (int32_t)(at - batch->text);
		at += i + 1 < count ? of[i].of[MFS_TEXT_PLAIN] : 0;
	}
	return rc;
}

static int get_text_offsets(const void *object, uint64_t first, uint64_t count, void *ret,
			    struct mfs_error *err)
{
	const struct mfs_arrow_image *v = object;
	const uint32_t b = batch_of_offset(v, first);
	uint64_t row = first - b, n;
	int32_t *offsets = ret;
	int rc = 0;

	for (; count && !rc; row += n, offsets += n, count -= n) {
		n = mfs_min_u64(count, CHUNK);
		rc = add_text_offsets(v, b, row, n, offsets, err);
	}
	return rc;
}

/* ---- where batches begin ---- */

static int place_of(const struct mfs_arrow_image *v, uint64_t row, struct boundary *ret,
		    struct mfs_error *err)
{
	int rc = mfs_rows_start(v->rows, row, &ret->token, err);

	ret->row = row;
	ret->text = 0;
	return !rc && v->text ? mfs_row_text_at(v->text, &layout, row, &ret->text, err) : rc;
}

/* Half as many tokens, or half as many again, will do, so that one look finds most ends. */
static bool is_good(const struct mfs_arrow_image *v, const struct boundary *from,
		    const struct boundary *to)
{
	const uint64_t tokens = to->token - from->token;

	return to->row - from->row <= MAX_ROWS && tokens >= v->batch_tokens / 2 &&
	       tokens <= v->batch_tokens / 2 * 3;
}

/* As far as rows of the average length would reach. */
static int guess_end(const struct mfs_arrow_image *v, const struct boundary *from,
		     const struct boundary *end, struct boundary *ret, struct mfs_error *err)
{
	const uint64_t rows = end->row - from->row, tokens = end->token - from->token;
	const uint64_t n = (uint64_t)((unsigned __int128)rows * v->batch_tokens / tokens);

	return place_of(v, from->row + mfs_min_u64(n, rows), ret, err);
}

/* The end of a batch with no more tokens than wanted, or of one row. */
static int search_end(const struct mfs_arrow_image *v, const struct boundary *from,
		      const struct boundary *end, struct boundary *ret, struct mfs_error *err)
{
	const uint64_t last = mfs_min_u64(end->row, from->row + MAX_ROWS);
	uint64_t row = last;
	int rc = 0;

	if (end->token - from->token > v->batch_tokens)
		rc = mfs_rows_lower_bound(v->rows, from->row, from->token + v->batch_tokens + 1,
					  &row, err);
	if (rc)
		return rc;
	/* This is the first row after the batch. The row before it may be too much already. */
	row = row > last ? last : row;
	rc = place_of(v, row, ret, err);
	if (!rc && ret->token - from->token > v->batch_tokens && row > from->row + 1)
		rc = place_of(v, row - 1, ret, err);
	return rc;
}

/* The texts of a batch have fewer than 2^31 bytes, whatever its tokens are. */
static int bound_text(const struct mfs_arrow_image *v, const struct boundary *from,
		      struct boundary *ret, struct mfs_error *err)
{
	int rc = 0;

	while (!rc && ret->text - from->text > INT32_MAX && ret->row - from->row > 1)
		rc = place_of(v, from->row + (ret->row - from->row) / 2, ret, err);
	return rc;
}

/* Where the batch that begins at from ends, at end or before it. */
static int find_end(const struct mfs_arrow_image *v, const struct boundary *from,
		    const struct boundary *end, struct boundary *ret, struct mfs_error *err)
{
	int rc = 0;

	*ret = *end;
	if (end->row - from->row <= MAX_ROWS && end->token - from->token <= v->batch_tokens / 2 * 3)
		return bound_text(v, from, ret, err);
	if (end->token > from->token)
		rc = guess_end(v, from, end, ret, err);
	if (!rc && !is_good(v, from, ret))
		rc = search_end(v, from, end, ret, err);
	if (!rc)
		rc = bound_text(v, from, ret, err);
	if (!rc && ret->token - from->token > MAX_TOKENS)
		rc = mfs_fail(err, -ENOTSUP,
			      "%s: row %llu has %llu tokens; Arrow's lists have fewer than 2^31",
			      v->rows->name, (unsigned long long)from->row,
			      (unsigned long long)(ret->token - from->token));
	return rc;
}

static int add_file(struct mfs_arrow_image *v, struct mfs_error *err)
{
	if (mfs_grow(&v->files, v->file_count))
		return mfs_fail_nomem(err);
	v->files[v->file_count++] = (struct file){
		.view = v, .first = v->batch_count, .end = v->batch_count, .size = v->schema.len};
	return 0;
}

/* Opens a batch, or at the end of all, what bounds the last one. */
static int add_batch(struct mfs_arrow_image *v, const struct boundary *from, struct mfs_error *err)
{
	if (mfs_grow(&v->batches, v->batch_count))
		return mfs_fail_nomem(err);
	v->batches[v->batch_count] = *from;
	return 0;
}

/* A batch of the rows between two places, in the file at hand. */
static int put_batch(struct mfs_arrow_image *v, const struct boundary *from,
		     const struct boundary *to, struct mfs_error *err)
{
	const uint64_t tokens = to->token - from->token;
	struct file *f = &v->files[v->file_count - 1];
	int rc = 0;

	if (f->end > f->first && to->token - v->batches[f->first].token > v->file_tokens)
		rc = add_file(v, err);
	if (!rc)
		rc = add_batch(v, from, err);
	if (rc)
		return rc;
	f = &v->files[v->file_count - 1];
	f->end = ++v->batch_count;
	f->size += MFS_ARROW_ALIGN +
		   mfs_arrow_body(v->fields, v->field_count,
				  &(struct mfs_arrow_counts){to->row - from->row, tokens,
							     to->text - from->text});
	return 0;
}

/* Cuts rows from *at to end_row, of which all are bad or none is. */
static int cut_run(struct mfs_arrow_image *v, struct boundary *at, uint64_t end_row,
		   struct mfs_error *err)
{
	struct boundary end, next;
	int rc = place_of(v, end_row, &end, err);

	while (!rc && at->row < end_row) {
		rc = find_end(v, at, &end, &next, err);
		if (!rc)
			rc = put_batch(v, at, &next, err);
		if (!rc)
			*at = next;
	}
	return rc;
}

static int cut(struct mfs_arrow_image *v, struct mfs_error *err)
{
	const struct mfs_rows *r = v->rows;
	struct boundary at = {0};
	int rc = add_file(v, err);

	for (size_t i = 0; i < r->bad.count && !rc; i++) {
		rc = cut_run(v, &at, r->bad.list[i].first, err);
		if (!rc)
			rc = cut_run(v, &at, r->bad.list[i].end, err);
	}
	if (!rc)
		rc = cut_run(v, &at, r->rows, err);
	if (!rc)
		rc = add_batch(v, &at, err);
	for (uint32_t i = 0; i < v->file_count && !rc; i++)
		v->files[i].size += MFS_ARROW_EOS;
	return rc;
}

/* ---- opening ---- */

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : mfs_min_u64(value, high);
}

/* Text counts like tokens, unless a person has chosen. */
static void choose_sizes(struct mfs_arrow_image *v, const struct mfs_arrow_config *c, uint64_t text)
{
	const uint64_t tokens = v->rows->tokens, own = tokens * v->rows->token_size;
	const uint64_t all = own + (c->batch ? 0 : text);
	const uint64_t size = tokens ? all / tokens : v->rows->token_size;
	uint64_t batch = c->batch, file = c->file;

	if (!batch)
		batch = clamp(all / MFS_ARROW_BATCHES, MFS_ARROW_BATCH, MFS_ARROW_BATCH_MAX);
	if (!file)
		file = clamp(all / MFS_ARROW_FILES, batch, MFS_ARROW_FILE_MAX);
	v->batch_tokens = clamp(batch / size, 2, MAX_TOKENS / 2);
	v->file_tokens = file / size;
}

static int make_fields(struct mfs_arrow_image *v, struct mfs_error *err)
{
	const struct mfs_rows *r = v->rows;

	v->field_count = 1 + r->column_count + !!v->text;
	v->fields = calloc(v->field_count, sizeof(*v->fields));
	v->columns = calloc(v->field_count, sizeof(*v->columns));
	if (!v->fields || !v->columns)
		return mfs_fail_nomem(err);
	v->fields[0] = (struct mfs_arrow_field){
		.name = MFS_ARROW_TOKENS,
		.kind = r->row_length ? MFS_ARROW_FIXED_LIST : MFS_ARROW_LIST,
		.dtype = r->dtype,
		.length = (int32_t)r->row_length,
	};
	for (size_t i = 0; i < r->column_count; i++) {
		v->fields[1 + i] = (struct mfs_arrow_field){.name = r->columns[i].name,
							    .dtype = r->columns[i].dtype};
		v->columns[i] = (struct column){
			.view = v,
			.number = i,
			.values = {mfs_dtype_size(r->columns[i].dtype), get_column, &v->columns[i]},
		};
	}
	if (v->text)
		v->fields[1 + r->column_count] = (struct mfs_arrow_field){
			.name = MFS_TEXT_COLUMN, .kind = MFS_ARROW_TEXT, .dtype = MFS_U8};
	for (size_t i = 0; i < v->field_count; i++)
		if (!mfs_arrow_can(v->fields[i].dtype))
			return mfs_fail(err, -ENOTSUP, "%s: Arrow has no type for '%s', %s",
					r->name, v->fields[i].name,
					mfs_dtype_torch(v->fields[i].dtype));
	if (r->row_length > INT32_MAX)
		return mfs_fail(err, -ENOTSUP,
				"%s: rows of %llu tokens; Arrow's lists have fewer "
				"than 2^31",
				r->name, (unsigned long long)r->row_length);
	return 0;
}

static int make_schema(struct mfs_arrow_image *v, struct mfs_error *err)
{
	static const uint8_t zeros[MFS_ARROW_ALIGN];

	mfs_arrow_add_schema(&v->schema, v->fields, v->field_count);
	mfs_buf_add(&v->schema, zeros, mfs_arrow_padded(v->schema.len) - v->schema.len);
	return v->schema.failed ? mfs_fail_nomem(err) : 0;
}

int mfs_arrow_image_new(const struct mfs_rows *rows, const struct mfs_arrow_config *config,
			struct mfs_arrow_image **ret, struct mfs_error *err)
{
	struct mfs_arrow_image *v = calloc(1, sizeof(*v));
	struct boundary end;
	int rc;

	if (!v)
		return mfs_fail_nomem(err);
	v->rows = rows;
	v->text = config->text;
	v->offsets = (struct mfs_elements){sizeof(int32_t), get_offsets, v};
	v->text_offsets = (struct mfs_elements){sizeof(int32_t), get_text_offsets, v};
	rc = place_of(v, rows->rows, &end, err);
	if (!rc) {
		choose_sizes(v, config, end.text);
		rc = make_fields(v, err);
	}
	if (!rc)
		rc = make_schema(v, err);
	if (!rc)
		rc = cut(v, err);
	mfs_rows_drop(rows);
	if (rc) {
		mfs_arrow_image_free(v);
		return rc;
	}
	*ret = v;
	return 0;
}

void mfs_arrow_image_free(struct mfs_arrow_image *v)
{
	if (!v)
		return;
	free(v->fields);
	free(v->columns);
	free(v->batches);
	free(v->files);
	mfs_buf_release(&v->schema);
	free(v);
}

uint32_t mfs_arrow_image_files(const struct mfs_arrow_image *v)
{
	return v->file_count;
}

uint32_t mfs_arrow_image_batches(const struct mfs_arrow_image *v)
{
	return v->batch_count;
}

/* ---- parts of a file ---- */

static int add_padding(struct mfs_vfile *f, uint64_t len, struct mfs_error *err)
{
	const uint64_t more = mfs_arrow_padded(len) - len;

	return more ? mfs_vfile_add_zeros(f, more, err) : 0;
}

static int add_header(const struct mfs_arrow_image *v, uint32_t b, struct mfs_vfile *f,
		      struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	const struct mfs_arrow_counts has = {batch[1].row - batch->row,
					     batch[1].token - batch->token,
					     batch[1].text - batch->text};
	struct mfs_buf header = {0};
	uint64_t len;
	int rc;

	mfs_arrow_add_batch(&header, v->fields, v->field_count, &has);
	len = header.len;
	rc = header.failed ? mfs_fail_nomem(err) : mfs_vfile_add_literal(f, header.data, len, err);
	if (rc) {
		mfs_buf_release(&header);
		return rc;
	}
	return add_padding(f, len, err);
}

static int add_offsets(const struct mfs_arrow_image *v, uint32_t b, const struct mfs_elements *e,
		       struct mfs_vfile *f, struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	const uint64_t offsets = sizeof(int32_t) * (batch[1].row - batch->row + 1);
	int rc = mfs_vfile_add_computed(f, &mfs_elements_computed, (void *)e,
					sizeof(int32_t) * (batch->row + b), offsets, err);

	return rc ? rc : add_padding(f, offsets, err);
}

static int add_text(const struct mfs_arrow_image *v, uint32_t b, struct mfs_vfile *f,
		    struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	const uint64_t bytes = batch[1].text - batch->text;
	int rc = add_offsets(v, b, &v->text_offsets, f, err);

	if (!rc && bytes)
		rc = mfs_vfile_add_computed(f, &computed_text, v->text, batch->text, bytes, err);
	return rc ? rc : add_padding(f, bytes, err);
}

static int add_tokens(const struct mfs_arrow_image *v, uint32_t b, struct mfs_vfile *f,
		      struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	const uint64_t tokens = batch[1].token - batch->token;
	int rc = 0;

	if (v->fields[0].kind == MFS_ARROW_LIST)
		rc = add_offsets(v, b, &v->offsets, f, err);
	if (!rc)
		rc = mfs_rows_add_tokens(v->rows, batch->token, tokens, f, err);
	return rc ? rc : add_padding(f, tokens * v->rows->token_size, err);
}

static int add_column(const struct mfs_arrow_image *v, uint32_t b, size_t column,
		      struct mfs_vfile *f, struct mfs_error *err)
{
	const struct boundary *batch = &v->batches[b];
	const uint64_t size = mfs_dtype_size(v->fields[1 + column].dtype);
	const uint64_t bytes = (batch[1].row - batch->row) * size;
	int rc = mfs_vfile_add_computed(f, &mfs_elements_computed, &v->columns[column].values,
					batch->row * size, bytes, err);

	return rc ? rc : add_padding(f, bytes, err);
}

static int build(void *arg, struct mfs_vfile *f, struct mfs_error *err)
{
	const struct file *file = arg;
	const struct mfs_arrow_image *v = file->view;
	int rc = mfs_vfile_add_shared(f, v->schema.data, v->schema.len, err);

	for (uint32_t b = file->first; b < file->end && !rc; b++) {
		rc = add_header(v, b, f, err);
		if (!rc)
			rc = add_tokens(v, b, f, err);
		for (size_t c = 0; c < v->rows->column_count && !rc; c++)
			rc = add_column(v, b, c, f, err);
		if (v->text && !rc)
			rc = add_text(v, b, f, err);
	}
	return rc ? rc : mfs_vfile_add_shared(f, mfs_arrow_eos, MFS_ARROW_EOS, err);
}

int mfs_arrow_image_file(struct mfs_arrow_image *v, uint32_t file, struct mfs_vfile **ret,
			 struct mfs_error *err)
{
	return mfs_vfile_new_lazy(v->files[file].size, build, &v->files[file], ret, err);
}
