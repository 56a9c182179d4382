/*
 * Damage to a copy of files, one trial after the other: each file is cut at each 1/64 of its
 * length, then single bytes are changed at random (MCOREFS_TEST_SEED; half of them anywhere, half
 * where the indexes are). After each, a subject reads everything. It must give the right bytes or
 * an error with a sentence: never other bytes, a crash, a hang, or memory beyond a small multiple
 * of the files. Included by the program of each subject.
 */
#ifndef MFS_TESTS_DAMAGE_TRIALS_H
#define MFS_TESTS_DAMAGE_TRIALS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/error.h"
#include "formats/io/guard.h"

#define MAX_FILES 512 /* zarr has one for each chunk */
#define CUTS	  64

#if defined(__SANITIZE_ADDRESS__)
#define SECONDS_PER_TRIAL 60
#define LIMIT_MEMORY	  0 /* ASan's shadow has no place under a limit; its own option bounds */
#else
#define SECONDS_PER_TRIAL 20
#define LIMIT_MEMORY	  1
#endif

struct source_file {
	char path[512];
	uint8_t *bytes;
	size_t len;
};

struct trial {
	const struct source_file *file;
	size_t at;
	bool is_cut;
	uint8_t value; /* of the byte, if it is not cut */
};

/* What trials found, in memory shared with the parent, which outlives a crash. */
struct outcome {
	unsigned trial;
	unsigned errors, same, shows_change;
	char text[1024]; /* what was wrong */
};

/*
 * Reads everything below copy_dir. 0, with *ret_shows if what was read is right but not what it was
 * before; -errno with a sentence; or 1 with outcome->text. t is NULL before anything is damaged.
 */
typedef int subject(const struct trial *t, bool *ret_shows, struct mfs_error *err);

static struct source_file sources[MAX_FILES];
static unsigned source_count;
static uint64_t total;
static char copy_dir[256];
static struct outcome *outcome;

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

/* ---- the copy ---- */

static inline void make_copy_dir(void)
{
	const char *base = access("/dev/shm", W_OK) ? getenv("TMPDIR") : "/dev/shm";

	snprintf(copy_dir, sizeof(copy_dir), "%s/mcorefs-damage-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(copy_dir))
		die(copy_dir);
}

/* A file of the copy, which is to be damaged; bytes are kept. name begins with '/'. */
static void add_source(const char *name, uint8_t *bytes, size_t len)
{
	struct source_file *f = &sources[source_count++];
	FILE *out;

	if (source_count == MAX_FILES)
		die("too many files");
	snprintf(f->path, sizeof(f->path), "%s%s", copy_dir, name);
	f->bytes = bytes;
	f->len = len;
	total += len;
	out = fopen(f->path, "wb");
	if (!out || fwrite(bytes, 1, len, out) != len || fclose(out))
		die(f->path);
}

static void copy_file(const char *path, const char *name)
{
	FILE *in = fopen(path, "rb");
	struct stat st;
	uint8_t *bytes;

	if (!in || fstat(fileno(in), &st))
		die(path);
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes || fread(bytes, 1, (size_t)st.st_size, in) != (size_t)st.st_size)
		die(path);
	fclose(in);
	add_source(name, bytes, (size_t)st.st_size);
}

static size_t prefix_len;

static int copy_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char dir[512];

	(void)st, (void)ftw;
	if (type != FTW_D) {
		copy_file(path, path + prefix_len);
		return 0;
	}
	snprintf(dir, sizeof(dir), "%s%s", copy_dir, path + prefix_len);
	return mkdir(dir, 0755) && errno != EEXIST ? -1 : 0;
}

static inline void copy_tree(const char *dir)
{
	prefix_len = strlen(dir);
	if (nftw(dir, copy_one, 16, FTW_PHYS))
		die(dir);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void restore(const struct source_file *f)
{
	int fd = open(f->path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0 || write(fd, f->bytes, f->len) != (ssize_t)f->len || close(fd))
		die(f->path);
}

static void change_byte(const struct source_file *f, size_t at, uint8_t value)
{
	int fd = open(f->path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, &value, 1, (off_t)at) != 1 || close(fd))
		die(f->path);
}

/* ---- trials ---- */

static uint64_t random_state, seed;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Of two changes one lies anywhere, one in the first 64 KiB or the last 2 KiB of any file. */
static struct trial random_change(unsigned number)
{
	struct trial t = {0};
	uint64_t at;

	random_state = 0x9e3779b97f4a7c15ull * (number + 1 + (seed << 32));
	for (int i = 0; i < 8; i++)
		next_random();
	at = next_random() % total;
	for (t.file = sources; at >= t.file->len; t.file++)
		at -= t.file->len;
	if (number % 2) {
		do
			t.file = &sources[next_random() % source_count];
		while (!t.file->len);
		at = next_random() % (t.file->len < 65536 ? t.file->len : 65536);
		if (next_random() % 4 == 0)
			at = t.file->len - 1 -
			     next_random() % (t.file->len < 2048 ? t.file->len : 2048);
	}
	t.at = (size_t)at;
	t.value = (uint8_t)(t.file->bytes[at] + 1 + next_random() % 255);
	return t;
}

