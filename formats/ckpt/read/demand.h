/* Which sums a checkpoint carries, and what has none (-o verify=). */
#ifndef MFS_CKPT_READ_DEMAND_H
#define MFS_CKPT_READ_DEMAND_H

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/proof.h"

/*
 * Demands proof (proof.h) of an open checkpoint, once, before it has readers.
 *
 * MFS_PROOF_CRC: of records. MFS_PROOF_SHA256: of the files that integrity.json names; those that
 * have been read already, because they are the index or hold the common state, are proved at once.
 * What carries no sum is a warning of the checkpoint (mfs_ckpt_warnings()).
 *
 * -EINVAL: integrity.json is damaged, a file that was read has another sum, or integrity.json
 * names the file of no tensor; -ENOTSUP: it has another algorithm; -ENOMEM.
 */
int mfs_ckpt_demand(struct mfs_ckpt *ckpt, enum mfs_proof_kind kind, struct mfs_error *err);

#endif
