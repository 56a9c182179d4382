/*
 * A view: the files of one directory that the mount shows, built once and never changed.
 * Front ends (FUSE, export, ls, verify) know views and virtual files, nothing below.
 */
#ifndef MFS_FS_VIEW_H
#define MFS_FS_VIEW_H

#include <stdint.h>
#include <sys/types.h>

#include "formats/base/error.h"
#include "formats/plan/vfile.h"

struct mfs_model;
struct mfs_ckpt;

struct mfs_view_file {
	char *name; /* relative to the view, without '/' */
	struct mfs_vfile *data;
};

struct mfs_view {
	struct mfs_view_file *files; /* in the order a listing shows them */
	uint32_t count;
	int64_t mtime_ns; /* of every file: the newest source file */
	/* Read bits that every source file grants, to the owner and group that all of them have; where their
	 * owners (groups) differ, what they grant to others is all that is granted to any. */
	unsigned mode;
	uid_t uid;
	gid_t gid;
	struct mfs_model *model;
};

/* What a person may say about how a checkpoint is to be shown (-o). NULL or 0: not said. */
struct mfs_view_options {
	const char *arch;    /* family, where the arguments leave a choice */
	const char *ref;     /* HF directory that supplies or checks config and tokenizer */
	uint64_t vocab_size; /* true vocabulary size; MFS_VOCAB_TOKENIZER: the tokenizer's length */
	uint64_t shard_size; /* bytes; 0: MFS_SHARD_SIZE */
};

#define MFS_VOCAB_TOKENIZER UINT64_MAX
#define MFS_SHARD_SIZE	    5000000000ull /* huggingface_hub's default: 5 GB, decimal */

/* The HF directory of a checkpoint; the checkpoint must outlive the view. -ENOTSUP or -ENODATA with
 * the tensor's or argument's name if any part of the model cannot be shown: never a partial model. */
int mfs_view_hf(struct mfs_ckpt *ckpt, const struct mfs_view_options *opt, struct mfs_view **ret,
		struct mfs_error *err);
void mfs_view_free(struct mfs_view *view);

#endif
