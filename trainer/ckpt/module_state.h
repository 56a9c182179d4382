/*
 * The states of Transformer Engine's modules, `_extra_state` (formats/torch/extra_state.h), of
 * params->scales: a state for each weight, of one product. It has kinds that the trainer has no
 * products for, outputs and inputs' gradients; these have scales of 1, and nothing was seen.
 */
#ifndef MFT_TRAINER_CKPT_MODULE_STATE_H
#define MFT_TRAINER_CKPT_MODULE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/torch/extra_state.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/params/params.h"

/* Bytes of host memory for all scales and histories: at least 1. */
uint64_t mft_scales_bytes(const struct mft_scales *s);
/* Copies them to the host, or, back, from there. */
void mft_scales_copy(const struct mft_scales *s, const struct mfk_device_ops *device,
		     struct mfk_ctx *ctx, unsigned char *host, bool back);

/* Bytes of an item of torch_dist (formats/megatron/write/extra_items.h), which all modules' have.
 * 0: the run's recipe leaves no states. */
int mft_module_state_measure(const struct mft_train_config *config, uint64_t *ret,
			     struct mfs_error *err);
/* Writes the item of a weight's module. host: what mft_scales_copy() has copied; NULL: nothing was
 * seen yet. */
int mft_module_state_item(const struct mft_train_config *config, const struct mft_params *params,
			  unsigned char *host, uint32_t param, unsigned char *to, uint64_t bytes,
			  struct mfs_error *err);

/* A state of one product as it is at the start of the run. ret->products 0: the run's recipe leaves
 * none. Arrays lie in arena. */
int mft_module_state_new(const struct mft_train_config *config, struct mfs_arena *arena,
			 struct mfs_extra_state *ret, struct mfs_error *err);
/* Puts a state of scales->length rows, of a weight's module, where mft_scales_copy() copies it
 * from. */
void mft_module_state_put(const struct mft_scales *scales, unsigned char *host, uint32_t param,
			  struct mfs_extra_state *state);

#endif
