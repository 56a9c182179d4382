/*
 * SHA-256 of global tensors, on all processors: a tensor is read in windows of 1 MiB by one thread,
 * and several threads have one tensor each, the largest first.
 */
#ifndef MFS_FS_SUMS_TENSOR_HASH_H
#define MFS_FS_SUMS_TENSOR_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/proof.h"

/* A tensor to hash, and what came of it. */
struct mfs_hash_job {
	const struct mfs_global_tensor *t;
	bool add_one;  /* it is stored as weight - 1, and the weight is hashed */
	uint64_t rows; /* of the first axis, from 0 on; all of them for a tensor without axes */
	uint8_t sha256[MFS_SHA256_BYTES];
	char *why; /* it could not be read: a sentence, to be freed; else NULL */
};

/* Bytes that a job reads. */
uint64_t mfs_hash_bytes(const struct mfs_hash_job *job);

/* threads 0: one for each processor. Draws a progress bar if stderr is a terminal. -ENOMEM: a job
 * could not be started, or its reason not be kept. */
int mfs_hash_all(struct mfs_ckpt *ckpt, struct mfs_hash_job *jobs, uint32_t count, unsigned threads,
		 struct mfs_error *err);

#endif
