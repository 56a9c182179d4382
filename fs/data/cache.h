/*
 * What the views below data/NAME/cache are made from: the names of their directories, and -o tokenizer_id=. Private to
 * fs/data.
 */
#ifndef MFS_FS_DATA_CACHE_H
#define MFS_FS_DATA_CACHE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "fs/data/data_i.h"

struct mfs_samples;

/*
 * s{S}[-train{N}][-valid{N}][-test{N}][-seed{K}][-split{A,B,C}]: sequence length, samples asked for, --seed and
 * --split of a run. What is not said: one epoch, 1234, and split (-o) or Megatron's default.
 */
struct mfs_cache_spec {
	uint32_t seq_length, seed;
	uint64_t samples[MFS_SPLITS];
	const char *split; /* points into the name; NULL: not said */
};
/* -ENOENT: not of this form; -EINVAL: a number that cannot be. */
int mfs_cache_spec_parse(const char *name, struct mfs_cache_spec *ret, struct mfs_error *err);

/*
 * unique_identifiers of the tokenizer: a file that holds them as a JSON object; a description.txt; or a directory
 * with "*-description.txt" of an earlier run, which must agree. *ret is to be released. -ENODATA: the directory has
 * no description that Megatron would have written; -EINVAL: no such file or object, or there are two tokenizers.
 * access (or NULL) counts who may read what was read.
 */
int mfs_cache_tokenizer(const char *path, json_t **ret, struct mfs_access_fold *access,
			struct mfs_error *err);

struct mfs_cache_view {
	struct mfs_view public;
	struct mfs_samples *samples[MFS_SPLITS]; /* what its files are made from */
};

/* Adds the files of all indices of a run. A split without a dataset, or with too few tokens, has none; -ENODATA if that
 * is all of them. */
int mfs_cache_add_run(struct mfs_dataset *d, const struct mfs_cache_spec *spec,
		      struct mfs_cache_view *v, struct mfs_error *err);

#endif
