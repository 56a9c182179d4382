/* Private to the reader of torch_dist: ckpt_dist.c reads the model, ckpt_dist_optim.c the optimizer. */
#ifndef MFS_CKPT_READ_DIST_I_H
#define MFS_CKPT_READ_DIST_I_H

#include "formats/ckpt/ckpt_i.h"
#include "formats/ckpt/names.h"
#include "formats/torch/dcp.h"

#define METADATA ".metadata"

/* A tensor of the index: which leading axes are stacked layers and experts, and the rest. */
struct mfs_dist_stacked {
	const struct mfs_dcp_tensor *t;
	struct mfs_name name;
	unsigned layer_axis, expert_axis; /* MFS_MAX_DIMS: not stacked */
	unsigned skip;			  /* leading axes taken out */
	struct mfs_found_chunk piece;	  /* template */
};

/* t as the tensor that key, a model's, stands for. s->piece is a template of its pieces. */
int mfs_dist_unstack(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t, const char *key,
		     struct mfs_dist_stacked *s, struct mfs_error *err);
/* files: in the set, of the index's. -EINVAL: an empty chunk, or one larger than its item. */
int mfs_dist_storage(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t,
		     const struct mfs_dcp_chunk *c, const uint32_t *files, uint32_t *ret,
		     struct mfs_error *err);
/* The pieces of a chunk: one for each stacked layer and expert. */
int mfs_dist_add_chunk(struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s,
		       const struct mfs_dcp_chunk *c, const uint32_t *files, struct mfs_error *err);

/* Pieces of the tensors optimizer.state.*, and ckpt->optim. */
int mfs_dist_add_optim(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		       struct mfs_error *err);

#endif
