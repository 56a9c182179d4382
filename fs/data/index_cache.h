/*
 * What the views below data/NAME/cache are made from: the names of their directories, and -o
 * tokenizer_id=. Private to fs/data.
 */
#ifndef MFS_FS_DATA_INDEX_CACHE_H
#define MFS_FS_DATA_INDEX_CACHE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "fs/data/data_i.h"
#include "fs/data/spec.h"

struct mfs_samples;

/*
 * unique_identifiers of the tokenizer: a file that holds them as a JSON object; a description.txt;
 * or a directory with "*-description.txt" of an earlier run, which must agree. *ret is to be
 * released. -ENODATA: the directory has no description that Megatron would have written; -EINVAL:
 * no such file or object, or there are two tokenizers. access (or NULL) counts who may read what
 * was read.
 */
int mfs_cache_tokenizer(const char *path, json_t **ret, struct mfs_access_fold *access,
			struct mfs_error *err);

/* Adds the files of all indices of a run. A split without a dataset, or with too few tokens, has
 * none. -ENODATA: no split has any. */
int mfs_cache_add_run(struct mfs_dataset *d, const struct mfs_cache_spec *spec,
		      struct mfs_data_view *v, struct mfs_error *err);

#endif
