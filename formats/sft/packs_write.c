#include "formats/sft/packs_write.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/arrow/parquet_write.h"
#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/grow.h"
#include "formats/io/whole.h"

#define GROUP_ROWS   500	 /* as in Bridge */
#define GROUP_VALUES (16u << 20) /* input_ids of a row group, unless one row has more */
#define ENOUGH	     (1u << 20)	 /* bytes that are written at once */

static const struct mfs_parquet_column columns[] = {
	{.name = "input_ids", .dtype = MFS_I32, .list = true},
	{.name = "loss_mask", .dtype = MFS_I8, .list = true},
	{.name = "seq_start_id", .dtype = MFS_I32, .list = true},
};

#define COLUMNS MFS_ARRAY_SIZE(columns)
enum { IDS, MASK, STARTS };

/* Lists of one column, one after the other. */
struct lists {
	struct mfs_buf values; /* int32_t */
	struct mfs_buf follow; /* a bit for each value: the one before it is of the same list */
	uint64_t count;
};

static int32_t value_at(const struct lists *l, uint64_t i)
{
	return ((const int32_t *)l->values.data)[i];
}

/* first: the value begins a list. */
static void add_value(struct lists *l, int32_t value, bool first)
{
	if (l->count % 8 == 0)
		mfs_buf_add(&l->follow, "", 1);
	if (!first && !l->follow.failed)
		l->follow.data[l->count / 8] |= (char)(1u << l->count % 8);
	mfs_buf_add(&l->values, &value, sizeof(value));
	l->count++;
}

static void clear(struct lists *l)
{
	for (size_t c = 0; c < COLUMNS; c++)
		l[c].values.len = l[c].follow.len = l[c].count = 0;
}

static bool release(struct lists *l)
{
	bool failed = false;

	for (size_t c = 0; c < COLUMNS; c++) {
		failed |= l[c].values.failed || l[c].follow.failed;
		mfs_buf_release(&l[c].values);
		mfs_buf_release(&l[c].follow);
	}
	return failed;
}

/* ---- samples ---- */

/* Tokens of a document, of which the last one is a label alone, with its padding. */
static uint64_t stored(const struct mfs_packs *p, const struct mfs_document *d)
{
	return p->multiple > 1 ? mfs_packed_places(d->count, p->multiple) + 1 : d->count;
}

/* Adds document d, which begins at place `at` of its sample, and returns where it ends. */
static uint64_t add_document(const struct mfs_packs *p, const struct mfs_document *d, uint64_t at,
			     struct lists *to)
{
	const int32_t *tokens = p->documents->tokens + d->first;
	const uint8_t *counts = p->documents->counts + d->first;
	const uint64_t n = stored(p, d);

	for (uint64_t i = 0; i < n; i++) {
		add_value(&to[IDS], i < d->count ? tokens[i] : p->pad, !at && !i);
		add_value(&to[MASK], i + 1 < d->count && counts[i + 1], !at && !i);
	}
	add_value(&to[STARTS], (int32_t)at, !at);
	return at + n;
}

/* Adds a sample, whose documents begin at *document; moves that to the next one's. */
static void add_sample(const struct mfs_packs *p, uint64_t sample, uint64_t *document,
		       struct lists *to)
{
	const struct mfs_documents *d = p->documents;
	uint64_t at = 0;

	for (; *document < d->count && d->at[*document].sample == sample; ++*document)
		at = add_document(p, &d->at[*document], at, to);
}

/* ---- what is written ---- */

/* Bytes on their way to a file. */
struct sink {
	int fd, rc;
	uint64_t size; /* so far */
	struct mfs_buf waiting;
};

static void flush(struct sink *s)
{
	if (!s->rc)
		s->rc = s->waiting.failed ? -ENOMEM
					  : mfs_write_whole(s->fd, s->waiting.data, s->waiting.len);
	s->waiting.len = 0;
}

static void put(struct sink *s, const void *bytes, size_t len)
{
	s->size += len;
	mfs_buf_add(&s->waiting, bytes, len);
	if (s->waiting.len >= ENOUGH)
		flush(s);
}

/* ---- JSON ---- */

static void print_sample(const struct lists *lists, struct mfs_buf *to)
{
	for (size_t c = 0; c < COLUMNS; c++) {
		mfs_buf_printf(to, "%s\"%s\": ", c ? ", " : "{", columns[c].name);
		for (uint64_t k = 0; k < lists[c].count && !lists[c].values.failed; k++)
			mfs_buf_printf(to, "%s%d", k ? ", " : "[", value_at(&lists[c], k));
		mfs_buf_adds(to, "]");
	}
	mfs_buf_adds(to, "}\n");
}

