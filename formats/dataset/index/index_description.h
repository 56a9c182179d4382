/*
 * The description.txt that Megatron puts beside a cached index (index_key.h), read back: which datasets, splits, seeds
 * and samples the index is of.
 */
#ifndef MFS_DATASET_INDEX_INDEX_DESCRIPTION_H
#define MFS_DATASET_INDEX_INDEX_DESCRIPTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"
#include "formats/dataset/index/index_key.h"

struct mfs_index_description {
	bool blend;		  /* of a BlendedDataset; else of one GPTDataset */
	enum mfs_split split;	  /* index_split */
	struct mfs_index_run run; /* strings and tokenizer belong to root */
	struct mfs_index_member *members;
	size_t count;
	struct mfs_index_weights weights; /* of a blend; its arrays are freed with this */
	json_t *root;
};

/*
 * rules: of the version that wrote it. What is read is written again (mfs_index_key_gpt, mfs_index_key_blend) and must
 * give the same text, or it is refused: so nothing in it can have been misunderstood. -EINVAL: no JSON, or a value that
 * cannot be; -ENOTSUP: of another class or another version, or longer than MFS_PYTHON_JSON_MAX.
 */
int mfs_index_description_parse(const char *text, size_t len, const struct mfs_dataset_rules *rules,
				struct mfs_index_description *ret, struct mfs_error *err);
void mfs_index_description_release(struct mfs_index_description *d);

#endif
