/*
 * The arrays below --data-cache-path as virtual .npy files, byte for byte what numpy.save writes of
 * them (docs/formats/gpt-dataset.md: their types and shapes). Sizes are known at once; the indices
 * are made when the first element is read, by all processors.
 */
#ifndef MFS_DATASET_INDEX_INDEX_FILES_H
#define MFS_DATASET_INDEX_INDEX_FILES_H

#include "formats/base/error.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/gpt/gpt_rules.h"
#include "formats/plan/vfile.h"

enum mfs_index_array {
	MFS_INDEX_DOCUMENTS,
	MFS_INDEX_SAMPLES,
	MFS_INDEX_SHUFFLE,
	MFS_INDEX_GPT_ARRAYS,
	MFS_INDEX_DATASET = MFS_INDEX_GPT_ARRAYS,
	MFS_INDEX_DATASET_SAMPLE,
	MFS_INDEX_ARRAYS,
};

/* "document_index.npy" and its like. */
const char *mfs_index_array_name(enum mfs_index_array array);

/* One of the first three; rules know the width of the sample index: 4 bytes up to core 0.7, 8 in
 * 0.8 and 0.9, by the numbers since. g must outlive the file. Reading: -ESTALE if a file of the
 * data has changed, and what mfs_gpt_dataset_build() fails with. */
int mfs_index_file_gpt(struct mfs_gpt_dataset *g, enum mfs_index_array array,
		       const struct mfs_dataset_rules *rules, struct mfs_vfile **ret,
		       struct mfs_error *err);
/* One of the other two. b must outlive the file. */
int mfs_index_file_blend(struct mfs_blend *b, enum mfs_index_array array, struct mfs_vfile **ret,
			 struct mfs_error *err);

#endif
