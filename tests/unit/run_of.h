/*
 * A run without its command line, for tests of checkpoints: the arguments of a checkpoint, its
 * parameters, and the CPU's memory for them.
 */
#ifndef MFS_TESTS_RUN_OF_H
#define MFS_TESTS_RUN_OF_H

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/dims.h"
#include "kernels/kernels.h"
#include "kernels/ref/cpu.h"
#include "tests/unit/unit.h"
#include "trainer/config/config.h"
#include "trainer/params/params.h"

/* A bf16 run of a checkpoint's arguments. */
static inline struct mft_train_config run_config(const struct mfs_ckpt *ckpt)
{
	struct mft_train_config c = {
		.model = *mfs_ckpt_args(ckpt),
		.embedding_init_method_std = -1,
		.decoupled_lr = -1,
		.params_dtype = MFS_BF16,
		.main_grads_dtype = MFS_F32,
		.main_params_dtype = MFS_F32,
		.exp_avg_dtype = MFS_F32,
		.exp_avg_sq_dtype = MFS_F32,
		.override_opt_param_scheduler = true,
		.ckpt_step = MFS_ABSENT,
		.save_interval = MFS_ABSENT,
		.save_retain_interval = MFS_ABSENT,
	};

	c.model.padded_vocab_size = (int64_t)mfs_dims_padded_vocab(ckpt);
	return c;
}

/* What a buffer holds before anything is loaded. */
#define RUN_POISON 0xb5

struct run {
	struct mft_params *params;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
};

static inline void *run_alloc(struct run *r, enum mfs_dtype type, uint64_t elements)
{
	const size_t bytes = elements * mfs_dtype_size(type);
	void *p = bytes ? mfk_cpu.device->alloc(r->device, bytes) : NULL;

	ck_assert(!bytes || p);
	if (p)
		memset(p, RUN_POISON, bytes);
	return p;
}

/* parallel NULL: one process has all. */
static inline void run_new_at(struct run *r, const struct mft_train_config *config,
			      const struct mft_parallel *parallel)
{
	struct mfs_error err;
	char why[MFK_WHY];

	unit_ok(mft_params_new(config, parallel, &r->params, &err), &err);
	ck_assert_int_eq(mfk_cpu.device->open(0, 2, &r->device, why), 0);
	ck_assert_int_eq(mfk_cpu.device->ctx_new(r->device, false, &r->ctx, why), 0);
	r->params->weights = run_alloc(r, r->params->weight_type, r->params->elements);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		r->params->slot[i].device =
			run_alloc(r, r->params->slot[i].type, r->params->elements);
	r->params->buffers = run_alloc(r, MFS_F32, r->params->buffer_elements);
}

static inline void run_new(struct run *r, const struct mft_train_config *config)
{
	run_new_at(r, config, NULL);
}

static inline void run_free(struct run *r)
{
	void *const all[] = {r->params->weights, r->params->slot[0].device,
			     r->params->slot[1].device, r->params->slot[2].device,
			     r->params->buffers};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++)
		if (all[i])
			mfk_cpu.device->free(r->device, all[i]);
	mfk_cpu.device->ctx_free(r->ctx);
	mfk_cpu.device->close(r->device);
	mft_params_free(r->params);
}

#endif
