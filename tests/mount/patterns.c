/*
 * patterns PATTERN FILE REFERENCE [BYTES [MOUNTPOINT]]
 *
 * Reads a file in one of the ways in which programs read, through one open file, and compares it
 * with another: random, backwards, strided, two (places in turn) or forward by pread, faults (pages
 * of a mapping, at random) or mapping (its pages in order). forward and mapping end after BYTES.
 * Then it closes the file, and unmounts MOUNTPOINT at once. Exits with 0 if all bytes agree, and
 * the mount was not busy.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (256u << 10)
#define PAGE  4096u

struct file {
	int fd;
	uint64_t size;
	const uint8_t *map; /* of the file */
	const uint8_t *expected;
};

static void __attribute__((noreturn)) die(const char *what)
{
	perror(what);
	exit(1);
}

static const uint8_t *map(const char *path, int fd, uint64_t size)
{
	void *m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED)
		die(path);
	return m;
}

static void get(const struct file *f, uint64_t off, uint64_t len)
{
	static uint8_t buf[PIECE];

	if (off >= f->size)
		return;
	if (len > f->size - off)
		len = f->size - off;
	if (pread(f->fd, buf, len, (off_t)off) != (ssize_t)len)
		die("pread");
	if (memcmp(buf, f->expected + off, len)) {
		fprintf(stderr, "bytes differ at %llu\n", (unsigned long long)off);
		exit(1);
	}
}

static void touch(const struct file *f, uint64_t off)
{
	if (f->map[off] != f->expected[off]) {
		fprintf(stderr, "a byte differs at %llu\n", (unsigned long long)off);
		exit(1);
	}
}

static uint64_t any(uint64_t below)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % below;
}

static int run(const char *pattern, const struct file *f, uint64_t bytes)
{
	const uint64_t pieces = f->size / PIECE, half = f->size / 2;

	if (!strcmp(pattern, "random"))
		for (int i = 0; i < 600; i++)
			get(f, any(f->size / PAGE) * PAGE, any(PIECE) + 1);
	else if (!strcmp(pattern, "faults"))
		for (int i = 0; i < 600; i++)
			touch(f, any(f->size));
	else if (!strcmp(pattern, "backwards"))
		for (uint64_t i = pieces; i; i--)
			get(f, (i - 1) * PIECE, PIECE);
	else if (!strcmp(pattern, "strided"))
		for (uint64_t i = 0; i < pieces; i += 16)
			get(f, i * PIECE, PIECE);
	else if (!strcmp(pattern, "two"))
		for (uint64_t off = 0; off < half / 2; off += PIECE) {
			get(f, off, PIECE);
			get(f, half + off, PIECE);
		}
	else if (!strcmp(pattern, "forward"))
		for (uint64_t off = 0; off < bytes; off += PIECE)
			get(f, off, PIECE);
	else if (!strcmp(pattern, "mapping"))
		for (uint64_t off = 0; off < bytes; off += PAGE)
			touch(f, off);
	else
		return 2;
	return 0;
}

static void unmount(const struct file *f, const char *mountpoint)
{
	munmap((void *)(uintptr_t)f->map, f->size);
	close(f->fd);
	if (umount(mountpoint))
		die("umount");
}

int main(int argc, char **argv)
{
	struct file f;
	struct stat st;
	int reference, rc;

	if (argc < 4)
		return 2;
	f.fd = open(argv[2], O_RDONLY);
	reference = open(argv[3], O_RDONLY);
	if (f.fd < 0 || reference < 0 || fstat(f.fd, &st))
		die(argv[2]);
	f.size = (uint64_t)st.st_size;
	f.map = map(argv[2], f.fd, f.size);
	f.expected = map(argv[3], reference, f.size);
	rc = run(argv[1], &f, argc > 4 ? strtoull(argv[4], NULL, 10) : f.size);
	if (!rc && argc > 5)
		unmount(&f, argv[5]);
	return rc;
}
