/*
 * What the views below data/NAME/cache are made from: names of directories, and -o tokenizer_id=. Private to
 * cache_*.c and view_cache.c.
 */
#ifndef MFS_FS_DATA_CACHE_H
#define MFS_FS_DATA_CACHE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/index/index_description.h"
#include "formats/dataset/index/index_key.h"
#include "formats/dataset/gpt/rules.h"
#include "formats/dataset/gpt/splits.h"
#include "fs/data/data_i.h"

struct mfs_blend;
struct mfs_gpt_dataset;
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

/* The directory of all that an earlier run's descriptions ask for. */
#define MFS_CACHE_ADOPTED "adopted"

/*
 * unique_identifiers of the tokenizer: a file that holds them as a JSON object; a description.txt; or a directory
 * with "*-description.txt" of an earlier run, which must agree. *ret is to be released. -ENODATA: the directory has
 * none that this version of Megatron would have written; -EINVAL: no such file or object, or there are two tokenizers.
 * access (or NULL) counts who may read what was read, here and below.
 */
int mfs_cache_tokenizer(const char *path, const struct mfs_dataset_rules *rules, json_t **ret,
			struct mfs_access_fold *access, struct mfs_error *err);

/* fn for each description in the directory that is what its name says and that this version of Megatron would have written, in
 * the order of names; other than 0 ends it and is returned. Those that are neither are passed over. */
typedef int mfs_cache_description_fn(void *arg, const struct mfs_index_description *d,
				     struct mfs_error *err);
int mfs_cache_descriptions(const char *dir, const struct mfs_dataset_rules *rules,
			   mfs_cache_description_fn *fn, void *arg, struct mfs_access_fold *access,
			   struct mfs_error *err);

/* ---- building a view ---- */

struct mfs_cache_view {
	struct mfs_view public;
	struct mfs_samples *samples[MFS_SPLITS]; /* of a run; else */
	struct mfs_gpt_dataset **gpt;		 /* adopted ones */
	struct mfs_blend **blends;
	size_t gpt_count, blend_count;
};

struct mfs_cache_builder {
	struct mfs_dataset *d;
	struct mfs_cache_view *view;
	struct mfs_index_run run; /* what the keys have in common */
	struct mfs_error *err;
};

/* Those of -o megatron=, else the newest. */
int mfs_cache_rules(const struct mfs_data_options *opt, struct mfs_dataset_rules *ret,
		    struct mfs_error *err);

/* The files of one index, unless they are there. g and blend must outlive the view. */
int mfs_cache_add_gpt(struct mfs_cache_builder *b, const struct mfs_index_member *member,
		      enum mfs_split split, struct mfs_gpt_dataset *g);
int mfs_cache_add_blend(struct mfs_cache_builder *b, const struct mfs_index_member *members,
			size_t count, const struct mfs_index_weights *weights, enum mfs_split split,
			struct mfs_blend *blend);

/* All indices of the run that a spec describes. A split without a dataset, or with too few tokens, has none;
 * -ENODATA if that is all of them. */
int mfs_cache_add_run(struct mfs_cache_builder *b, const char *name);
/* All that the descriptions in the directory of -o tokenizer_id= ask for, of datasets that there are. -ENODATA: none. */
int mfs_cache_add_adopted(struct mfs_cache_builder *b);

#endif