static struct trial get_trial(unsigned number)
{
	unsigned cuts = source_count * CUTS;

	if (number < cuts) {
		const struct source_file *f = &sources[number / CUTS];

		return (struct trial){
			.file = f, .at = f->len * (number % CUTS) / CUTS, .is_cut = true};
	}
	return random_change(number - cuts);
}

static bool bad_error(const struct mfs_error *err, int rc)
{
	if (!err->msg[0] || err->code != rc)
		snprintf(outcome->text, sizeof(outcome->text), "error %d without a sentence", rc);
	else if (rc == -ENOMEM)
		snprintf(outcome->text, sizeof(outcome->text), "memory beyond the limit");
	else
		return false;
	return true;
}

/* True if the trial went as it should. */
static bool run_trial(const struct trial *t, subject *read)
{
	struct mfs_error err = {0};
	bool shows = false;
	int rc;

	if (!t->is_cut)
		change_byte(t->file, t->at, t->value);
	else if (truncate(t->file->path, (off_t)t->at))
		die(t->file->path);
	rc = read(t, &shows, &err);
	if (t->is_cut)
		restore(t->file);
	else
		change_byte(t->file, t->at, t->file->bytes[t->at]);
	if (rc < 0 && bad_error(&err, rc))
		return false;
	if (rc < 0)
		outcome->errors++;
	else if (shows)
		outcome->shows_change++;
	else
		outcome->same++;
	return rc <= 0;
}

/* A limit of the processor's time, which others on the machine take from nobody, and one of the
 * clock for what waits for ever. */
static void limit_time(void)
{
	const struct itimerval limit = {.it_value.tv_sec = SECONDS_PER_TRIAL};

	if (setitimer(ITIMER_PROF, &limit, NULL))
		die("setitimer");
	alarm(SECONDS_PER_TRIAL * 15);
}

static void limit_memory(void)
{
	struct rlimit limit = {total * 4 + (32u << 20), total * 4 + (32u << 20)};

	if (LIMIT_MEMORY && setrlimit(RLIMIT_DATA, &limit))
		die("setrlimit");
}

/* Runs trials from outcome->trial on until one fails (exit status 1) or all are done (0). */
static void run_trials(unsigned count, subject *read)
{
	limit_memory();
	for (; outcome->trial < count; outcome->trial++) {
		struct trial t = get_trial(outcome->trial);

		limit_time();
		if (!run_trial(&t, read))
			_exit(1);
	}
	_exit(0);
}

static void report(unsigned number, int status)
{
	struct trial t = get_trial(number);

	printf("%s ", t.file->path + strlen(copy_dir) + 1);
	if (t.is_cut)
		printf("cut to %zu of %zu bytes: ", t.at, t.file->len);
	else
		printf("byte %zu changed from 0x%02x to 0x%02x: ", t.at, t.file->bytes[t.at],
		       t.value);
	if (WIFSIGNALED(status))
		printf("%s\n", WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF
				       ? "no end"
				       : strsignal(WTERMSIG(status)));
	else
		printf("%s\n", outcome->text[0] ? outcome->text : "ended by itself");
}

static unsigned run_all(unsigned count, subject *read)
{
	unsigned failed = 0;

	while (outcome->trial < count) {
		int status;
		pid_t pid;

		outcome->text[0] = '\0';
		fflush(stdout);
		pid = fork();
		if (pid < 0)
			die("fork");
		if (!pid)
			run_trials(count, read);
		waitpid(pid, &status, 0);
		if (!status)
			break;
		report(outcome->trial, status);
		failed++;
		restore(get_trial(outcome->trial).file);
		outcome->trial++;
	}
	return failed;
}

/* All trials of what add_source() and its like have been given. Prints what failed and a summary;
 * the exit status. */
static inline int run_damage(const char *name, unsigned changes, subject *read)
{
	const char *given_seed = getenv("MCOREFS_TEST_SEED");
	struct mfs_error err = {0};
	unsigned count = 0, failed;
	bool shows;

	seed = given_seed ? strtoull(given_seed, NULL, 10) : 0;

	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (outcome == MAP_FAILED || mfs_guard_install())
		die("damage");
	failed = read(NULL, &shows, &err) != 0;
	if (failed)
		printf("%s cannot be read undamaged: %s\n", name,
		       outcome->text[0] ? outcome->text : err.msg);
	if (!failed) {
		count = source_count * CUTS + changes;
		failed = run_all(count, read);
	}
	nftw(copy_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	printf("measured: damage to %s: %u trials: %u errors with a sentence, %u right, %u show "
	       "the "
	       "changed byte itself, %u failed\n",
	       name, count, outcome->errors, outcome->same, outcome->shows_change, failed);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
