/* Arguments of a run whose program writes them to a file next to the state: Megatron-Bridge's
 * run_config.yaml, NeMo's model.yaml (formats/args/model_config.h). */
#ifndef MFS_CKPT_READ_ARGS_FILE_H
#define MFS_CKPT_READ_ARGS_FILE_H

#include "formats/ckpt/ckpt_build.h"
#include "formats/args/model_config.h"

#define MFS_RUN_CONFIG "run_config.yaml"

/*
 * If the dict *state of f has no 'args', it gets those of run_config.yaml: f->doc is then another
 * document, and *state its root. Without such a file nothing changes. file: f's name, for
 * messages. -EINVAL, -ENOTSUP: see mfs_model_config_write().
 */
int mfs_ckpt_complete_state(struct mfs_ckpt *ckpt, struct mfs_torch_file *f, const char *file,
			    mfs_value *state, struct mfs_error *err);

/* Gives f another document, whose bytes become f's. file: f's name, for messages. */
int mfs_ckpt_replace_doc(struct mfs_torch_file *f, struct mfs_buf *bytes, const char *file,
			 struct mfs_error *err);

/* Appends the arguments of file name of the checkpoint's as the pickle of a Namespace. Errors:
 * those of mfs_ckpt_read_config(). The caller releases *ret after a failure, too. */
int mfs_ckpt_config_args(struct mfs_ckpt *ckpt, const char *name, struct mfs_buf *ret,
			 struct mfs_error *err);

/* Reads the arguments from file name of the checkpoint's. -ENOENT: there is none; -EINVAL,
 * -ENOTSUP: see mfs_model_config_write(). */
int mfs_ckpt_read_config(struct mfs_ckpt *ckpt, const char *name, struct mfs_error *err);

/* What run_config.yaml says of a run's adapters. Errors: those of mfs_model_config_lora(); -ENOENT:
 * there is no such file. */
int mfs_ckpt_read_lora(struct mfs_ckpt *ckpt, struct mfs_lora_config *ret, struct mfs_error *err);

#endif
