/*
 * bench_rank [-c] [-t THREADS] [-m part|tensors|read] ITERATION_DIR LAYOUT TP PP
 *
 * Reads what rank (TP, PP) of a layout has of a checkpoint into memory: as a rank part, in the
 * order of the files; tensor by tensor through virtual files; or, as the measure of both, the same
 * number of bytes with read(2) of 4 MiB from the beginnings of the files on. -c drops the files'
 * cached pages first. Prints "BYTES SECONDS".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/io/guard.h"
#include "formats/megatron/read/rank_part.h"
#include "formats/plan/vfile.h"

#define WINDOW (4u << 20)

static struct mfs_error err;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench_rank: %s: %s\n", what, err.msg);
	exit(EXIT_FAILURE);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int open_file(struct mfs_fileset *files, uint32_t i)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", mfs_fileset_dir(files), mfs_fileset_name(files, i));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static void drop_pages(struct mfs_fileset *files)
{
	for (uint32_t i = 0; i < mfs_fileset_count(files); i++) {
		int fd = open_file(files, i);

		fsync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
}

static void read_tensors(const struct mfs_rank_part *part, void *const *to)
{
	for (uint32_t i = 0; i < part->count; i++) {
		struct mfs_vfile *f;
		size_t len;

		if (mfs_vfile_new(&f, &err) ||
		    mfs_vfile_add_tensor(f, &part->tensors[i].tensor.base, &err))
			die("tensor");
		for (uint64_t at = 0; at < part->tensors[i].bytes; at += WINDOW) {
			mfs_vfile_willneed(f, at + WINDOW, 2 * WINDOW);
			if (mfs_vfile_pread(f, at, (uint8_t *)to[i] + at, WINDOW, &len, &err))
				die("tensor");
			mfs_vfile_served(f, len);
		}
		mfs_vfile_free(f);
	}
}

/* memory has room for the last window, too. */
static void read_plainly(struct mfs_fileset *files, uint8_t *memory, uint64_t bytes)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < mfs_fileset_count(files) && done < bytes; i++) {
		int fd = open_file(files, i);
		ssize_t n;

		while (done < bytes && (n = read(fd, memory + done, WINDOW)) > 0)
			done += (uint64_t)n;
		close(fd);
	}
}

int main(int argc, char **argv)
{
	struct mfs_rank_part_options o = {.spec = MFS_LAYER_SPEC_TE};
	struct mfs_rank_part *part;
	struct mfs_ckpt *ckpt;
	const char *mode = "part";
	unsigned threads = 0;
	bool cold = false;
	uint8_t *memory;
	uint64_t used = 0;
	double start;
	void **to;
	int opt;

	while ((opt = getopt(argc, argv, "ct:m:")) != -1) {
		if (opt == 'c')
			cold = true;
		else if (opt == 't')
			threads = (unsigned)atoi(optarg);
		else if (opt == 'm')
			mode = optarg;
		else
			return EXIT_FAILURE;
	}
	if (argc - optind != 4 || !mfs_layout_parse(argv[optind + 1], &o.layout)) {
		snprintf(err.msg, sizeof(err.msg), "ITERATION_DIR LAYOUT TP PP are needed");
		die("usage");
	}
	o.rank.tp = (uint32_t)atoi(argv[optind + 2]);
	o.rank.pp = (uint32_t)atoi(argv[optind + 3]);
	mfs_guard_install();
	if (mfs_ckpt_open(argv[optind], 0, &ckpt, &err) ||
	    mfs_rank_part_open(ckpt, &o, &part, &err))
		die(argv[optind]);
	to = calloc(part->count, sizeof(*to));
	memory = mmap(NULL, part->bytes + WINDOW, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!to || memory == MAP_FAILED)
		die("memory");
	for (uint32_t i = 0; i < part->count; used += part->tensors[i++].bytes)
		to[i] = memory + used;
	if (cold)
		drop_pages(mfs_ckpt_files(ckpt));
	start = now();
	if (!strcmp(mode, "read"))
		read_plainly(mfs_ckpt_files(ckpt), memory, part->bytes);
	else if (!strcmp(mode, "tensors"))
		read_tensors(part, to);
	else if (mfs_rank_part_read(part, to, threads, &err))
		die("read");
	printf("%llu %.6f\n", (unsigned long long)part->bytes, now() - start);
	mfs_rank_part_free(part);
	mfs_ckpt_free(ckpt);
	free(to);
	return EXIT_SUCCESS;
}
