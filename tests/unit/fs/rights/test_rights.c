/* What is given up once a mount stands: fs/rights/rights.h. Each case gives it up in a child. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <threads.h>
#include <unistd.h>
#include <utime.h>

#include "formats/base/array.h"
#include "fs/rights/rights.h"
#include "fs/rights/rights_i.h"

static char in[PATH_MAX], out[PATH_MAX], cache[PATH_MAX], again[PATH_MAX];
static char in_file[PATH_MAX + 8], out_file[PATH_MAX + 8], cache_file[PATH_MAX + 8];
static char again_file[PATH_MAX + 8];
static int out_fd; /* open for reading alone */

static void make_file(const char *dir, char path[PATH_MAX + 8])
{
	FILE *f;

	mkdir(dir, 0755);
	snprintf(path, PATH_MAX + 8, "%s/file", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
}

static void make_dirs(void)
{
	const char *dir = unit_tmpdir();

	snprintf(in, sizeof(in), "%s/in", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	snprintf(cache, sizeof(cache), "%s/cache", dir);
	snprintf(again, sizeof(again), "%s/again", dir);
	make_file(in, in_file);
	make_file(again, again_file);
	make_file(out, out_file);
	make_file(cache, cache_file);
	out_fd = open(out_file, O_RDONLY);
	ck_assert_int_ge(out_fd, 0);
}

static int open_in(const char *dir, int flags)
{
	char path[PATH_MAX + 8];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, flags);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

/* The number of the first line that is not as it should be; 0: none. */
#define REFUSED(call, code)                                                                        \
	do {                                                                                       \
		if ((call) >= 0 || errno != (code))                                                \
			return __LINE__;                                                           \
	} while (0)
#define ALLOWED(call)                                                                              \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			return __LINE__;                                                           \
	} while (0)

static const struct mfs_options with_cache = {.sandbox = true, .data = {.cache = cache}};
static const struct mfs_options without_cache = {.sandbox = true};

static int check_files(void)
{
	struct mfs_error err;

	if (mfs_rights_drop(&with_cache, in, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return __LINE__;
	}
	if (open_in(in, O_RDONLY))
		return __LINE__;
	if (open_in(in, O_RDWR) != EACCES || open_in(out, O_RDONLY) != EACCES)
		return __LINE__;
	if (open_in(cache, O_RDWR | O_TRUNC))
		return __LINE__;
	REFUSED(open("/etc/passwd", O_RDONLY), EACCES);
	ALLOWED(open("/dev/null", O_RDWR));
	REFUSED(truncate(in_file, 0), EPERM);
	REFUSED(open(in_file, O_RDONLY | O_TRUNC), EACCES);
	return 0;
}

/* What a gateway opens: its sources, what their options name, and files that others replace. */
static int check_needs(void)
{
	const struct mfs_options opt = {.view = {.adapter = cache}}, process = {.sandbox = true};
	const struct mfs_rights_served served = {&opt, in};
	const char *const read_again[] = {again_file, NULL}, *const logs[] = {out_file, NULL};
	const struct mfs_rights_needs needs = {&served, 1, read_again, logs};
	struct mfs_error err;
	char other[PATH_MAX + 8];

	if (mfs_rights_drop_for(&process, &needs, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return __LINE__;
	}
	if (open_in(cache, O_RDONLY) || open_in(cache, O_WRONLY) != EACCES)
		return __LINE__;
	if (open_in(in, O_RDONLY) || open_in(in, O_WRONLY) != EACCES)
		return __LINE__;
	if (open_in(again, O_RDONLY) || open_in(again, O_WRONLY) != EACCES)
		return __LINE__;
	if (open_in(out, O_WRONLY | O_APPEND) || open_in(out, O_RDONLY) != EACCES)
		return __LINE__;
	snprintf(other, sizeof(other), "%s/other", out);
	ALLOWED(open(other, O_WRONLY | O_CREAT, 0600));
	REFUSED(unlink(other), EACCES);
	return 0;
}

/* A link's two directories, for Landlock; a file's time, for seccomp. */
static int check_url_cache(void)
{
	const int fd = open(cache_file, O_RDWR);
	char name[PATH_MAX + 32];

	if (fd < 0)
		return __LINE__;
	ALLOWED(futimens(fd, NULL));
	REFUSED(fchmod(fd, 0600), EPERM);
	REFUSED(utimensat(AT_FDCWD, cache_file, NULL, 0), EPERM);
	snprintf(name, sizeof(name), "%s/%d", cache, (int)getpid());
	ALLOWED(mkdir(name, 0700));
	strcat(name, "/link");
	ALLOWED(link(cache_file, name));
	return 0;
}

/* What is opened for a URL: its cache, certificates, names of hosts, and who asks. */
static int check_url_files(const char *url, bool is_s3)
{
	const struct mfs_options opt = {.sandbox = true, .view = {.cache = cache}};
	const char *const certificates = again, *const home = out;
	char keys[PATH_MAX + 32];
	struct mfs_error err;

	snprintf(keys, sizeof(keys), "%s/.aws", home);
	mkdir(keys, 0700);
	strcat(keys, "/file");
	fclose(fopen(keys, "w"));
	setenv("HOME", home, 1);
	setenv("CURL_CA_BUNDLE", again_file, 1);
	unsetenv("AWS_SHARED_CREDENTIALS_FILE");
	unsetenv("AWS_CONFIG_FILE");
	if (mfs_rights_drop(&opt, url, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return __LINE__;
	}
	if (open_in(cache, O_RDWR) || open_in(certificates, O_RDONLY))
		return __LINE__;
	if (open_in(certificates, O_RDWR) != EACCES)
		return __LINE__;
	if (open_in(home, O_RDONLY) != EACCES || open_in(in, O_RDONLY) != EACCES)
		return __LINE__;
	REFUSED(open("/etc/passwd", O_RDONLY), EACCES);
	if (access("/etc/resolv.conf", R_OK) == 0)
		ALLOWED(open("/etc/resolv.conf", O_RDONLY));
	if (is_s3)
		ALLOWED(open(keys, O_RDONLY));
	else
		REFUSED(open(keys, O_RDONLY), EACCES);
	return check_url_cache();
}

static int check_web(void)
{
	return check_url_files("https://localhost/x", false);
}

static int check_s3(void)
{
	return check_url_files("s3://bucket/x", true);
}

/* Files whose directories have more in them are meant alone. */
static int check_url_home(void)
{
	const struct mfs_options opt = {.sandbox = true, .view = {.cache = cache}};
	char home[PATH_MAX + 8], other[PATH_MAX + 8];
	struct mfs_error err;

	snprintf(other, sizeof(other), "%s/other", out);
	fclose(fopen(other, "w"));
	snprintf(home, sizeof(home), "%s/", out);
	setenv("HOME", home, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", out_file, 1);
	setenv("CURL_CA_BUNDLE", "/etc/ssl/none.pem", 1);
	if (mfs_rights_drop(&opt, "s3://bucket/x", &err))
		return __LINE__;
	ALLOWED(open(out_file, O_RDONLY));
	REFUSED(open(other, O_RDONLY), EACCES);
	if (access("/etc/ssl/private", F_OK) == 0)
		REFUSED(open("/etc/ssl/private", O_RDONLY), EACCES);
	return 0;
}

/* Landlock alone: what seccomp would refuse too. */
static int check_landlock(void)
{
	const struct mfs_rights_served served = {&with_cache, in};
	const struct mfs_rights_needs needs = {.served = &served, .served_count = 1};
	long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct mfs_error err;

	if (mfs_rights_limit_files(&with_cache, &needs, &err))
		return __LINE__;
	if (version >= 3) {
		REFUSED(truncate(in_file, 0), EACCES);
		REFUSED(truncate(out_file, 0), EACCES);
		ALLOWED(truncate(cache_file, 0));
	}
	if (version >= 6)
		REFUSED(kill(getppid(), 0), EPERM);
	ALLOWED(kill(getpid(), 0));
	return 0;
}

static int limit_calls(const struct mfs_options *opt)
{
	const bool has_cache = opt->data.cache;
	struct mfs_error err;

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       mfs_rights_limit_calls((struct mfs_rights_changes){has_cache, has_cache}, &err);
}

/* What names a file to change it. */
static int check_changes(void)
{
	const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
	/* Names of which one half of the address is 0. */
	const char *const high = (char *)(1ull << 32), *const low = (char *)1;

	if (limit_calls(&with_cache))
		return __LINE__;
	REFUSED(truncate(out_file, 0), EPERM);
	REFUSED(chmod(out_file, 0600), EPERM);
	REFUSED(fchmodat(AT_FDCWD, out_file, 0600, 0), EPERM);
	REFUSED(syscall(452, AT_FDCWD, out_file, 0600, 0), EPERM); /* fchmodat2 */
	REFUSED(chown(out_file, -1, -1), EPERM);
	REFUSED(lchown(out_file, -1, -1), EPERM);
	REFUSED(fchownat(AT_FDCWD, out_file, -1, -1, 0), EPERM);
	REFUSED(utimensat(AT_FDCWD, out_file, now, 0), EPERM);
	REFUSED(syscall(SYS_utimensat, out_fd, high, now, 0), EPERM);
	REFUSED(syscall(SYS_utimensat, out_fd, low, now, 0), EPERM);
	REFUSED(utimes(out_file, NULL), EPERM);
	REFUSED(utime(out_file, NULL), EPERM);
	REFUSED(setxattr(out_file, "user.a", "", 0, 0), EPERM);
	REFUSED(lsetxattr(out_file, "user.a", "", 0, 0), EPERM);
	REFUSED(fsetxattr(out_fd, "user.a", "", 0, 0), EPERM);
	REFUSED(syscall(463, AT_FDCWD, out_file, 0, "user.a", NULL, 0), EPERM); /* setxattrat */
	REFUSED(removexattr(out_file, "user.a"), EPERM);
	REFUSED(lremovexattr(out_file, "user.a"), EPERM);
	REFUSED(fremovexattr(out_fd, "user.a"), EPERM);
	REFUSED(syscall(466, AT_FDCWD, out_file, 0, "user.a"), EPERM);	      /* removexattrat */
	REFUSED(syscall(469, AT_FDCWD, out_file, NULL, 0, 0), EPERM);	      /* file_setattr */
	REFUSED(ioctl(out_fd, FS_IOC_SETFLAGS, &(int){FS_NODUMP_FL}), EPERM); /* chattr */
	REFUSED(ioctl(out_fd, TIOCSTI, ""), EPERM);
	REFUSED(mknod("/nowhere/a", S_IFREG | 0600, 0), EPERM);
	REFUSED(mknodat(AT_FDCWD, "/nowhere/a", S_IFREG | 0600, 0), EPERM);
	/* What is open, for dataset_cache. */
	ALLOWED(fchmod(out_fd, 0600));
	ALLOWED(fchown(out_fd, -1, -1));
	ALLOWED(futimens(out_fd, now));
	isatty(out_fd);
	return errno == ENOTTY ? 0 : __LINE__;
}

static int check_changes_without_cache(void)
{
	if (limit_calls(&without_cache))
		return __LINE__;
	REFUSED(fchmod(out_fd, 0600), EPERM);
	REFUSED(fchown(out_fd, -1, -1), EPERM);
	REFUSED(futimens(out_fd, NULL), EPERM);
	return 0;
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

/* A process or a thread may be started, but in no namespace of its own. */
static int check_clone(void)
{
	static const unsigned long kinds[] = {
		CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
		CLONE_NEWUSER, CLONE_NEWPID,	CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET};
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	long pid;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++) {
		pid = syscall(SYS_clone, kinds[i] | SIGCHLD, 0, 0, 0, 0);
		if (!pid)
			_exit(0);
		REFUSED(pid, EPERM);
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (!pid)
		_exit(0);
	REFUSED(pid, ENOSYS);
	pid = fork();
	if (!pid)
		_exit(0);
	return pid > 0 && waitpid((pid_t)pid, NULL, 0) == pid ? 0 : __LINE__;
}

static int check_calls(void)
{
	char *const argv[] = {"true", NULL};
	char params[256] = {0};
	thrd_t thread;
	int line;

	if (limit_calls(&without_cache))
		return __LINE__;
	REFUSED(execv("/bin/true", argv), EPERM);
	REFUSED(mount("none", "/", "tmpfs", 0, NULL), EPERM);
	REFUSED(syscall(SYS_mount_setattr, -1, "", 0, NULL, 0), EPERM);
	REFUSED(syscall(SYS_io_uring_setup, 1, params), EPERM);
	REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM);
	REFUSED(syscall(SYS_unshare, 0), EPERM);
	REFUSED(kill(getppid(), 0), EPERM);
	REFUSED(kill(-1, 0), EPERM);
	REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM);
	REFUSED(syscall(SYS_tkill, getppid(), 0), EPERM);
	REFUSED(syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0), EPERM);
	ALLOWED(kill(getpid(), 0));
	line = check_clone();
	if (line)
		return line;
	if (thrd_create(&thread, nothing, NULL) != thrd_success || thrd_join(thread, NULL))
		return __LINE__;
	return raise(0) ? __LINE__ : 0;
}

static int check_dropped(void)
{
	struct mfs_options opt = {.drop_privileges = true};
	struct mfs_error err;

	if (mfs_rights_drop(&opt, in, &err))
		return __LINE__;
	if (open_in(out, O_RDWR)) /* files are not limited */
		return __LINE__;
	if (!chroot("/") || errno != EPERM)
		return __LINE__;
	return 0;
}

static int wait_long(void *arg)
{
	(void)arg;
	pause();
	return 0;
}

static int wait_briefly(void *arg)
{
	(void)arg;
	usleep(50000);
	return 0;
}

/* As one that was joined, which is listed a little longer. */
static int check_ending_thread(void)
{
	struct mfs_options opt = {.drop_privileges = true};
	struct mfs_error err;
	thrd_t thread;

	if (thrd_create(&thread, wait_briefly, NULL) != thrd_success)
		return __LINE__;
	return mfs_rights_drop(&opt, in, &err) ? __LINE__ : 0;
}

static int check_threads(void)
{
	struct mfs_options opt = {.drop_privileges = true};
	struct mfs_error err;
	thrd_t thread;

	if (thrd_create(&thread, wait_long, NULL) != thrd_success)
		return __LINE__;
	return mfs_rights_drop(&opt, in, &err) == -EBUSY ? 0 : __LINE__;
}

static void in_child(int (*check)(void))
{
	int status, line;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		line = check();
		if (line)
			dprintf(2, "test_rights.c:%d: %s\n", line, strerror(errno));
		_exit(!!line);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

START_TEST(only_needed_files_can_be_opened)
{
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 0) {
		unit_skip("rights: the kernel has no Landlock");
		return;
	}
	make_dirs();
	in_child(check_files);
	in_child(check_needs);
	in_child(check_landlock);
	in_child(check_url_home);
	in_child(check_web);
	in_child(check_s3);
}
END_TEST

START_TEST(only_needed_calls_can_be_made)
{
	make_dirs();
	in_child(check_calls);
	in_child(check_changes);
	in_child(check_changes_without_cache);
}
END_TEST

START_TEST(dropped_rights_do_not_come_back)
{
	make_dirs();
	in_child(check_dropped);
}
END_TEST

START_TEST(every_thread_has_dropped_them)
{
	in_child(check_threads);
	in_child(check_ending_thread);
}
END_TEST

START_TEST(run_as_needs_a_user_and_goes_with_no_url)
{
	struct mfs_options opt = {.run_as = "frobnicate"};
	struct mfs_error err;

	ck_assert(mfs_rights_are_dropped(&opt));
	ck_assert_int_lt(mfs_rights_check(&opt, &err), 0);
	opt.source = "https://localhost/x";
	unit_fails(mfs_rights_check(&opt, &err), &err, -EINVAL, "goes with no URL");
	opt.source = NULL;
	opt.run_as = NULL;
	ck_assert(!mfs_rights_are_dropped(&opt));
	unit_ok(mfs_rights_check(&opt, &err), &err);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rights");

	unit_case(s, "files", only_needed_files_can_be_opened);
	unit_case(s, "calls", only_needed_calls_can_be_made);
	unit_case(s, "dropped", dropped_rights_do_not_come_back);
	unit_case(s, "threads", every_thread_has_dropped_them);
	unit_case(s, "users", run_as_needs_a_user_and_goes_with_no_url);
	return s;
}
