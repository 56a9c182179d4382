/*
 * Writes one version of a chain, from the old and the new bytes of each tensor. It appears whole or
 * not at all: it is written in a directory of another name, made durable and renamed.
 *
 * Tensors are divided into shards, a file each. Several threads may write one shard each at once.
 * The bytes of a version follow from the tensors and from how they are divided.
 *
 *	mfs_delta_writer_new(dir, &meta, shards, &w, err)
 *	mfs_delta_write_shard(w, i, tensors, count, &hooks, err)      for each shard
 *	mfs_delta_writer_finish(w, err)
 *	mfs_delta_writer_free(w)
 */
#ifndef MFS_DELTA_WRITE_H
#define MFS_DELTA_WRITE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_encode.h"

struct mfs_delta_writer;

/* dir must exist. -EEXIST: it has this version; -EBUSY: another process writes it. What a killed
 * process has left of this version is removed. */
int mfs_delta_writer_new(const char *dir, const struct mfs_delta_meta *meta, uint32_t shards,
			 struct mfs_delta_writer **ret, struct mfs_error *err);
/* Removes what is not finished. */
void mfs_delta_writer_free(struct mfs_delta_writer *w);

/* Called after each tensor, in the thread that writes it; not 0: writing ends with that. NULL: not
 * called. */
struct mfs_delta_hooks {
	int (*wrote)(void *arg, const struct mfs_delta_tensor *t);
	void *arg;
};

/* Writes the tensors of a shard, and fills in what comes of them. They and their names stay until
 * the writer ends. -EINVAL: a name is empty, or too long for a header. Errors of
 * mfs_delta_encode(). */
int mfs_delta_write_shard(struct mfs_delta_writer *w, uint32_t shard,
			  struct mfs_delta_tensor *tensors, uint32_t count,
			  const struct mfs_delta_hooks *hooks, struct mfs_error *err);

/* After all shards: the version is there. */
int mfs_delta_writer_finish(struct mfs_delta_writer *w, struct mfs_error *err);

/* Bytes of all files that were written. */
uint64_t mfs_delta_writer_bytes(const struct mfs_delta_writer *w);

#endif
