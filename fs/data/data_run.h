/*
 * The training run that a person describes: which of the datasets there are it reads, by the words
 * of --data-path and its like. For views of samples, of caches, and for `mcorefs sample`.
 */
#ifndef MFS_FS_DATA_DATA_RUN_H
#define MFS_FS_DATA_DATA_RUN_H

#include "formats/base/error.h"
#include "formats/dataset/gpt/run_words.h"
#include "formats/dataset/gpt/samples.h"
#include "fs/data/data.h"

struct mfs_rows;

/*
 * For mfs_samples_new(), arg is a struct mfs_data *: the rows of the dataset that a prefix means,
 * which is the one of this name, the one at this path, or the one named as the path's last part.
 * -ENOENT: there is none.
 */
int mfs_data_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		     struct mfs_error *err);

/* Of indices in memory, where a view's name asks for a number of samples: 4e9 of 4096 tokens. */
#define MFS_DATA_INDEX_BYTES (UINT64_C(16) << 30)

/* The run of a dataset's samples: the dataset itself, or what the mount's options say of a blend.
 * Its split and rules are those of the options; its length, seed and numbers of samples are left to
 * the caller. */
int mfs_dataset_run(const struct mfs_dataset *d, struct mfs_data_run *ret, struct mfs_error *err);
/* Its samples; d must outlive them. */
int mfs_dataset_samples(const struct mfs_dataset *d, const struct mfs_run *run,
			enum mfs_split split, struct mfs_samples **ret, struct mfs_error *err);

#endif
