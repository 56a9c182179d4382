#define _GNU_SOURCE
#include "formats/io/whole.h"

#include <errno.h>
#include <unistd.h>

int mfs_pread_whole(int fd, uint64_t off, void *buf, size_t len)
{
	uint8_t *to = buf;

	while (len) {
		ssize_t n = pread(fd, to, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		to += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int mfs_write_whole(int fd, const void *bytes, size_t len)
{
	const uint8_t *from = bytes;

	while (len) {
		ssize_t n = write(fd, from, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		from += n;
		len -= (size_t)n;
	}
	return 0;
}
