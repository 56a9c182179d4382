#define _GNU_SOURCE
#include "fs/source/weight_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/hf/safetensors.h"
#include "formats/io/directory.h"
#include "formats/io/fileset.h"
#include "formats/model/hf_ckpt.h"
#include "formats/plan/vfile.h"
#include "fs/source/root.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"

#define HF	    "hf"
#define SAFETENSORS ".safetensors"

/* ---- where the files are ---- */

static int add_file(struct mfs_weight_files *f, const char *name, struct mfs_vfile *data,
		    struct mfs_error *err)
{
	if (mfs_grow(&f->files, f->count))
		return mfs_fail_nomem(err);
	f->files[f->count++] =
		(struct mfs_weight_file){.name = mfs_arena_strndup(&f->arena, name, strlen(name)),
					 .data = data,
					 .has_weights = mfs_str_ends(name, SAFETENSORS)};
	return f->files[f->count - 1].name ? 0 : mfs_fail_nomem(err);
}

static int take_view(struct mfs_root *root, const char *name, struct mfs_weight_files *f,
		     struct mfs_error *err)
{
	struct mfs_place place;
	struct mfs_view *view;
	int rc = mfs_root_hold_view(root, name, &f->held, &view, &place, err);

	if (rc)
		return rc;
	if (!place.iteration)
		return mfs_fail(err, -ENODATA, "'%s' is no view of a model", name);
	f->iteration = place.iteration;
	f->view = mfs_arena_printf(&f->arena, "%s", place.view);
	f->stamp = view->identity;
	f->mtime_ns = view->mtime_ns;
	for (uint32_t i = 0; i < view->count && !rc; i++)
		rc = add_file(f, view->files[i].name, view->files[i].data, err);
	return rc || f->view ? rc : mfs_fail_nomem(err);
}

/* Files that a program loads: weights, and small ones. Those of other forms are not read. */
static int is_wanted(const struct dirent *e)
{
	const char *name = e->d_name;

	return *name != '.' && (mfs_str_ends(name, SAFETENSORS) || mfs_str_ends(name, ".json") ||
				mfs_str_ends(name, ".model") || mfs_str_ends(name, ".txt") ||
				mfs_str_ends(name, ".jinja") || mfs_str_ends(name, ".tiktoken"));
}

static int take_file(struct mfs_weight_files *f, const char *name, struct mfs_error *err)
{
	struct mfs_vfile *data;
	uint32_t file;
	int rc = mfs_fileset_add(f->own, name, &file, err);

	if (rc)
		return rc == -EINVAL ? 0 : rc; /* a directory of that name */
	rc = mfs_vfile_new(&data, err);
	if (rc)
		return rc;
	rc = mfs_vfile_add_file(data, f->own, file, 0, mfs_fileset_size(f->own, file), err);
	if (!rc)
		rc = add_file(f, name, data, err);
	if (rc)
		mfs_vfile_free(data);
	if (mfs_fileset_mtime(f->own, file) > f->mtime_ns)
		f->mtime_ns = mfs_fileset_mtime(f->own, file);
	return rc;
}

static int take_directory(struct mfs_iteration *it, struct mfs_weight_files *f,
			  struct mfs_error *err)
{
	const char *path = mfs_iteration_path(it);
	struct dirent **names;
	int n = mfs_scandir(path, &names, is_wanted, alphasort);
	int rc = n < 0 ? mfs_fail_errno(err, "'%s'", path) : mfs_fileset_new(path, &f->own, err);

	f->iteration = it;
	f->view = "";
	for (int i = 0; i < n; i++) {
		if (!rc)
			rc = take_file(f, names[i]->d_name, err);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	if (!rc)
		f->stamp = mfs_fileset_identity(f->own);
	return rc;
}

static int take_files(struct mfs_root *root, const char *view, struct mfs_weight_files *f,
		      struct mfs_error *err)
{
	const struct mfs_root_snapshot *snapshot = mfs_root_snapshot(root);

