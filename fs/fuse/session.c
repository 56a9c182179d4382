#define _GNU_SOURCE
#include "fs/fuse/session.h"

#include "fs/fuse/ops.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "fs/cli/commands.h"
#include "fs/daemon/daemon.h"
#include "fs/cli/log.h"
#include "fs/fuse/gone.h"
#include "fs/daemon/mountpoint.h"
#include "fs/cli/notify.h"
#include "fs/prefetch/prefetch.h"
#include "fs/fuse/remount.h"
#include "fs/rights/rights.h"
#include "fs/daemon/signals.h"
#include "fs/cli/text.h"
#include "fs/tree/tree.h"
#include "fs/daemon/unmounter.h"
#include "fs/daemon/watchdog.h"

#define LOOK_EVERY  30 /* seconds */
#define WRITE_EVERY 15 /* seconds: as often as Prometheus asks node_exporter */
#define READ_AHEAD_KB                                                                              \
	2048 /* measured: 128 halves the rate of buffered reads; more than this gains nothing */
/* A page fault on a cold source blocks a thread, so there are more threads than cores. But the
 * kernel wakes the thread that has slept longest, on the coldest core, so too many threads cost
 * more than they gain (docs/PERFORMANCE.md). */
#define THREADS_MIN 8
#define THREADS_MAX 16

#define CAPTURED 256

/* libfuse's messages about a failed mount are collected here for one sentence. NULL: they are
 * logged. It is thread-local since libfuse's log function gets no argument of ours; libfuse calls
 * it in the thread that mounts. */
static _Thread_local char *capture;

static void on_fuse_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	if (capture && level <= FUSE_LOG_ERR && !*capture) {
		vsnprintf(capture, CAPTURED, fmt, ap);
		capture[strcspn(capture, "\n")] = '\0';
		return;
	}
	mfs_vlog((int)level, fmt, ap); /* its levels are those of syslog(3) */
}

/* What libfuse's words do not tell: who may do something about it, and what works without. */
static const char *remedy(void)
{
	if (!access("/dev/fuse", R_OK | W_OK))
		return "";
	return errno == ENOENT
		       ? " (there is no /dev/fuse: the kernel's module fuse is not loaded, or a "
			 "container was not given the device; mcorefs serve and export need none)"
		       : " (this user may not open /dev/fuse: root can say chmod 666 /dev/fuse; "
			 "mcorefs serve and export need none)";
}

static int fail_captured(struct mfs_error *err, const char *mountpoint)
{
	const char *why = capture;

	if (!strncmp(why, "fuse: ", 6))
		why += 6;
	return mfs_fail(err, -EIO, "cannot mount on %s%s%s%s", mountpoint, *why ? ": " : "", why,
			remedy());
}

/* A person's options come last, so they override these. */
static int build_list(const struct mfs_options *opt, const char *fsname, bool read_only,
		      struct mfs_buf *list)
{
	if (read_only)
		mfs_fuse_list_add(list, "ro", NULL);
	mfs_fuse_list_add(list, "subtype", "mcorefs");
	mfs_fuse_list_add(list, "fsname", fsname);
	/* Other users get in only by the permissions of the sources. */
	if (opt->allow_other)
		mfs_fuse_list_add(list, "default_permissions", NULL);
	if (opt->fuse.len)
		mfs_buf_printf(list, ",%s", opt->fuse.data);
	return list->failed ? -ENOMEM : 0;
}

