/*
 * --load: any source that the project reads, at any layout: a run's directory, an iteration, an HF
 * directory. What a process needs is read through the plan layer
 * (formats/megatron/read/rank_part.h).
 *
 * Source: megatron/training/checkpointing.py: load_checkpoint, load_args_from_checkpoint.
 */
#ifndef MFT_TRAINER_CKPT_LOAD_H
#define MFT_TRAINER_CKPT_LOAD_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/ckpt/run_progress.h"
#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"
#include "trainer/parallel/parallel.h"
#include "trainer/params/params.h"

struct mft_load;

#define MFT_SCALES_WHY 640

/* Opens config->load, or pretrained_checkpoint if that has nothing. *ret NULL and 0: there is
 * nothing to load and that is allowed (a new run). -ENODATA: exit_on_missing_checkpoint. */
int mft_load_open(const struct mft_train_config *config, struct mft_load **ret,
		  struct mfs_error *err);
void mft_load_free(struct mft_load *l);

/* Like mft_load_open(), of one of several hosts' processes: one that misses what must be there
 * before processes can talk looks again for a while, as mft_load_agree() does, and says so. */
int mft_load_await(const struct mft_train_config *config, const struct mft_launch *launch,
		   struct mft_load **ret, struct mfs_error *err);

/* --use-checkpoint-args: puts the checkpoint's model and tokenizer into config. An HF directory's
 * always are, where the command line says nothing else. Without: -EINVAL if the checkpoint's model
 * is another one than the arguments', with both values (check_checkpoint_args). config is settled
 * then (config/settle.h). */
int mft_load_args(struct mft_load *l, struct mft_train_config *config, struct mfs_error *err);

/* Of several processes: all load the same. One that has found an older checkpoint than another, or
 * none, looks again for a while, since its host may see a shared directory late; *load is the newer
 * one then, and its model is compared with config, which is settled. -ESTALE: they still differ,
 * and the message names two ranks, their hosts and what each finds. */
int mft_load_agree(struct mft_load **load, struct mft_train_config *config,
		   const struct mft_parallel *p, struct mfs_error *err);

/* Reads weights, and optimizer states unless finetune or no_load_optim, into the params' device
 * memory. Without main parameters in the source they are made of the weights. progress: as saved;
 * untouched with finetune or of an HF directory. *ret_optim: optimizer states were read. */
int mft_load_state(struct mft_load *l, const struct mft_train_config *config,
		   struct mft_params *params, const struct mfk_backend *backend,
		   struct mfk_device *device, struct mfk_ctx *ctx, struct mft_progress *progress,
		   bool *ret_optim, struct mfs_error *err);

/* Reads the scales of params->scales into the device's memory: those of all products of the
 * process, or none. why: empty, or why none are loaded, for the end of a line of the log. */
int mft_load_scales(struct mft_load *l, const struct mft_train_config *config,
		    const struct mft_params *params, const struct mfk_backend *backend,
		    struct mfk_device *device, struct mfk_ctx *ctx, char why[MFT_SCALES_WHY],
		    struct mfs_error *err);

/* "iteration 20 of DIR (torch_dist, TP2 PP2)", for the log. */
const char *mft_load_what(const struct mft_load *l);
/* The iteration's directory, or the HF directory. */
const char *mft_load_dir(const struct mft_load *l);

#endif
