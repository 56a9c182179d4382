/* `mcorefs SOURCE MOUNTPOINT`. Errors are found before the mount appears. */
#define _GNU_SOURCE
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/path.h"
#include "formats/ckpt/ckpt.h"
#include "formats/megatron/rank.h"
#include "formats/model/hf_config.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "fs/cli/commands.h"
#include "fs/mount/command.h"
#include "fs/mount/daemon.h"
#include "fs/data/data.h"
#include "fs/mount/fuse_session.h"
#include "fs/view/keeper.h"
#include "fs/cli/log.h"
#include "fs/mount/mountpoint.h"
#include "fs/cli/options.h"
#include "fs/mount/overlay.h"
#include "fs/mount/remount.h"
#include "fs/source/root.h"
#include "fs/mount/signals.h"
#include "fs/mount/tree.h"
#include "fs/view/views.h"

/* The daemon leaves the working directory, so these are absolute. */
struct paths {
	char source[PATH_MAX], mountpoint[PATH_MAX];
};

/* The real path of DIR, even if its last part does not exist yet. */
static int real_place(const char *dir, char *ret)
{
	char *copy, *last, above[PATH_MAX];
	int rc;

	if (realpath(dir, ret))
		return 0;
	if (errno != ENOENT)
		return -errno;
	copy = strdup(dir);
	if (!copy)
		return -ENOMEM;
	last = basename(copy); /* the GNU one and dirname() leave what is before the last slash */
	rc = realpath(dirname(copy), above) ? 0 : -errno;
	if (!rc && snprintf(ret, PATH_MAX, "%s/%s", above, last) >= PATH_MAX)
		rc = -ENAMETOOLONG;
	free(copy);
	return rc;
}

/* A path without a dataset is not found here; opening the datasets refuses it. */
static bool lies_in_data(const struct mfs_data_options *data, const char *place)
{
	bool found = false;

	for (unsigned i = 0; i < data->path_count && !found; i++) {
		char *real;

		if (mfs_data_path(data->paths[i], &real, NULL))
			continue;
		found = mfs_path_contains(real, place);
		free(real);
	}
	return found;
}

/* DIR must not lie in SOURCE or a dataset, nor contain SOURCE. Below MOUNTPOINT it would be in the
 * mount itself. */
static int check_cache(const struct mfs_options *opt, const struct paths *paths)
{
	const char *cache = opt->data.cache;
	char place[PATH_MAX];
	int rc;

	if (!cache)
		return MFS_EXIT_OK;
	rc = real_place(cache, place);
	if (rc)
		return mfs_command_failed("dataset_cache: %s: %s", cache, strerror(-rc));
	if (mfs_path_contains(paths->source, place))
		return mfs_command_failed("dataset_cache: %s lies in SOURCE", cache);
	if (mfs_path_contains(place, paths->source))
		return mfs_command_failed("dataset_cache: %s contains SOURCE", cache);
	if (lies_in_data(&opt->data, place))
		return mfs_command_failed("dataset_cache: %s lies in what data= names", cache);
	if (mfs_path_contains(paths->mountpoint, place))
		return mfs_command_failed("dataset_cache: %s lies in MOUNTPOINT", cache);
	return MFS_EXIT_OK;
}

static int resolve_mountpoint(const char *dir, char *ret, struct mfs_error *err)
{
	char name[PATH_MAX];
	size_t len = strlen(dir);
	struct stat st;
	int rc;

	/* realpath() of a name with a slash at its end asks the mount, and a dead one does not
	 * answer. */
	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (len >= sizeof(name))
		return mfs_fail(err, -ENAMETOOLONG, "%s", strerror(ENAMETOOLONG));
	memcpy(name, dir, len);
	name[len] = '\0';
	if (!realpath(name, ret))
		return mfs_fail(err, -errno, "%s", strerror(errno));
	rc = mfs_mountpoint_clear(ret, err);
	if (rc)
		return rc;
	if (stat(ret, &st))
		return mfs_fail(err, -errno, "%s%s", strerror(errno),
				errno == ENOTCONN ? " (a dead mount: umount it first)" : "");
	return S_ISDIR(st.st_mode) ? 0 : mfs_fail(err, -ENOTDIR, "not a directory");
}

