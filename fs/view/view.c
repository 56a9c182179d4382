#include "fs/view/view.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/ckpt/delta.h"
#include "formats/io/fileset.h"
#include "formats/model/model.h"
#include "fs/view/build.h"

#define CHECK_NS 1000000000 /* between two checks of all sources */

const char *mfs_view_warning(const struct mfs_view *view, uint32_t i)
{
	const struct mfs_model *m = view->model;

	return i < view->own_warnings ? m->warnings[m->warning_count - view->own_warnings + i]
				      : NULL;
}

int mfs_view_add(struct mfs_view *v, const char *name, struct mfs_vfile *data,
		 struct mfs_error *err)
{
	char *copy = mfs_grow(&v->files, v->count) ? NULL : strdup(name);

	if (!copy) {
		mfs_vfile_free(data);
		return mfs_fail_nomem(err);
	}
	v->files[v->count++] = (struct mfs_view_file){copy, data};
	return 0;
}

int mfs_view_add_bytes(struct mfs_view *v, const char *name, void *bytes, size_t len,
		       struct mfs_error *err)
{
	struct mfs_vfile *f = NULL;
	int rc = mfs_vfile_new(&f, err);

	if (!rc)
		rc = mfs_vfile_add_literal(f, bytes, len, err);
	if (rc) {
		free(bytes);
		mfs_vfile_free(f);
		return rc;
	}
	return mfs_view_add(v, name, f, err);
}

static void keep_set(struct mfs_view *v, struct mfs_fileset *set)
{
	if (mfs_grow(&v->sets, v->set_count))
		v->sets_failed = true;
	else
		v->sets[v->set_count++] = set;
}

void mfs_view_note_sources(struct mfs_view *v, struct mfs_fileset *set)
{
	if (set)
		keep_set(v, set);
	if (!set)
		return;
	for (uint32_t i = 0; i < mfs_fileset_count(set); i++)
		if (mfs_fileset_mtime(set, i) > v->mtime_ns)
			v->mtime_ns = mfs_fileset_mtime(set, i);
	v->granted = (v->source_count ? v->granted : MFS_ACCESS_ALL) & mfs_fileset_granted(set);
	v->source_count += mfs_fileset_count(set);
	mfs_access_merge(&v->access, mfs_fileset_access(set));
}

void mfs_view_note_ckpt(struct mfs_view *v, const struct mfs_ckpt *ckpt)
{
	mfs_view_note_sources(v, mfs_ckpt_files(ckpt));
	if (mfs_ckpt_adapter(ckpt))
		mfs_view_note_sources(v, mfs_ckpt_files(mfs_ckpt_adapter(ckpt)));
}

void mfs_view_note_read(struct mfs_view *v, const struct mfs_access_fold *access)
{
	mfs_access_merge(&v->fixed, access);
	mfs_access_merge(&v->access, access);
}

mode_t mfs_view_copy_mode(const struct mfs_view *v)
{
	return 0600 | (v->source_count ? mfs_access_mode(v->granted) & 0044 : 0);
}

static int by_name(const void *a, const void *b)
{
	const struct mfs_view_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* True if all parts between slashes are possible names in a directory. */
static bool is_relative_path(const char *name)
{
	for (;;) {
		size_t len = strcspn(name, "/");

		if (!len || len > NAME_MAX || (len == 1 && name[0] == '.') ||
		    (len == 2 && name[0] == '.' && name[1] == '.'))
			return false;
		if (!name[len])
			return true;
		name += len + 1;
	}
}

/* A file and a directory of one name may not be neighbours in the order: "a", "a-b", "a/c". */
static bool is_directory_too(const struct mfs_view *v, uint32_t i)
{
	size_t len = strlen(v->files[i].name);

	for (uint32_t k = i + 1; k < v->count; k++) {
		if (strncmp(v->files[i].name, v->files[k].name, len))
			return false;
		if (v->files[k].name[len] == '/')
			return true;
	}
	return false;
}

int mfs_view_check_sources(const struct mfs_view *view, struct mfs_error *err)
{
	return mfs_filesets_check(view->sets, view->set_count, err);
}

int mfs_view_check_lately(const struct mfs_view *view, struct mfs_error *err)
{
	_Atomic int64_t *checked = &((struct mfs_view *)view)->checked;
	const int64_t now = mfs_now_ns(), last = atomic_load(checked);
	int rc;

	if (last && now - last < CHECK_NS)
		return 0;
	rc = mfs_view_check_sources(view, err);
	if (!rc)
		atomic_store(checked, now);
	return rc;
}

static uint64_t stamp(const struct mfs_view *v, uint64_t (*of_set)(const struct mfs_fileset *set))
{
	uint64_t stamp = v->count;

	for (uint32_t i = 0; i < v->count; i++) {
		const char *name = v->files[i].name;

		stamp = XXH64(name, strlen(name), stamp ^ mfs_vfile_stamp(v->files[i].data));
	}
	for (uint32_t i = 0; i < v->set_count; i++) {
		const uint64_t set = of_set(v->sets[i]);

		stamp = XXH64(&set, sizeof(set), stamp);
	}
	return stamp;
}

int mfs_view_finish(struct mfs_view *v, struct mfs_error *err)
{
	if (v->sets_failed)
		return mfs_fail_nomem(err);
	if (v->count)
		qsort(v->files, v->count, sizeof(*v->files), by_name);
	for (uint32_t i = 0; i < v->count; i++) {
		const char *name = v->files[i].name;

		if (!is_relative_path(name))
			return mfs_fail(err, -EINVAL, "'%s' cannot be the name of a file", name);
		if ((i && !strcmp(v->files[i - 1].name, name)) || is_directory_too(v, i))
			return mfs_fail(err, -EINVAL, "there is more than one '%s' in the view",
					name);
	}
	v->stamp = stamp(v, mfs_fileset_stamp);
	v->identity = stamp(v, mfs_fileset_identity);
	return 0;
}

/* Length of the longest directory that name and before share, with its '/'. */
static size_t common_dir(const char *before, const char *name)
{
	size_t common = 0;

	for (size_t i = 0; before && name[i] && name[i] == before[i]; i++)
		if (name[i] == '/')
			common = i + 1;
	return common;
}

int mfs_view_each_dir(const struct mfs_view *view, int (*fn)(void *arg, const char *dir), void *arg)
{
	const char *before = NULL, *slash;
	char *dir;
	int rc = 0;

	for (uint32_t i = 0; i < view->count && !rc; i++) {
		const char *name = view->files[i].name, *from = name + common_dir(before, name);

		for (; !rc && (slash = strchr(from, '/')); from = slash + 1) {
			dir = strndup(name, (size_t)(slash - name));
			rc = dir ? fn(arg, dir) : -ENOMEM;
			free(dir);
		}
		before = name;
	}
	return rc;
}

void mfs_view_hold_sources(const struct mfs_view *view)
{
	for (uint32_t i = 0; i < view->set_count; i++)
		mfs_fileset_hold(view->sets[i]);
}

void mfs_view_drop_sources(const struct mfs_view *view)
{
	for (uint32_t i = 0; i < view->set_count; i++)
		mfs_fileset_drop(view->sets[i]);
}

void mfs_view_free(struct mfs_view *view)
{
	if (!view)
		return;
	for (uint32_t i = 0; i < view->count; i++) {
		free(view->files[i].name);
		mfs_vfile_free(view->files[i].data);
	}
	free(view->files);
	free(view->sets);
	if (view->release)
		view->release(view);
	else
		free(view);
}
