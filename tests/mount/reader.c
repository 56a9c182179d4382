/*
 * reader MOUNTED REFERENCE PROCESSES PREADS
 *
 * Reads a file of a mount in every way at once and compares with a plain copy: from each of
 * PROCESSES processes PREADS/PROCESSES preads at random places, a walk over a private mapping in
 * random order of pages, and O_DIRECT reads; then one sequential read. Exits with 0 if all bytes
 * agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE	    4096u
#define LONGEST	    (256u << 10) /* of a random pread, bytes */
#define DIRECT_SIZE (4u << 20)	 /* several requests of FUSE */

struct pair {
	const char *path;
	int fd;
	uint64_t size;
	const uint8_t *expected; /* the reference, mapped */
};

static void __attribute__((noreturn)) die(const struct pair *p, const char *what, uint64_t off)
{
	fprintf(stderr, "%s: %s at %llu: %s\n", p->path, what, (unsigned long long)off,
		errno ? strerror(errno) : "bytes differ");
	exit(1);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags);

	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
}

static const uint8_t *map(const struct pair *p, int fd)
{
	void *m = mmap(NULL, p->size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (m == MAP_FAILED)
		die(p, "mmap", 0);
	return m;
}

/* off may lie at the end, where nothing is read. */
static void compare_at(const struct pair *p, int fd, uint64_t off, uint8_t *buf, size_t len,
		       const char *what)
{
	uint64_t there = p->size - off < len ? p->size - off : len;
	ssize_t n;

	errno = 0;
	n = pread(fd, buf, len, (off_t)off);
	if (n != (ssize_t)there || memcmp(buf, p->expected + off, there))
		die(p, what, off);
}

static void read_at_random(const struct pair *p, unsigned count, uint64_t *random)
{
	uint8_t *buf = malloc(LONGEST);

	for (unsigned i = 0; i < count && buf; i++) {
		uint64_t off = next_random(random) % (p->size + 1);
		size_t len = next_random(random) % (next_random(random) & 1 ? LONGEST : 64) + 1;

		compare_at(p, p->fd, off, buf, len, "pread");
	}
	free(buf);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* A step that shares no factor with the number of pages visits each of them. */
static void walk_mapping(const struct pair *p, uint64_t *random)
{
	const uint8_t *m = map(p, p->fd);
	uint64_t pages = (p->size + PAGE - 1) / PAGE, at = next_random(random) % pages;
	uint64_t step = next_random(random) % pages + 1;

	while (gcd(step, pages) != 1)
		step++;
	errno = 0;
	for (uint64_t i = 0; i < pages; i++, at = (at + step) % pages) {
		uint64_t off = at * PAGE, len = p->size - off < PAGE ? p->size - off : PAGE;

		if (memcmp(m + off, p->expected + off, len))
			die(p, "mmap", off);
	}
	munmap((void *)m, p->size);
}

/* FUSE refuses this of a file that its daemon opens with direct_io: O_DIRECT must not lead there.
 */
static void map_shared(const struct pair *p, int fd, const char *what)
{
	uint8_t *m = mmap(NULL, p->size, PROT_READ, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED || memcmp(m, p->expected, p->size < PAGE ? p->size : PAGE))
		die(p, what, 0);
	munmap(m, p->size);
}

static void read_sequentially(const struct pair *p, int flags, const char *what)
{
	int fd = open_or_die(p->path, O_RDONLY | flags);
	uint8_t *buf = aligned_alloc(PAGE, DIRECT_SIZE);

	for (uint64_t off = 0; off < p->size && buf; off += DIRECT_SIZE)
		compare_at(p, fd, off, buf, DIRECT_SIZE, what);
	free(buf);
	map_shared(p, fd, what);
	close(fd);
}

static void child(struct pair p, unsigned number, unsigned preads)
{
	uint64_t random = 0x9e3779b97f4a7c15u * (number + 1);

	p.fd = open_or_die(p.path, O_RDONLY);
	if (number % 2)
		walk_mapping(&p, &random);
	read_at_random(&p, preads, &random);
	if (number % 4 == 3)
		read_sequentially(&p, O_DIRECT, "O_DIRECT read");
	walk_mapping(&p, &random);
	exit(0);
}

int main(int argc, char **argv)
{
	struct pair p = {0};
	unsigned processes, preads;
	int status, reference, failed = 0;

	if (argc != 5) {
		fprintf(stderr, "usage: reader MOUNTED REFERENCE PROCESSES PREADS\n");
		return 2;
	}
	processes = (unsigned)atoi(argv[3]);
	preads = (unsigned)atoi(argv[4]);
	p.path = argv[1];
	reference = open_or_die(argv[2], O_RDONLY);
	p.fd = open_or_die(p.path, O_RDONLY);
	p.size = size_of(reference);
	if (!p.size || p.size != size_of(p.fd))
		die(&p, "size", p.size);
	p.expected = map(&p, reference);
	for (unsigned i = 0; i < processes; i++)
		if (!fork())
			child(p, i, preads / processes);
	while (wait(&status) > 0)
		failed |= status;
	read_sequentially(&p, 0, "read");
	return failed ? 1 : 0;
}
