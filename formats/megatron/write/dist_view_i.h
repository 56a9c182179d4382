/*
 * Private to dist*.c: what a torch_dist view holds.
 *
 * An item is a torch.save archive of one chunk. All chunks of a tensor have one shape, so their
 * items have one size, and they begin at the same offset in every layer's file. So offsets are
 * computed and not listed, and a view of a million chunks is some thousand tensors in memory.
 * Files:
 *
 *   __{unit}_0.distcp   random states (unit 0), _extra_state, weights
 *   __{unit}_1.distcp   the optimizer's tensors
 *
 * Unit 0 has what is in no layer, units 1 to L are the layers, and MTP layers follow.
 */
#ifndef MFS_MEGATRON_WRITE_DIST_VIEW_I_H
#define MFS_MEGATRON_WRITE_DIST_VIEW_I_H

#include "formats/base/buf.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/optim/rules/settings.h"
#include "formats/torch/torch_write.h"
#include "formats/megatron/write/dist_boxes.h"
#include "formats/megatron/write/files.h"

enum mfs_dist_kind { MFS_DIST_WEIGHTS, MFS_DIST_OPTIMIZER, MFS_DIST_KINDS };

/* A tensor of .metadata. */
struct mfs_dist_tensor {
	const struct mfs_global_tensor *first; /* and those after it, by layer, then expert */
	uint32_t count;
	uint32_t layers, experts; /* sizes of stacked axes in front; 0: no such axis */
	/* of each global tensor, the vocabulary padded, or of its section */
	uint64_t shape[MFS_CKPT_DIMS];
	uint8_t section;	    /* of ckpt/sections.h, counted from 1; 0: all of it */
	uint64_t first_row;	    /* of the global tensor, that it begins with */
	uint8_t axis;		    /* each global tensor is cut into chunks along this axis */
	uint32_t parts;		    /* chunks of each global tensor */
	struct mfs_torch_item item; /* of a chunk */
	uint64_t offset;	    /* of its first item in each unit's file, bytes */
};

/* The _extra_state of the modules that own a tensor. */
struct mfs_dist_extra {
	const struct mfs_dist_tensor *owner;
	bool core_attention; /* of core_attention; the owner is linear_proj, which comes after it */
	bool head;	     /* of output_layer, though the head may be tied to the embedding */
	bool stateful;	     /* the source has states of these modules */
	uint64_t length;     /* bytes of an item */
	uint32_t first;	     /* number of its first item among the items of all extras */
	uint64_t offset;     /* as of a tensor */
};

/* An item of random states, of a (tp, pp) rank or of one of its data-parallel ranks. */
struct mfs_dist_rng {
	uint32_t tp, pp, dp;
	bool has_dp;
	const struct mfs_buf *item; /* several may share it */
	uint64_t offset;	    /* in unit 0's file, bytes */
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
	uint64_t vocab;		  /* rows of the embedding, padded */
	bool numbered;		  /* decoder keys have layer numbers, and tensors no layer axis */
	enum mfs_optim_kind kind; /* of the optimizer, by which its keys are named */
	struct mfs_torch_items *items;
	struct mfs_buf none; /* the item of an _extra_state: a list of None */
	struct mfs_dist_tensor *tensors;
	uint32_t tensor_count;
	struct mfs_dist_extra *extras;
	uint32_t extra_count, extra_items;
	struct mfs_dist_rng *rng;
	uint32_t rng_count;
	struct mfs_buf *rng_items; /* numbered as in mfs_rng_find(); empty until needed */
	uint32_t rng_item_count;
	uint64_t rng_bytes;	     /* of all of these */
	uint32_t rng_dp;	     /* data-parallel ranks, for entries with has_dp */
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

/* Unit of the i-th global tensor of t; i is layer * experts + expert. */
uint32_t mfs_dist_unit(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		       uint32_t i);
/* What follows from the options, and from the kind of the optimizer. */
int mfs_dist_begin(struct mfs_megatron_dist *d, enum mfs_optim_kind kind, struct mfs_error *err);
void mfs_dist_end(struct mfs_megatron_dist *d);
/* Fills in tensors and extras. */
int mfs_dist_tensors(struct mfs_megatron_dist *d, struct mfs_error *err);
/* Fills in whether extras have states, and the lengths of their items (dist_extras.c). -EINVAL:
 * those of a kind differ. */
int mfs_dist_measure_extras(struct mfs_megatron_dist *d, struct mfs_error *err);
/* Appends the i-th item of an extra, or nothing if it has no state. -EINVAL: it has another length
 * than others. */
int mfs_dist_extra_item(const struct mfs_megatron_dist *d, const struct mfs_dist_extra *e,
			uint32_t i, struct mfs_buf *out, struct mfs_error *err);
/* Fills in all offsets, and the files' sizes. d->rng is filled already. */
int mfs_dist_place(struct mfs_megatron_dist *d, struct mfs_error *err);
/* The shape in .metadata, stacked axes first. Returns the number of axes. */
unsigned mfs_dist_shape(const struct mfs_dist_tensor *t, uint64_t shape[MFS_MAX_DIMS]);

/* A lazy data file (dist_data.c). */
int mfs_dist_data(const struct mfs_dist_file *file, struct mfs_vfile **ret, struct mfs_error *err);
/* Appends the pickle .metadata (dist_view_index.c). */
int mfs_dist_index(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err);
/* Appends common.pt (dist_common.c). */
int mfs_dist_common(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err);
/* Fills d->rng from the source's random states, without offsets (dist_rng.c). */
int mfs_dist_rng(struct mfs_megatron_dist *d, struct mfs_error *err);
/* The key of an item of random states. */
void mfs_dist_rng_key(char *key, size_t size, const struct mfs_megatron_dist *d,
		      const struct mfs_dist_rng *r);

#endif
