/*
 * cache_writer DIRECTORY PROCESSES ROUNDS
 *
 * Each of PROCESSES does ROUNDS times what `datasets` does: a temporary file of mkstemp's, written
 * by name, renamed to a name that the others take as well, given its mode, mapped and compared.
 * Whatever stands at such a name must be one writer's file, whole. Then what else a file can be
 * asked for. Exits with 0 if all is as on any file system.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES 3
#define WORDS 70001u /* of a file: neither pages nor requests come out even */
#define BYTES (WORDS * sizeof(uint64_t))
#define PIECE 100003u /* of a write, bytes */

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "cache_writer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void expect(bool holds, const char *what)
{
	if (!holds)
		die(what);
}

/* A file's words are its writer's number, counted up. */
static void fill(uint64_t *words, uint64_t first)
{
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = first + i;
}

static bool is_whole(const uint64_t *words)
{
	for (uint32_t i = 1; i < WORDS; i++) {
		if (words[i] != words[0] + i)
			return false;
	}
	return true;
}

static void write_all(int fd, const void *bytes)
{
	for (size_t at = 0; at < BYTES; at += PIECE) {
		size_t n = BYTES - at < PIECE ? BYTES - at : PIECE;

		expect(write(fd, (const char *)bytes + at, n) == (ssize_t)n, "write");
	}
}

/* As tempfile.NamedTemporaryFile makes it and a second open writes it. */
static void make(char *path, uint64_t first)
{
	static uint64_t words[WORDS];
	int temporary, fd;
	struct stat st;

	temporary = mkstemp(path);
	expect(temporary >= 0, "mkstemp");
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	expect(fd >= 0, "open for writing");
	fill(words, first);
	write_all(fd, words);
	expect(!close(fd), "close");
	expect(!fstat(temporary, &st) && st.st_size == (off_t)BYTES, "size of what was written");
	expect(!close(temporary), "close of the temporary file");
}

static void compare(const char *path, int flags)
{
	const uint64_t *words;
	struct stat st;
	int fd = open(path, O_RDONLY);

	if (fd < 0 && errno == ENOENT)
		return; /* somebody has removed it */
	expect(fd >= 0 && !fstat(fd, &st), path);
	expect(st.st_size == (off_t)BYTES, "size of a renamed file");
	words = mmap(NULL, BYTES, PROT_READ, flags, fd, 0);
	expect(words != MAP_FAILED, "mmap");
	close(fd);
	expect(is_whole(words), "bytes of a renamed file");
	munmap((void *)words, BYTES);
}

static void work(const char *dir, int number, int rounds)
{
	char temporary[512], name[512];

	for (int i = 0; i < rounds; i++) {
		snprintf(temporary, sizeof(temporary), "%s/tmpXXXXXX", dir);
		snprintf(name, sizeof(name), "%s/cache-%d.arrow", dir, i % NAMES);
		make(temporary, (uint64_t)number << 40 | (uint64_t)i << 20);
		expect(!rename(temporary, name), "rename");
		if (chmod(name, 0644))
			expect(errno == ENOENT, "chmod");
		compare(name, MAP_PRIVATE);
		snprintf(name, sizeof(name), "%s/cache-%d.arrow", dir, (i + 1) % NAMES);
		compare(name, MAP_SHARED);
		if (i % 5 == 4 && unlink(name))
			expect(errno == ENOENT, "unlink");
	}
}

static void work_together(const char *dir, int processes, int rounds)
{
	int status;

	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();

		expect(pid >= 0, "fork");
		if (!pid) {
			work(dir, i, rounds);
			_exit(0);
		}
	}
	while (processes--)
		expect(wait(&status) > 0 && !status, "a process has failed");
}

/* A shared mapping that writes, and what it has written. */
static void write_mapped(int fd)
{
	uint64_t *words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), found;

	expect(words != MAP_FAILED, "mmap for writing");
	words[WORDS - 1] = 77;
	expect(!msync(words, BYTES, MS_SYNC), "msync");
	munmap(words, BYTES);
	expect(pread(fd, &found, 8, BYTES - 8) == 8 && found == 77, "what a mapping has written");
}

static void append(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND);

	expect(fd >= 0 && write(fd, "ab", 2) == 2 && write(fd, "cd", 2) == 2 && !close(fd),
	       "append");
}

/* An open file goes on when its name is gone. */
static void use_unlinked(const char *dir)
{
	char path[512], found[4];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/tmpXXXXXX", dir);
	make(path, 1);
	append(path);
	fd = open(path, O_RDWR);
	expect(fd >= 0 && !unlink(path), "unlink of an open file");
	expect(access(path, F_OK) && errno == ENOENT, "a name that was removed");
	expect(!fstat(fd, &st) && st.st_size == (off_t)BYTES + 4, "size of an unlinked file");
	expect(pread(fd, found, 4, BYTES) == 4 && !memcmp(found, "abcd", 4), "appended bytes");
	write_mapped(fd);
	expect(!ftruncate(fd, 10) && !fsync(fd) && !fdatasync(fd), "ftruncate and fsync");
	expect(lseek(fd, 0, SEEK_END) == 10, "the end of a truncated file");
	expect(!fchmod(fd, 0600) && !fstat(fd, &st) && (st.st_mode & 07777) == 0600, "fchmod");
	expect(!close(fd), "close of an unlinked file");
}

/* The kernel's own: asked for here, as programs lock what they write. */
static void lock(const char *dir)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/tmpXXXXXX", dir);
	fd = mkstemp(path);
	expect(fd >= 0 && !fcntl(fd, F_SETLK, &range), "a lock");
	expect(!unlink(path) && !close(fd), "the end of a locked file");
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: cache_writer DIRECTORY PROCESSES ROUNDS\n");
		return 2;
	}
	work_together(argv[1], atoi(argv[2]), atoi(argv[3]));
	use_unlinked(argv[1]);
	lock(argv[1]);
	return 0;
}
