/* The ids of words that one thread has met. It takes a bounded amount of memory, and forgets all
 * when that is full. */
#ifndef MFS_TOKENIZER_WORD_CACHE_H
#define MFS_TOKENIZER_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define MFS_WORD_CACHE_LONGEST 96 /* bytes of a word that is kept */

struct mfs_word_entry {
	uint32_t tag;	/* a part of the hash, not 0; 0: nothing is here */
	uint32_t place; /* in bytes: the word, and then its ids at a multiple of 4 */
	uint16_t len;	/* of the word */
	uint16_t count; /* of ids */
};

struct mfs_word_cache {
	struct mfs_word_entry *slots;
	uint8_t *bytes;
	uint32_t bytes_used;
	uint32_t slots_used;
};

int mfs_word_cache_init(struct mfs_word_cache *cache);
void mfs_word_cache_release(struct mfs_word_cache *cache);

/* The ids of a word; NULL: it is not known. */
const uint32_t *mfs_word_cache_find(const struct mfs_word_cache *cache, const char *word,
				    size_t len, uint64_t hash, size_t *ret_count);
/* Keeps the ids of a word that is not known. */
void mfs_word_cache_add(struct mfs_word_cache *cache, const char *word, size_t len, uint64_t hash,
			const uint32_t *ids, size_t count);

#endif
