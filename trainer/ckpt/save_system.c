/* The system as a save sees it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/str.h"
#include "trainer/ckpt/save_i.h"

static int make_dir(void *arg, int dirfd, const char *name)
{
	(void)arg;
	return mkdirat(dirfd, name, 0777) ? -errno : 0;
}

static int open_dir(void *arg, int dirfd, const char *name, int *ret)
{
	(void)arg;
	*ret = mfs_beneath_open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	return *ret < 0 ? *ret : 0;
}

/* Page cache that nobody reads again, and its writeback, cost the run memory and time. File systems
 * without O_DIRECT (tmpfs before 6.6, some of the network) say EINVAL. */
static int open_file(void *arg, int dirfd, const char *path, int *ret)
{
	int fd = mfs_beneath_create(dirfd, path, O_WRONLY | O_DIRECT, 0666);

	(void)arg;
	if (fd == -EINVAL) /* some have made it before they refuse */
		fd = mfs_beneath_create(dirfd, path, O_WRONLY, 0666);
	*ret = fd;
	return fd < 0 ? fd : 0;
}

/* Writes into space that is there need no journal, and a full disk is known before the first
 * write. */
static int allocate(void *arg, int fd, uint64_t size)
{
	(void)arg;
	if (!size || !fallocate(fd, 0, 0, (off_t)size))
		return 0;
	return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
}

static int cut(void *arg, int fd, uint64_t size)
{
	(void)arg;
	return ftruncate(fd, (off_t)size) ? -errno : 0;
}

static int close_file(void *arg, int fd)
{
	(void)arg;
	return close(fd) ? -errno : 0;
}

static int sync_dir(void *arg, int fd)
{
	(void)arg;
	return fsync(fd) ? -errno : 0;
}

static int rename_name(void *arg, int dirfd, const char *from, const char *to)
{
	(void)arg;
	return renameat(dirfd, from, dirfd, to) ? -errno : 0;
}

static int exchange(void *arg, int dirfd, const char *a, const char *b)
{
	(void)arg;
	return renameat2(dirfd, a, dirfd, b, RENAME_EXCHANGE) ? -errno : 0;
}

static int remove_name(void *arg, int dirfd, const char *name, int flags)
{
	(void)arg;
	return unlinkat(dirfd, name, flags) ? -errno : 0;
}

static int engine(void *arg, unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err)
{
	(void)arg;
	return mfs_io_engine_new(depth, ret, err);
}

static void *alloc(void *arg, uint64_t bytes)
{
	void *p;

	(void)arg;
	bytes = (bytes + MFT_SAVE_BLOCK) / MFT_SAVE_BLOCK * MFT_SAVE_BLOCK;
	return posix_memalign(&p, MFT_SAVE_BLOCK, bytes) ? NULL : memset(p, 0, bytes);
}

static void sum_free(void *arg, void *sum)
{
	(void)arg;
	EVP_MD_CTX_free(sum);
}

static int sum_new(void *arg, void **ret)
{
	EVP_MD_CTX *sum = EVP_MD_CTX_new();

	(void)arg;
	*ret = sum;
	if (!sum)
		return -ENOMEM;
	/* A library in FIPS mode may lack what it needs. */
	return EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1 ? 0 : -ENOTSUP;
}

static int sum_add(void *arg, void *sum, const void *bytes, uint64_t length)
{
	(void)arg;
	return EVP_DigestUpdate(sum, bytes, length) == 1 ? 0 : -EIO;
}

static int sum_end(void *arg, void *sum, char ret[MFT_SAVE_DIGEST])
{
	uint8_t bytes[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	(void)arg;
	if (EVP_DigestFinal_ex(sum, bytes, &n) != 1 ||
	    EVP_DigestInit_ex(sum, EVP_sha256(), NULL) != 1)
		return -EIO;
	mfs_str_hex(bytes, n, ret);
	return 0;
}

const struct mft_save_system_ops mft_save_system = {
	.mkdir = make_dir,
	.open_dir = open_dir,
	.open = open_file,
	.allocate = allocate,
	.truncate = cut,
	.close = close_file,
	.sync_dir = sync_dir,
	.rename = rename_name,
	.exchange = exchange,
	.remove = remove_name,
	.engine = engine,
	.alloc = alloc,
	.sum_new = sum_new,
	.sum_add = sum_add,
	.sum_end = sum_end,
	.sum_free = sum_free,
};
