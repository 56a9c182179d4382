/*
 * The samples of one split of a training run, in the order in which Megatron draws them: one GPT
 * dataset, or a blend of several (megatron/core/datasets/blended_megatron_dataset_builder.py:
 * _build_blended_dataset_splits; docs/formats/blends.md says which arguments make which).
 *
 * What there is follows from numbers of tokens and is known at once. Indices are made when somebody
 * needs them, those of several datasets at the same time. All functions may be called from any
 * number of threads.
 */
#ifndef MFS_DATASET_GPT_SAMPLES_H
#define MFS_DATASET_GPT_SAMPLES_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/gpt/gpt_run.h"

struct mfs_samples;

/* The rows that a prefix names; they must outlive the samples. */
typedef int mfs_samples_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
				struct mfs_error *err);

/* Decides which samples a split of the run has; resolve(arg, ...) finds the rows of each prefix.
 * run need not outlive the samples. -ENODATA: the split has no dataset, no sequence, no token, or
 * too few tokens for a sample; -EINVAL: the blend is impossible, or has weights and no number of
 * samples; errors of resolve(). */
int mfs_samples_new(const struct mfs_run *run, enum mfs_split split, mfs_samples_resolve *resolve,
		    void *arg, struct mfs_samples **ret, struct mfs_error *err);
void mfs_samples_free(struct mfs_samples *s);

/* -ERANGE if the blend takes more samples of a dataset than it has; Megatron raises an IndexError
 * then. Mostly the numbers rule that out at once. Where weights are very small they do not, and the
 * whole blend is computed. */
int mfs_samples_check(struct mfs_samples *s, struct mfs_error *err);

uint64_t mfs_samples_count(const struct mfs_samples *s);
/* Tokens of each: S, and one more unless the run has no extra token. */
uint32_t mfs_samples_length(const struct mfs_samples *s);

/* A dataset of the blend, or the only one. */
struct mfs_samples_member {
	char *prefix; /* as the arguments spell it */
	const struct mfs_rows *rows;
	struct mfs_gpt_dataset *gpt;
};
uint32_t mfs_samples_members(const struct mfs_samples *s);
const struct mfs_samples_member *mfs_samples_member(const struct mfs_samples *s, uint32_t i);
/* The order in which the datasets of a blend take turns. NULL: the samples are of one dataset,
 * which is no blend. */
struct mfs_blend *mfs_samples_blend(const struct mfs_samples *s);
/* Of a blend: what BlendedDataset calls weights, normalised; NULL: all samples of every dataset,
 * once. */
const double *mfs_samples_weights(const struct mfs_samples *s);

/* Of the samples [first, first+count): the dataset's number and the sample's within it. -EINVAL:
 * not inside. */
int mfs_samples_locate(struct mfs_samples *s, uint64_t first, uint64_t count, int16_t *ret_member,
		       int64_t *ret_sample, struct mfs_error *err);
/* Makes the missing indices of count datasets with so many threads (0: one a processor). Numbers
 * may repeat. member NULL: all datasets. */
int mfs_samples_build(struct mfs_samples *s, const int16_t *member, uint64_t count,
		      unsigned threads, struct mfs_error *err);

#endif
