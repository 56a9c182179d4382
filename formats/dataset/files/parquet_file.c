/* A Parquet file of rows: which bytes are the magic's, a row group's, the footer's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/files/parquet_image_i.h"
#include "formats/io/fileset.h"

/* ---- the footer ---- */

static int add_group_to(struct mfs_parquet_image *v, struct group *g,
			struct mfs_parquet_footer *footer, struct mfs_parquet_column_chunk *chunks,
			struct mfs_error *err)
{
	const struct group_index *index;
	int rc = mfs_parquet_index(v, g, &index, err);

	if (rc)
		return rc;
	for (size_t c = 0; c < v->column_count; c++)
		mfs_parquet_measure(v, g, index, c, &chunks[c]);
	mfs_parquet_footer_group(footer, chunks, g->end - g->first);
	return 0;
}

static int write_footer(const struct parquet_file *f, struct mfs_parquet_footer *footer,
			struct mfs_error *err)
{
	struct mfs_parquet_image *v = f->view;
	struct mfs_parquet_column_chunk *chunks = calloc(v->column_count, sizeof(*chunks));
	const uint64_t rows =
		f->first < f->end ? v->groups[f->end - 1].end - v->groups[f->first].first : 0;
	int rc = chunks ? 0 : mfs_fail_nomem(err);

	mfs_parquet_footer_begin(footer, v->schema, v->column_count, rows, f->end - f->first);
	for (size_t i = f->first; i < f->end && !rc; i++)
		rc = add_group_to(v, &v->groups[i], footer, chunks, err);
	mfs_parquet_footer_end(footer);
	free(chunks);
	return !rc && footer->b.failed ? mfs_fail_nomem(err) : rc;
}

void mfs_parquet_free_footer(struct mfs_buf *b)
{
	if (b)
		mfs_buf_release(b);
	free(b);
}

static int new_footer(const struct parquet_file *f, struct mfs_buf **ret, struct mfs_error *err)
{
	struct mfs_parquet_footer footer = {0};
	struct mfs_buf *b = malloc(sizeof(*b));
	int rc = b ? write_footer(f, &footer, err) : mfs_fail_nomem(err);

	if (rc) {
		mfs_buf_release(&footer.b);
		free(b);
		return rc;
	}
	*b = footer.b;
	*ret = b;
	return 0;
}

static int get_footer(struct parquet_file *f, const struct mfs_buf **ret, struct mfs_error *err)
{
	struct mfs_buf *b = atomic_load_explicit(&f->footer, memory_order_acquire), *first = NULL;
	int rc;

	if (!b) {
		rc = new_footer(f, &b, err);
		if (rc)
			return rc;
		if (!atomic_compare_exchange_strong(&f->footer, &first, b)) {
			mfs_parquet_free_footer(b);
			b = first;
		}
	}
	*ret = b;
	return 0;
}

/* ---- bytes ---- */

static int read_footer(struct parquet_file *f, uint64_t off, uint8_t *buf, size_t len,
		       struct mfs_error *err)
{
	const struct mfs_buf *b;
	uint64_t before;
	int rc = get_footer(f, &b, err);

	if (rc)
		return rc;
	before = f->size - b->len;
	if (off < before) {
		const size_t n = mfs_min_u64(len, before - off);

		memset(buf, 0, n);
		off += n;
		buf += n;
		len -= n;
	}
	memcpy(buf, b->data + (off - before), len);
	return 0;
}

static size_t read_magic(uint64_t off, uint8_t *buf, size_t len)
{
	const size_t magic = sizeof(MFS_PARQUET_MAGIC) - 1;
	const size_t n = mfs_min_u64(len, MFS_PARQUET_ALIGN - off);

	memset(buf, 0, n);
	if (off < magic)
		memcpy(buf, &MFS_PARQUET_MAGIC[off], mfs_min_u64(n, magic - off));
	return n;
}

/* The group of the file that has the byte. off is not before the first group. */
static struct group *group_at(const struct parquet_file *f, uint64_t off)
{
	struct group *groups = f->view->groups + f->first;

	return &groups[mfs_last_while(i, f->end - f->first, groups[i].offset <= off)];
}

static int read_group(const struct parquet_file *f, uint64_t off, uint8_t *buf, size_t len,
		      size_t *ret_len, struct mfs_error *err)
{
	const struct mfs_parquet_image *v = f->view;
	struct group *g = group_at(f, off);
	uint64_t at = off - g->offset, room;
	size_t c = 0;

	for (; at >= (room = mfs_parquet_room(v, g, c)); c++)
		at -= room;
	*ret_len = mfs_min_u64(len, room - at);
	return mfs_parquet_read_chunk(v, g, c, at, buf, *ret_len, err);
}

static int read_file(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	struct parquet_file *f = object;
	const uint64_t footer = f->size - f->footer_room;
	uint8_t *to = buf;
	int rc = 0;

	for (size_t n; len && !rc; off += n, to += n, len -= n) {
		if (off < MFS_PARQUET_ALIGN) {
			n = read_magic(off, to, len);
		} else if (off >= footer) {
			n = len;
			rc = read_footer(f, off, to, len, err);
		} else {
			rc = read_group(f, off, to, mfs_min_u64(len, footer - off), &n, err);
		}
	}
	return rc;
}

/* ---- read-ahead ---- */

/* Of so many extents at once: more of them are small. */
#define MAX_RUNS 64

static void willneed_tokens(const struct mfs_rows *rows, uint64_t first, uint64_t count)
{
	struct mfs_bin_extent extent;

	for (unsigned n = 0; count && n < MAX_RUNS; n++) {
		uint64_t tokens;

		if (mfs_rows_extent(rows, first, count, &extent, NULL))
			return;
		mfs_fileset_willneed(extent.set, extent.file, extent.offset, extent.len);
		tokens = extent.len / rows->token_size;
		first += tokens;
		count -= tokens;
	}
}

/* About how many tokens lie before a byte of a group's first column chunk: as if no row were
 * empty. */
static uint64_t tokens_before(const struct mfs_parquet_image *v, const struct group *g, uint64_t at)
{
	const struct column *c = v->columns;
	const uint64_t page = at / c->full, inside = at % c->full / c->width;

	return mfs_min_u64(g->tokens, page * v->config.page + mfs_min_u64(inside, v->config.page));
}

static void willneed_file(void *object, uint64_t off, uint64_t len)
{
	const struct parquet_file *f = object;
	const uint64_t end = mfs_min_u64(off + len, f->size - f->footer_room);

	off = mfs_max_u64(off, MFS_PARQUET_ALIGN);
	while (off < end) {
		const struct group *g = group_at(f, off);
		const uint64_t next = g->offset + mfs_parquet_group_size(f->view, g);
		const uint64_t first = tokens_before(f->view, g, off - g->offset);
		const uint64_t last = tokens_before(f->view, g, mfs_min_u64(end, next) - g->offset);

		willneed_tokens(f->view->rows, g->token + first, last - first);
		off = next;
	}
}

const struct mfs_computed_ops mfs_parquet_file_computed = {.read = read_file,
							   .willneed = willneed_file};
