/* The reader of torch_dist saves. It stays as long as somebody has more to read of the index than
 * the model. */
#ifndef MFS_CKPT_READ_DIST_H
#define MFS_CKPT_READ_DIST_H

#include "formats/ckpt/build.h"
#include "formats/ckpt/names.h"
#include "formats/torch/dcp.h"

#define METADATA ".metadata"

struct mfs_dist_reader {
	struct mfs_ckpt *ckpt;
	struct mfs_dcp dcp; /* the index */
	uint32_t *files;    /* in the set, of the index's */
	uint64_t slices;    /* what stacked layers and experts may still become */
	struct mfs_error *err;
};

/* Reads the model, and the state if ckpt->what says so: found chunks, arguments, layout. *r is
 * released also after a failure. */
int mfs_dist_read(struct mfs_ckpt *ckpt, struct mfs_dist_reader *r, struct mfs_error *err);
void mfs_dist_release(struct mfs_dist_reader *r);

/* A tensor of the index: which leading axes are stacked layers and experts, and the rest. */
struct mfs_dist_stacked {
	const struct mfs_dcp_tensor *t;
	struct mfs_name name;
	unsigned layer_axis, expert_axis; /* MFS_MAX_DIMS: not stacked */
	unsigned skip;			  /* leading axes taken out */
	struct mfs_found_chunk found;	  /* template */
};

/* t as the tensor that key, a model's, stands for. s->found is a template of its found chunks. */
int mfs_dist_unstack(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
		     struct mfs_dist_stacked *s);
/* -EINVAL: an empty chunk, or one larger than its item. */
int mfs_dist_storage(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
		     const struct mfs_dcp_chunk *c, uint32_t *ret);
/* Adds the found chunks of t, which is that state of the tensor that key, a model's, stands for: of
 * each chunk one for each stacked layer and expert. */
int mfs_dist_add_tensor(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
			enum mfs_state state);
/* A byte item's bytes. */
struct mfs_source mfs_dist_item(const struct mfs_dist_reader *r, const struct mfs_dcp_item *item);

#endif