static int new_session(struct mfs_front *front, const struct mfs_options *opt, const char *fsname,
		       struct fuse_session **ret, struct mfs_error *err)
{
	struct fuse_lowlevel_ops ops;
	char *argv[] = {"mcorefs", "-o", NULL, "-d", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(opt->debug ? 4 : 3, argv);
	struct mfs_buf list = {0};
	int rc = 0;

	if (build_list(opt, fsname, !front->overlay || opt->read_only, &list)) {
		mfs_buf_release(&list);
		return mfs_fail_nomem(err);
	}
	argv[2] = list.data;
	front->ops = front->overlay ? &mfs_fuse_overlay_ops : &mfs_fuse_ops;
	mfs_fuse_outer_ops(front->ops, &ops);
	*ret = fuse_session_new(&args, &ops, sizeof(ops), front);
	if (!*ret)
		rc = fail_captured(err, opt->mountpoint);
	fuse_opt_free_args(&args);
	mfs_buf_release(&list);
	return rc;
}

/* Only root may set it, and it is never lowered. Mounts of datasets keep the kernel's 128 KiB:
 * their rows are read here and there through mappings, and each fault reads this much
 * (docs/PERFORMANCE.md). */
static int open_read_ahead(dev_t dev)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The mount's root, which does not answer yet. Who serves with fewer rights may not find it by its
 * name. */
static int open_root(const char *mountpoint, int *ret_fd, dev_t *ret_dev, struct mfs_error *err)
{
	int fd = open(mountpoint, O_PATH | O_CLOEXEC);
	struct statx st;

	if (fd < 0)
		return mfs_fail_errno(err, "cannot open %s", mountpoint);
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st)) {
		int rc = mfs_fail_errno(err, "cannot look at %s", mountpoint);

		close(fd);
		return rc;
	}
	*ret_fd = fd;
	*ret_dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

/* The kernel sets its own when the session begins to answer. */
static void raise_read_ahead(int fd)
{
	char text[32];
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	if (n > 0 && strtol(text, NULL, 10) < READ_AHEAD_KB) {
		n = snprintf(text, sizeof(text), "%d", READ_AHEAD_KB);
		n = pwrite(fd, text, (size_t)n, 0);
	}
}

/* The thread that handles SIGUSR1 and looks at SOURCE. */
struct waiter {
	const char *fsname, *mountpoint;
	struct mfs_daemon *daemon;
	struct mfs_front *front;
	const char *metrics; /* file to write them into; NULL: none */
	bool complained;     /* that it could not be written */
	bool written;	     /* at least once */
	int root;	     /* of the mount, until it is announced: it keeps the mount busy */
	dev_t dev;	     /* of the mount */
	bool announced;
	struct mfs_gone gone;
	time_t began;
	struct mfs_watchdog *watchdog;	/* NULL: nobody asks for one */
	struct mfs_unmounter unmounter; /* where we may not unmount */
	int read_ahead;			/* the kernel's, of the mount; -1: none that we may write */
	pthread_t thread;
	bool started;
	atomic_bool stop;
};

