#define _GNU_SOURCE
#include "formats/remote/pins.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/beneath.h"
#include "formats/io/regular.h"

#define BYTES (MFS_PINS * sizeof(struct mfs_pin))

int mfs_pins_create(int dirfd, const char *name, struct mfs_pins *ret)
{
	int rc, fd = mfs_beneath_create(dirfd, name, O_RDWR, 0600);
	void *map;

	if (fd < 0)
		return fd;
	rc = -posix_fallocate(fd, 0, BYTES);
	map = rc ? MAP_FAILED : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!rc && map == MAP_FAILED)
		rc = -errno;
	close(fd);
	if (rc)
		return rc;
	ret->unused = malloc(MFS_PINS * sizeof(*ret->unused));
	if (!ret->unused) {
		munmap(map, BYTES);
		return -ENOMEM;
	}
	pthread_mutex_init(&ret->lock, NULL);
	ret->table = map;
	ret->unused_count = MFS_PINS;
	for (uint32_t i = 0; i < MFS_PINS; i++)
		ret->unused[i] = MFS_PINS - 1 - i;
	return 0;
}

void mfs_pins_free(struct mfs_pins *p)
{
	if (!p->table)
		return;
	munmap(p->table, BYTES);
	pthread_mutex_destroy(&p->lock);
	free(p->unused);
	p->table = NULL;
}

int mfs_pins_add(struct mfs_pins *p, uint64_t object, uint32_t first, uint32_t last, uint32_t *ret)
{
	bool found;

	pthread_mutex_lock(&p->lock);
	found = p->unused_count;
	if (found)
		*ret = p->unused[--p->unused_count];
	pthread_mutex_unlock(&p->lock);
	if (!found)
		return -EAGAIN;
	atomic_store(&p->table[*ret].blocks, (uint64_t)first << 32 | last);
	atomic_store(&p->table[*ret].object, object);
	return 0;
}

void mfs_pins_remove(struct mfs_pins *p, uint32_t pin)
{
	atomic_store(&p->table[pin].object, 0);
	pthread_mutex_lock(&p->lock);
	p->unused[p->unused_count++] = pin;
	pthread_mutex_unlock(&p->lock);
}

int mfs_pins_map(int dirfd, const char *name, const struct mfs_pin **ret)
{
	struct stat st;
	void *map;
	int fd, rc = mfs_open_regular_as_is(dirfd, name, O_NOFOLLOW, &fd, &st);

	if (rc)
		return rc;
	if ((uint64_t)st.st_size != BYTES)
		rc = -EINVAL;
	map = rc ? MAP_FAILED : mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (!rc && map == MAP_FAILED)
		rc = -errno;
	close(fd);
	if (!rc)
		*ret = map;
	return rc;
}

void mfs_pins_unmap(const struct mfs_pin *table)
{
	munmap((void *)(uintptr_t)table, BYTES);
}

/* A pin that is being changed is either old or new: its blocks are written before its object, and
 * its object is taken away before its blocks. One that is given to another in between is met again
 * by that one's own look at the state. */
bool mfs_pins_has(const struct mfs_pin *table, uint64_t object, uint32_t block)
{
	for (uint32_t i = 0; i < MFS_PINS; i++) {
		uint64_t blocks;

		if (atomic_load(&table[i].object) != object)
			continue;
		blocks = atomic_load(&table[i].blocks);
		if (block >= blocks >> 32 && block <= (uint32_t)blocks)
			return true;
	}
	return false;
}
