/*
 * The common state of a NeMo 2 save, as Megatron would have written it.
 *
 * weights/common.pt is PyTorch Lightning's dict. Of it a run goes on with 'global_step',
 * 'optimizer' (a list of one), and the 'consumed_samples' of the data module, whose class names
 * their place. Sources: nemo/lightning/pytorch/strategies/megatron_strategy.py: save_checkpoint;
 * nemo/lightning/_strategy_lib.py: setup_megatron_optimizer; nemo/collections/llm/gpt/data:
 * state_dict.
 */
#ifndef MFS_CKPT_READ_NEMO_H
#define MFS_CKPT_READ_NEMO_H

#include "formats/ckpt/build.h"

/*
 * Makes the state of the parsed common.pt: f->doc is then another document, and *state its root, a
 * dict with 'args' (those of file config), 'iteration', 'optimizer' and an 'opt_param_scheduler'
 * that knows how far the run was, and nothing of NeMo's own schedule. file: f's name, for messages.
 * Errors: those of mfs_ckpt_read_config(); -EINVAL: 'optimizer' is not such a list.
 */
int mfs_nemo_make_state(struct mfs_ckpt *ckpt, struct mfs_torch_file *f, const char *file,
			const char *config, mfs_value *state, struct mfs_error *err);

/* Gives the parameter groups of a parsed item Megatron's names; mfs_nemo_make_state() has done so
 * with those of common.pt. */
int mfs_nemo_rename_groups(struct mfs_torch_file *f, const char *file, struct mfs_error *err);

#endif
