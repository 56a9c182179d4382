/* Input: a file whose pickles mcorefs fsck looks for: an archive, several of them, or a stream. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/fsck/scan.h"

static void found(void *arg, const char *module, size_t module_len, const char *name,
		  size_t name_len)
{
	uint32_t *imports = arg;

	(void)module_len;
	(void)name_len;
	fuzz_require(!module == !name);
	++*imports;
}

static int scan(const char *path, uint32_t *ret_imports, struct mfs_error *err)
{
	uint32_t pickles = 0;
	int rc;

	*ret_imports = 0;
	rc = mfs_scan_file(AT_FDCWD, path, found, ret_imports, &pickles, err);
	/* What imports something is a pickle. */
	fuzz_require(rc || pickles || !*ret_imports);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const int fd = memfd_create("scan", 0);
	uint32_t imports, before;
	struct mfs_error other;
	char path[64];
	int rc;

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = scan(path, &imports, err);
	/* Zeros after it hide nothing. */
	fuzz_require(!ftruncate(fd, (off_t)len + 64));
	if (!rc && !scan(path, &before, &other))
		fuzz_require(before >= imports);
	close(fd);
	return rc;
}

FUZZ_TARGET
