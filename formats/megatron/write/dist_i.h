/*
 * Private to dist*.c: what a torch_dist view holds.
 *
 * An item is a torch.save archive of one chunk. Chunks of one tensor have one shape and hence items
 * of one size, and every layer's file has them at the same place; so a place is computed and not
 * listed, and a view of a million chunks is some thousand tensors in memory. Files:
 *
 *   __{unit}_0.distcp   random states (unit 0), _extra_state, weights
 *   __{unit}_1.distcp   the optimizer's tensors
 *
 * where unit 0 is what lies outside of layers, 1 to L are the layers, and MTP's follow.
 */
#ifndef MFS_MEGATRON_WRITE_DIST_I_H
#define MFS_MEGATRON_WRITE_DIST_I_H

#include "formats/base/buf.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/torch/torch_write.h"
#include "formats/megatron/write/files.h"

enum mfs_dist_kind { MFS_DIST_WEIGHTS, MFS_DIST_OPTIMIZER, MFS_DIST_KINDS };

/* A tensor of .metadata. */
struct mfs_dist_tensor {
	const struct mfs_global_tensor *first; /* and those behind it, by layer, then expert */
	uint32_t count;
	uint32_t layers, experts;      /* axes in front of its own; 0: not stacked so */
	uint64_t shape[MFS_CKPT_DIMS]; /* of each one, the vocabulary padded */
	uint8_t axis;		       /* along which each is cut into chunks */
	uint32_t parts;		       /* chunks of each */
	struct mfs_torch_item item;    /* of a chunk */
	uint64_t offset;	       /* of the first item in the file of its unit, of each unit */
};

/* The _extra_state of the modules whose weights a tensor is. */
struct mfs_dist_extra {
	const struct mfs_dist_tensor *owner;
	/* not of linear_proj, the owner, but of the attention in front of it */
	bool core_attention;
	uint32_t first;	 /* number of its first item, all extras counted */
	uint64_t offset; /* as a tensor's */
};

/* An item of random states: of a (tp, pp) rank, or of one of its data-parallel ranks. */
struct mfs_dist_rng {
	uint32_t tp, pp, dp;
	bool has_dp;
	const struct mfs_buf *item; /* which several may have */
	uint64_t offset;	    /* in the file of unit 0 */
};

/* One data file: what it is built from on first touch. */
struct mfs_dist_file {
	const struct mfs_megatron_dist *dist;
	uint32_t unit;
	enum mfs_dist_kind kind;
	uint64_t size; /* bytes; 0: there is no such file */
};

struct mfs_megatron_dist {
	struct mfs_megatron_options options;
	const struct mfs_megatron_args *args;
	uint64_t vocab;	  /* rows of the embedding, padded */
	bool numbered;	  /* decoder keys have layer numbers, no layer axis */
	const char *main; /* "param", "fp32_param": the fp32 parameters in the optimizer's keys */
	struct mfs_torch_items *items;
	struct mfs_buf none; /* the item of an _extra_state: a list of None */
	struct mfs_dist_tensor *tensors;
	uint32_t tensor_count;
	struct mfs_dist_extra *extras;
	uint32_t extra_count, extra_items;
	struct mfs_dist_rng *rng;
	uint32_t rng_count;
	struct mfs_buf *rng_items; /* by mfs_rng_find(), made where they are needed */
	uint32_t rng_item_count;
	uint64_t rng_bytes;	     /* of all that are made */
	uint32_t rng_dp;	     /* data-parallel ranks of those that has_dp */
	struct mfs_dist_file *files; /* [units][MFS_DIST_KINDS] */
	uint32_t units;
};

static inline uint32_t mfs_dist_each(uint32_t axis)
{
	return axis ? axis : 1;
}

static inline enum mfs_dist_kind mfs_dist_kind_of(const struct mfs_dist_tensor *t)
{
	return t->first->state == MFS_STATE_MODEL ? MFS_DIST_WEIGHTS : MFS_DIST_OPTIMIZER;
}

/* File of the i-th (layer * experts + expert) of a tensor, and its first one there. */
uint32_t mfs_dist_unit(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		       uint32_t i);
/* Tensors, extras, their places, and the files' sizes; d->rng is there. */
int mfs_dist_list(struct mfs_megatron_dist *d, struct mfs_error *err);

#define MFS_DIST_FILE_NAME_SIZE 32
void mfs_dist_file_name(char name[MFS_DIST_FILE_NAME_SIZE], uint32_t unit, enum mfs_dist_kind kind);
/* A data file, whose parts are built on first touch (megatron_dist_data.c). */
int mfs_dist_data(const struct mfs_dist_file *file, struct mfs_vfile **ret, struct mfs_error *err);
/* Appends the pickle .metadata (megatron_dist_index.c). */
int mfs_dist_index(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err);
/* Appends common.pt (megatron_dist_common.c). */
int mfs_dist_common(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err);
/* Items of the source's random states, without places: d->rng; their keys (megatron_dist_rng.c). */
int mfs_dist_rng(struct mfs_megatron_dist *d, struct mfs_error *err);
void mfs_dist_rng_key(char *key, size_t size, const struct mfs_megatron_dist *d,
		      const struct mfs_dist_rng *r);

#endif
