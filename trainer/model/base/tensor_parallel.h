/* Tensor and sequence parallelism: what the processes that share parts say to each other. */
#ifndef MFS_TRAINER_MODEL_BASE_TENSOR_PARALLEL_H
#define MFS_TRAINER_MODEL_BASE_TENSOR_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/*
 * Without --sequence-parallel every process has the whole residual stream. With it a process has
 * net->rows rows of it, from net->first_row on: norms, dropout and sums of the stream are of tokens
 * each for itself, so any division is exact. Source: megatron/core/tensor_parallel/mappings.py.
 */
bool mfs_is_divided(const struct mfs_net *net);
/* -EINVAL: tokens that cannot be divided. Sets net->rows and net->first_row. */
int mfs_stream_divide(struct mfs_net *net, struct mfs_error *err);
void mfs_stream_plan(struct mfs_net *net);

/* Where all of the microbatch's tokens are gathered. */
enum mfs_gathered { MFS_GATHERED_X, MFS_GATHERED_DY };
/* Returns all processes' rows of the stream: x itself, or gathered. With _beside it is gathered in
 * parallel with the passes: the caller calls mfs_stream_await() before it reads the rows. */
const void *mfs_stream_gather(const struct mfs_net *net, const struct mfs_pass *run,
			      enum mfs_gathered which, const void *x);
const void *mfs_stream_gather_beside(const struct mfs_net *net, const struct mfs_pass *run,
				     enum mfs_gathered which, const void *x);
void mfs_stream_await(const struct mfs_net *net, const struct mfs_pass *run);
/* Where a term [T, hidden] of a sum is to be written that goes to y: y itself, or a place. */
void *mfs_stream_term(const struct mfs_net *net, void *y);
/* y[rows, hidden] = the sum of all processes' terms. */
void mfs_stream_sum(const struct mfs_net *net, const struct mfs_pass *run, void *term, void *y);

/* The sum of the processes' terms of a part's dx. It goes on while the gradient of the weight is
 * computed whose linear ends dx. */
struct mfs_dx_sum {
	void *term, *dx;
	bool begun;
};
/* The term is still to be written. */
struct mfs_dx_sum mfs_dx_sum_new(const struct mfs_net *net, void *dx);
/* The term of run->dx_sum is written. */
void mfs_dx_sum_begin(const struct mfs_net *net, const struct mfs_pass *run);
/* dx is there for what follows. run->dx_sum as before. */
void mfs_dx_sum_end(const struct mfs_net *net, const struct mfs_pass *run);

/* Other sums and gathers of tensor parallel processes, as mfs_parallel_all_gather() and
 * mfs_parallel_reduce_scatter() do them. All other communication of these processes goes through
 * the functions above: all of it is in one context. */
void mfs_tensor_gather(const struct mfs_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
		       void *to, const void *from, uint64_t elements);
void mfs_tensor_scatter(const struct mfs_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
			void *to, void *from, uint64_t elements);

/* Declares a parameter that all processes of the group have, and whose gradient is a sum of theirs:
 * of the stream's rows that each has, or of the heads. p NULL: none. Call it when the net is
 * planned. */
void mfs_net_gradient_is_term(struct mfs_net *net, const struct mfs_param *p);
/* Call it after a step's passes: those gradients become the sums. */
void mfs_tensor_sum_gradients(const struct mfs_net *net, struct mfk_ctx *ctx);

/* Makes the context that runs in parallel with the passes. Call it after mfs_memory_place(). */
int mfs_tensor_beside_begin(struct mfs_net *net, struct mfs_error *err);

#endif
