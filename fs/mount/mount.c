/* `mcorefs SOURCE MOUNTPOINT`. Errors are found before the mount appears. */
#define _GNU_SOURCE
#include <errno.h>
#include <libgen.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

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
#include "fs/daemon/daemon.h"
#include "fs/data/data.h"
#include "fs/fuse/session.h"
#include "fs/mount/helper.h"
#include "fs/view/keeper.h"
#include "fs/cli/log.h"
#include "fs/daemon/mountpoint.h"
#include "fs/cli/option_rows.h"
#include "fs/cli/options.h"
#include "fs/overlay/overlay.h"
#include "fs/fuse/remount.h"
#include "fs/rights/rights.h"
#include "fs/source/root.h"
#include "fs/source/runs.h"
#include "fs/daemon/signals.h"
#include "fs/tree/tree.h"
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

/* What is written must not lie in what is read: SOURCE, a dataset, the reference. Below MOUNTPOINT
 * it would be in the mount itself. place: its real path, of PATH_MAX bytes. */
static int check_outside(const struct mfs_options *opt, const struct paths *paths,
			 const char *option, const char *name, char *place)
{
	const char *in = NULL;
	char ref[PATH_MAX];
	int rc = real_place(name, place);

	if (rc)
		return mfs_command_failed("%s: %s: %s", option, name, strerror(-rc));
	if (mfs_path_contains(paths->source, place))
		in = "SOURCE";
	else if (lies_in_data(&opt->data, place))
		in = "what data= names";
	else if (opt->view.ref && realpath(opt->view.ref, ref) && mfs_path_contains(ref, place))
		in = "what ref= names";
	else if (opt->view.tokenizer && realpath(opt->view.tokenizer, ref) &&
		 mfs_path_contains(ref, place))
		in = "what tokenizer= names";
	else if (mfs_path_contains(paths->mountpoint, place))
		in = "MOUNTPOINT";
	return in ? mfs_command_failed("%s: %s lies in %s", option, name, in) : MFS_EXIT_OK;
}

/* DIR must not contain SOURCE either. */
static int check_cache(const struct mfs_options *opt, const struct paths *paths)
{
	const char *cache = opt->data.cache;
	char place[PATH_MAX];
	int code;

	if (!cache)
		return MFS_EXIT_OK;
	code = check_outside(opt, paths, "dataset_cache", cache, place);
	if (!code && mfs_path_contains(place, paths->source))
		code = mfs_command_failed("dataset_cache: %s contains SOURCE", cache);
	return code;
}

/* The files of messages and of metrics are none of the files that readers write. */
static int check_file(const struct mfs_options *opt, const struct paths *paths, const char *option,
		      const char *name)
{
	char place[PATH_MAX], cache[PATH_MAX];
	int code = check_outside(opt, paths, option, name, place);

	if (!code && opt->data.cache && !real_place(opt->data.cache, cache) &&
	    mfs_path_contains(cache, place))
		code = mfs_command_failed("%s: %s lies in what dataset_cache= names", option, name);
	return code;
}

/* Files of the mount point are still there, and nobody sees them. */
static void say_hidden(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	unsigned count = 0;

	while (d && (e = readdir(d)))
		count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	if (count)
		mfs_log(LOG_WARNING,
			"%s is not empty: what is in it is hidden until the mount ends", dir);
}

static int resolve_mountpoint(const char *dir, char *ret, struct mfs_error *err)
{
	int rc = mfs_mountpoint_resolve(dir, ret, err);
	struct stat st;

	if (!rc)
		rc = mfs_mountpoint_clear(ret, err);
	if (rc)
		return rc;
	if (stat(ret, &st))
		return mfs_fail(err, -errno, "%s%s", strerror(errno),
				errno == ENOTCONN ? " (a dead mount: umount it first)" : "");
	if (!S_ISDIR(st.st_mode))
		return mfs_fail(err, -ENOTDIR, "not a directory");
	return 0;
}

