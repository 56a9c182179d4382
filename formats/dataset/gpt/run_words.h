/*
 * The datasets of a training run as a person names them: the words of --data-path, of
 * --train-data-path and its like, or a file of such words (megatron/training/utils:
 * get_blend_and_blend_per_split).
 */
#ifndef MFS_DATASET_GPT_RUN_WORDS_H
#define MFS_DATASET_GPT_RUN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/gpt_run.h"

/* Texts as Megatron's arguments have them: words separated by white space. NULL: not given. */
struct mfs_data_words {
	const char *data_path;
	const char *split_data_path[MFS_SPLITS];
	const char *data_args_path; /* a file of words, in data_path's place */
	/* a JSON object with "train", "valid" and "test": a text of words, a list of them, or null;
	 * in split_data_path's place */
	const char *per_split_data_args_path;
};

/* What the words name. It must not be moved: run points into it. */
struct mfs_data_run {
	struct mfs_run run; /* blends alone are filled; the rest is zero */
	struct mfs_blend_args all, split[MFS_SPLITS];
};

/* Reads the blends that the words name, from a file where they name one. -EINVAL: the words are no
 * blend, or data_path is given together with others, where Megatron asserts; -ENODATA: there are no
 * words; errors of reading the file. */
int mfs_data_run_parse(const struct mfs_data_words *words, struct mfs_data_run *ret,
		       struct mfs_error *err);
/* The bytes of data_args_path, or of per_split_data_args_path. They are not kept. */
int mfs_data_run_parse_bytes(const char *text, size_t len, bool per_split, struct mfs_data_run *ret,
			     struct mfs_error *err);
/* The run of one prefix. */
int mfs_data_run_single(const char *prefix, struct mfs_data_run *ret, struct mfs_error *err);
void mfs_data_run_release(struct mfs_data_run *r);

#endif
