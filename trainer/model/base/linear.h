/* What attention, MLPs and the head are made of: linears and norms of named parameters. */
#ifndef MFT_TRAINER_MODEL_BASE_LINEAR_H
#define MFT_TRAINER_MODEL_BASE_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* y[rows, out] = x[rows, in] weight[out, in]^T + bias: sizes of what the process has. Rows of the
 * weight are divided (megatron/core/tensor_parallel/layers.py: ColumnParallelLinear), columns
 * (RowParallelLinear: y is a term of a sum), or neither; weight->part.split says it. */
struct mft_linear {
	const struct mft_param *weight, *bias; /* bias NULL: none */
	int64_t out, in;
	int64_t ld;    /* elements between rows of y, if there is no bias; 0: out */
	int64_t first; /* rows [first, first + out) of weight and bias are the linear's */
	bool biased;   /* forward adds the bias: of terms of a sum, one process's does */
	bool replaces; /* see mft_linear_replaces() */
	bool adds;     /* backward adds to dx */
	bool ends_dx;  /* backward is the last that writes a part's dx; see mft_dx_sum_begin() */
	bool sums;     /* forward adds to y */
	/* Columns [col, col + in) of a weight whose rows have so many elements; 0: they have in. */
	int64_t row, col;
	/* Rows are divided, and each process uses all of them: scratch of the whole weight, and of
	 * a term of its gradient. See mft_linear_gather(). There is no bias then. */
	bool gathered;
	uint64_t whole, term;
	const struct mft_recipe *recipe; /* of products of 8 bits; NULL: it has none */
	struct mft_kept_columns kept;	 /* see mft_linear_keep() */
};

/* Whether a product of a linear has operands of 8 bits. */
static inline bool mft_linear_has_eight(const struct mft_linear *l, enum mft_product which)
{
	return l->recipe && l->recipe->eight[which];
}

struct mft_part_plan;

/* prefix: "decoder.layers.mlp.linear_fc1". The bias is there if the model has it. Plans memory for
 * operands of 8 bits, but for those of experts, which share it. -EINVAL: its sizes do not do for
 * 8 bits. */
int mft_linear_find(const struct mft_net *net, const char *prefix, int32_t layer, int32_t expert,
		    struct mft_linear *ret, struct mfs_error *err);
/* Like mft_linear_find(), for a linear that each process uses all of: where its rows are divided,
 * it is gathered, and has no products of 8 bits. */
int mft_linear_find_whole(const struct mft_net *net, const char *prefix, int32_t layer,
			  struct mft_linear *ret, struct mfs_error *err);
/* Plans that forward keeps x for backward, if weights' gradients are products of 8 bits. Returns
 * true if it does: x need not stay then. */
bool mft_linear_keep(const struct mft_net *net, const struct mft_part *part, struct mft_linear *l,
		     struct mft_part_plan *plan);
/* Like mft_linear_keep(), for a linear whose x is the stream's. Where processes share the stream it
 * does not, since all of x is more than its part of it. */
bool mft_linear_keep_stream(const struct mft_net *net, const struct mft_part *part,
			    struct mft_linear *l, struct mft_part_plan *plan);
/* y NULL: it is not wanted, only what is kept of x is. */
void mft_linear_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_linear *l, int64_t rows, const void *x, void *y);
/* act->x is written, and act->y, the activation of it. */
void mft_linear_forward_act(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_linear *l, const void *x, const struct mfk_act *act);
/* For a linear that is gathered. Gathers the whole weight, before forward or backward. Scatters its
 * gradient, after backward has written this process's term of it. */
void mft_linear_gather(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_linear *l);
void mft_linear_scatter(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_linear *l);
/* For a linear that is the first to touch its weight's gradient, once in each pass: a step's first
 * pass writes the gradient instead of adding to it, and mft_net_clear_grads() leaves it alone. */
void mft_linear_replaces(struct mft_net *net, struct mft_linear *l);
/* Adds to the gradients of weight and bias. dx NULL: not wanted. Otherwise it is written, or, if
 * the linear adds, added to. */
void mft_linear_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_linear *l, int64_t rows, const void *x, const void *dy,
			 void *dx);
/* Like mft_linear_backward(), for a linear whose input was act->y: act->dx is written. act->dy is
 * room for the gradient between the two. */
void mft_linear_backward_act(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_linear *l, const void *dy, const struct mfk_act *act);

struct mft_norm {
	const struct mft_param *weight, *bias; /* bias NULL: none */
	int64_t cols;
};

/* prefix: "decoder.layers.input_layernorm". stats: fp32 [2, rows], kept for backward. */
int mft_norm_find(const struct mft_net *net, const char *prefix, int32_t layer,
		  struct mft_norm *ret, struct mfs_error *err);
uint64_t mft_norm_stats_bytes(int64_t rows);
/* residual NULL: x is normalised; else sum = x + residual is. */
void mft_norm_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_norm *n, int64_t rows, const void *x, const void *residual,
		      void *sum, void *y, float *stats);
/* x: what was normalised. dx = gradient (+ dresidual). */
void mft_norm_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_norm *n, int64_t rows, const void *x, const float *stats,
		       const void *dy, const void *dresidual, void *dx);

/* Device addresses of a parameter's weights and gradients. */
const void *mft_weight(const struct mft_net *net, const struct mft_param *p);
void *mft_grad(const struct mft_net *net, const struct mft_param *p);
/* True if the gradient of what mft_linear_replaces() named is written, not added to. */
bool mft_grad_is_new(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_param *p);

#endif
