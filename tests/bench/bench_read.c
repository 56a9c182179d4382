/*
 * bench_read [-m read|mmap|copy|direct|fault] [-b BYTES] [-n READERS] [-t NAME] [-d] FILE...
 *
 * Reads files, or of safetensors files the tensors whose names contain NAME, with READERS
 * processes, each its share: by read(2), touching each page of a mapping once, copying out of a
 * mapping, or with O_DIRECT. Prints "BYTES SECONDS"; with -m fault, single pages in random order,
 * it prints "MEDIAN P99" of their microseconds. -d drops the files' cached pages first.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/fileset.h"
#include "formats/io/source.h"
#include "formats/hf/safetensors.h"

#define MAX_RANGES  100000
#define MAX_READERS 64
#define FAULTS	    1000       /* pages touched by each reader */
#define SHARE	    (2u << 20) /* shares begin at multiples of this in their files */

enum mode { READ, MMAP, COPY, DIRECT, FAULT };

struct range {
	const char *path;
	uint64_t off, len;
};

static struct range ranges[MAX_RANGES];
static unsigned range_count;
static uint64_t total;
static enum mode mode;
static size_t piece = 1 << 20;
static double *latencies; /* shared, FAULTS of each reader */

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add_range(const char *path, uint64_t off, uint64_t len)
{
	if (range_count == MAX_RANGES) {
		fprintf(stderr, "too many tensors\n");
		exit(EXIT_FAILURE);
	}
	ranges[range_count++] = (struct range){path, off, len};
	total += len;
}

static void add_tensors(const char *path, const char *name)
{
	char *dir = strdup(path), *slash = strrchr(dir, '/');
	struct mfs_error err = {0};
	struct mfs_safetensors st;
	struct mfs_fileset *set;
	struct mfs_source src;
	uint32_t file;

	if (!slash)
		die(path);
	*slash = '\0';
	if (mfs_fileset_new(dir, &set, &err) || mfs_fileset_add(set, slash + 1, &file, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		exit(EXIT_FAILURE);
	}
	src = mfs_source_file(set, file);
	if (mfs_safetensors_open(&src, &st, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		exit(EXIT_FAILURE);
	}
	for (uint32_t i = 0; i < st.count; i++)
		if (strstr(st.tensors[i].name, name))
			add_range(path, st.data + st.tensors[i].begin,
				  st.tensors[i].end - st.tensors[i].begin);
	mfs_safetensors_release(&st);
	mfs_fileset_free(set);
	free(dir);
}

static void add_file(const char *path, const char *tensors, bool drop)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	if (tensors)
		add_tensors(path, tensors);
	else
		add_range(path, 0, (uint64_t)st.st_size);
	if (drop && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die(path);
	close(fd);
}

/* ---- one reader ---- */

static void read_range(int fd, const struct range *r, uint8_t *buf)
{
	uint64_t end = r->off + r->len, at = r->off;

	if (mode == DIRECT)
		at &= ~4095ull;
	while (at < end) {
		size_t want = mode == DIRECT ? piece : (size_t)mfs_min_u64(piece, end - at);
		ssize_t n = pread(fd, buf, want, (off_t)at);

		if (n <= 0)
			die(r->path);
		at += (uint64_t)n;
	}
}

static void map_range(int fd, const struct range *r, uint8_t *buf)
{
	uint64_t start = r->off & ~4095ull, len = r->off + r->len - start;
	uint8_t *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)start);

	if (map == MAP_FAILED)
		die(r->path);
	if (mode == COPY)
		for (uint64_t at = 0; at < len; at += piece)
			memcpy(buf, map + at, mfs_min_u64(piece, len - at));
	else
		for (uint64_t at = 0; at < len; at += 4096)
			(void)*(volatile uint8_t *)(map + at);
	munmap(map, len);
}

