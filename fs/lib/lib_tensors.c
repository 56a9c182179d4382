/* The tensors of a view: by the header of a safetensors file, or by the parts of another file. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/nearest.h"
#include "formats/base/str.h"
#include "formats/ckpt/target.h"
#include "formats/hf/safetensors.h"
#include "formats/io/fileset.h"
#include "formats/io/source.h"
#include "formats/plan/pieces.h"
#include "formats/plan/vfile.h"
#include "fs/lib/lib_i.h"

/* ---- listing ---- */

static int add(struct mcorefs_view *v, const struct mfs_lib_tensor *t, const char *name,
	       struct mfs_error *err)
{
	if (mfs_grow(&v->tensors, v->tensor_count))
		return mfs_fail_nomem(err);
	v->tensors[v->tensor_count] = *t;
	v->tensors[v->tensor_count].name = mfs_arena_printf(&v->arena, "%s", name);
	if (!v->tensors[v->tensor_count].name)
		return mfs_fail_nomem(err);
	v->tensor_count++;
	return 0;
}

static int read_vfile(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		      struct mfs_error *err)
{
	size_t done = 0;
	int rc = mfs_vfile_pread((struct mfs_vfile *)s->object, off, buf, len, &done, err);

	if (!rc && done < len)
		rc = mfs_fail(err, -EIO, "%s: ends at byte %llu", s->name,
			      (unsigned long long)(off + done));
	return rc;
}

static int list_parts(struct mcorefs_view *v, uint32_t file, struct mfs_error *err)
{
	const struct mfs_target *t;
	char name[MFS_CKPT_NAME_SIZE];
	uint32_t at = 0;
	uint64_t off;
	int rc;

	while ((rc = mfs_vfile_next_tensor(v->view->files[file].data, &at, &t, &off, err)) > 0) {
		struct mfs_lib_tensor tensor = {.dtype = t->dtype,
						.ndim = t->ndim,
						.bytes = t->bytes,
						.off = off,
						.file = file};

		for (unsigned i = 0; i < t->ndim; i++)
			tensor.shape[i] = t->shape[i];
		mfs_target_name(t, name, sizeof(name));
		rc = add(v, &tensor, name, err);
		if (rc)
			break;
	}
	return rc;
}

static int list_header(struct mcorefs_view *v, uint32_t file, struct mfs_error *err)
{
	static const struct mfs_source_ops ops = {.read = read_vfile};
	const struct mfs_view_file *f = &v->view->files[file];
	const struct mfs_source source = {
		.ops = &ops, .name = f->name, .size = mfs_vfile_size(f->data), .object = f->data};
	struct mfs_safetensors st;
	int rc = mfs_safetensors_open(&source, &st, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < st.count && !rc; i++) {
		const struct mfs_safetensors_tensor *t = &st.tensors[i];
		struct mfs_lib_tensor tensor = {.dtype = t->dtype,
						.ndim = t->ndim,
						.bytes = t->end - t->begin,
						.off = st.data + t->begin,
						.file = file};

		memcpy(tensor.shape, t->shape, sizeof(tensor.shape));
		rc = add(v, &tensor, t->name, err);
	}
	mfs_safetensors_release(&st);
	return rc;
}

static uint64_t file_size(const struct mcorefs_view *v, uint32_t file)
{
	return mfs_vfile_size(v->view->files[file].data);
}

/* Whether the tensors from first on follow the header, and each other, to the end of the file. */
static bool fill_file(const struct mcorefs_view *v, uint32_t file, uint32_t first)
{
	uint64_t at = first < v->tensor_count ? v->tensors[first].off : 0;
	uint8_t length[8];
	size_t done;

	if (!at ||
	    mfs_vfile_pread(v->view->files[file].data, 0, length, sizeof(length), &done, NULL) ||
	    done < sizeof(length) || at - sizeof(length) != mfs_le64(length))
		return false;
	for (uint32_t i = first; i < v->tensor_count; at += v->tensors[i++].bytes)
		if (v->tensors[i].off != at)
			return false;
	return at == file_size(v, file);
}

/* The header of a file that is made of tensors names these and nothing else, and need not be
 * read. */
static int list_safetensors(struct mcorefs_view *v, uint32_t file, struct mfs_error *err)
{
	const uint32_t first = v->tensor_count;
	int rc = list_parts(v, file, err);

	if (rc || fill_file(v, file, first))
		return rc;
	v->tensor_count = first;
	return list_header(v, file, err);
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct mfs_lib_tensor *tensors = arg;
	const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const int order = strcmp(tensors[i].name, tensors[j].name);

	return order ? order : (i > j) - (i < j);
}

