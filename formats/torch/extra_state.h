/*
 * What a module of Transformer Engine keeps in its `_extra_state`. With the recipe "delayed" these
 * are the scales that its 8-bit tensors have and the histories of amax that scales follow from,
 * fp32, of both directions. With other recipes it is nothing. Columns of an array are kinds of
 * tensors times products (num_gemms, which is 1 but for grouped linears), kind by kind:
 *
 *   forward   X, W, output   scale [3 * products], amax_history [length, 3 * products]
 *   backward  dY, dX         scale [2 * products], amax_history [length, 2 * products]
 *
 * Three forms are read (pytorch/module/base.py: get_extra_state() of Transformer Engine):
 *
 *   from 2.0 on  uint8 tensor: a pickle of {"recipe": DelayedScaling, "scale_fwd", ...}, the
 *                tensors in which have storages that are torch.save streams in bytes objects
 *   1.x          io.BytesIO: a torch.save archive of the same dict without a recipe
 *   no state     None, a tensor without elements; a pickle of None, or of a recipe without state
 *
 * Nothing is executed, and memory is proportional to the bytes. What is written is the first form.
 */
#ifndef MFS_TORCH_EXTRA_STATE_H
#define MFS_TORCH_EXTRA_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/torch/torch_file.h"

enum mfs_fp8_direction { MFS_FP8_FORWARD, MFS_FP8_BACKWARD, MFS_FP8_DIRECTIONS };

/* Kinds of tensors of a product in a direction. */
#define MFS_FP8_FORWARD_KINDS  3u
#define MFS_FP8_BACKWARD_KINDS 2u

struct mfs_extra_state {
	uint32_t products;		  /* 0: the module has no state, and nothing below counts */
	uint32_t length;		  /* rows of the histories; at least 1 */
	float *scale[MFS_FP8_DIRECTIONS]; /* [columns] */
	float *history[MFS_FP8_DIRECTIONS]; /* [length, columns]; amax_history */
	/* of the recipe */
	int64_t margin;
	bool most_recent;		 /* amax_compute_algo; false: "max" */
	double most[MFS_FP8_DIRECTIONS]; /* 448: e4m3; 57344: e5m2, of the backward direction */
};

static inline uint32_t mfs_extra_state_columns(const struct mfs_extra_state *s,
					       enum mfs_fp8_direction d)
{
	return s->products *
	       (d == MFS_FP8_FORWARD ? MFS_FP8_FORWARD_KINDS : MFS_FP8_BACKWARD_KINDS);
}

/* Gives s arrays of its products and its length: scales of 1, histories of 0. -ENOMEM. */
int mfs_extra_state_alloc(struct mfs_extra_state *s, struct mfs_arena *arena,
			  struct mfs_error *err);

/*
 * Reads the bytes of a tensor or of a BytesIO. name: for messages. Arrays lie in arena. -EINVAL:
 * malformed, or arrays that do not fit one another. -ENOTSUP: state of another recipe, which the
 * message names.
 */
int mfs_extra_state_read(const void *bytes, size_t len, const char *name, struct mfs_arena *arena,
			 struct mfs_extra_state *ret, struct mfs_error *err);

/* Reads the value under the key "MODULE._extra_state" of a model's dict, or of an item of a
 * torch_dist checkpoint. -ENOTSUP: also where it is of none of the forms. */
int mfs_extra_state_value(const struct mfs_torch_file *f, mfs_value v, struct mfs_arena *arena,
			  struct mfs_extra_state *ret, struct mfs_error *err);

/* A copy in arena of the bytes of an io.BytesIO. NULL: it is none, or there is no memory. */
const uint8_t *mfs_extra_state_buffer(const struct mfs_pickle *doc, mfs_value v,
				      struct mfs_arena *arena, size_t *ret_len);

/* Appends what a tensor of uint8 holds. A state without products is written as nothing: the tensor
 * has no elements. */
int mfs_extra_state_write(const struct mfs_extra_state *s, struct mfs_buf *out,
			  struct mfs_error *err);

/* The columns of one product of several, as its own state: Megatron saves experts so in torch_dist
 * (TEGroupedLinear._split_extra_state()). */
int mfs_extra_state_split(const struct mfs_extra_state *s, uint32_t product,
			  struct mfs_arena *arena, struct mfs_extra_state *ret,
			  struct mfs_error *err);

/* The reverse, of count states with one product each. What is of the recipe is the first one's.
 * -EINVAL: one has no state, or a history of another length. */
int mfs_extra_state_join(const struct mfs_extra_state *const *parts, uint32_t count,
			 struct mfs_arena *arena, struct mfs_extra_state *ret,
			 struct mfs_error *err);

#endif
