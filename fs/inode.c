#include "fs/inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mfs_inode_number(const char *path)
{
	uint64_t h;

	if (!strcmp(path, "/"))
		return MFS_INODE_ROOT;
	h = XXH64(path, strlen(path), 0);
	return h > MFS_INODE_ROOT ? h : ~h;
}

struct mfs_inode_slot {
	uint64_t ino; /* 0: free */
	const char *path;
};

/* Linear probing; the numbers are hashes already. */
static struct mfs_inode_slot *find_slot(struct mfs_inode_slot *slots, size_t capacity, uint64_t ino)
{
	size_t i = (size_t)ino & (capacity - 1);

	while (slots[i].ino && slots[i].ino != ino)
		i = (i + 1) & (capacity - 1);
	return &slots[i];
}

static int grow(struct mfs_inode_set *set)
{
	size_t capacity = set->capacity ? set->capacity * 2 : 64;
	struct mfs_inode_slot *slots = calloc(capacity, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < set->capacity; i++) {
		if (set->slots[i].ino)
			*find_slot(slots, capacity, set->slots[i].ino) = set->slots[i];
	}
	free(set->slots);
	set->slots = slots;
	set->capacity = capacity;
	return 0;
}

int mfs_inode_claim(struct mfs_inode_set *set, uint64_t ino, const char *path)
{
	struct mfs_inode_slot *slot;

	if (set->count * 2 >= set->capacity && grow(set))
		return -ENOMEM;
	slot = find_slot(set->slots, set->capacity, ino);
	if (slot->ino)
		return strcmp(slot->path, path) ? -EEXIST : 0;
	slot->ino = ino;
	slot->path = path;
	set->count++;
	return 0;
}

void mfs_inode_set_release(struct mfs_inode_set *set)
{
	free(set->slots);
	memset(set, 0, sizeof(*set));
}
