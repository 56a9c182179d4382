#include "fs/tree/node_ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fs/tree/tree.h"

#define RUN_SHIFT   56
#define OWNER_SHIFT 44
#define DIR_SHIFT   23
#define DIR_MASK    ((1ull << (OWNER_SHIFT - DIR_SHIFT)) - 1)
#define IN_VIEW	    ((1ull << DIR_SHIFT) - 1)

static uint64_t hash(const char *text, uint64_t seed)
{
	return XXH64(text, strlen(text), seed);
}

static uint64_t run_bits(const char *run)
{
	return hash(run, 0) >> RUN_SHIFT << RUN_SHIFT;
}

static uint64_t owner_bits(const struct mfs_id_owner *owner)
{
	const uint64_t bits = (hash(owner->path, owner->version) & ((1ull << RUN_SHIFT) - 1)) >>
			      OWNER_SHIFT << OWNER_SHIFT;

	return run_bits(owner->run) | bits;
}

/* No directory has 0 in its second part, so none has the root's id or 0. */
uint64_t mfs_id_of_dir(const struct mfs_id_owner *owner, const char *dir, unsigned attempt)
{
	const uint64_t bits = hash(dir, attempt) & DIR_MASK;

	return owner_bits(owner) | (bits ? bits : DIR_MASK) << DIR_SHIFT;
}

uint64_t mfs_id_in_view(uint64_t view, uint32_t number)
{
	return view | (uint64_t)number << 1;
}

uint64_t mfs_id_view(uint64_t id)
{
	return id & ~IN_VIEW;
}

bool mfs_id_may_be_of(uint64_t id, const struct mfs_id_owner *owner)
{
	return id >> OWNER_SHIFT << OWNER_SHIFT == owner_bits(owner);
}

bool mfs_id_may_be_of_run(uint64_t id, const char *run)
{
	return id >> RUN_SHIFT << RUN_SHIFT == run_bits(run);
}

uint32_t mfs_id_generation(const char *path, uint64_t stamp)
{
	const uint32_t g = (uint32_t)(hash(path, ~stamp) >> 33);

	return g ? g : 1;
}

/* ---- nodes ---- */

void mfs_node_ids_init(struct mfs_node_ids *ids)
{
	memset(ids, 0, sizeof(*ids));
	pthread_rwlock_init(&ids->lock, NULL);
}

void mfs_node_ids_release(struct mfs_node_ids *ids)
{
	free(ids->slots);
	pthread_rwlock_destroy(&ids->lock);
}

/* Numbers in a view are neighbours, which linear probing would put into one run; so ids are
 * multiplied. */
static size_t home(const struct mfs_node_ids *ids, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (ids->capacity - 1);
}

static size_t find_slot(const struct mfs_node_ids *ids, uint64_t id)
{
	size_t i = home(ids, id);

	while (ids->slots[i] && ids->slots[i]->id != id)
		i = (i + 1) & (ids->capacity - 1);
	return i;
}

struct mfs_node *mfs_node_ids_find(struct mfs_node_ids *ids, uint64_t id)
{
	struct mfs_node *found;

	pthread_rwlock_rdlock(&ids->lock);
	found = ids->capacity ? ids->slots[find_slot(ids, id)] : NULL;
	pthread_rwlock_unlock(&ids->lock);
	return found;
}

static int grow(struct mfs_node_ids *ids)
{
	struct mfs_node_ids more = {.capacity = ids->capacity ? ids->capacity * 2 : 256};

	more.slots = calloc(more.capacity, sizeof(struct mfs_node *));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < ids->capacity; i++)
		if (ids->slots[i])
			more.slots[find_slot(&more, ids->slots[i]->id)] = ids->slots[i];
	free(ids->slots);
	ids->slots = more.slots;
	ids->capacity = more.capacity;
	return 0;
}

int mfs_node_ids_put(struct mfs_node_ids *ids, struct mfs_node *node)
{
	size_t slot;
	int rc = 0;

	pthread_rwlock_wrlock(&ids->lock);
	if (ids->count * 2 >= ids->capacity)
		rc = grow(ids);
	if (!rc) {
		slot = find_slot(ids, node->id);
		ids->count += !ids->slots[slot];
		ids->slots[slot] = node;
	}
	pthread_rwlock_unlock(&ids->lock);
	return rc;
}

/* Slots after a freed one move up, so that probing still finds them. */
static void free_slot(struct mfs_node_ids *ids, size_t hole)
{
	const size_t mask = ids->capacity - 1;

	for (size_t i = (hole + 1) & mask; ids->slots[i]; i = (i + 1) & mask) {
		const size_t at = home(ids, ids->slots[i]->id);

		if (((i - at) & mask) < ((i - hole) & mask))
			continue;
		ids->slots[hole] = ids->slots[i];
		hole = i;
	}
	ids->slots[hole] = NULL;
	ids->count--;
}

void mfs_node_ids_remove(struct mfs_node_ids *ids, const struct mfs_node *node)
{
	size_t slot;

	pthread_rwlock_wrlock(&ids->lock);
	if (ids->capacity) {
		slot = find_slot(ids, node->id);
		if (ids->slots[slot] == node)
			free_slot(ids, slot);
	}
	pthread_rwlock_unlock(&ids->lock);
}
