#include "fs/tree/inode.h"

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

/* A second hash identifies the path that claimed a number, since paths are freed. */
struct mfs_inode_slot {
	uint64_t ino; /* 0: free */
	uint64_t path;
	size_t claims;
};

/* Linear probing. The numbers are hashes themselves. */
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
	const uint64_t hash = XXH64(path, strlen(path), ~0ull);
	struct mfs_inode_slot *slot;

	if (set->count * 2 >= set->capacity && grow(set))
		return -ENOMEM;
	slot = find_slot(set->slots, set->capacity, ino);
	if (slot->ino && slot->path != hash)
		return -EEXIST;
	set->count += !slot->ino;
	slot->ino = ino;
	slot->path = hash;
	slot->claims++;
	return 0;
}

/* Slots after a freed one move up, so that probing still finds them. */
static void free_slot(struct mfs_inode_set *set, struct mfs_inode_slot *slot)
{
	const size_t mask = set->capacity - 1;
	size_t hole = (size_t)(slot - set->slots);

	for (size_t i = (hole + 1) & mask; set->slots[i].ino; i = (i + 1) & mask) {
		const size_t home = (size_t)set->slots[i].ino & mask;

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		set->slots[hole] = set->slots[i];
		hole = i;
	}
	set->slots[hole] = (struct mfs_inode_slot){0};
	set->count--;
}

void mfs_inode_release(struct mfs_inode_set *set, uint64_t ino)
{
	struct mfs_inode_slot *slot;

	if (!set->capacity)
		return;
	slot = find_slot(set->slots, set->capacity, ino);
	if (slot->ino && !--slot->claims)
		free_slot(set, slot);
}

void mfs_inode_set_release(struct mfs_inode_set *set)
{
	free(set->slots);
	memset(set, 0, sizeof(*set));
}
