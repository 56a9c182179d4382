/* What attention, MLPs and the head are made of: linears and norms of named parameters. */
#ifndef MFS_TRAINER_MODEL_BASE_LINEAR_H
#define MFS_TRAINER_MODEL_BASE_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* y[rows, out] = x[rows, in] weight[out, in]^T + bias: sizes of what the process has. Rows of the
 * weight are divided (megatron/core/tensor_parallel/layers.py: ColumnParallelLinear), columns
 * (RowParallelLinear: y is a term of a sum), or neither; weight->part.split says it. */
struct mfs_linear {
	const struct mfs_param *weight, *bias; /* bias NULL: none */
	int64_t out, in;
	int64_t ld;    /* elements between rows of y, if there is no bias; 0: out */
	int64_t first; /* rows [first, first + out) of weight and bias are the linear's */
	bool biased;   /* forward adds the bias: of terms of a sum, one process's does */
	bool replaces; /* see mfs_linear_replaces() */
	bool adds;     /* backward adds to dx */
	bool ends_dx;  /* backward is the last that writes a part's dx; see mfs_dx_sum_begin() */
	bool sums;     /* forward adds to y */
	/* Columns [col, col + in) of a weight whose rows have so many elements; 0: they have in. */
	int64_t row, col;
	/* Rows are divided, and each process uses all of them: scratch of the whole weight, and of
	 * a term of its gradient. See mfs_linear_gather(). There is no bias then. */
	bool gathered;
	uint64_t whole, term;
};

/* prefix: "decoder.layers.mlp.linear_fc1". The bias is there if the model has it. */
int mfs_linear_find(const struct mfs_net *net, const char *prefix, int32_t layer, int32_t expert,
		    struct mfs_linear *ret, struct mfs_error *err);
void mfs_linear_forward(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_linear *l, int64_t rows, const void *x, void *y);
/* act->x is written, and act->y, the activation of it. */
void mfs_linear_forward_act(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_linear *l, const void *x, const struct mfk_act *act);
/* For a linear that is gathered. Gathers the whole weight, before forward or backward. Scatters its
 * gradient, after backward has written this process's term of it. */
void mfs_linear_gather(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_linear *l);
void mfs_linear_scatter(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_linear *l);
/* For a linear that is the first to touch its weight's gradient, once in each pass: a step's first
 * pass writes the gradient instead of adding to it, and mfs_net_clear_grads() leaves it alone. */
void mfs_linear_replaces(struct mfs_net *net, struct mfs_linear *l);
/* Adds to the gradients of weight and bias. dx NULL: not wanted. Otherwise it is written, or, if
 * the linear adds, added to. */
void mfs_linear_backward(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_linear *l, int64_t rows, const void *x, const void *dy,
			 void *dx);
/* The same for a linear whose input was act->y: act->dx is written. act->dy is room for the
 * gradient between the two. */
void mfs_linear_backward_act(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_linear *l, const void *dy, const struct mfk_act *act);

struct mfs_norm {
	const struct mfs_param *weight, *bias; /* bias NULL: none */
	int64_t cols;
};

/* prefix: "decoder.layers.input_layernorm". stats: fp32 [2, rows], kept for backward. */
int mfs_norm_find(const struct mfs_net *net, const char *prefix, int32_t layer,
		  struct mfs_norm *ret, struct mfs_error *err);
uint64_t mfs_norm_stats_bytes(int64_t rows);
/* residual NULL: x is normalised; else sum = x + residual is. */
void mfs_norm_forward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_norm *n, int64_t rows, const void *x, const void *residual,
		      void *sum, void *y, float *stats);
/* x: what was normalised. dx = gradient (+ dresidual). */
void mfs_norm_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_norm *n, int64_t rows, const void *x, const float *stats,
		       const void *dy, const void *dresidual, void *dx);

/* Device addresses of a parameter's weights and gradients. */
const void *mfs_weight(const struct mfs_net *net, const struct mfs_param *p);
void *mfs_grad(const struct mfs_net *net, const struct mfs_param *p);
/* True if the gradient of what mfs_linear_replaces() named is written, not added to. */
bool mfs_grad_is_new(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_param *p);

#endif
