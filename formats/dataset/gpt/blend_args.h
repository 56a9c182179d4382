/*
 * --data-path and its like: prefixes, with or without weights, and how many samples each is asked
 * for (megatron/core/datasets/utils.py: get_blend_from_list, normalize;
 * blended_megatron_dataset_builder.py: _get_size_per_split_per_dataset).
 */
#ifndef MFS_DATASET_GPT_BLEND_ARGS_H
#define MFS_DATASET_GPT_BLEND_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/dataset/gpt/gpt_rules.h"

struct mfs_blend_args {
	uint32_t count;
	const char **prefixes;
	double *weights; /* as written; NULL: none given */
	struct mfs_arena arena;
};

/*
 * An odd number of words: all are prefixes. An even number: if the first of every pair reads as a
 * Python float, pairs of weight and prefix; if none does after the first that does not, all are
 * prefixes, numbers included; otherwise -EINVAL, where Megatron asserts. Words are stripped of
 * white space.
 */
int mfs_blend_args_parse(const char *const *words, size_t count, struct mfs_blend_args *ret,
			 struct mfs_error *err);
/* Words of a --data-args-path file: separated by white space. */
int mfs_blend_args_parse_text(const char *text, size_t len, struct mfs_blend_args *ret,
			      struct mfs_error *err);
void mfs_blend_args_release(struct mfs_blend_args *a);

/* weights / numpy.sum(weights), in place. -EINVAL: one is not above 0 or the sum is not finite;
 * Megatron asserts in both cases. */
int mfs_blend_normalize(double *weights, size_t count, struct mfs_error *err);
/* The first of the two normalisations by these rules. */
int mfs_blend_normalize_first(double *weights, size_t count, const struct mfs_dataset_rules *rules,
			      struct mfs_error *err);

/*
 * Of normalised weights and samples wanted: how many each dataset is built for (config.samples of
 * its gpt_dataset) and how many the blend has. Where the rules renormalize, weights change too.
 * -ERANGE: counts beyond 2^53.
 */
int mfs_blend_sizes(double *weights, size_t count, uint64_t samples,
		    const struct mfs_dataset_rules *rules, uint64_t *ret_build, uint64_t *ret_size,
		    struct mfs_error *err);

#endif