static void print_samples(const struct mfs_packs *p, struct lists *lists, struct sink *to)
{
	uint64_t document = 0;

	for (uint64_t i = 0; i < p->samples && !to->rc; i++) {
		clear(lists);
		add_sample(p, i, &document, lists);
		print_sample(lists, &to->waiting);
		if (to->waiting.len >= ENOUGH)
			flush(to);
	}
}

/* ---- Parquet ---- */

struct group {
	struct mfs_parquet_column_chunk chunks[COLUMNS];
	uint64_t rows;
};

struct table {
	struct sink *to;
	struct group *groups;
	uint64_t count;
};

static void add_length(struct mfs_buf *b, uint64_t len)
{
	const uint32_t le = htole32((uint32_t)len);

	mfs_buf_add(b, &le, sizeof(le));
}

/* A column of a group is one page. False: there is no memory. */
static bool put_column(struct table *t, const struct lists *l, struct mfs_parquet_column_chunk *ret)
{
	const uint64_t offset = t->to->size;
	uint8_t header[MFS_PARQUET_PAGE_HEADER];
	struct mfs_buf levels = {0};
	bool good;

	add_length(&levels, mfs_parquet_packed_size(l->count));
	mfs_parquet_packed(&levels, (const uint8_t *)l->follow.data, l->count);
	add_length(&levels, mfs_parquet_rle_size(l->count));
	mfs_parquet_rle(&levels, MFS_PARQUET_ELEMENT, l->count);
	good = !levels.failed && !l->values.failed && !l->follow.failed;
	if (good) {
		put(t->to, header,
		    mfs_parquet_page_header(levels.len + l->values.len, l->count, header));
		put(t->to, levels.data, levels.len);
		put(t->to, l->values.data, l->values.len);
	}
	mfs_buf_release(&levels);
	*ret = (struct mfs_parquet_column_chunk){offset, t->to->size - offset, l->count};
	return good;
}

static bool put_group(struct table *t, const struct lists *lists, uint64_t rows)
{
	struct group *g;

	if (mfs_grow(&t->groups, t->count))
		return false;
	g = &t->groups[t->count++];
	g->rows = rows;
	for (size_t c = 0; c < COLUMNS; c++)
		if (!put_column(t, &lists[c], &g->chunks[c]))
			return false;
	return true;
}

static bool put_groups(struct table *t, const struct mfs_packs *p, struct lists *lists)
{
	uint64_t document = 0, rows;

	for (uint64_t i = 0; i < p->samples && !t->to->rc; i += rows) {
		clear(lists);
		for (rows = 0;
		     i + rows < p->samples && rows < GROUP_ROWS && lists[IDS].count < GROUP_VALUES;
		     rows++)
			add_sample(p, i + rows, &document, lists);
		if (!put_group(t, lists, rows))
			return false;
	}
	return true;
}

static bool put_footer(struct table *t, uint64_t rows)
{
	struct mfs_parquet_footer f = {0};
	bool good;

	mfs_parquet_footer_begin(&f, columns, COLUMNS, rows, t->count);
	for (uint64_t i = 0; i < t->count; i++)
		mfs_parquet_footer_group(&f, t->groups[i].chunks, t->groups[i].rows);
	mfs_parquet_footer_end(&f);
	good = !f.b.failed;
	if (good)
		put(t->to, f.b.data, f.b.len);
	mfs_buf_release(&f.b);
	return good;
}

static void put_table(const struct mfs_packs *p, struct lists *lists, struct sink *to)
{
	struct table t = {.to = to};

	put(to, MFS_PARQUET_MAGIC, strlen(MFS_PARQUET_MAGIC));
	if (!put_groups(&t, p, lists) || !put_footer(&t, p->samples))
		to->rc = -ENOMEM;
	free(t.groups);
}

int mfs_packs_write(const struct mfs_packs *packs, bool parquet, int fd)
{
	struct lists lists[COLUMNS] = {0};
	struct sink to = {.fd = fd};

	(parquet ? put_table : print_samples)(packs, lists, &to);
	flush(&to);
	mfs_buf_release(&to.waiting);
	return release(lists) && !to.rc ? -ENOMEM : to.rc;
}
