/* Which files an HF dataset is made of (docs/formats/hf-datasets.md). Names alone decide; no Arrow
 * file is read. */
#ifndef MFS_DATASET_ROWS_HF_FILES_H
#define MFS_DATASET_ROWS_HF_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

#define MFS_HF_ROWS_UNKNOWN UINT64_MAX

struct mfs_hf_files {
	const char *dir;
	const char **names; /* relative to dir, in the order of their rows */
	uint32_t count;
	const char **indices; /* files of row numbers; none mostly */
	uint32_t index_count;
	uint64_t rows; /* as a cache's dataset_info.json says; MFS_HF_ROWS_UNKNOWN */
};

#define MFS_HF_SHARD 15 /* bytes of "-00003-of-00012" */

/* Reads the shard at the end of a name of len bytes. */
bool mfs_hf_shard_of(const char *name, size_t len, unsigned *ret_shard, unsigned *ret_of);

/* Finds the files of a dataset; *ret lies in arena. split: NULL if the dataset has none. */
int mfs_hf_dataset_files(const char *path, const char *split, struct mfs_arena *arena,
			 struct mfs_hf_files *ret, struct mfs_error *err);

#endif