static int sort_names(struct mcorefs_view *v, struct mfs_error *err)
{
	v->by_name = malloc((v->tensor_count + 1) * sizeof(*v->by_name));
	if (!v->by_name)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < v->tensor_count; i++)
		v->by_name[i] = i;
	qsort_r(v->by_name, v->tensor_count, sizeof(*v->by_name), by_name, v->tensors);
	return 0;
}

static int list_all(struct mcorefs_view *v, struct mfs_error *err)
{
	int rc = 0;

	v->firsts = calloc(v->view->count + 1, sizeof(*v->firsts));
	if (!v->firsts)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < v->view->count && !rc; i++) {
		rc = mfs_str_ends(v->view->files[i].name, ".safetensors")
			     ? list_safetensors(v, i, err)
			     : list_parts(v, i, err);
		v->firsts[i + 1] = v->tensor_count;
	}
	return rc ? rc : sort_names(v, err);
}

int mfs_lib_list_tensors(struct mcorefs_view *view, struct mfs_error *err)
{
	int rc = mfs_lib_check(view->source, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&view->lock);
	if (!view->by_name) {
		rc = list_all(view, err);
		if (rc) {
			free(view->tensors);
			free(view->firsts);
			view->tensors = NULL;
			view->firsts = NULL;
			view->tensor_count = 0;
		}
	}
	pthread_mutex_unlock(&view->lock);
	return rc;
}

/* ---- asking ---- */

int mfs_lib_tensor_at(struct mcorefs_view *view, size_t tensor, const struct mfs_lib_tensor **ret,
		      struct mfs_error *err)
{
	int rc = mfs_lib_list_tensors(view, err);

	if (rc)
		return rc;
	if (tensor >= view->tensor_count)
		return mfs_fail(err, -ENOENT, "%s: there is no tensor %zu; there are %u",
				view->name, tensor, view->tensor_count);
	*ret = &view->tensors[tensor];
	return 0;
}

int mcorefs_tensor_count(struct mcorefs_view *view, size_t *ret, struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_list_tensors(view, &err);

	if (!rc)
		*ret = view->tensor_count;
	return mfs_lib_tell(ret_err, rc, &err);
}

static void tell_tensor(const struct mfs_lib_tensor *t, struct mcorefs_tensor *ret)
{
	*ret = (struct mcorefs_tensor){
		.name = t->name,
		.dtype = mfs_dtype_name(t->dtype),
		.item = mfs_dtype_size(t->dtype),
		.ndim = t->ndim,
		.shape = t->shape,
		.bytes = t->bytes,
		.file = t->file,
		.off = t->off,
	};
}

int mcorefs_tensor(struct mcorefs_view *view, size_t tensor, struct mcorefs_tensor *ret,
		   struct mcorefs_error *ret_err)
{
	const struct mfs_lib_tensor *t;
	struct mfs_error err = {0};
	int rc = mfs_lib_tensor_at(view, tensor, &t, &err);

	if (!rc)
		tell_tensor(t, ret);
	return mfs_lib_tell(ret_err, rc, &err);
}

int mcorefs_tensors(struct mcorefs_view *view, size_t first, size_t count,
		    struct mcorefs_tensor *ret, struct mcorefs_error *ret_err)
{
	const struct mfs_lib_tensor *t;
	struct mfs_error err = {0};
	int rc = mfs_lib_list_tensors(view, &err);

	if (!rc && count)
		rc = mfs_lib_tensor_at(
			view,
			mfs_range_ok(first, count, view->tensor_count) ? first : view->tensor_count,
			&t, &err);
	for (size_t i = 0; i < count && !rc; i++)
		tell_tensor(&t[i], &ret[i]);
	return mfs_lib_tell(ret_err, rc, &err);
}

int mcorefs_file_tensors(struct mcorefs_view *view, size_t file, size_t *ret_first,
			 size_t *ret_count, struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_list_tensors(view, &err);

	if (!rc)
		rc = mfs_lib_check_file(view, file, &err);
	if (!rc) {
		*ret_first = view->firsts[file];
		*ret_count = view->firsts[file + 1] - view->firsts[file];
	}
	return mfs_lib_tell(ret_err, rc, &err);
}