static int resolve(const struct mfs_options *opt, struct paths *ret)
{
	struct mfs_error err;
	char *source;

	if (mfs_data_path(opt->source, &source, &err))
		return mfs_command_failed("%s", err.msg);
	snprintf(ret->source, sizeof(ret->source), "%s", source);
	free(source);
	if (resolve_mountpoint(opt->mountpoint, ret->mountpoint, &err)) {
		mfs_command_failed("cannot mount on %s: %s", opt->mountpoint, err.msg);
		return MFS_EXIT_MOUNT;
	}
	/* The daemon looks at SOURCE while it serves, so it would wait for itself. */
	if (mfs_path_contains(ret->source, ret->mountpoint) ||
	    mfs_path_contains(ret->mountpoint, ret->source)) {
		mfs_command_failed("cannot mount on %s: it lies in SOURCE or contains it",
				   opt->mountpoint);
		return MFS_EXIT_MOUNT;
	}
	return check_cache(opt, ret);
}

static void log_data_warnings(const struct mfs_data *data)
{
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		const char *warning = mfs_dataset_warning(mfs_data_at(data, i));

		if (*warning)
			mfs_log(LOG_WARNING, "%s", warning);
	}
}

static void log_warnings(uint32_t count, const char *const *warnings)
{
	for (uint32_t i = 0; i < count; i++)
		mfs_log(LOG_WARNING, "%s", warnings[i]);
}

/* A model without an HF view may still be shown at other layouts. A GPTModel is mounted even if the
 * options or its rotary factor leave only the file that says why. */
static bool has_other_views(const struct mfs_ckpt *ckpt, const struct mfs_views *views)
{
	struct mfs_views_entry e;

	for (unsigned i = 0; mfs_views_entry(views, i, &e); i = e.end)
		if (!e.why_not && strcmp(e.name, MFS_VIEW_DEFAULT))
			return true;
	return !mfs_rank_check(ckpt, mfs_layer_spec_of(ckpt), NULL);
}

static void log_model_warnings(struct mfs_ckpt *ckpt, const struct mfs_view *view)
{
	const char *const *warnings;
	uint32_t count = mfs_ckpt_warnings(ckpt, &warnings);

	log_warnings(count, warnings);
	if (view->model)
		log_warnings(view->model->warning_count,
			     (const char *const *)view->model->warnings);
}

/* Builds the hf view. Its warnings are logged once, here. */
static int open_model(struct mfs_iteration *it, struct mfs_error *err)
{
	struct mfs_held *ckpt, *hf;
	struct mfs_view *view;
	int rc = mfs_iteration_hold_ckpt(it, false, &ckpt, err);

	if (rc)
		return rc;
	rc = mfs_views_hold(mfs_iteration_views(it), MFS_VIEW_DEFAULT, &hf, &view, err);
	if (!rc) {
		log_model_warnings(mfs_held_object(ckpt), view);
		mfs_keeper_drop(hf);
	} else if (rc == -ENOTSUP &&
		   has_other_views(mfs_held_object(ckpt), mfs_iteration_views(it))) {
		mfs_log(LOG_WARNING, "there is no HF view, only others: %s", err->msg);
		rc = 0;
	}
	mfs_keeper_drop(ckpt);
	return rc;
}

/* The run has not saved yet, or its last save is not complete. Then only the options can be
 * checked. */
static int await_latest(const struct mfs_root *root, const struct mfs_view_options *opt,
			const char *reason, struct mfs_error *err)
{
	struct mfs_hf_ref *ref;
	int rc = opt->arch ? mfs_family_check_name(opt->arch, err) : 0;

	if (rc)
		return rc;
	if (opt->ref) {
		rc = mfs_hf_ref_open(opt->ref, &ref, err);
		if (rc)
			return rc;
		mfs_hf_ref_free(ref);
	}
	mfs_log(LOG_WARNING, "%s: %s; what is complete is shown now, the rest when it is complete",
		mfs_root_source(root), reason);
	return 0;
}

static int open_latest(struct mfs_root *root, const struct mfs_view_options *opt,
		       struct mfs_error *err)
{
	struct mfs_iteration *latest = mfs_root_snapshot(root)->latest;

