/*
 * Which dataset each sample of a blend is from, as megatron/core/datasets/helpers.cpp decides it
 * (build_blending_indices, build_exhaustive_blending_indices): sample s goes to the first dataset
 * with the largest weight * max(s, 1) - samples so far, in doubles, each operation rounded by
 * itself. A compiler that contracts them to an FMA decides otherwise: -ffp-contract=off.
 *
 * No array of all samples is made. The counts at every MFS_BLEND_BLOCK-th sample are kept, as far
 * as anybody has read. A block of samples is computed from them again when it is asked for, and the
 * last few blocks are kept. Any number of threads may call all functions.
 */
#ifndef MFS_DATASET_GPT_BLEND_H
#define MFS_DATASET_GPT_BLEND_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_BLEND_BLOCK (1u << 16)
#define MFS_BLEND_MAX	32766 /* datasets, Megatron's own limit */

struct mfs_blend;

/* size samples of count datasets by weights, which are normalised here, once, as BlendedDataset
 * does: give those of mfs_blend_normalize_first, or the lengths of the datasets where no weights
 * were given. -EINVAL: a weight not above 0, or more datasets than Megatron takes. */
int mfs_blend_new(const double *weights, size_t count, uint64_t size, struct mfs_blend **ret,
		  struct mfs_error *err);
/* Every sample of every dataset once. -EINVAL: a size is 0. */
int mfs_blend_new_exhaustive(const uint64_t *sizes, size_t count, struct mfs_blend **ret,
			     struct mfs_error *err);
void mfs_blend_free(struct mfs_blend *b);

uint64_t mfs_blend_size(const struct mfs_blend *b);
uint32_t mfs_blend_datasets(const struct mfs_blend *b);

/* Of the samples [first, first+count): the dataset's number, and the sample's within that dataset.
 * Either may be NULL. The first reading of a place computes what lies before it, once. */
int mfs_blend_read(struct mfs_blend *b, uint64_t first, uint64_t count, int16_t *ret_dataset,
		   int64_t *ret_sample, struct mfs_error *err);
/* Counts the samples of each dataset among the first s of the blend, s <= size. */
int mfs_blend_counts(struct mfs_blend *b, uint64_t s, uint64_t *ret, struct mfs_error *err);
/* Fails if the blend takes more samples of a dataset than its length, of lengths [datasets].
 * -ERANGE: it does; Megatron raises an IndexError then. The whole blend is computed. */
int mfs_blend_check(struct mfs_blend *b, const uint64_t *lengths, struct mfs_error *err);

#endif
