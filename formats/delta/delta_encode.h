/*
 * One tensor's change, compressed into a file. The old and the new bytes are read in windows, so a
 * tensor may be larger than memory. A thread has an encoder of its own.
 */
#ifndef MFS_DELTA_ENCODE_H
#define MFS_DELTA_ENCODE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_rules.h"
#include "formats/delta/delta_sum.h"

enum mfs_delta_side { MFS_DELTA_OLD, MFS_DELTA_NEW };

struct mfs_delta_tensor {
	const char *name;
	uint64_t bytes;
	/* Fills buf with [off, off+len) of one side, in any thread and maybe more than once. NULL:
	 * the bytes are in memory. */
	int (*read)(void *arg, enum mfs_delta_side side, uint64_t off, void *buf, size_t len,
		    struct mfs_error *err);
	void *arg;
	const void *memory[2]; /* of both sides, if read is NULL */

	/* What comes of it. */
	uint64_t changed;		  /* bytes that differ */
	uint64_t stored;		  /* compressed; 0: nothing has changed */
	char sums[2][MFS_DELTA_SUM_TEXT]; /* of both sides */
};

struct mfs_delta_encoder;

/* -ENOMEM. meta stays the caller's. */
int mfs_delta_encoder_new(const struct mfs_delta_meta *meta, struct mfs_delta_encoder **ret,
			  struct mfs_error *err);
void mfs_delta_encoder_free(struct mfs_delta_encoder *e);

/* Writes t's change at off of a file. Of a tensor that has not changed nothing counts, and bytes
 * may have been written that the next one replaces. -ENOTSUP: the tensor is too large for the
 * encoding's positions; errors of read() and of writing. */
int mfs_delta_encode(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, int fd, uint64_t off,
		     struct mfs_error *err);

#endif
