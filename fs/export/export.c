#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/path.h"
#include "formats/io/beneath.h"
#include "formats/io/commit.h"
#include "formats/io/lock.h"
#include "formats/io/io_engine.h"
#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/export/command.h"
#include "fs/export/copy.h"
#include "fs/export/dest.h"
#include "fs/export/dir.h"
#include "fs/export/journal.h"
#include "fs/cli/json.h"
#include "fs/cli/log.h"
#include "fs/cli/progress.h"
#include "fs/source/root.h"
#include "fs/cli/stop.h"
#include "fs/cli/text.h"

#define PARTIAL	       ".mcorefs-partial"
#define RECORD_SECONDS 1 /* between two writes of the journal */

struct export
{
	bool force;
	char *dest, *partial;
	int above; /* the directory of both, whose links were followed once */
	struct mfs_root *root;
	struct mfs_place place;
	struct mfs_view *view;
	struct mfs_fingerprint source;
	struct mfs_io_engine *engine;
	int dirfd; /* of partial */
	mode_t umask;
	bool resuming; /* partial is what an export has left: its journal is there */
	uint64_t *durable;
	uint64_t total, start, done; /* bytes of the view; there before; there now */
	time_t recorded;
	struct mfs_progress progress;
};

/* --force removes what stands at DEST, so an export must have left all of it. */
static int check_replaced(const struct export *x, struct mfs_error *err)
{
	const char *name = mfs_path_base(x->dest);
	struct stat st;

	if (!x->force || fstatat(x->above, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	return mfs_export_check_known(x->above, name, x->view, err);
}

static int set_paths(struct export *x, const char *dest, struct mfs_error *err)
{
	size_t len = strlen(dest);

	while (len > 1 && dest[len - 1] == '/')
		len--;
	if (!len || (len == 1 && *dest == '/') || !strcmp(dest, ".") || !strcmp(dest, ".."))
		return mfs_fail(err, -EINVAL, "'%s' cannot be made: name a new directory", dest);
	x->dest = strndup(dest, len);
	if (!x->dest || asprintf(&x->partial, "%s" PARTIAL, x->dest) < 0) {
		x->partial = NULL;
		return mfs_fail_nomem(err);
	}
	return 0;
}

static int open_above(struct export *x, struct mfs_error *err)
{
	char *parent = mfs_path_parent(x->dest);
	int rc = 0;

	if (!parent)
		return mfs_fail_nomem(err);
	x->above = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->above < 0)
		rc = mfs_fail_errno(err, "cannot create '%s'", x->partial);
	free(parent);
	return rc;
}

/* The lock goes with the descriptor, however the program ends. */
static int open_partial(struct export *x, struct mfs_error *err)
{
	const char *name = mfs_path_base(x->partial);
	int rc;

	x->dirfd = mfs_beneath_make_dirs(x->above, name, mfs_export_dir_mode(x->view));
	if (x->dirfd < 0)
		return mfs_fail(err, x->dirfd, "cannot create '%s': %s", x->partial,
				strerror(-x->dirfd));
	rc = mfs_lock_try(x->dirfd, NULL);
	if (rc) { /* it is another's, who may have nothing in it yet */
		close(x->dirfd);
		x->dirfd = -1;
	}
	if (rc == -EBUSY)
		return mfs_fail(err, rc, "another export is writing '%s'", x->partial);
	if (rc)
		return mfs_fail(err, rc, "cannot lock '%s': %s", x->partial, strerror(-rc));
	x->resuming = !faccessat(x->dirfd, MFS_EXPORT_JOURNAL, F_OK, AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int remove_partial(const struct export *x)
{
	return unlinkat(x->above, mfs_path_base(x->partial), AT_REMOVEDIR);
}

/* Clears what an earlier run has left and this one cannot use. Without a journal the directory
 * may be a predecessor of DEST, and hold what a person has put there. */
static int clear_partial(const struct export *x, bool resumed, struct mfs_error *err)
{
	return mfs_export_sweep(x->above, mfs_path_base(x->partial), x->view,
				resumed	      ? MFS_SWEEP_FOREIGN
				: x->resuming ? MFS_SWEEP_ALL
					      : MFS_SWEEP_KNOWN,
				err);
}

/* Finds out what an earlier run has left, and removes files of another source. */
static int resume(struct export *x, struct mfs_error *err)
{
	bool resumed;
	int rc;

	rc = mfs_fingerprint_view(x->view, &x->source, err);
	if (rc)
		return rc;
	x->durable = calloc(x->view->count + 1, sizeof(*x->durable));
	if (!x->durable)
		return mfs_fail_nomem(err);
	resumed = mfs_journal_load(x->dirfd, x->view, &x->source, x->durable);
	rc = clear_partial(x, resumed, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < x->view->count; i++) {
		x->total += mfs_vfile_size(x->view->files[i].data);
		x->start += x->durable[i];
	}
	x->done = x->start;
	return 0;
}

/* Bytes of blocks that files of an earlier run hold. They need not be free. */
static uint64_t blocks_held(const struct export *x)
{
	uint64_t bytes = 0;
	struct stat st;

	for (uint32_t i = 0; i < x->view->count; i++)
		if (!fstatat(x->dirfd, x->view->files[i].name, &st, AT_SYMLINK_NOFOLLOW))
			bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

static int check_space(const struct export *x, struct mfs_error *err)
{
	uint64_t held = blocks_held(x), need = x->total > held ? x->total - held : 0, free;
	char need_text[MFS_HUMAN], free_text[MFS_HUMAN];
	struct statvfs fs;

	if (fstatvfs(x->dirfd, &fs))
		return 0;
	free = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (need <= free)
		return 0;
	return mfs_fail(err, -ENOSPC,
			"not enough space for '%s': %s (%llu bytes) needed, %s (%llu "
			"bytes) free",
			x->dest, mfs_human_bytes(need, need_text), (unsigned long long)need,
			mfs_human_bytes(free, free_text), (unsigned long long)free);
}

static int save_journal(const struct export *x, struct mfs_error *err)
{
	return mfs_journal_save(x->dirfd, x->view, &x->source, x->durable, err);
}

static int record(void *arg, struct mfs_error *err)
{
	struct export *x = arg;
	time_t now = time(NULL);

	if (now - x->recorded < RECORD_SECONDS)
		return 0;
	x->recorded = now;
	return save_journal(x, err);
}

static void wrote(void *arg, const char *name, uint64_t bytes)
{
	struct export *x = arg;

	x->done += bytes;
	mfs_progress_update(&x->progress, name, x->done);
}

static void created(void *arg, int fd)
{
	(void)arg;
	mfs_export_mark(fd);
}

static int copy(struct export *x, struct mfs_error *err)
{
	const struct mfs_copy job = {
		.view = x->view,
		.dirfd = x->dirfd,
		.durable = x->durable,
		.mode = mfs_view_copy_mode(x->view) & ~x->umask,
		.engine = x->engine,
		.stop = &mfs_stop_requested,
		.arg = x,
		.created = created,
		.record = record,
		.wrote = wrote,
	};
	int rc;

	/* A journal from the start: without one, a second run would not know whose files these
	 * are. */
	rc = save_journal(x, err);
	if (!rc)
		rc = mfs_export_make_dirs(x->dirfd, x->view, err);
	if (rc)
		return rc;
	mfs_progress_init(&x->progress, stderr, x->start, x->total);
	rc = mfs_copy_view(&job, err);
	if (!rc)
		rc = mfs_export_sync_dirs(x->dirfd, x->view, err);
	mfs_progress_clear(&x->progress);
	if (rc)
		save_journal(x, NULL);
	return rc;
}

/* Checks that nobody has removed or changed the files in the meantime. */
static int check_files(const struct export *x, struct mfs_error *err)
{
	for (uint32_t i = 0; i < x->view->count; i++) {
		const struct mfs_view_file *f = &x->view->files[i];
		struct stat st;

		if (fstatat(x->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) ||
		    (uint64_t)st.st_size != mfs_vfile_size(f->data))
			return mfs_fail(err, -ESTALE,
					"'%s/%s' was removed or changed during the export",
					x->partial, f->name);
	}
	return 0;
}

static int finish(struct export *x, struct mfs_error *err)
{
	bool replaced = false;
	int rc;

	/* Bytes were checked as they were read. A source may have changed just after. */
	rc = mfs_view_check_sources(x->view, err);
	if (!rc)
		rc = check_files(x, err);
	/* Hours may have passed since DEST was looked at. */
	if (!rc)
		rc = check_replaced(x, err);
	if (rc)
		return rc;
	if (unlinkat(x->dirfd, MFS_EXPORT_JOURNAL, 0))
		return mfs_fail_errno(err, "cannot remove the journal of '%s'", x->partial);
	rc = mfs_commit_dir(x->above, mfs_path_base(x->partial), mfs_path_base(x->dest), x->force,
			    &replaced, err);
	if (rc || !replaced)
		return rc;
	rc = mfs_export_sweep(x->above, mfs_path_base(x->partial), x->view, MFS_SWEEP_KNOWN, err);
	if (!rc && remove_partial(x))
		rc = mfs_fail_errno(err, "cannot remove '%s'", x->partial);
	if (rc)
		mfs_fail_in(err, "'%s' is complete, but what it replaced is still there", x->dest);
	return rc;
}

static int prepare(struct export *x, const struct mfs_cmdline *c, struct mfs_error *err)
{
	int rc;

	x->umask = umask(077);
	umask(x->umask);
	rc = set_paths(x, c->arguments[2], err);
	if (!rc)
		rc = mfs_export_check_dest(x->dest, x->force, err);
	if (!rc)
		rc = mfs_root_open(c->arguments[0], &c->options.view, &x->root, err);
	if (!rc)
		rc = mfs_export_check_apart(x->dest, x->force, x->root, &c->options.view, err);
	if (!rc)
		rc = mfs_root_view(x->root, c->arguments[1], &x->view, &x->place, err);
	if (!rc)
		rc = open_above(x, err);
	if (!rc)
		rc = check_replaced(x, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; mfs_view_warning(x->view, i); i++)
		mfs_log(LOG_WARNING, "%s", mfs_view_warning(x->view, i));
	mfs_stop_on_signals(); /* from here on there is something to put in order */
	rc = open_partial(x, err);
	if (!rc)
		rc = resume(x, err);
	if (!rc)
		rc = check_space(x, err);
	if (!rc)
		rc = mfs_io_engine_new(MFS_COPY_DEPTH, &x->engine, err);
	return rc;
}

/* The result for programs. A failure is the sentence that was printed. */
static int print_json(const struct export *x, const char *source, int exit_code)
{
	const bool begun = x->view && x->durable;
	char name[MFS_PLACE_NAME];
	json_t *o = json_object();

	json_object_set_new(o, "source", mfs_json_string(source));
	json_object_set_new(o, "ok", json_boolean(!exit_code));
	json_object_set_new(o, "error", mfs_json_string(exit_code ? mfs_command_failure() : NULL));
	json_object_set_new(
		o, "view",
		mfs_json_string(x->view ? mfs_place_name(x->root, &x->place, name) : NULL));
	json_object_set_new(o, "dest", mfs_json_string(x->dest));
	json_object_set_new(o, "files", begun ? mfs_json_number(x->view->count) : json_null());
	json_object_set_new(o, "bytes", begun ? mfs_json_number(x->total) : json_null());
	json_object_set_new(o, "resumed_bytes", begun ? mfs_json_number(x->start) : json_null());
	json_object_set_new(o, "seconds",
			    exit_code ? json_null()
				      : json_real(mfs_progress_seconds(&x->progress)));
	if (mfs_json_print(o))
		return mfs_command_failed("out of memory");
	return exit_code;
}

static void say_done(const struct export *x)
{
	double seconds = mfs_progress_seconds(&x->progress);
	uint64_t copied = x->total - x->start;
	char size[MFS_HUMAN], rate[MFS_HUMAN], before[MFS_HUMAN], name[MFS_PLACE_NAME];

	printf("exported %s to %s: %u files, %s in %.1f s (%s/s, %s)",
	       mfs_place_name(x->root, &x->place, name), x->dest, x->view->count,
	       mfs_human_bytes(x->total, size), seconds,
	       mfs_human_bytes((uint64_t)((double)copied / (seconds > 0 ? seconds : 1)), rate),
	       mfs_io_engine_name(x->engine));
	if (x->start)
		printf(", %s were there from an earlier run", mfs_human_bytes(x->start, before));
	putchar('\n');
}

/* What a person should know about the state that a failed copy leaves. */
static int say_failed(const struct export *x, const struct mfs_error *err)
{
	uint64_t kept = 0;
	char kept_text[MFS_HUMAN], total[MFS_HUMAN];

	/* Nothing can go on from a source that is damaged or has changed. */
	if (err->code == -ESTALE || err->code == -EINVAL || err->code == -ENODATA) {
		if (!mfs_export_sweep(x->above, mfs_path_base(x->partial), x->view, MFS_SWEEP_ALL,
				      NULL))
			remove_partial(x);
		return mfs_command_failed("%s", err->msg);
	}
	for (uint32_t i = 0; i < x->view->count; i++)
		kept += x->durable[i];
	mfs_command_failed("%s; %s of %s are kept in '%s': the same command goes on from there",
			   err->msg, mfs_human_bytes(kept, kept_text),
			   mfs_human_bytes(x->total, total), x->partial);
	return mfs_stop_code(MFS_EXIT_FAILED);
}

static int export_view(const struct mfs_cmdline *c, bool force, bool json)
{
	struct export x = {.force = force, .above = -1, .dirfd = -1};
	struct mfs_error err;
	int exit_code = MFS_EXIT_OK, rc;

	rc = prepare(&x, c, &err);
	if (rc) {
		exit_code = mfs_command_failed("%s", err.msg);
		if (x.dirfd >= 0)
			remove_partial(&x); /* does nothing unless it is empty */
		goto done;
	}
	if (copy(&x, &err))
		exit_code = say_failed(&x, &err);
	else if (finish(&x, &err))
		exit_code = mfs_command_failed("%s", err.msg);
	else if (!json)
		say_done(&x);
done:
	if (json)
		exit_code = print_json(&x, c->arguments[0], exit_code);
	mfs_io_engine_free(x.engine);
	if (x.dirfd >= 0)
		close(x.dirfd);
	if (x.above >= 0)
		close(x.above);
	mfs_root_free(x.root);
	free(x.durable);
	free(x.partial);
	free(x.dest);
	return exit_code;
}

int mfs_cmd_export(int argc, char **argv)
{
	bool force = false, json = false;
	struct mfs_cmdline c = {
		.usage = "export SOURCE VIEW DEST [--force] [--json] [-o OPTIONS]",
		.help = "Writes the files of VIEW into the new directory DEST, which appears when\n"
			"everything is on disk. What is not finished stays in\n"
			"DEST" PARTIAL "; the same command goes on from there.\n",
		.help_views = true,
		.help_end = "  --force   replace DEST, if everything in it is from an export or\n"
			    "            has a name of this view\n"
			    "  --json    one JSON object: what was written, or why not\n",
		.min = 3,
		.max = 3,
		.switches = {{"force", &force}, {"json", &json}},
	};
	int exit_code;

	if (mfs_cmdline_parse(&c, argc, argv, &exit_code))
		exit_code = export_view(&c, force, json);
	return mfs_cmdline_end(&c, exit_code);
}
