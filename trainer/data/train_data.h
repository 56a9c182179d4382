/*
 * The samples of a split as the arguments of a run name them, and which of them a microbatch draws.
 *
 * Sources: pretrain_gpt.py: train_valid_test_datasets_provider; megatron/training/training.py:
 * get_train_valid_test_num_samples, build_train_valid_test_data_loaders.
 */
#ifndef MFT_TRAINER_DATA_TRAIN_DATA_H
#define MFT_TRAINER_DATA_TRAIN_DATA_H

#include "formats/dataset/gpt/run_words.h"
#include "formats/dataset/gpt/sampler.h"
#include "formats/dataset/gpt/samples.h"
#include "formats/dataset/rows/rows_open.h"
#include "trainer/config/config.h"
#include "trainer/data/sft/sft_blend.h"

struct mft_train_data {
	struct mfs_data_run run; /* must not be moved */
	struct mfs_rows_table paths;
	struct mfs_rows *mock;	     /* NULL: the datasets are files */
	struct mfs_samples *samples; /* NULL: sft */
	struct mft_sft_blend *sft;   /* --sft; NULL: samples */
	uint64_t total;		     /* samples */
	struct mfs_sampler *sampler; /* NULL: a full validation */
	uint32_t micro;
	uint32_t rank, ranks; /* of the processes that share the samples */
	/* Of the sampler from its beginning, or of a full validation. UINT64_MAX: no end. */
	uint64_t microbatches;
};

/* Fails and answers as mft_loader_sets() does. */
int mft_train_data_sets(const struct mft_train_config *config, enum mfs_split split, uint32_t *ret,
			struct mfs_error *err);
/* Fails as mft_loader_new() does. vocab: padded. Release it also after a failure. */
int mft_train_data_open(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
			uint64_t consumed, uint32_t micro, uint64_t vocab,
			struct mft_train_data *ret, struct mfs_error *err);
void mft_train_data_release(struct mft_train_data *d);

/* The samples of this process's microbatch: *ret_count of them are its own, and the split's last is
 * repeated up to d->micro. Those of sft are places (mft_sft_blend_find()). One thread. */
int mft_train_data_draw(struct mft_train_data *d, uint64_t microbatch, uint64_t *ret,
			uint32_t *ret_count, struct mfs_error *err);

#endif
