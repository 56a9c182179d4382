/*
 * Proof: the bytes of a storage are compared with a sum that the source carries, before anybody is
 * told where they lie.
 *
 * There are two kinds of sums. A ZIP archive has a CRC-32 of each record: then a record is read
 * whole when it is first located. integrity.json has a SHA-256 of each file: then a file is read
 * whole when the first of its storages is located. What was found is kept as long as the
 * checkpoint is open. The fileset notices a file that is changed afterwards, as it does without
 * proof: by its identity, not by its bytes.
 *
 * While one thread reads, others that need the same record or file wait for it, and no lock is
 * held. Memory is 16 bytes a record or file, and a window of 1 MiB for each thread that reads.
 */
#ifndef MFS_CKPT_PROOF_H
#define MFS_CKPT_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_ckpt;
struct mfs_global_tensor;
struct mfs_proof;

#define MFS_SHA256_BYTES 32

enum mfs_proof_kind { MFS_PROOF_NONE, MFS_PROOF_CRC, MFS_PROOF_SHA256 };

/* What a file's SHA-256 must be. */
struct mfs_file_sum {
	bool known;
	uint8_t sha256[MFS_SHA256_BYTES];
};

/* Demands proof of an open checkpoint, once, before it has readers. sums: of each file of its
 * fileset, copied; files without one are believed. NULL: the CRC-32 of records counts; records
 * without one are believed. -ENOMEM. */
int mfs_proof_demand(struct mfs_ckpt *ckpt, const struct mfs_file_sum *sums, struct mfs_error *err);
void mfs_proof_free(struct mfs_proof *proof);

/* Proves one storage (called by mfs_ckpt_locate()), or one file if sums are of files. t is for
 * messages. -EINVAL: the bytes have another sum, now and at each later call; -EIO, -ESTALE,
 * -ENOMEM: they could not be read, and the next call tries again. Any thread. */
int mfs_proof_storage(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		      struct mfs_error *err);
int mfs_proof_file(struct mfs_ckpt *ckpt, uint32_t file, struct mfs_error *err);

#endif