static unsigned long resident_kib(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* The answer to SIGUSR1. */
static void say_status(void *arg)
{
	const struct waiter *w = arg;
	const struct mfs_tree_counts n = mfs_tree_counts(w->front->tree);
	char size[MFS_HUMAN], runs[64] = "";

	if (n.several)
		snprintf(runs, sizeof(runs), "%u runs, %u open; ", n.runs, n.open);
	mfs_log(LOG_INFO,
		"status of %s: of %s, for %lld s; %s%u of %u iterations shown, latest %s; %llu "
		"files (%s) in views that were entered, %u open; %lu KiB resident",
		w->mountpoint, w->fsname, (long long)(time(NULL) - w->began), runs, n.shown,
		n.shown + n.hidden, n.latest_name ? n.latest_name : "none",
		(unsigned long long)n.files, mfs_human_bytes(n.bytes, size),
		atomic_load(&w->front->open_files), resident_kib());
}

/* A failure is logged once, until it has gone well again. */
static void write_metrics(struct waiter *w)
{
	struct mfs_error err;
	int rc;

	if (!w->metrics)
		return;
	rc = mfs_metrics_file(&w->front->metrics, w->metrics, &err);
	if (rc && !w->complained)
		mfs_log(LOG_WARNING, "%s", err.msg);
	w->complained = rc;
	w->written = w->written || !rc;
}

/* Deleted sources are closed even if nobody uses the mount. This looks at SOURCE and never at the
 * mount: a thread that waits for an answer of its own process cannot be killed. */
static void look(void *arg)
{
	struct waiter *w = arg;

	mfs_fuse_refresh(w->front->tree);
	write_metrics(w);
	if (w->announced)
		mfs_gone_forget(&w->gone, w->front->tree, w->mountpoint, w->dev);
}

/* The answer to SIGHUP: the log's file may have been moved away, and SOURCE may have changed. */
static void reread(void *arg)
{
	struct mfs_error err;

	if (mfs_log_reopen(&err))
		mfs_log(LOG_ERR, "%s", err.msg);
	look(arg);
	mfs_log(LOG_INFO, "read again, on %s", mfs_log_mount());
}

static void say_change(void *arg, const char *sentence)
{
	const struct waiter *w = arg;

	mfs_log(LOG_INFO, "%s, on %s", sentence, w->mountpoint);
}

static void say_ready(const struct waiter *w)
{
	char lines[2 * PATH_MAX + 64];

	snprintf(lines, sizeof(lines), "READY=1\nSTATUS=%s is mounted on %s", w->fsname,
		 w->mountpoint);
	mfs_notify(lines);
}

static void close_root(struct waiter *w)
{
	if (w->root >= 0)
		close(w->root);
	w->root = -1;
}

/* A mount that does not answer ends, and who waits for it hears of that. */
static void give_up(struct waiter *w)
{
	mfs_log(LOG_ERR, "the mount on %s does not answer: %s", w->mountpoint, strerror(errno));
	mfs_daemon_failed(w->daemon, MFS_EXIT_MOUNT);
	kill(getpid(), SIGTERM);
}

/* A stat of the mount returns when the session answers. This process needs a thread for it. */
static void announce(struct waiter *w)
{
	struct stat st;

	if (fstat(w->root, &st)) {
		give_up(w);
		return;
	}
	close_root(w);
	w->announced = true;
	if (mfs_tree_has_model(w->front->tree))
		raise_read_ahead(w->read_ahead);
	if (w->front->prefetch)
		mfs_prefetch_ready(w->front->prefetch, w->dev);
	mfs_daemon_ready(w->daemon);
	say_ready(w);
	mfs_watchdog_feed(w->watchdog);
	mfs_log(LOG_INFO, "%s is mounted on %s", w->fsname, w->mountpoint);
}

static void *wait_for_signals(void *arg)
{
	struct waiter *w = arg;
	const struct mfs_signals_hooks hooks = {say_status, reread, look,
						w->metrics ? WRITE_EVERY : LOOK_EVERY};

	announce(w);
	write_metrics(w);
	mfs_signals_wait(&hooks, w, &w->stop);
	return NULL;
}

/* Signals must go to the main thread, whose wait they end. */
static void start_waiter(struct waiter *w)
{
	w->started = !mfs_thread_start(&w->thread, "wait", wait_for_signals, w);
}

static void stop_waiter(struct waiter *w)
{
	atomic_store(&w->stop, true);
	pthread_kill(w->thread, SIGUSR1);
	pthread_join(w->thread, NULL);
}

/* rc: result of the loop. Above 0 it is the signal that ended it. */
static void say_end(const struct waiter *w, int rc)
{
	if (rc > 0)
		mfs_log(LOG_INFO, "unmounted %s from %s: SIG%s", w->fsname, w->mountpoint,
			sigabbrev_np(rc));
	else
		mfs_log(LOG_INFO, "unmounted %s from %s", w->fsname, w->mountpoint);
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
	fuse_loop_cfg_set_clone_fd(config, !opt->run_as); /* USER may not open /dev/fuse */
	fuse_loop_cfg_set_max_threads(config, thread_limit());
	rc = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	return rc;
}

static void end_prefetch(struct mfs_prefetch *p)
{
	const struct mfs_prefetch_counts n = mfs_prefetch_counts(p);

	mfs_prefetch_stop(p);
	mfs_log(LOG_DEBUG, "prefetch: %llu streams, %llu bytes in %llu pieces, %u processes",
		(unsigned long long)n.streams, (unsigned long long)n.bytes,
		(unsigned long long)n.pieces, n.fetchers);
}

/* The loop returns a signal's number if that ended it, which is no failure. */
static int serve(struct fuse_session *se, const struct mfs_options *opt, struct waiter *waiter,
		 struct mfs_error *err)
{
	int rc, left;

	start_waiter(waiter);
	rc = waiter->started ? loop(se, opt) : -EAGAIN;
	mfs_notify("STOPPING=1");
	if (waiter->front->prefetch)
		end_prefetch(waiter->front->prefetch);
	left = mfs_unmounter_end(&waiter->unmounter);
	fuse_session_unmount(se);
	if (waiter->started)
		stop_waiter(waiter);
	if (left)
		return mfs_fail(
			err, left,
			"%s cannot be unmounted, and is dead now: the process that unmounts: "
			"%s",
			waiter->mountpoint, strerror(-left));
	say_end(waiter, rc);
	if (rc < 0)
		return mfs_fail(err, rc, "serving %s failed: %s", waiter->mountpoint,
				strerror(-rc));
	return 0;
}

/* What is written must be possible with the rights that are left. */
static int check_writing(const struct mfs_options *opt, const struct waiter *w,
			 struct mfs_error *err)
{
	struct mfs_overlay *overlay = opt->read_only ? NULL : w->front->overlay;
	const bool gives_files = !opt->run_as && !opt->drop_privileges;
	int rc = overlay ? mfs_overlay_rights(overlay, gives_files, err) : 0;

	if (!rc && w->metrics)
		rc = mfs_metrics_file(&w->front->metrics, w->metrics, err);
	return rc;
}

/* What takes rights, before they are given up. */
static int prepare(const struct mfs_options *opt, struct waiter *w, struct mfs_error *err)
{
	int rc = open_root(w->mountpoint, &w->root, &w->dev, err);

	if (rc)
		return rc;
	w->read_ahead = open_read_ahead(w->dev);
	w->watchdog = mfs_watchdog_start(w->mountpoint);
	if (!mfs_rights_are_dropped(opt))
		return 0;
	mfs_tree_rest(w->front->tree); /* threads would keep their rights */
	rc = mfs_unmounter_start(w->mountpoint, &w->unmounter);
	if (rc)
		return mfs_fail(err, rc, "no process that can unmount: %s", strerror(-rc));
	rc = mfs_gone_keep(&w->gone, w->mountpoint, w->dev);
	if (rc)
		return mfs_fail(err, rc, "no process that makes the kernel forget: %s",
				strerror(-rc));
	rc = mfs_rights_drop(opt, w->fsname, err);
	return rc ? rc : check_writing(opt, w, err);
}

static int serve_mounted(struct fuse_session *se, const struct mfs_options *opt, struct waiter *w,
			 struct mfs_error *err)
{
	int rc = prepare(opt, w, err);

	if (!rc) {
		rc = serve(se, opt, w, err);
	} else {
		mfs_unmounter_end(&w->unmounter);
		fuse_session_unmount(se);
	}
	close_root(w);
	mfs_gone_end(&w->gone);
	mfs_watchdog_stop(w->watchdog);
	if (w->read_ahead >= 0)
		close(w->read_ahead);
	return rc;
}

static int mount_and_serve(struct fuse_session *se, const struct mfs_options *opt,
			   struct waiter *waiter, struct mfs_error *err)
{
	int rc;

	if (fuse_set_signal_handlers(se))
		return mfs_fail(err, -EIO, "cannot install signal handlers");
	if (fuse_session_mount(se, waiter->mountpoint)) {
		rc = fail_captured(err, waiter->mountpoint);
	} else {
		capture = NULL;
		rc = serve_mounted(se, opt, waiter, err);
	}
	fuse_remove_signal_handlers(se);
	return rc;
}

static int run(const struct mfs_options *opt, struct waiter *waiter, struct mfs_error *err)
{
	char words[CAPTURED] = "";
	struct fuse_session *se;
	int rc = mfs_front_init(waiter->front, err);

	if (rc)
		return rc;
	fuse_set_log_func(on_fuse_log);
	capture = words;
	rc = new_session(waiter->front, opt, waiter->fsname, &se, err);
	if (!rc) {
		rc = mount_and_serve(se, opt, waiter, err);
		fuse_session_destroy(se);
	}
	capture = NULL;
	mfs_front_release(waiter->front);
	return rc;
}

/* The processors that this process may use. 0: the kernel does not say. */
static unsigned processors(void)
{
	cpu_set_t sets[8]; /* one is too small for the masks of the largest machines */

	if (sched_getaffinity(0, sizeof(sets), sets))
		return 0;
	return (unsigned)CPU_COUNT_S(sizeof(sets), sets);
}

/* Datasets alone are mostly read at random, and prefetch was not measured for them. */
static unsigned fetchers(const struct mfs_tree *tree, const struct mfs_options *opt)
{
	/* They could be no programs of their own, or would not be let into the mount. */
	if (mfs_rights_are_dropped(opt))
		return 0;
	if (opt->prefetch_given)
		return opt->prefetch;
	return mfs_tree_has_model(tree) ? mfs_prefetch_fetchers(processors()) : 0;
}

int mfs_session_run(struct mfs_tree *tree, struct mfs_overlay *overlay,
		    const struct mfs_options *opt, const char *fsname, const char *mountpoint,
		    struct mfs_daemon *daemon, struct mfs_error *err)
{
	struct mfs_front front = {.tree = tree,
				  .overlay = overlay,
				  .others = opt->allow_other,
				  .began = time(NULL),
				  .stats = mfs_metrics_new()};
	const bool listens = opt->metrics && !opt->metrics_file;
	struct waiter waiter = {.fsname = fsname,
				.mountpoint = mountpoint,
				.daemon = daemon,
				.front = &front,
				.metrics = listens ? NULL : opt->metrics,
				.unmounter = {.fd = -1},
				.root = -1,
				.read_ahead = -1,
				.began = time(NULL)};
	struct mfs_metrics_listener *listener = NULL;
	/* Another process may have mounted while this one looked at SOURCE. */
	int rc = mfs_mountpoint_clear(mountpoint, err);

	if (rc)
		return mfs_fail_in(err, "cannot mount on %s", mountpoint);
	mfs_log_set_mount(mountpoint);
	mfs_tree_watch(tree, say_change, &waiter);
	if (!front.stats || mfs_settings_make(opt, overlay && !opt->read_only, &front.settings)) {
		mfs_buf_release(&front.settings);
		mfs_stats_free(front.stats);
		return mfs_fail_nomem(err);
	}
	front.prefetch = mfs_prefetch_new(fetchers(tree, opt), mountpoint);
	front.metrics =
		(struct mfs_metrics_of){front.stats, tree,	 front.prefetch, &front.open_files,
					fsname,	     mountpoint, mfs_now_ns()};
	if (listens)
		rc = mfs_listener_start(opt->metrics, &front.metrics, &listener, err);
	if (!rc)
		rc = run(opt, &waiter, err);
	mfs_listener_stop(listener);
	if (waiter.written)
		unlink(waiter.metrics); /* nobody shall take it for one that is mounted */
	mfs_buf_release(&front.settings);
	mfs_prefetch_free(
		front.prefetch); /* fetchers may have waited for the mount, which is gone now */
	mfs_stats_free(front.stats);
	return rc;
}

const char *mfs_session_library(void)
{
	return fuse_pkgversion();
}
