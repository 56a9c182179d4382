/*
 * A save whose files do not say what model it is: verl's, and those of any program that calls
 * megatron.core.dist_checkpointing on its own. A HuggingFace directory tells it instead, because
 * its config.json is of that model. Either the program saves one with its weights, or a person
 * names one (-o ref=HF_DIR). Readers of Megatron's files know no names of HuggingFace's; they are
 * given the functions that do.
 */
#ifndef MFS_CKPT_TOLD_H
#define MFS_CKPT_TOLD_H

#include "formats/base/error.h"

struct mfs_ckpt;

struct mfs_ckpt_told {
	const char *ref;  /* a HuggingFace directory; NULL: nobody names one */
	const char *arch; /* the family; NULL: config.json names it */
	/* Fills ckpt->args from the config.json of folder, a directory below the
	 * checkpoint's, whose file becomes one of the checkpoint's; without a folder, from that of
	 * ref. -ENOENT: folder has none. Other errors: those of a config.json that no family can
	 * express. */
	int (*read)(struct mfs_ckpt *ckpt, const struct mfs_ckpt_told *told, const char *folder,
		    struct mfs_error *err);
	/* Settles what the tensors alone say, and compares all of them with the config. -EINVAL,
	 * -ENOTSUP, -ENODATA: they are of another model; the sentence names tensor and config. */
	int (*check)(struct mfs_ckpt *ckpt, const struct mfs_ckpt_told *told,
		     struct mfs_error *err);
};

/* The HuggingFace directory that told which model it is, an absolute path. NULL: the checkpoint's
 * own files did. */
const char *mfs_ckpt_told_by(const struct mfs_ckpt *ckpt);

#endif
