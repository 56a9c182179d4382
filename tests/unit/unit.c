#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/guard.h"

#define PROCESSOR_SECONDS 300
#define CLOCK_SECONDS	  "1200"

void unit_sentence(const char *msg, const char *part)
{
	ck_assert_msg(msg[0], "an error without a sentence");
	ck_assert_msg(!strchr(msg, '\n'), "a sentence with a line break: %s", msg);
	ck_assert_msg(!part || strstr(msg, part), "\"%s\" does not speak of \"%s\"", msg, part);
}

const char *unit_fixture(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof paths[0], "tests/fixtures/%s", name);
	return path;
}

uint8_t *unit_slurp(const char *path, size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *bytes;

	ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s: %m", path);
	bytes = malloc((size_t)st.st_size + 1);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*ret_len = (size_t)st.st_size;
	return bytes;
}

static char tmpdir[256];
static pid_t tmpdir_owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_tmpdir(void)
{
	if (getpid() == tmpdir_owner)
		nftw(tmpdir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *unit_tmpdir(void)
{
	const char *base = getenv("TMPDIR");

	if (tmpdir[0] && tmpdir_owner == getpid())
		return tmpdir;
	snprintf(tmpdir, sizeof tmpdir, "%s/mcorefs-unit-XXXXXX", base ? base : "/tmp");
	ck_assert_msg(mkdtemp(tmpdir) != NULL, "%s: %m", tmpdir);
	tmpdir_owner = getpid();
	atexit(remove_tmpdir);
	return tmpdir;
}

void unit_write(const char *dir, const char *name, const void *bytes, size_t len)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	ck_assert_msg(f != NULL, "%s: %m", path);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

static atomic_int *skips; /* counted in the processes of tests */

void unit_skip(const char *why)
{
	printf("\nskipped: unit/%s\n", why);
	fflush(stdout);
	atomic_fetch_add(skips, 1);
}

/* Each test is a process, whose time starts with it; with CK_FORK=no all are this one. What a busy
 * machine has no time for is not too slow, so Check's limit, of the clock, is for what hangs. */
static void limit_time(void)
{
	const struct rlimit limit = {PROCESSOR_SECONDS, PROCESSOR_SECONDS + 10};
	const char *fork = getenv("CK_FORK");

	if (!fork || strcmp(fork, "no"))
		setrlimit(RLIMIT_CPU, &limit);
	setenv("CK_DEFAULT_TIMEOUT", CLOCK_SECONDS, 0);
}

int main(void)
{
	SRunner *runner;
	int failed, skipped;

	limit_time(); /* which Check looks at when it makes a case */
	runner = srunner_create(mfs_suite());
	skips = mmap(NULL, sizeof(*skips), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (skips == MAP_FAILED)
		return EXIT_FAILURE;

	mfs_guard_install();
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	skipped = atomic_load(skips);
	printf("%d passed, %d failed, %d skipped\n", srunner_ntests_run(runner) - failed - skipped,
	       failed, skipped);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
