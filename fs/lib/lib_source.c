/* Sources of the library: opened, looked at again, and what they list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/version.h"
#include "formats/io/guard.h"
#include "fs/cli/option_rows.h"
#include "fs/data/data.h"
#include "fs/lib/lib_i.h"
#include "fs/view/views.h"

const char *mcorefs_version(void)
{
	return MFS_VERSION;
}

int mfs_lib_tell(struct mcorefs_error *ret, int code, const struct mfs_error *err)
{
	if (ret) {
		ret->code = code;
		snprintf(ret->text, sizeof(ret->text), "%s", code ? err->msg : "");
	}
	return code;
}

int mfs_lib_check(const struct mcorefs_source *source, struct mfs_error *err)
{
	if (source->pid == getpid())
		return 0;
	return mfs_fail(err, -EINVAL,
			"'%s' was opened before this process was forked: open it here",
			mfs_root_source(source->root));
}

/* ---- opening ---- */

static int parse_options(const char *list, struct mfs_options *options, struct mfs_error *err)
{
	const struct mfs_option_row *of_mount;
	int rc = list && *list ? mfs_options_parse_o(list, options, err) : 0;

	if (rc)
		return rc;
	of_mount = mfs_option_given_of(options, MFS_OPTION_OF_MOUNT);
	if (of_mount)
		return mfs_fail(err, -EINVAL, "option '%s' is of mounts, and this is none",
				of_mount->name);
	return 0;
}

static int open_root(struct mcorefs_source *s, const char *source, struct mfs_error *err)
{
	int rc = mfs_root_open(source, &s->options.view, &s->root, err);

	if (!rc)
		rc = mfs_option_check_effect(&s->options, mfs_root_data(s->root),
					     mfs_root_has_model(s->root), err);
	return rc ? rc : mfs_data_check_options(&s->options.view, mfs_root_data(s->root), err);
}

int mcorefs_open(const char *source, const char *options, struct mcorefs_source **ret,
		 struct mcorefs_error *ret_err)
{
	struct mcorefs_source *s = calloc(1, sizeof(*s));
	struct mfs_error err = {0};
	int rc = s ? 0 : mfs_fail_nomem(&err);

	if (!rc) {
		s->pid = getpid();
		pthread_mutex_init(&s->lock, NULL);
	}
	if (!rc && mfs_guard_install())
		rc = mfs_fail(&err, -EINVAL, "SIGBUS cannot be handled");
	if (!rc)
		rc = parse_options(options, &s->options, &err);
	if (!rc)
		rc = open_root(s, source, &err);
	if (rc)
		mcorefs_close(s);
	else
		*ret = s;
	return mfs_lib_tell(ret_err, rc, &err);
}

void mcorefs_close(struct mcorefs_source *source)
{
	/* A child of fork() has its parent's memory, but not the threads that work on it. */
	if (!source || source->pid != getpid())
		return;
	mfs_root_free(source->root);
	mfs_options_release(&source->options);
	pthread_mutex_destroy(&source->lock);
	free(source);
}

int mcorefs_refresh(struct mcorefs_source *source, struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	int rc = mfs_lib_check(source, &err);

	if (!rc) {
		pthread_mutex_lock(&source->lock);
		rc = mfs_root_refresh(source->root, false, &err);
		pthread_mutex_unlock(&source->lock);
	}
	return mfs_lib_tell(ret_err, rc, &err);
}

/* ---- what there is ---- */

int mcorefs_iterations(struct mcorefs_source *source,
		       int (*visit)(void *arg, const struct mcorefs_iteration *iteration),
		       void *arg, struct mcorefs_error *ret_err)
{
	const struct mfs_root_snapshot *s;
	struct mfs_error err = {0};
	int rc = mfs_lib_check(source, &err);

	if (rc)
		return mfs_lib_tell(ret_err, rc, &err);
	s = mfs_root_snapshot(source->root);
	for (uint32_t i = 0; i < s->count && !rc; i++) {
		struct mfs_iteration *it = s->iterations[i];
		const struct mcorefs_iteration told = {
			.name = mfs_root_has_iterations(source->root) ? mfs_iteration_name(it) : "",
			.format = mfs_iteration_format(it),
			.reason = mfs_iteration_reason(it),
			.is_latest = it == s->latest,
		};

		rc = visit(arg, &told);
	}
	return rc;
}

struct told {
	struct mcorefs_source *source;
	const char *above; /* "iter_0000040/", "data/NAME/", "" */
	int (*visit)(void *arg, const char *view);
	void *arg;
};

static int tell_view(const struct told *t, const char *name, const char *spec)
{
	char path[MFS_PLACE_NAME];

	snprintf(path, sizeof(path), "%s%s%s%s", t->above, name, *spec ? "/" : "", spec);
	return t->visit(t->arg, path);
}

/* A kind whose specs cannot be listed is left out, as in a listing of the mount. */
static int tell_kind(const struct told *t, struct mfs_views *views,
		     const struct mfs_view_kind *kind)
{
	const char *const *specs;
	uint32_t count;
	int rc = 0;

	if (!kind->spec)
		return tell_view(t, kind->name, "");
	if (mfs_views_list(views, kind, &specs, &count, NULL))
		return 0;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = tell_view(t, kind->name, specs[i]);
	return rc;
}

static int tell_views(const struct told *t, struct mfs_views *views)
{
	struct mfs_views_entry e;
	int rc = 0;

	for (unsigned i = 0; mfs_views_entry(views, i, &e) && !rc; i = e.end)
		for (unsigned k = e.first; k < e.end && !rc; k++)
			if (!views->why_not[k])
				rc = tell_kind(t, views, views->table->kinds[k]);
	return rc;
}

static int tell_datasets(const struct told *t)
{
	const struct mfs_data *data = mfs_root_data(t->source->root);
	int rc = 0;

	for (uint32_t i = 0; data && i < mfs_data_count(data) && !rc; i++)
		rc = tell_view(t, "data", mfs_dataset_name(mfs_data_at(data, i)));
	return rc;
}

/* The views of an iteration by its name, or of "data/NAME". */
static int find_views(struct mcorefs_source *source, const char *of, struct mfs_place *ret,
		      struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(source->root);
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (!of && mfs_root_has_model(source->root)) {
		if (!s->latest)
			return mfs_fail(err, -ENODATA, "'%s' has no latest iteration: %s",
					mfs_root_source(source->root), s->latest_reason);
		ret->iteration = s->latest;
		ret->views = mfs_iteration_views(s->latest);
		return 0;
	}
	rc = mfs_root_find(source->root, of ? of : "data", ret, err);
	if (!rc && (!ret->views || *ret->view))
		rc = mfs_fail(err, -ENOENT, "'%s' names no iteration and no dataset",
			      of ? of : "data");
	return rc;
}

int mcorefs_views(struct mcorefs_source *source, const char *of,
		  int (*visit)(void *arg, const char *view), void *arg,
		  struct mcorefs_error *ret_err)
{
	struct mfs_error err = {0};
	struct mfs_place place;
	char above[MFS_PLACE_NAME];
	int rc = mfs_lib_check(source, &err);

	if (!rc && of && !strcmp(of, "data"))
		return tell_datasets(&(struct told){source, "", visit, arg});
	if (!rc)
		rc = find_views(source, of, &place, &err);
	if (rc)
		return mfs_lib_tell(ret_err, rc, &err);
	snprintf(above, sizeof(above), "%s%s", of && *of ? of : "", of && *of ? "/" : "");
	return tell_views(&(struct told){source, above, visit, arg}, place.views);
}
