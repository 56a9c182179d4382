#include "formats/tokenizer/word_cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (1u << 16)
#define FULL  (SLOTS / 2)
#define BYTES (4u << 20)
#define NEAR  8 /* places of a word from its hash on: nobody makes a search long */

int mfs_word_cache_init(struct mfs_word_cache *cache)
{
	cache->slots = calloc(SLOTS, sizeof(*cache->slots));
	cache->bytes = malloc(BYTES);
	return cache->slots && cache->bytes ? 0 : -ENOMEM;
}

void mfs_word_cache_release(struct mfs_word_cache *cache)
{
	free(cache->slots);
	free(cache->bytes);
	*cache = (struct mfs_word_cache){0};
}

static uint32_t tag_of(uint64_t hash)
{
	return (uint32_t)(hash >> 32) | 1;
}

static uint32_t ids_at(const struct mfs_word_entry *e)
{
	return (e->place + e->len + 3u) & ~3u;
}

const uint32_t *mfs_word_cache_find(const struct mfs_word_cache *cache, const char *word,
				    size_t len, uint64_t hash, size_t *ret_count)
{
	for (uint32_t i = 0; i < NEAR; i++) {
		const struct mfs_word_entry *e = &cache->slots[((uint32_t)hash + i) % SLOTS];

		if (!e->tag)
			return NULL;
		if (e->tag != tag_of(hash) || e->len != len ||
		    memcmp(cache->bytes + e->place, word, len) != 0)
			continue;
		*ret_count = e->count;
		return (const uint32_t *)(cache->bytes + ids_at(e));
	}
	return NULL;
}

static struct mfs_word_entry *free_slot(struct mfs_word_cache *cache, uint64_t hash)
{
	for (uint32_t i = 0; i < NEAR; i++) {
		struct mfs_word_entry *e = &cache->slots[((uint32_t)hash + i) % SLOTS];

		if (!e->tag)
			return e;
	}
	return NULL;
}

static bool is_full(const struct mfs_word_cache *cache, size_t size)
{
	return cache->slots_used == FULL || BYTES - cache->bytes_used < size;
}

void mfs_word_cache_add(struct mfs_word_cache *cache, const char *word, size_t len, uint64_t hash,
			const uint32_t *ids, size_t count)
{
	const size_t size = len + 8 + count * sizeof(*ids);
	struct mfs_word_entry *e;

	if (count > UINT16_MAX)
		return;
	if (is_full(cache, size)) {
		memset(cache->slots, 0, SLOTS * sizeof(*cache->slots));
		cache->bytes_used = cache->slots_used = 0;
	}
	e = free_slot(cache, hash);
	if (!e)
		return;
	*e = (struct mfs_word_entry){tag_of(hash), cache->bytes_used, (uint16_t)len,
				     (uint16_t)count};
	memcpy(cache->bytes + e->place, word, len);
	if (count)
		memcpy(cache->bytes + ids_at(e), ids, count * sizeof(*ids));
	cache->bytes_used = ids_at(e) + (uint32_t)(count * sizeof(*ids));
	cache->slots_used++;
}
