/*
 * What the views below data/NAME/cache are made from: names of directories, and -o tokenizer_id=. Private to
 * fs/data_cache*.c and fs/view_data_cache*.c.
 */
#ifndef MFS_FS_DATA_CACHE_H
#define MFS_FS_DATA_CACHE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/index_description.h"
#include "formats/dataset/rules.h"
#include "formats/dataset/splits.h"

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

/* The directory of all that an earlier run's descriptions ask for. */
#define MFS_CACHE_ADOPTED "adopted"

/*
 * unique_identifiers of the tokenizer: a file that holds them as a JSON object; a description.txt; or a directory
 * with "*-description.txt" of an earlier run, which must agree. *ret is to be released. -ENODATA: the directory has
 * none that this version of Megatron would have written; -EINVAL: no such object, or there are two tokenizers.
 */
int mfs_cache_tokenizer(const char *path, const struct mfs_dataset_rules *rules, json_t **ret,
			struct mfs_error *err);

/* fn for each description in the directory that is what its name says and that this version of Megatron would have written, in
 * the order of names; other than 0 ends it and is returned. Those that are neither are passed over. */
typedef int mfs_cache_description_fn(void *arg, const struct mfs_index_description *d,
				     struct mfs_error *err);
int mfs_cache_descriptions(const char *dir, const struct mfs_dataset_rules *rules,
			   mfs_cache_description_fn *fn, void *arg, struct mfs_error *err);

#endif
