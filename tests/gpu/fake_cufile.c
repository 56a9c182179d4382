/*
 * What loads call of cuFile, where there is none: a device's memory is the host's (fake_driver.c).
 * It is built as libcufile.so.0, and a test loads it before the code under test asks for that name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/gpu/fake_cufile.h"

#define EXPORT	__attribute__((visibility("default")))
#define BLOCK	4096
#define INVALID 5001
#define KIND_FD 1

struct status {
	int code, cuda_code;
};

struct properties {
	unsigned major, minor;
	size_t poll_threshold, max_direct;
	unsigned file_systems, control, features, sizes[5];
};

struct description {
	int kind;
	union {
		int fd;
		void *of_windows;
	} file;
	const void *fs_ops;
};

static struct fake_cufile_way way;
static atomic_uint starts, files, reads;
static atomic_bool is_started;

EXPORT void fake_cufile_set(const struct fake_cufile_way *new_way)
{
	way = *new_way;
}

EXPORT struct fake_cufile_counts fake_cufile_tell(void)
{
	return (struct fake_cufile_counts){starts, files, reads};
}

EXPORT struct status cuFileDriverOpen(void)
{
	atomic_fetch_add(&starts, 1);
	is_started = true;
	return (struct status){0};
}

EXPORT struct status cuFileDriverGetProperties(struct properties *ret)
{
	*ret = (struct properties){.major = way.major, .file_systems = way.file_systems};
	return (struct status){is_started ? 0 : INVALID, 0};
}

EXPORT struct status cuFileHandleRegister(void **ret, struct description *d)
{
	int *fd;

	if (d->kind != KIND_FD || !(fcntl(d->file.fd, F_GETFL) & O_DIRECT))
		return (struct status){INVALID, 0};
	fd = malloc(sizeof(*fd));
	if (!fd)
		return (struct status){INVALID, 0};
	*fd = d->file.fd;
	*ret = fd;
	atomic_fetch_add(&files, 1);
	return (struct status){0};
}

EXPORT void cuFileHandleDeregister(void *file)
{
	atomic_fetch_sub(&files, 1);
	free(file);
}

/* Blocks around what is asked for, as a disk gives them; some of it at a time. */
EXPORT ssize_t cuFileRead(void *file, void *to, size_t size, off_t off, off_t to_off)
{
	const off_t from = off / BLOCK * BLOCK;
	size_t len;
	void *blocks;
	ssize_t n;

	if (atomic_fetch_add(&reads, 1) + 1 == way.fails_at)
		return -EIO;
	size = size > way.most ? way.most : size;
	len = ((size_t)(off - from) + size + BLOCK - 1) / BLOCK * BLOCK;
	blocks = aligned_alloc(BLOCK, len);
	if (!blocks)
		return -ENOMEM;
	n = pread(*(int *)file, blocks, len, from);
	n = n < 0 ? -errno : n - (off - from);
	if (n > (ssize_t)size)
		n = (ssize_t)size;
	if (n > 0)
		memcpy((uint8_t *)to + to_off, (uint8_t *)blocks + (off - from), (size_t)n);
	free(blocks);
	return n;
}
