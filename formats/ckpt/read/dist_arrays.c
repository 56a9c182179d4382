/*
 * zarr, a backend of Megatron's distributed checkpoints until core 0.15: each global tensor is a
 * directory KEY with a zarr array in it, and each pickled object a file KEY/shard_OFFSETS_SHAPE.pt.
 * There is no index, so one is made of what the directories hold, and the rest is as in torch_dist.
 *
 * Source: megatron/core/dist_checkpointing/strategies (zarr.py, common.py).
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/zarray.h"
#include "formats/io/directory.h"

#define MAX_ZARRAY (1u << 20)

struct names {
	char **list; /* sorted */
	uint32_t count;
};

static void free_names(struct names *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
}

static int grow_names(struct names *n, const char *name)
{
	char *copy = mfs_grow(&n->list, n->count) ? NULL : strdup(name);

	if (!copy)
		return -ENOMEM;
	n->list[n->count++] = copy;
	return 0;
}

/* Lists what lies in a folder of the checkpoint's, but for hidden names. -ENOTDIR: it is a file. */
static int list_folder(struct mfs_dist_reader *r, const char *folder, struct names *ret)
{
	char path[PATH_MAX];
	struct dirent *e;
	int rc = 0;
	DIR *dir;

	*ret = (struct names){0};
	if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", r->ckpt->dir, r->folder, folder) >=
	    sizeof(path))
		return mfs_fail(r->err, -ENAMETOOLONG, "%s: the name '%.40s...' is too long",
				r->ckpt->dir, folder);
	dir = mfs_opendir(path);
	if (!dir)
		return errno == ENOTDIR ? -ENOTDIR : mfs_fail_errno(r->err, "%s", path);
	while (!rc && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			rc = grow_names(ret, e->d_name);
	closedir(dir);
	if (rc) {
		free_names(ret);
		return mfs_fail_nomem(r->err);
	}
	if (ret->count)
		qsort(ret->list, ret->count, sizeof(*ret->list), mfs_str_order);
	return 0;
}

static int add_file_of(struct mfs_dist_reader *r, const char *key, const char *name, uint32_t *ret,
		       struct mfs_error *err)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", key, name) >= sizeof(path))
		return mfs_fail(err, -ENAMETOOLONG, "%s: the name '%.40s...' is too long",
				r->ckpt->dir, key);
	return mfs_dist_add_file(r, path, ret, err);
}

/* ---- arrays ---- */

static int read_zarray(struct mfs_dist_reader *r, uint32_t file, struct mfs_zarray *ret)
{
	const struct mfs_source src = mfs_source_file(r->ckpt->files, file);
	const char *name = mfs_fileset_name(r->ckpt->files, file);
	void *text;
	int rc;

	if (src.size > MAX_ZARRAY)
		return mfs_fail(r->err, -EINVAL, "%s/%s: larger than 1 MiB", r->ckpt->dir, name);
	rc = mfs_source_slurp(&src, 0, src.size, &text, r->err);
	if (rc)
		return rc;
	rc = mfs_zarray_parse(text, src.size, name, ret, r->err);
	free(text);
	return rc ? (mfs_fail_in(r->err, "%s", r->ckpt->dir), rc) : 0;
}

static const uint64_t *keep(struct mfs_dist_reader *r, const uint64_t *dims, unsigned ndim)
{
	uint64_t *copy = mfs_arena_array(&r->dcp.arena, ndim, sizeof(*copy));

	if (copy)
		memcpy(copy, dims, ndim * sizeof(*copy));
	return copy;
}

static int add_chunk(struct mfs_dist_reader *r, struct mfs_dcp_tensor *t, const uint64_t *stored,
		     const char *name, const uint64_t *lo, const uint64_t *size, uint64_t bytes)
{
	struct mfs_dcp_chunk *c = &t->chunks[t->chunk_count];
	uint64_t found;
	int rc;

	*c = (struct mfs_dcp_chunk){
		.lo = keep(r, lo, t->ndim), .size = keep(r, size, t->ndim), .stored = stored};
	if (!c->lo || !c->size)
		return mfs_fail_nomem(r->err);
	rc = add_file_of(r, t->key, name, &c->item.file, r->err);
	if (rc)
		return rc;
	found = mfs_fileset_size(r->ckpt->files, c->item.file);
	if (found != bytes)
		return mfs_fail(r->err, -ENODATA,
				"%s/%s%s/%s: expected %llu bytes, found %llu: the save is "
				"incomplete",
				r->ckpt->dir, r->folder, t->key, name, (unsigned long long)bytes,
				(unsigned long long)found);
	c->item.length = bytes;
	t->chunk_count++;
	return 0;
}

static int add_chunks(struct mfs_dist_reader *r, const struct mfs_zarray *a,
		      const struct names *names, struct mfs_dcp_tensor *t)
{
	const uint64_t *stored = keep(r, a->chunk, a->ndim);
	uint64_t lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS];
	int rc = stored ? 0 : mfs_fail_nomem(r->err);

	t->chunks = mfs_arena_array(&r->dcp.arena, names->count, sizeof(*t->chunks));
	if (!t->chunks)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < names->count && !rc; i++)
		if (mfs_zarray_chunk(a, names->list[i], lo, size))
			rc = add_chunk(r, t, stored, names->list[i], lo, size, a->chunk_bytes);
	/* In zarr, chunks that are not there are the array's fill value. Megatron gives none, and
	 * has every chunk written. */
	if (!rc && t->chunk_count != a->chunks)
		rc = mfs_fail(r->err, -ENODATA,
			      "%s/%s%s: expected %llu chunks, found %u: the save is incomplete",
			      r->ckpt->dir, r->folder, t->key, (unsigned long long)a->chunks,
			      t->chunk_count);
	mfs_dcp_sort_chunks(t);
	return rc;
}