	if (!mfs_root_has_model(root))
		return mfs_fail(err, -ENODATA, "'%s' holds datasets, and no model",
				mfs_root_source(root));
	if (view)
		return take_view(root, view, f, err);
	if (!snapshot->latest)
		return mfs_fail(err, -ENODATA, "'%s' has no latest iteration: %s",
				mfs_root_source(root), snapshot->latest_reason);
	if (!strcmp(mfs_iteration_format(snapshot->latest), mfs_ckpt_format_hf.name))
		return take_directory(snapshot->latest, f, err);
	return take_view(root, HF, f, err);
}

/* ---- their tensors ---- */

int mfs_weight_files_read(const struct mfs_weight_files *f, uint32_t file, uint64_t off, void *buf,
			  size_t len, struct mfs_error *err)
{
	size_t n;
	int rc = mfs_vfile_pread(f->files[file].data, off, buf, len, &n, err);

	if (!rc && n != len)
		return mfs_fail(err, -EIO, "%s: it ends before byte %llu", f->files[file].name,
				(unsigned long long)(off + len));
	return rc;
}

static int read_source(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		       struct mfs_error *err)
{
	return mfs_weight_files_read(s->object, s->index, s->base + off, buf, len, err);
}

static const struct mfs_source_ops source_ops = {read_source};

static int add_tensor(struct mfs_weight_files *f, uint32_t file, uint64_t data,
		      const struct mfs_safetensors_tensor *t, struct mfs_error *err)
{
	struct mfs_weight_tensor *to;

	if (mfs_grow(&f->tensors, f->tensor_count))
		return mfs_fail_nomem(err);
	to = &f->tensors[f->tensor_count++];
	*to = (struct mfs_weight_tensor){
		.name = mfs_arena_strndup(&f->arena, t->name, strlen(t->name)),
		.dtype = t->dtype,
		.ndim = t->ndim,
		.file = file,
		.offset = data + t->begin,
		.bytes = t->end - t->begin};
	memcpy(to->shape, t->shape, sizeof(to->shape));
	f->bytes += to->bytes;
	return to->name ? 0 : mfs_fail_nomem(err);
}

static int read_header(struct mfs_weight_files *f, uint32_t file, struct mfs_error *err)
{
	const struct mfs_source s = {.ops = &source_ops,
				     .name = f->files[file].name,
				     .size = mfs_vfile_size(f->files[file].data),
				     .object = f,
				     .index = file};
	struct mfs_safetensors st;
	int rc = mfs_safetensors_open(&s, &st, err);

	if (rc)
		return rc;
	f->files[file].header = st.data;
	for (uint32_t i = 0; i < st.count && !rc; i++)
		rc = add_tensor(f, file, st.data, &st.tensors[i], err);
	mfs_safetensors_release(&st);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mfs_weight_tensor *)a)->name,
		      ((const struct mfs_weight_tensor *)b)->name);
}

static int read_headers(struct mfs_weight_files *f, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < f->count && !rc; i++)
		if (f->files[i].has_weights)
			rc = read_header(f, i, err);
	if (rc)
		return rc;
	if (!f->tensor_count)
		return mfs_fail(err, -ENODATA, "%s%s%s has no safetensors",
				mfs_iteration_path(f->iteration), *f->view ? "/" : "", f->view);
	qsort(f->tensors, f->tensor_count, sizeof(*f->tensors), by_name);
	for (uint32_t i = 1; i < f->tensor_count; i++)
		if (!strcmp(f->tensors[i - 1].name, f->tensors[i].name))
			return mfs_fail(err, -EEXIST, "tensor '%s' is in %s and in %s",
					f->tensors[i].name, f->files[f->tensors[i - 1].file].name,
					f->files[f->tensors[i].file].name);
	return 0;
}

int mfs_weight_files_open(struct mfs_root *root, const char *view, struct mfs_weight_files *ret,
			  struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_weight_files){0};
	rc = take_files(root, view, ret, err);
	if (!rc)
		rc = read_headers(ret, err);
	if (rc)
		mfs_weight_files_release(ret);
	return rc;
}

void mfs_weight_files_release(struct mfs_weight_files *f)
{
	for (uint32_t i = 0; i < f->count && f->own; i++)
		mfs_vfile_free(f->files[i].data);
	mfs_fileset_free(f->own);
	mfs_keeper_drop(f->held);
	free(f->files);
	free(f->tensors);
	mfs_arena_release(&f->arena);
	*f = (struct mfs_weight_files){0};
}

const struct mfs_weight_tensor *mfs_weight_files_find(const struct mfs_weight_files *f,
						      const char *name)
{
	const struct mfs_weight_tensor key = {.name = name};

	if (!f->tensor_count)
		return NULL;
	return bsearch(&key, f->tensors, f->tensor_count, sizeof(*f->tensors), by_name);
}