	log_data_warnings(mfs_root_data(root));
	if (!mfs_root_has_model(root))
		return 0;
	if (!latest && mfs_root_has_iterations(root))
		return await_latest(root, opt, mfs_root_snapshot(root)->latest_reason, err);
	if (!latest)
		return mfs_fail(err, -ENODATA, "%s: %s", mfs_root_source(root),
				mfs_root_snapshot(root)->latest_reason);
	return open_model(latest, err);
}

/* NULL: nothing is written. */
static int open_cache(const struct mfs_options *opt, struct mfs_overlay **ret,
		      struct mfs_error *err)
{
	*ret = NULL;
	if (!opt->data.cache)
		return 0;
	if (mfs_overlay_open(opt->data.cache, opt->read_only, ret, err))
		return mfs_fail_in(err, "dataset_cache");
	return 0;
}

static int serve(struct mfs_root *root, const struct mfs_options *opt, const struct paths *paths,
		 struct mfs_daemon *daemon)
{
	struct mfs_overlay *overlay;
	struct mfs_error err;
	struct mfs_tree *tree;
	int code = MFS_EXIT_OK;

	if (mfs_data_check_options(&opt->view, mfs_root_data(root), mfs_root_has_model(root),
				   &err) ||
	    open_cache(opt, &overlay, &err))
		return mfs_command_failed("%s", err.msg);
	if (open_latest(root, &opt->view, &err) || mfs_tree_new(root, &tree, &err)) {
		mfs_overlay_free(overlay);
		return mfs_command_failed("%s", err.msg);
	}
	if (mfs_session_run(tree, overlay, opt, paths->source, paths->mountpoint, daemon, &err)) {
		mfs_log(LOG_ERR, "%s", err.msg);
		code = MFS_EXIT_MOUNT;
	}
	mfs_tree_free(tree);
	mfs_overlay_free(overlay);
	return code;
}

/* The log is opened while the terminal can still show an error. It must not lie in the mount or in
 * SOURCE. */
static int open_log(const struct mfs_options *opt, const struct paths *paths)
{
	char place[PATH_MAX];
	struct mfs_error err;
	int rc;

	if (!opt->log)
		return MFS_EXIT_OK;
	rc = real_place(opt->log, place);
	if (rc)
		return mfs_command_failed("log: %s: %s", opt->log, strerror(-rc));
	if (mfs_path_contains(paths->source, place) || mfs_path_contains(paths->mountpoint, place))
		return mfs_command_failed("log: %s lies in %s", opt->log,
					  mfs_path_contains(paths->source, place) ? "SOURCE"
										  : "MOUNTPOINT");
	if (mfs_log_open(opt->log, &err))
		return mfs_command_failed("%s", err.msg);
	return MFS_EXIT_OK;
}

static int start(struct mfs_options *opt, const struct paths *paths)
{
	struct mfs_daemon daemon = {.report = -1};
	struct mfs_root *root;
	struct mfs_error err;
	int code;

	if (!opt->foreground && mfs_daemon_start(&daemon, MFS_EXIT_MOUNT, &err))
		return mfs_command_failed("%s", err.msg);
	if (mfs_root_open(paths->source, &opt->view, &root, &err)) {
		code = mfs_command_failed("%s", err.msg);
	} else {
		code = serve(root, opt, paths, &daemon);
		mfs_root_free(root);
	}
	mfs_daemon_failed(&daemon, code ? code : MFS_EXIT_MOUNT);
	return code;
}

static int remount(const struct mfs_options *opt)
{
	struct mfs_error err;

	if (!mfs_remount(opt, &err))
		return MFS_EXIT_OK;
	mfs_command_failed("cannot remount %s: %s", opt->mountpoint, err.msg);
	return MFS_EXIT_MOUNT;
}

int mfs_cmd_mount(int argc, char **argv)
{
	struct mfs_options opt = {0};
	struct mfs_error err;
	struct paths paths;
	int code;

	mfs_signals_ignore_stray();
	if (mfs_options_parse_mount(argc, argv, &opt, &err)) {
		code = mfs_usage_error("%s", err.msg);
	} else if (opt.remount) {
		code = remount(&opt);
	} else {
		code = resolve(&opt, &paths);
		if (!code)
			code = open_log(&opt, &paths);
		if (!code) {
			if (opt.debug)
				mfs_log_set_debug();
			code = start(&opt, &paths);
		}
	}
	mfs_options_release(&opt);
	return code;
}
