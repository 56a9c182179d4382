/*
 * Tells whether an input is the one that an earlier run has read. Of an input that can be seeked
 * not all is read again: the digest is XXH3 of each block, seeded with that of the block before.
 */
#ifndef MFS_FS_PACK_DIGEST_H
#define MFS_FS_PACK_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_PACK_BLOCK (1u << 20) /* bytes */

/* A place to go on from. The anchor is a whole block or more before the position, or 0. */
struct mfs_pack_mark {
	uint64_t position; /* bytes of the input so far */
	uint64_t hash;	   /* of them all, one block after the other */
	uint64_t anchor, anchor_hash;
};

struct mfs_pack_digest;

/* Begins at the anchor of a mark, or at the start of the input if that is {0}. -ENOMEM. */
int mfs_pack_digest_new(const struct mfs_pack_mark *mark, struct mfs_pack_digest **ret,
			struct mfs_error *err);
void mfs_pack_digest_free(struct mfs_pack_digest *d);
void mfs_pack_digest_add(struct mfs_pack_digest *d, const void *bytes, size_t len);
struct mfs_pack_mark mfs_pack_digest_mark(const struct mfs_pack_digest *d);

#endif
