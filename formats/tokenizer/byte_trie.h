/* Texts by their first bytes: which of them a text begins with. */
#ifndef MFS_TOKENIZER_BYTE_TRIE_H
#define MFS_TOKENIZER_BYTE_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_trie_edge {
	uint32_t from; /* the node and the byte, as node << 8 | byte; UINT32_MAX: nothing is here */
	uint32_t to;
};

/* Begins zero-filled. Node 0 is the root. */
struct mfs_byte_trie {
	uint32_t *values; /* [node_count]; UINT32_MAX: no text ends here */
	uint32_t node_count, node_room;
	struct mfs_trie_edge *edges; /* a hash table */
	uint32_t mask;
	uint64_t seed;	      /* of its hash, so that nobody knows which edges have one place */
	uint32_t firsts[256]; /* the nodes after the root; 0: none */
};

/* A later text with the same bytes takes its place. -ENOMEM; -ENOTSUP: there are too many bytes. */
int mfs_byte_trie_add(struct mfs_byte_trie *t, const char *text, size_t len, uint32_t value,
		      struct mfs_error *err);
void mfs_byte_trie_release(struct mfs_byte_trie *t);

/* Where the walk through the table begins for an edge. */
static inline uint32_t mfs_byte_trie_slot(const struct mfs_byte_trie *t, uint32_t from)
{
	uint64_t mixed = (from ^ t->seed) * 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
	return (uint32_t)(mixed >> 32) & t->mask;
}

/* The node after node by a byte; 0: none. */
static inline uint32_t mfs_byte_trie_next(const struct mfs_byte_trie *t, uint32_t node,
					  uint8_t byte)
{
	const uint32_t from = node << 8 | byte;

	if (!node)
		return t->firsts[byte];
	for (uint32_t i = mfs_byte_trie_slot(t, from); t->edges[i].from != UINT32_MAX;
	     i = (i + 1) & t->mask)
		if (t->edges[i].from == from)
			return t->edges[i].to;
	return 0;
}

#endif
