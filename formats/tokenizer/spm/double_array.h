/*
 * A double array (Aoe, 1989): a trie whose steps are one look into memory, for texts that are all
 * known beforehand. The child of a node by a byte is at the node's base, exclusive-or the byte.
 */
#ifndef MFS_TOKENIZER_SPM_DOUBLE_ARRAY_H
#define MFS_TOKENIZER_SPM_DOUBLE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_TRIE_UNITS_MAX (1u << 23) /* so that a base has 23 bits of a link */

struct mfs_trie_unit {
	uint32_t link; /* base << 9 | MFS_TRIE_USED | byte that leads here */
	int32_t value; /* MFS_ABSENT: no key ends here */
};

#define MFS_TRIE_USED 0x100u

/* Node 0 is the root. */
struct mfs_double_array {
	struct mfs_trie_unit *units; /* [count], a multiple of 256 */
	uint32_t count;
};

struct mfs_trie_key {
	const char *text;
	uint32_t len; /* not 0 */
	int32_t value;
};

/* Sorts the keys, which differ. *ret is zero-filled. -ENOMEM; -ENOTSUP: they have too many bytes;
 * -EEXIST: two are equal; *ret_twice is the second one's value then. */
int mfs_double_array_build(struct mfs_trie_key *keys, size_t count, struct mfs_double_array *ret,
			   int32_t *ret_twice);
void mfs_double_array_release(struct mfs_double_array *t);

/* Steps from *node by a byte; false: no key goes on so. */
static inline bool mfs_double_array_step(const struct mfs_double_array *t, uint32_t *node,
					 uint8_t byte)
{
	const uint32_t next = t->units[*node].link >> 9 ^ byte;

	if ((t->units[next].link & 0x1ff) != (MFS_TRIE_USED | byte))
		return false;
	*node = next;
	return true;
}

#endif