static int add_array(struct mfs_dist_reader *r, const char *key, const struct names *names,
		     uint32_t file)
{
	struct mfs_dcp_tensor *t = &r->dcp.tensors[r->dcp.tensor_count];
	struct mfs_zarray a;
	int rc = read_zarray(r, file, &a);

	if (rc)
		return rc;
	*t = (struct mfs_dcp_tensor){.key = mfs_arena_strndup(&r->dcp.arena, key, strlen(key)),
				     .dtype = a.dtype,
				     .ndim = a.ndim,
				     .shape = keep(r, a.shape, a.ndim)};
	if (!t->key || !t->shape)
		return mfs_fail_nomem(r->err);
	r->dcp.tensor_count++;
	return add_chunks(r, &a, names, t);
}

/* ---- objects ---- */

/* name is shard_OFFSETS_SHAPE.pt: the key is KEY/shard_OFFSETS_SHAPE, as of a byte item. */
static int add_object(struct mfs_dist_reader *r, const char *key, const char *name,
		      struct mfs_dcp_bytes *ret)
{
	char text[PATH_MAX];
	int rc;

	*ret = (struct mfs_dcp_bytes){0};
	rc = add_file_of(r, key, name, &ret->item.file, r->err);
	if (rc)
		return rc;
	ret->item.length = mfs_fileset_size(r->ckpt->files, ret->item.file);
	snprintf(text, sizeof(text), "%s/%.*s", key, (int)(strlen(name) - 3), name);
	ret->key = mfs_arena_strndup(&r->dcp.arena, text, strlen(text));
	return ret->key ? 0 : mfs_fail_nomem(r->err);
}

static int add_objects(struct mfs_dist_reader *r, const char *key, const struct names *names,
		       struct mfs_dcp_bytes **list)
{
	int rc = 0;

	if (mfs_str_ends(key, "._extra_state"))
		return 0; /* of no use to anybody here, and one for each layer and expert */
	for (uint32_t i = 0; i < names->count && !rc; i++) {
		if (strncmp(names->list[i], "shard_", 6) || !mfs_str_ends(names->list[i], ".pt"))
			continue;
		if (mfs_grow(list, r->dcp.bytes_count))
			return mfs_fail_nomem(r->err);
		rc = add_object(r, key, names->list[i], &(*list)[r->dcp.bytes_count]);
		r->dcp.bytes_count += !rc;
	}
	return rc;
}

/* ---- all ---- */

/* KEY.sync holds locks, which zarr names after the files of KEY: also an empty `.zarray`. */
static bool is_ignored(const char *key)
{
	return mfs_str_ends(key, ".sync");
}

static int add_folder(struct mfs_dist_reader *r, const char *key, struct mfs_dcp_bytes **objects)
{
	struct names names;
	uint32_t file;
	int rc;

	if (is_ignored(key))
		return 0;
	rc = list_folder(r, key, &names);
	if (rc)
		return rc == -ENOTDIR ? 0 : rc;
	rc = add_file_of(r, key, ".zarray", &file, r->err);
	if (!rc)
		rc = add_array(r, key, &names, file);
	else if (rc == -ENOENT)
		rc = add_objects(r, key, &names, objects);
	free_names(&names);
	return rc;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct mfs_dcp_bytes *)a)->key,
		      ((const struct mfs_dcp_bytes *)b)->key);
}

static int keep_objects(struct mfs_dist_reader *r, const struct mfs_dcp_bytes *objects)
{
	const uint32_t count = r->dcp.bytes_count;

	r->dcp.bytes = mfs_arena_array(&r->dcp.arena, count, sizeof(*objects));
	if (!r->dcp.bytes)
		return mfs_fail_nomem(r->err);
	if (!count)
		return 0;
	memcpy(r->dcp.bytes, objects, count * sizeof(*objects));
	qsort(r->dcp.bytes, count, sizeof(*objects), by_key);
	return 0;
}

/* The files of the index are those of the checkpoint. */
static int number_files(struct mfs_dist_reader *r)
{
	r->dcp.file_count = mfs_fileset_count(r->ckpt->files);
	r->files = mfs_arena_array(&r->ckpt->arena, r->dcp.file_count, sizeof(*r->files));
	if (!r->files)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < r->dcp.file_count; i++)
		r->files[i] = i;
	return 0;
}

int mfs_dist_index_arrays(struct mfs_dist_reader *r)
{
	struct mfs_dcp_bytes *objects = NULL;
	struct names keys;
	int rc = list_folder(r, "", &keys);

	if (rc)
		return rc;
	r->dcp.tensors = mfs_arena_array(&r->dcp.arena, keys.count, sizeof(*r->dcp.tensors));
	if (!r->dcp.tensors)
		rc = mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < keys.count && !rc; i++)
		rc = add_folder(r, keys.list[i], &objects);
	if (!rc)
		rc = keep_objects(r, objects);
	free(objects);
	free_names(&keys);
	return rc ? rc : number_files(r);
}

/* A file has the list itself, not a list around it. */
static mfs_value rng_list(const struct mfs_pickle *doc)
{
	return mfs_pickle_root(doc);
}

const struct mfs_ckpt_format mfs_dist_zarr = {
	.name = "zarr", .title = "zarr", .rng_list = rng_list};
