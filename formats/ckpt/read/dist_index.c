/* torch_dist: reads the index `.metadata`, adds the files that it names, and checks that every item
 * lies in one of them. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/dist_i.h"

#define MAX_METADATA (8ull << 30)
#define FREE_SLICES  (1u << 20) /* 61 layers x 384 experts with their optimizer: 190 000 */
#define SLICE_BYTES  512

static int check_item(struct mfs_dist_reader *r, const char *key, const struct mfs_dcp_item *item)
{
	uint64_t size;

	if (item->file == MFS_DCP_FILE_NONE)
		return 0; /* mfs_dcp_check() reports it if it matters */
	size = mfs_fileset_size(r->ckpt->files, r->files[item->file]);
	if (mfs_range_ok(item->offset, item->length, size))
		return 0;
	return mfs_fail(
		r->err, -ENODATA,
		"%s/%s: '%s' needs bytes up to %llu, the file has %llu: the save is incomplete",
		r->ckpt->dir, mfs_fileset_name(r->ckpt->files, r->files[item->file]), key,
		(unsigned long long)item->offset + item->length, (unsigned long long)size);
}

/* A save is complete if every item lies in its file, the optimizer's items too. */
static int check_items(struct mfs_dist_reader *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->dcp.bytes_count && !rc; i++)
		rc = check_item(r, r->dcp.bytes[i].key, &r->dcp.bytes[i].item);
	for (uint32_t i = 0; i < r->dcp.tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &r->dcp.tensors[i];

		for (uint32_t c = 0; c < t->chunk_count && !rc; c++)
			rc = check_item(r, t->key, &t->chunks[c].item);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct mfs_dcp_item *x = *(const struct mfs_dcp_item *const *)a;
	const struct mfs_dcp_item *y = *(const struct mfs_dcp_item *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static uint32_t list_items(const struct mfs_dist_reader *r, const struct mfs_dcp_item **items)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->dcp.bytes_count; i++)
		if (r->dcp.bytes[i].item.file != MFS_DCP_FILE_NONE)
			items[count++] = &r->dcp.bytes[i].item;
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		for (uint32_t c = 0; c < r->dcp.tensors[i].chunk_count; c++)
			if (r->dcp.tensors[i].chunks[c].item.file != MFS_DCP_FILE_NONE)
				items[count++] = &r->dcp.tensors[i].chunks[c].item;
	return count;
}

/* Items do not overlap. If two do, the index is damaged: files of tensor ranks have equal offsets,
 * so one wrong byte in a file's name would show another rank's weights. */
static int check_overlaps(struct mfs_dist_reader *r)
{
	const struct mfs_dcp_item **items;
	uint64_t most = r->dcp.bytes_count;
	uint32_t count;
	int rc = 0;

	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		most += r->dcp.tensors[i].chunk_count;
	items = calloc(most + 1, sizeof(*items));
	if (!items)
		return mfs_fail_nomem(r->err);
	count = list_items(r, items);
	qsort(items, count, sizeof(*items), by_place);
	for (uint32_t i = 1; i < count && !rc; i++)
		if (items[i]->file == items[i - 1]->file &&
		    items[i]->offset < items[i - 1]->offset + items[i - 1]->length)
			rc = mfs_fail(r->err, -EINVAL,
				      "%s/" METADATA ": two items share the bytes at %llu of %s",
				      r->ckpt->dir, (unsigned long long)items[i]->offset,
				      mfs_fileset_name(r->ckpt->files, r->files[items[i]->file]));
	free(items);
	return rc;
}

/* A stacked tensor becomes a tensor for each layer and expert, and each takes some 200 bytes of
 * memory. A sparse file can claim any number of these at no cost. So the number is limited: more
 * than any model has are allowed only for bytes that are really on the disk. */
static void allow_slices(struct mfs_dist_reader *r)
{
	r->slices = FREE_SLICES;
	for (uint32_t i = 0; i < r->dcp.file_count; i++)
		r->slices += mfs_fileset_disk(r->ckpt->files, r->files[i]) / SLICE_BYTES;
}

int mfs_dist_add_file(struct mfs_dist_reader *r, const char *name, uint32_t *ret,
		      struct mfs_error *err)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s%s", r->folder, name) >= sizeof(path))
		return mfs_fail(err, -ENAMETOOLONG, "%s: the name '%.40s...' is too long",
				r->ckpt->dir, name);
	return mfs_fileset_add(r->ckpt->files, path, ret, err);
}

static int add_files(struct mfs_dist_reader *r)
{
	const struct mfs_dcp *dcp = &r->dcp;
	int rc;

	r->files = mfs_arena_array(&r->ckpt->arena, dcp->file_count, sizeof(*r->files));
	if (!r->files)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < dcp->file_count; i++) {
		rc = mfs_dist_add_file(r, dcp->files[i], &r->files[i], r->err);
		if (rc == -ENOENT)
			return mfs_fail(r->err, -ENODATA,
					"%s/%s%s is missing: the save is incomplete", r->ckpt->dir,
					r->folder, dcp->files[i]);
		if (rc)
			return rc;
	}
	return 0;
}

static int read_index(struct mfs_dist_reader *r)
{
	char name[4096];
	struct mfs_source src;
	uint32_t file;
	void *bytes;
	int rc = mfs_dist_add_file(r, METADATA, &file, r->err);

	if (rc == -ENOENT)
		return mfs_fail(r->err, -ENODATA,
				"%s/%s" METADATA " is missing: the save is incomplete",
				r->ckpt->dir, r->folder);
	if (rc)
		return rc;
	src = mfs_source_file(r->ckpt->files, file);
	if (src.size > MAX_METADATA)
		return mfs_fail(r->err, -ENOTSUP, "%s/" METADATA ": larger than 8 GiB",
				r->ckpt->dir);
	rc = mfs_source_slurp(&src, 0, src.size, &bytes, r->err);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), "%s/%s" METADATA, r->ckpt->dir, r->folder);
	rc = mfs_dcp_parse(bytes, src.size, name, &r->dcp, r->err);
	free(bytes);
	return rc;
}

int mfs_dist_open_index(struct mfs_dist_reader *r)
{
	int rc = r->arrays ? mfs_dist_index_arrays(r) : read_index(r);

	if (!rc && !r->arrays)
		rc = add_files(r);
	if (rc)
		return rc;
	allow_slices(r);
	rc = check_items(r);
	return rc ? rc : check_overlaps(r);
}
