/* What inputs are compressed with, told by their first bytes, and unpacked as they are read. */
#ifndef MFS_FS_PACK_UNPACK_H
#define MFS_FS_PACK_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_UNPACK_LOOK 8 /* first bytes that tell */

struct mfs_unpacker;

/* *ret is NULL if the bytes are not compressed. -ENOTSUP: they are, in a way that is not known
 * here, which is named. name: of the input, for messages; borrowed. */
int mfs_unpacker_new(const uint8_t *first, size_t len, const char *name, struct mfs_unpacker **ret,
		     struct mfs_error *err);
void mfs_unpacker_free(struct mfs_unpacker *u); /* NULL: nothing */

/* Unpacks from *in, of which *in_len bytes are left, and moves both. Writes at most room bytes.
 * *ret_len is 0 if more input is needed. -EINVAL: damaged. */
int mfs_unpack(struct mfs_unpacker *u, const uint8_t **in, size_t *in_len, uint8_t *out,
	       size_t room, size_t *ret_len, struct mfs_error *err);
/* The input has ended. -EINVAL: it was cut. */
int mfs_unpack_end(const struct mfs_unpacker *u, struct mfs_error *err);

#endif
