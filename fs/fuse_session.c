#define _GNU_SOURCE
#include "fs/fuse_session.h"

#include "fs/fuse_ops.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "fs/daemon.h"
#include "fs/log.h"
#include "fs/tree.h"

#define READ_AHEAD_KB 2048 /* measured: 128 halves a buffered read, more than this gains nothing */
/* A page fault on a cold source blocks a thread, so there are some more than cores; but the kernel wakes the
 * thread that has slept longest, on the coldest core, and with many of them that costs more than it gains
 * (docs/PERFORMANCE.md). */
#define THREADS_MIN 8
#define THREADS_MAX 16

/* libfuse's words on a mount that fails, to become part of one sentence. */
static struct {
	bool active;
	char text[256];
} captured;

static void on_fuse_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	if (captured.active && level <= FUSE_LOG_ERR && !captured.text[0]) {
		vsnprintf(captured.text, sizeof(captured.text), fmt, ap);
		captured.text[strcspn(captured.text, "\n")] = '\0';
		return;
	}
	mfs_vlog((int)level, fmt, ap); /* its levels are those of syslog(3) */
}

static int fail_captured(struct mfs_error *err, const char *mountpoint)
{
	const char *why = captured.text;

	captured.active = false;
	if (!strncmp(why, "fuse: ", 6))
		why += 6;
	return mfs_fail(err, -EIO, "cannot mount on %s%s%s", mountpoint, *why ? ": " : "", why);
}

/* What the person said comes last, and counts. */
static int build_list(const struct mfs_options *opt, const char *fsname, bool read_only,
		      struct mfs_buf *list)
{
	if (read_only)
		mfs_fuse_list_add(list, "ro", NULL);
	mfs_fuse_list_add(list, "subtype", "mcorefs");
	mfs_fuse_list_add(list, "fsname", fsname);
	/* Others than the mounting user are let in by the permissions of the sources alone. */
	if (opt->allow_other)
		mfs_fuse_list_add(list, "default_permissions", NULL);
	if (opt->fuse.len)
		mfs_buf_printf(list, ",%s", opt->fuse.data);
	return list->failed ? -ENOMEM : 0;
}

static int new_session(struct mfs_front *front, const struct mfs_options *opt, const char *fsname,
		       struct fuse_session **ret, struct mfs_error *err)
{
	const struct fuse_lowlevel_ops *ops =
		front->overlay ? &mfs_fuse_overlay_ops : &mfs_fuse_ops;
	char *argv[] = {"mcorefs", "-o", NULL, "-d", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(opt->debug ? 4 : 3, argv);
	struct mfs_buf list = {0};
	int rc = 0;

	if (build_list(opt, fsname, !front->overlay || opt->read_only, &list)) {
		mfs_buf_release(&list);
		return mfs_fail_nomem(err);
	}
	argv[2] = list.data;
	*ret = fuse_session_new(&args, ops, sizeof(*ops), front);
	if (!*ret)
		rc = fail_captured(err, opt->mountpoint);
	fuse_opt_free_args(&args);
	mfs_buf_release(&list);
	return rc;
}

/* Only root may, and what is there already may be more. Datasets are read a row here and a row there, through mappings,
 * where each fault fetches as much as this: they are left with the kernel's 128 KiB (docs/PERFORMANCE.md). */
static void raise_read_ahead(dev_t dev)
{
	char path[80], text[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	if (n > 0 && strtol(text, NULL, 10) < READ_AHEAD_KB) {
		n = snprintf(text, sizeof(text), "%d", READ_AHEAD_KB);
		n = pwrite(fd, text, (size_t)n, 0);
	}
	close(fd);
}

struct waiter {
	const char *fsname, *mountpoint;
	struct mfs_daemon *daemon;
	bool model; /* not datasets alone */
	pthread_t thread;
	bool started;
};

/* A stat of the mount returns once the session answers; from this process it needs a thread. */
static void *wait_for_answer(void *arg)
{
	struct waiter *w = arg;
	struct stat st;

	if (stat(w->mountpoint, &st))
		return NULL; /* it ended before it began; the main thread says so */
	if (w->model)
		raise_read_ahead(st.st_dev);
	mfs_daemon_ready(w->daemon);
	mfs_log(LOG_INFO, "%s is mounted on %s", w->fsname, w->mountpoint);
	return NULL;
}

/* Signals are for the main thread, whose wait they end. */
static void start_waiter(struct waiter *w)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	w->started = !pthread_create(&w->thread, NULL, wait_for_answer, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static unsigned thread_limit(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < THREADS_MIN ? THREADS_MIN : n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
}

static int loop(struct fuse_session *se, const struct mfs_options *opt)
{
	struct fuse_loop_config *config;
	int rc;

	if (opt->single_thread)
		return fuse_session_loop(se);
	config = fuse_loop_cfg_create();
	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, thread_limit());
	rc = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	return rc;
}

/* A loop ended by a signal returns the signal's number, which is an end as asked. */
static int serve(struct fuse_session *se, const struct mfs_options *opt, struct waiter *waiter,
		 struct mfs_error *err)
{
	int rc;

	start_waiter(waiter);
	rc = waiter->started ? loop(se, opt) : -EAGAIN;
	fuse_session_unmount(se);
	if (waiter->started)
		pthread_join(waiter->thread, NULL);
	if (rc < 0)
		return mfs_fail(err, rc, "serving %s failed: %s", waiter->mountpoint,
				strerror(-rc));
	return 0;
}

int mfs_session_run(struct mfs_tree *tree, struct mfs_overlay *overlay,
		    const struct mfs_options *opt, const char *fsname, const char *mountpoint,
		    struct mfs_daemon *daemon, struct mfs_error *err)
{
	struct mfs_front front = {tree, overlay};
	struct waiter waiter = {.fsname = fsname,
				.mountpoint = mountpoint,
				.daemon = daemon,
				.model = mfs_tree_has_model(tree)};
	struct fuse_session *se;
	int rc;

	fuse_set_log_func(on_fuse_log);
	captured.active = true;
	rc = new_session(&front, opt, fsname, &se, err);
	if (rc)
		return rc;
	if (fuse_set_signal_handlers(se)) {
		rc = mfs_fail(err, -EIO, "cannot install signal handlers");
		goto out;
	}
	if (fuse_session_mount(se, mountpoint)) {
		rc = fail_captured(err, mountpoint);
	} else {
		captured.active = false;
		rc = serve(se, opt, &waiter, err);
	}
	fuse_remove_signal_handlers(se);
out:
	fuse_session_destroy(se);
	return rc;
}

const char *mfs_session_library(void)
{
	return fuse_pkgversion();
}
