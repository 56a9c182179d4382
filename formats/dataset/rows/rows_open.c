#include "formats/dataset/rows/rows_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/indexed/indexed_dataset.h"

struct mfs_rows_opened {
	char *path;
	struct mfs_indexed_dataset *indexed;
	struct mfs_rows *rows;
	struct mfs_rows_opened *next;
};

static void free_opened(struct mfs_rows_opened *o)
{
	mfs_rows_free(o->rows);
	mfs_indexed_dataset_free(o->indexed);
	free(o->path);
	free(o);
}

void mfs_rows_table_release(struct mfs_rows_table *t)
{
	while (t->opened) {
		struct mfs_rows_opened *o = t->opened;

		t->opened = o->next;
		free_opened(o);
	}
}

static bool is_prefix(const char *path)
{
	struct mfs_buf idx = {0};
	bool there;

	mfs_buf_printf(&idx, "%s.idx", path);
	there = !idx.failed && !access(idx.data, F_OK);
	mfs_buf_release(&idx);
	return there;
}

static int open_indexed(struct mfs_rows_opened *o, struct mfs_error *err)
{
	const char *prefix = o->path;
	int rc = mfs_indexed_dataset_open(&prefix, 1, &o->indexed, err);

	return rc ? rc : mfs_rows_indexed(o->indexed, &o->rows, err);
}

/* A directory of one split needs no name for it. */
static int open_hf(struct mfs_rows_opened *o, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	const char *const *splits;
	uint32_t count;
	int rc = mfs_hf_dataset_splits(o->path, &arena, &splits, &count, err);

	if (!rc)
		rc = mfs_hf_dataset_open(o->path, count == 1 ? splits[0] : NULL, NULL, &o->rows,
					 err);
	mfs_arena_release(&arena);
	return rc;
}

static int fill(struct mfs_rows_opened *o, uint64_t vocab_size, struct mfs_error *err)
{
	int rc = is_prefix(o->path) ? open_indexed(o, err) : open_hf(o, err);

	return rc || !vocab_size ? rc : mfs_rows_set_vocab(o->rows, vocab_size, err);
}

static int open_new(struct mfs_rows_table *t, const char *path, struct mfs_error *err)
{
	struct mfs_rows_opened *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return mfs_fail_nomem(err);
	o->path = strdup(path);
	rc = o->path ? fill(o, t->vocab_size, err) : mfs_fail_nomem(err);
	if (rc) {
		free_opened(o);
		return rc;
	}
	o->next = t->opened;
	t->opened = o;
	return 0;
}

int mfs_rows_open(struct mfs_rows_table *t, const char *path, const struct mfs_rows **ret,
		  struct mfs_error *err)
{
	const struct mfs_rows_opened *o = t->opened;
	int rc;

	while (o && strcmp(o->path, path))
		o = o->next;
	if (!o) {
		if (!is_prefix(path) && !mfs_hf_dataset_looks_like_one(path))
			return -ENOENT;
		rc = open_new(t, path, err);
		if (rc)
			return rc;
		o = t->opened;
	}
	*ret = o->rows;
	return 0;
}
