/*
 * Which samples a step of training draws, and which data-parallel rank gets them: --dataloader-type
 * single or cyclic (megatron/training/datasets/data_samplers.py; docs/formats/blends.md says the
 * rules). One thread.
 */
#ifndef MFS_DATASET_GPT_SAMPLER_H
#define MFS_DATASET_GPT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

enum mfs_sampler_type { MFS_SAMPLER_SINGLE, MFS_SAMPLER_CYCLIC };

struct mfs_sampler_config {
	enum mfs_sampler_type type;
	uint64_t total;	      /* samples there are */
	uint32_t micro_batch; /* B */
	uint32_t ranks;	      /* D */
	bool no_sharding;     /* --no-data-sharding */
	/* samples of all ranks before the sampler began: 0, or where a run was resumed */
	uint64_t consumed;
};

struct mfs_sampler;

/* "single", "cyclic"; -EINVAL for others. */
int mfs_sampler_type_of(const char *name, enum mfs_sampler_type *ret, struct mfs_error *err);

/* Makes a sampler that goes on after config->consumed. -EINVAL: micro_batch or ranks is 0, or
 * consumed is where Megatron asserts; -ENODATA: no sample is left, or fewer than a microbatch for
 * each rank. */
int mfs_sampler_new(const struct mfs_sampler_config *config, struct mfs_sampler **ret,
		    struct mfs_error *err);
void mfs_sampler_free(struct mfs_sampler *s);

/* The B samples of a rank's microbatch, which are counted from the sampler's beginning. -ENODATA:
 * the data ends before it (single). Going on is cheap, going back too, within an epoch. */
int mfs_sampler_draw(struct mfs_sampler *s, uint64_t microbatch, uint32_t rank, uint64_t *ret,
		     struct mfs_error *err);

#endif
