/*
 * integrity.json, which Megatron (core 0.18 and newer, --verify-integrity) writes into an
 * iteration, as mcorefs-train always does:
 *
 *   {"algorithm": "sha256", "files": {"common.pt": "<hex>", ...}}
 *
 * (megatron/core/dist_checkpointing/validation.py: save_integrity_manifest,
 * _verify_integrity_manifest_impl).
 */
#ifndef MFS_CKPT_READ_INTEGRITY_H
#define MFS_CKPT_READ_INTEGRITY_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/proof.h"
#include "formats/io/fileset.h"

/*
 * Reads every file that integrity.json of dir names, several at once. Then it calls bad(), in the
 * order of the manifest, for each file that is missing or has another sum, and for each file of the
 * checkpoint (mfs_integrity_must_name()) that the manifest does not name. *ret_checked: number
 * of files that were compared. -ENOENT: there is no integrity.json; -EINVAL: it is damaged;
 * -ENOTSUP: it has another algorithm.
 */
int mfs_integrity_check(const char *dir, void (*bad)(void *arg, const struct mfs_error *err),
			void *arg, uint32_t *ret_checked, struct mfs_error *err);

/* True for the files of a checkpoint that Megatron has written when it writes the manifest, which
 * names all of them: .metadata, metadata.json, common.pt, *.distcp. Others may come later
 * (run_config.yaml of Megatron-Bridge). */
bool mfs_integrity_must_name(const char *name);

/* The sums of the files of a set, which integrity.json of dir names: ret has room for all of them.
 * Other files are not known. Errors: those of mfs_integrity_check(). */
int mfs_integrity_sums(const char *dir, const struct mfs_fileset *files, struct mfs_file_sum *ret,
		       struct mfs_error *err);

#endif
