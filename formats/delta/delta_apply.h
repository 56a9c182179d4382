/*
 * Applies a tensor's change to its bytes, from the first to the last, in windows of any length. So
 * memory does not depend on the size of the tensor.
 */
#ifndef MFS_DELTA_APPLY_H
#define MFS_DELTA_APPLY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_index.h"

struct mfs_delta_apply;

/* Bytes that zstd takes to apply a change, at most: by its frame's header (RFC 8878, 3.1.1.1). Of
 * what is no frame, 0. Errors of reading it. */
int mfs_delta_apply_room(const struct mfs_delta_change *change,
			 enum mfs_delta_encoding_kind encoding, uint64_t *ret,
			 struct mfs_error *err);

/* bytes: of the tensor. The change outlives *ret. */
int mfs_delta_apply_new(const struct mfs_delta_change *change,
			enum mfs_delta_encoding_kind encoding, uint64_t bytes,
			struct mfs_delta_apply **ret, struct mfs_error *err);
void mfs_delta_apply_free(struct mfs_delta_apply *a);

/* Changes the next len bytes of the tensor, which are in buf. -EINVAL: the change is cut, longer
 * than the tensor, or no zstd; -ENOTSUP: it needs too much memory; errors of reading it. */
int mfs_delta_apply_next(struct mfs_delta_apply *a, void *buf, size_t len, struct mfs_error *err);
/* After the last byte: nothing may be left of the change. */
int mfs_delta_apply_end(struct mfs_delta_apply *a, struct mfs_error *err);

#endif