static int resolve(const struct mfs_options *opt, struct paths *ret)
{
	struct mfs_error err;
	char *source;

	if (mfs_rights_check(opt, &err) || mfs_root_named(opt->source, &source, &err))
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
	say_hidden(ret->mountpoint);
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

/* What can be checked of the options while nothing is open. */
static int check_view_options(const struct mfs_view_options *opt, struct mfs_error *err)
{
	struct mfs_hf_ref *ref;
	int rc = opt->arch ? mfs_family_check_name(opt->arch, err) : 0;

	if (rc || !opt->ref)
		return rc;
	rc = mfs_hf_ref_open(opt->ref, &ref, err);
	if (!rc)
		mfs_hf_ref_free(ref);
	return rc;
}

/* The run has not saved yet, or its last save is not complete. */
static int await_latest(const struct mfs_root *root, const struct mfs_view_options *opt,
			const char *reason, struct mfs_error *err)
{
	int rc = check_view_options(opt, err);

	if (rc)
		return rc;
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

static int serve_tree(struct mfs_tree *tree, struct mfs_overlay *overlay,
		      const struct mfs_options *opt, const struct paths *paths,
		      struct mfs_daemon *daemon)
{
	struct mfs_error err;
	int code = MFS_EXIT_OK;

	if (mfs_session_run(tree, overlay, opt, paths->source, paths->mountpoint, daemon, &err)) {
		mfs_log(LOG_ERR, "%s", err.msg);
		code = MFS_EXIT_MOUNT;
	}
	mfs_tree_free(tree);
	return code;
}

static int serve(struct mfs_root *root, const struct mfs_options *opt, const struct paths *paths,
		 struct mfs_daemon *daemon)
{
	struct mfs_overlay *overlay;
	struct mfs_error err;
	struct mfs_tree *tree;
	int code;

	if (mfs_option_check_effect(opt, mfs_root_data(root), mfs_root_has_model(root), &err) ||
	    mfs_data_check_options(&opt->view, mfs_root_data(root), &err) ||
	    open_cache(opt, &overlay, &err))
		return mfs_command_failed("%s", err.msg);
	if (open_latest(root, &opt->view, &err) || mfs_tree_new(root, &tree, &err))
		code = mfs_command_failed("%s", err.msg);
	else
		code = serve_tree(tree, overlay, opt, paths, daemon);
	mfs_overlay_free(overlay);
	return code;
}

/* SOURCE is a directory of runs. Each is opened when it is entered. */
static int serve_runs(const struct mfs_options *opt, const struct paths *paths,
		      struct mfs_daemon *daemon)
{
	const struct mfs_option_row *one = mfs_option_given_of(opt, MFS_OPTION_NAMES_DATASETS);
	struct mfs_error err;
	struct mfs_tree *tree;

	if (one)
		return mfs_command_failed(
			"option '%s' is of one run, and '%s' is a directory of several", one->name,
			paths->source);
	if (check_view_options(&opt->view, &err) ||
	    mfs_tree_new_runs(paths->source, &opt->view, &tree, &err))
		return mfs_command_failed("%s", err.msg);
	return serve_tree(tree, NULL, opt, paths, daemon);
}

static int check_metrics(const struct mfs_options *opt, const struct paths *paths)
{
	return opt->metrics_file ? check_file(opt, paths, "metrics", opt->metrics) : MFS_EXIT_OK;
}

/* The log is opened while the terminal can still show an error. */
static int open_log(const struct mfs_options *opt, const struct paths *paths)
{
	struct mfs_error err;
	int code;

	if (opt->log_json)
		mfs_log_set_json();
	if (!opt->log)
		return MFS_EXIT_OK;
	code = check_file(opt, paths, "log", opt->log);
	if (!code && mfs_log_open(opt->log, &err))
		code = mfs_command_failed("%s", err.msg);
	return code;
}

static int start(struct mfs_options *opt, const struct paths *paths)
{
	struct mfs_daemon daemon = {.report = -1,
				    .exit_of = opt->mount8 ? mfs_helper_exit_of : NULL};
	struct mfs_root *root;
	struct mfs_error err;
	int code, rc;

	if (!opt->foreground && mfs_daemon_start(&daemon, MFS_EXIT_MOUNT, &err))
		return mfs_command_failed("%s", err.msg);
	rc = mfs_root_open(paths->source, &opt->view, &root, &err);
	if (rc == -ENODATA && mfs_runs_look_like_some(paths->source)) {
		code = serve_runs(opt, paths, &daemon);
	} else if (rc) {
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

int mfs_mount(struct mfs_options *opt)
{
	struct paths paths;
	int code;

	mfs_signals_ignore_stray();
	if (!opt->foreground || !isatty(STDIN_FILENO))
		mfs_signals_take_hangup();
	if (opt->remount)
		return remount(opt);
	code = resolve(opt, &paths);
	if (!code)
		code = check_metrics(opt, &paths);
	if (!code)
		code = open_log(opt, &paths);
	if (code)
		return code;
	if (opt->debug)
		mfs_log_set_debug();
	return start(opt, &paths);
}

int mfs_cmd_mount(int argc, char **argv)
{
	struct mfs_options opt = {0};
	struct mfs_error err;
	int code;

	if (mfs_options_parse_mount(argc, argv, &opt, &err))
		code = mfs_usage_error("%s", err.msg);
	else
		code = mfs_mount(&opt);
	mfs_options_release(&opt);
	return code;
}
