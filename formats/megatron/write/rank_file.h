/*
 * One rank's file of a legacy `torch` checkpoint (megatron/training/checkpointing.py:
 * save_checkpoint, generate_state_dict; optimizer/distrib_optimizer.py: save_parameter_state).
 */
#ifndef MFS_MEGATRON_WRITE_RANK_FILE_H
#define MFS_MEGATRON_WRITE_RANK_FILE_H

#include "formats/optim/buffers/rank_optim.h"
#include "formats/megatron/write/files.h"

enum mfs_rank_file_kind {
	MFS_RANK_FILE_MODEL,	 /* model_optim_rng.pt */
	MFS_RANK_FILE_OPTIMIZER, /* distrib_optim.pt */
	MFS_RANK_FILE_SHARE,	 /* layer_wise_optimizer_N.pt */
};

/* Which file of a rank. */
struct mfs_rank_file_id {
	struct mfs_rank rank;
	enum mfs_rank_file_kind kind;
	uint32_t number; /* N */
};

/* The data-parallel ranks of a layer-wise optimizer's run at a layout; 0: the run had none, or at
 * this layout it has no such files. */
uint32_t mfs_rank_file_shares(const struct mfs_megatron_options *options);

/* What a file's tensors are made of. It must outlive the file. */
struct mfs_rank_file;

/* Adds the file's parts to an empty virtual file. *ret is NULL, and nothing is added, if Megatron
 * writes no such file. */
int mfs_rank_file_new(const struct mfs_megatron_options *options, const struct mfs_rank_file_id *id,
		      struct mfs_vfile *parts, struct mfs_rank_file **ret, struct mfs_error *err);
void mfs_rank_file_free(struct mfs_rank_file *f);

#define MFS_RANK_FILE_STEM 40
/* "model_optim_rng"; returns stem. */
const char *mfs_rank_file_stem(const struct mfs_rank_file_id *id, char stem[MFS_RANK_FILE_STEM]);

#endif