static void fault_range(int fd, const struct range *r, double *out)
{
	uint64_t pages = r->len / 4096;
	const volatile uint8_t *map = mmap(NULL, r->len, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED || !pages)
		die(r->path);
	madvise((void *)(uintptr_t)map, r->len, MADV_RANDOM);
	for (int i = 0; i < FAULTS; i++) {
		uint64_t page = ((uint64_t)random() << 20 ^ (uint64_t)random()) % pages;
		double start = now();

		(void)map[page * 4096];
		out[i] = (now() - start) * 1e6;
	}
	munmap((void *)(uintptr_t)map, r->len);
}

static void read_one(const struct range *r, void *buf, double *faults)
{
	int fd = open(r->path, O_RDONLY | O_CLOEXEC | (mode == DIRECT ? O_DIRECT : 0));

	if (fd < 0)
		die(r->path);
	if (mode == MMAP || mode == COPY)
		map_range(fd, r, buf);
	else if (mode == FAULT)
		fault_range(fd, r, faults);
	else
		read_range(fd, r, buf);
	close(fd);
}

/* The part of all ranges between two places of their concatenation. */
static void read_share(uint64_t from, uint64_t to, void *buf)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < range_count; i++) {
		struct range r = ranges[i];
		uint64_t lo = mfs_max_u64(from, at), hi = mfs_min_u64(to, at + r.len);

		if (lo < hi) {
			r.off += lo - at;
			r.len = hi - lo;
			read_one(&r, buf, NULL);
		}
		at += ranges[i].len;
	}
}

static void reader(unsigned number, unsigned readers, int start_fd)
{
	uint64_t share = (total / readers / SHARE + 1) * SHARE;
	void *buf;
	char c;

	if (posix_memalign(&buf, 4096, piece))
		die("memory");
	memset(buf, 0, piece);
	srandom(number + 1);
	if (read(start_fd, &c, 1) < 0)
		die("start");
	if (mode == FAULT)
		read_one(&ranges[number % range_count], buf, latencies + number * FAULTS);
	else
		read_share(number * share, mfs_min_u64((number + 1) * share, total), buf);
	_exit(EXIT_SUCCESS);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double run(unsigned readers)
{
	bool failed = false;
	int start[2], status;
	double began;

	if (pipe(start))
		die("pipe");
	for (unsigned i = 0; i < readers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			close(start[1]);
			reader(i, readers, start[0]);
		}
	}
	usleep(50000);
	began = now();
	close(start[1]); /* every reader sees the end of the pipe */
	while (wait(&status) > 0)
		failed |= status != 0;
	if (failed)
		exit(EXIT_FAILURE);
	return now() - began;
}

int main(int argc, char **argv)
{
	static const char *const modes[] = {"read", "mmap", "copy", "direct", "fault"};
	const char *tensors = NULL;
	unsigned readers = 1;
	bool drop = false;
	double seconds;
	int opt;

	while ((opt = getopt(argc, argv, "m:b:n:t:d")) != -1) {
		if (opt == 'm')
			for (int i = 0; i < 5; i++)
				mode = strcmp(optarg, modes[i]) ? mode : (enum mode)i;
		else if (opt == 'b')
			piece = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			readers = (unsigned)atoi(optarg);
		else if (opt == 't')
			tensors = optarg;
		else if (opt == 'd')
			drop = true;
		else
			return EXIT_FAILURE;
	}
	if (optind == argc || !readers || readers > MAX_READERS || !piece)
		return EXIT_FAILURE;
	for (int i = optind; i < argc; i++)
		add_file(argv[i], tensors, drop);
	latencies = mmap(NULL, sizeof(*latencies) * FAULTS * MAX_READERS, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (latencies == MAP_FAILED)
		die("memory");
	seconds = run(readers);
	if (mode == FAULT) {
		size_t count = (size_t)readers * FAULTS;

		qsort(latencies, count, sizeof(*latencies), by_value);
		printf("%.1f %.1f\n", latencies[count / 2], latencies[count * 99 / 100]);
	} else {
		printf("%llu %.6f\n", (unsigned long long)total, seconds);
	}
	return EXIT_SUCCESS;
}
