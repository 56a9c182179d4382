#define _GNU_SOURCE
#include "formats/remote/blocks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/base/bytes.h"
#include "formats/io/beneath.h"
#include "formats/io/whole.h"

#define MAGIC "mcorefs blocks 1"
#define HEAD  4096
#define PIECE (64u << 10)

struct head {
	char magic[16];
	uint64_t block, count, size;
	uint64_t unused[3];
	char key[65];
	char what[HEAD - 64 - 65];
};

_Static_assert(sizeof(struct head) == HEAD, "the states begin after the head");

uint32_t mfs_blocks_count(uint64_t size)
{
	return (uint32_t)((size + MFS_BLOCK_BYTES - 1) / MFS_BLOCK_BYTES);
}

uint64_t mfs_block_sum(const void *bytes, size_t len, uint32_t number)
{
	return XXH3_64bits_withSeed(bytes, len, number);
}

/* Piece by piece: what is read stays in the processor's cache until it is added. */
int mfs_block_sum_file(int fd, uint64_t off, size_t len, uint32_t number, uint64_t *ret)
{
	uint8_t piece[PIECE];
	XXH3_state_t state = {0};
	int rc = 0;

	XXH3_64bits_reset_withSeed(&state, number);
	while (len && !rc) {
		const size_t n = mfs_min_u64(len, sizeof(piece));

		rc = mfs_pread_whole(fd, off, piece, n);
		XXH3_64bits_update(&state, piece, rc ? 0 : n);
		off += n;
		len -= n;
	}
	*ret = XXH3_64bits_digest(&state);
	return rc;
}

static uint64_t sums_at(uint32_t count)
{
	return HEAD + (((uint64_t)count + 7) & ~7ull);
}

static uint64_t file_size(uint32_t count)
{
	return sums_at(count) + 8ull * count;
}

static int fill(int fd, const char *key, const char *what, uint64_t size)
{
	struct head head = {.magic = MAGIC,
			    .block = MFS_BLOCK_BYTES,
			    .count = mfs_blocks_count(size),
			    .size = size};
	int rc;

	snprintf(head.key, sizeof(head.key), "%s", key);
	snprintf(head.what, sizeof(head.what), "%s", what);
	if (pwrite(fd, &head, sizeof(head), 0) != sizeof(head))
		return -EIO;
	/* Without holes: a full disk is met here, and not where the mapping is written. */
	rc = posix_fallocate(fd, 0, (off_t)file_size(mfs_blocks_count(size)));
	return -rc;
}

int mfs_blocks_create(int dirfd, const char *name, const char *key, const char *what, uint64_t size)
{
	char temporary[160];
	int fd, rc;

	snprintf(temporary, sizeof(temporary), "%s.tmp", name);
	fd = mfs_beneath_create(dirfd, temporary, O_RDWR, 0600);
	if (fd < 0)
		return fd;
	rc = fill(fd, key, what, size);
	close(fd);
	if (!rc && renameat(dirfd, temporary, dirfd, name))
		rc = -errno;
	if (rc)
		unlinkat(dirfd, temporary, 0);
	return rc;
}

static bool is_head(const struct head *h, const char *key, uint64_t size)
{
	return !memcmp(h->magic, MAGIC, sizeof(h->magic)) && h->block == MFS_BLOCK_BYTES &&
	       h->size == size && h->count == mfs_blocks_count(size) &&
	       !memcmp(h->key, key, strlen(key) + 1);
}

int mfs_blocks_open(int dirfd, const char *name, const char *key, uint64_t size,
		    struct mfs_blocks *ret)
{
	const uint32_t count = mfs_blocks_count(size);
	struct stat st;
	uint8_t *map;
	int rc = 0, fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file_size(count))
		rc = -EINVAL;
	/* A copy may have holes: a full disk is met here, and not where the mapping is written. A
	 * file system that compresses has no room to give. */
	else if (fallocate(fd, 0, 0, st.st_size) && errno != EOPNOTSUPP && errno != ENOSYS)
		rc = -errno;
	map = rc ? MAP_FAILED
		 : mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!rc && map == MAP_FAILED)
		rc = -errno;
	close(fd);
	if (!rc && !is_head((const struct head *)map, key, size)) {
		munmap(map, (size_t)st.st_size);
		rc = -EINVAL;
	}
	if (rc)
		return rc;
	*ret = (struct mfs_blocks){.states = (_Atomic uint8_t *)(map + HEAD),
				   .sums = (_Atomic uint64_t *)(void *)(map + sums_at(count)),
				   .count = count,
				   .map = map,
				   .mapped = (size_t)st.st_size};
	return 0;
}

void mfs_blocks_close(struct mfs_blocks *b)
{
	if (b->map)
		munmap(b->map, b->mapped);
	b->map = NULL;
}
