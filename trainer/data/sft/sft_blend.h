/*
 * The samples of --sft that a split's paths have: of one path, or of several by weights. As in
 * Megatron each path is a dataset that goes round, and a blend takes the next sample of each in
 * turn (blended_megatron_dataset_builder.py: _build_blended_dataset_splits; sft_dataset.py:
 * SFTDataset.__getitem__). So a sample follows from its number alone.
 */
#ifndef MFT_TRAINER_DATA_SFT_SFT_BLEND_H
#define MFT_TRAINER_DATA_SFT_SFT_BLEND_H

#include "formats/dataset/gpt/gpt_run.h"
#include "trainer/data/sft/sft_samples.h"

struct mft_sft_blend;

/* The paths are those of a split of the run, with its number of samples; config has all but its
 * path. -ENODATA: the split has no path; -ENOTSUP: several without weights; or as mft_sft_open()
 * fails. */
int mft_sft_blend_open(const struct mft_sft_config *config, const struct mfs_run *run,
		       struct mft_sft_blend **ret, struct mfs_error *err);
void mft_sft_blend_free(struct mft_sft_blend *b); /* NULL: nothing */

/* Samples that there are for the number that was asked for: of a blend a few more, as Megatron
 * rounds each path's share up. One epoch was asked for: the one path's samples. */
uint64_t mft_sft_blend_total(const struct mft_sft_blend *b);
/* Samples of an epoch of all paths, and a digest of packed samples or of a blend; 0: there is
 * neither (mft_sft_order()). A run goes on with the same ones alone. */
uint64_t mft_sft_blend_count(const struct mft_sft_blend *b);
uint64_t mft_sft_blend_order(const struct mft_sft_blend *b);

/* Where a sample is, for mft_sft_blend_read(). -EINVAL: a blend has fewer; -ENOMEM. */
int mft_sft_blend_find(struct mft_sft_blend *b, uint64_t sample, uint64_t *ret,
		       struct mfs_error *err);
/* As mft_sft_read(). */
uint64_t mft_sft_blend_read(struct mft_sft_blend *b, uint64_t place, int32_t pad,
			    const struct mft_sft_sample *to);

#endif