/* The first of by_name whose name is not before. */
static uint32_t find_name(const struct mcorefs_view *v, const char *name)
{
	uint32_t first = 0, end = v->tensor_count;

	while (first < end) {
		const uint32_t middle = first + (end - first) / 2;

		if (strcmp(v->tensors[v->by_name[middle]].name, name) < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static bool is_called(const struct mcorefs_view *v, uint32_t i, const char *name)
{
	return i < v->tensor_count && !strcmp(v->tensors[v->by_name[i]].name, name);
}

static int no_such_tensor(const struct mcorefs_view *v, const char *name, struct mfs_error *err)
{
	struct mfs_nearest near = {.word = name};
	char hint[MFS_NEAREST_HINT];

	for (uint32_t i = 0; i < v->tensor_count; i++)
		mfs_nearest_try(&near, v->tensors[i].name);
	return mfs_fail(err, -ENOENT, "%s: there is no tensor '%s'%s", v->name, name,
			mfs_nearest_hint(&near, "", hint));
}

int mcorefs_tensor_find(struct mcorefs_view *view, const char *name, size_t *ret_tensor,
			struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_list_tensors(view, &err);
	uint32_t i = rc ? 0 : find_name(view, name);

	if (!rc && !is_called(view, i, name))
		rc = no_such_tensor(view, name, &err);
	else if (!rc && is_called(view, i + 1, name))
		rc = mfs_fail(&err, -EEXIST, "%s: several files have a tensor '%s': '%s', '%s'",
			      view->name, name,
			      view->view->files[view->tensors[view->by_name[i]].file].name,
			      view->view->files[view->tensors[view->by_name[i + 1]].file].name);
	if (!rc)
		*ret_tensor = view->by_name[i];
	return mfs_lib_tell(ret_err, rc, &err);
}

/* ---- extents ---- */

struct teller {
	uint64_t from; /* of the tensor or the range in its file */
	int (*visit)(void *arg, const struct mcorefs_extent *extent);
	void *arg;
};

static int tell_piece(void *arg, const struct mfs_piece *p)
{
	static const enum mcorefs_extent_kind kinds[] = {
		[MFS_PIECE_SOURCE] = MCOREFS_EXTENT_SOURCE,
		[MFS_PIECE_ZEROS] = MCOREFS_EXTENT_ZEROS,
		[MFS_PIECE_MEMORY] = MCOREFS_EXTENT_MEMORY,
		[MFS_PIECE_COMPUTED] = MCOREFS_EXTENT_COMPUTED,
	};
	const struct teller *t = arg;
	struct mcorefs_extent e = {
		.kind = kinds[p->kind],
		.at = p->of.at - t->from,
		.rows = p->of.rows,
		.width = p->of.width,
		.step = p->of.step,
	};
	char path[PATH_MAX];

	if (p->kind == MFS_PIECE_SOURCE) {
		snprintf(path, sizeof(path), "%s/%s", mfs_fileset_dir(p->files),
			 mfs_fileset_name(p->files, p->file));
		e.path = path;
		e.off = p->off;
		e.row_step = p->row_step;
	}
	return t->visit(t->arg, &e);
}

static int tell_range(const struct mcorefs_view *view, size_t file, uint64_t len, struct teller *t,
		      struct mfs_error *err)
{
	const struct mfs_rectangle all = {.at = t->from, .rows = 1, .width = len, .step = len};

	return mfs_vfile_pieces(view->view->files[file].data, &all, tell_piece, t, err);
}

int mcorefs_extents(struct mcorefs_view *view, size_t tensor,
		    int (*visit)(void *arg, const struct mcorefs_extent *extent), void *arg,
		    struct mcorefs_error *ret_err)
{
	struct teller t = {.visit = visit, .arg = arg};
	const struct mfs_lib_tensor *of;
	struct mfs_error err = {0};
	int rc = mfs_lib_tensor_at(view, tensor, &of, &err);

	if (!rc) {
		t.from = of->off;
		rc = tell_range(view, of->file, of->bytes, &t, &err);
	}
	/* What visit has returned is the caller's own, and has no sentence. */
	return err.code ? mfs_lib_tell(ret_err, rc, &err) : rc;
}

int mcorefs_file_extents(struct mcorefs_view *view, size_t file, uint64_t off, uint64_t len,
			 int (*visit)(void *arg, const struct mcorefs_extent *extent), void *arg,
			 struct mcorefs_error *ret_err)
{
	struct teller t = {.from = off, .visit = visit, .arg = arg};
	struct mfs_error err = {0};
	int rc = mfs_lib_check(view->source, &err);

	if (!rc)
		rc = mfs_lib_check_file(view, file, &err);
	if (!rc && !mfs_range_ok(off, len, mfs_vfile_size(view->view->files[file].data)))
		rc = mfs_fail(&err, -EINVAL, "%s/%s: bytes [%llu, %llu) go beyond its end",
			      view->name, view->view->files[file].name, (unsigned long long)off,
			      (unsigned long long)(off + len));
	if (!rc)
		rc = tell_range(view, file, len, &t, &err);
	return err.code ? mfs_lib_tell(ret_err, rc, &err) : rc;
}
