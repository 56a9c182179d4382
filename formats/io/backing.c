#include "formats/io/backing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/uthash.h"

struct inode {
	uint64_t dev, ino;
};

struct entry {
	struct inode inode;
	struct mfs_backing backing;
	UT_hash_handle hh;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct entry *entries;
static atomic_uint count; /* so that nobody takes the lock where all files are ordinary */

static struct inode inode_of(const struct stat *st)
{
	return (struct inode){(uint64_t)st->st_dev, (uint64_t)st->st_ino};
}

int mfs_backing_add(const struct stat *st, const struct mfs_backing *backing)
{
	struct entry *e = calloc(1, sizeof(*e));
	bool failed;

	if (!e)
		return -ENOMEM;
	e->inode = inode_of(st);
	e->backing = *backing;
	pthread_rwlock_wrlock(&lock);
	HASH_ADD(hh, entries, inode, sizeof(e->inode), e);
	failed = !e->hh.tbl;
	if (!failed)
		atomic_fetch_add(&count, 1);
	pthread_rwlock_unlock(&lock);
	if (failed)
		free(e);
	return failed ? -ENOMEM : 0;
}

static struct entry *find(const struct stat *st)
{
	const struct inode inode = inode_of(st);
	struct entry *e;

	HASH_FIND(hh, entries, &inode, sizeof(inode), e);
	return e;
}

void mfs_backing_remove(const struct stat *st)
{
	struct entry *e;

	pthread_rwlock_wrlock(&lock);
	e = find(st);
	if (e) {
		HASH_DEL(entries, e);
		atomic_fetch_sub(&count, 1);
	}
	pthread_rwlock_unlock(&lock);
	free(e);
}

const struct mfs_backing *mfs_backing_of(const struct stat *st)
{
	struct entry *e;

	if (!atomic_load_explicit(&count, memory_order_relaxed))
		return NULL;
	pthread_rwlock_rdlock(&lock);
	e = find(st);
	pthread_rwlock_unlock(&lock);
	return e ? &e->backing : NULL;
}
