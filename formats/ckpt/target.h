/*
 * A target is a tensor that is shown or written, with the boxes of global tensors that fill it. The
 * planner (plan/plan.h) needs nothing else. model/ makes targets of HF's tensors, and megatron/ of
 * the tensors of a rank.
 */
#ifndef MFS_CKPT_TARGET_H
#define MFS_CKPT_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "formats/ckpt/ckpt.h"

#define MFS_AXIS_NONE UINT8_MAX

/*
 * A box of a target, and the box of its source that fills it. Axis a of the target is axis
 * src_axis[a] of the source, which begins at src_lo[src_axis[a]] and goes in steps of step[a]
 * elements. Other axes of the source stay at src_lo. An axis of MFS_AXIS_NONE has no axis of the
 * source, as that of stacked experts. src NULL: the box is zeros.
 *
 * Where tensors alternate along the last axis (gate, up, gate, up, ...), that axis has lanes, and a
 * box lies in one of them: element i of its last axis is element i * lanes + lane of the target.
 * All boxes of a target have as many.
 */
struct mfs_box_map {
	const struct mfs_global_tensor *src;
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS]; /* of the target */
	uint64_t src_lo[MFS_CKPT_DIMS];
	uint64_t step[MFS_CKPT_DIMS];
	uint8_t src_axis[MFS_CKPT_DIMS];
	uint8_t lane, lanes; /* lanes 0: one */
};

typedef int (*mfs_emit_box)(const struct mfs_box_map *m, void *arg);

/* What is done to each element. ADD_ONE is for norms that are stored as weight - 1 and shown whole.
 * SUBTRACT_ONE is for norms that are stored whole and shown as weight - 1. QUANTISE and SCALES are
 * the two targets of fp8_target.h, whose boxes are those of the matrix. */
enum mfs_op { MFS_OP_COPY, MFS_OP_ADD_ONE, MFS_OP_SUBTRACT_ONE, MFS_OP_QUANTISE, MFS_OP_SCALES };

struct mfs_target {
	const struct mfs_target_ops *ops;
	struct mfs_ckpt *ckpt;
	/* Of the target. Where its sources are of another one, the planner casts (cast.h). */
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_CKPT_DIMS];
	uint64_t bytes;
};

/* The functions of a kind of targets. A target is the first member of the kind's own struct. */
struct mfs_target_ops {
	/* Emits boxes that together cover the target, each element once. Stops when emit returns
	 * non-zero, and returns that value. */
	int (*boxes)(const struct mfs_target *t, mfs_emit_box emit, void *arg);
	/* Writes its name in the view, for messages. Returns the length, as snprintf() does. */
	size_t (*name)(const struct mfs_target *t, char *text, size_t size);
	enum mfs_op (*op)(const struct mfs_target *t); /* NULL: MFS_OP_COPY */
};

/* Sets ndim, shape, bytes. -EINVAL: the size overflows. */
int mfs_target_shape(struct mfs_target *t, const uint64_t *shape, unsigned ndim,
		     struct mfs_error *err);

static inline int mfs_target_boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg)
{
	return t->ops->boxes(t, emit, arg);
}

static inline size_t mfs_target_name(const struct mfs_target *t, char *text, size_t size)
{
	return t->ops->name(t, text, size);
}

/* The type that a tensor has in a run of Megatron-LM. Megatron-FSDP saves main parameters in fp32
 * in the place of a model's; of any other save it is the tensor's own. */
enum mfs_dtype mfs_run_dtype(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t);

/* The op of a tensor of Megatron's, which is all of one box. */
static inline enum mfs_op mfs_megatron_op(const struct mfs_global_tensor *src)
{
	return src->whole_norm ? MFS_OP_SUBTRACT_ONE : MFS_OP_COPY;
}

static inline enum mfs_op mfs_target_op(const struct mfs_target *t)
{
	return t->ops->op ? t->ops->op(t) : MFS_OP_COPY;
}

/* A target that is a whole global tensor. */
struct mfs_whole_target {
	struct mfs_target base;
	const struct mfs_global_tensor *src;
};

void mfs_whole_target_init(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
			   const struct mfs_global_tensor *src);
/* The same as a run saves it: a norm that is stored whole becomes weight - 1. */
void mfs_whole_target_init_saved(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
				 const struct mfs_global_tensor *src);
/* Like mfs_whole_target_init(), with 1 added to each element. */
void mfs_whole_target_init_add_one(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
				   const struct mfs_global_tensor *src);

/* A target with its elements cast. */
struct mfs_cast_target {
	struct mfs_target base;
	const struct mfs_target *of;
};

/* of must outlive it, and its kind's functions are called with of. -ENOTSUP: dtypes that
 * cast.h does not cast. */
int mfs_cast_target_init(struct mfs_cast_target *t, const struct mfs_target *of,
			 enum mfs_dtype dtype, struct mfs_error *err);

#endif
