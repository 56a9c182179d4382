/* Views of the library: their files, and ranges of these. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/lib/lib_i.h"
#include "fs/view/keeper.h"

int mcorefs_view_open(struct mcorefs_source *source, const char *name, struct mcorefs_view **ret,
		      struct mcorefs_error *ret_err)
{
	struct mcorefs_view *v = calloc(1, sizeof(*v));
	struct mfs_error err = {0};
	struct mfs_place place;
	int rc = v ? mfs_lib_check(source, &err) : mfs_fail_nomem(&err);

	if (!rc)
		rc = mfs_root_hold_view(source->root, name, &v->held, &v->view, &place, &err);
	if (rc) {
		free(v);
		return mfs_lib_tell(ret_err, rc, &err);
	}
	v->source = source;
	pthread_mutex_init(&v->lock, NULL);
	mfs_place_name(source->root, &place, v->name);
	snprintf(v->identity, sizeof(v->identity), "%016llx",
		 (unsigned long long)v->view->identity);
	mfs_view_hold_sources(v->view);
	*ret = v;
	return 0;
}

void mcorefs_view_close(struct mcorefs_view *view)
{
	if (!view || mfs_lib_check(view->source, NULL))
		return;
	mfs_view_drop_sources(view->view);
	mfs_keeper_drop(view->held);
	mfs_arena_release(&view->arena);
	pthread_mutex_destroy(&view->lock);
	free(view->tensors);
	free(view->firsts);
	free(view->by_name);
	free(view);
}

const char *mcorefs_view_name(const struct mcorefs_view *view)
{
	return view->name;
}

const char *mcorefs_view_identity(const struct mcorefs_view *view)
{
	return view->identity;
}

size_t mcorefs_file_count(const struct mcorefs_view *view)
{
	return view->view->count;
}

int mfs_lib_check_file(const struct mcorefs_view *view, size_t file, struct mfs_error *err)
{
	if (file < view->view->count)
		return 0;
	return mfs_fail(err, -ENOENT, "%s: there is no file %zu; there are %u", view->name, file,
			view->view->count);
}

int mcorefs_file(const struct mcorefs_view *view, size_t file, struct mcorefs_file *ret,
		 struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_check_file(view, file, &err);

	if (!rc)
		*ret = (struct mcorefs_file){
			.name = view->view->files[file].name,
			.size = mfs_vfile_size(view->view->files[file].data),
			.mtime_ns = view->view->mtime_ns,
		};
	return mfs_lib_tell(ret_err, rc, &err);
}

static int by_file_name(const void *name, const void *file)
{
	return strcmp(name, ((const struct mfs_view_file *)file)->name);
}

int mcorefs_file_find(const struct mcorefs_view *view, const char *name, size_t *ret_file,
		      struct mcorefs_error *ret_err)
{
	const struct mfs_view *v = view->view;
	const struct mfs_view_file *file =
		v->count ? bsearch(name, v->files, v->count, sizeof(*v->files), by_file_name)
			 : NULL;
	struct mfs_error err = {0};
	int rc = 0;

	if (file)
		*ret_file = (size_t)(file - v->files);
	else
		rc = mfs_fail(&err, -ENOENT, "%s: there is no file '%s'", view->name, name);
	return mfs_lib_tell(ret_err, rc, &err);
}

ssize_t mcorefs_pread(struct mcorefs_view *view, size_t file, void *buf, size_t len, uint64_t off,
		      struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	size_t done = 0;
	int rc = mfs_lib_check(view->source, &err);

	if (len > SSIZE_MAX)
		len = SSIZE_MAX;
	if (!rc)
		rc = mfs_lib_check_file(view, file, &err);
	if (!rc)
		rc = mfs_vfile_pread(view->view->files[file].data, off, buf, len, &done, &err);
	mfs_lib_tell(ret_err, rc, &err);
	return rc ? rc : (ssize_t)done;
}
