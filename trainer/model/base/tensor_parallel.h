/* Tensor and sequence parallelism: what the processes that share parts say to each other. */
#ifndef MFT_TRAINER_MODEL_BASE_TENSOR_PARALLEL_H
#define MFT_TRAINER_MODEL_BASE_TENSOR_PARALLEL_H

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
bool mft_is_divided(const struct mft_net *net);
/* Sets net->rows and net->first_row. -EINVAL: the tokens cannot be divided evenly. */
int mft_stream_divide(struct mft_net *net, struct mfs_error *err);
void mft_stream_plan(struct mft_net *net);

/* Where all of the microbatch's tokens are gathered. */
enum mft_gathered { MFT_GATHERED_X, MFT_GATHERED_DY };
/* Returns all processes' rows of the stream: x itself, or gathered. With _beside it is gathered in
 * parallel with the passes: the caller calls mft_stream_await() before it reads the rows. */
const void *mft_stream_gather(const struct mft_net *net, const struct mft_pass *pass,
			      enum mft_gathered which, const void *x);
const void *mft_stream_gather_at_side(const struct mft_net *net, const struct mft_pass *pass,
				      enum mft_gathered which, const void *x);
void mft_stream_await(const struct mft_net *net, const struct mft_pass *pass);
/* Where a term [T, hidden] of a sum is to be written that goes to y: y itself, or a place. */
void *mft_stream_term(const struct mft_net *net, void *y);
/* y[rows, hidden] = the sum of all processes' terms. */
void mft_stream_sum(const struct mft_net *net, const struct mft_pass *pass, void *term, void *y);

/* The sum of the processes' terms of a part's dx. It goes on while the gradient of the weight is
 * computed whose linear ends dx. */
struct mft_dx_sum {
	void *term, *dx;
	bool begun;
};
/* The term is still to be written. */
struct mft_dx_sum mft_dx_sum_new(const struct mft_net *net, void *dx);
/* The term of run->dx_sum is written. */
void mft_dx_sum_begin(const struct mft_net *net, const struct mft_pass *pass);
/* dx is there for what follows. run->dx_sum as before. */
void mft_dx_sum_end(const struct mft_net *net, const struct mft_pass *pass);

/* Other sums and gathers of tensor parallel processes, as mft_parallel_all_gather() and
 * mft_parallel_reduce_scatter() do them. All other communication of these processes goes through
 * the functions above: all of it is in one context. */
void mft_tensor_gather(const struct mft_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
		       void *to, const void *from, uint64_t elements);
void mft_tensor_scatter(const struct mft_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
			void *to, void *from, uint64_t elements);

/* Declares a parameter that all processes of the group have, and whose gradient is a sum of theirs:
 * of the stream's rows that each has, or of the heads. p NULL: none. Call it when the net is
 * planned. */
void mft_net_gradient_is_term(struct mft_net *net, const struct mft_param *p);
/* Call it after a step's passes: those gradients become the sums. */
void mft_tensor_sum_gradients(const struct mft_net *net, struct mfk_ctx *ctx);

/* Makes the context that runs in parallel with the passes. Call it after mft_memory_place(). */
int mft_tensor_side_begin(struct mft_net *net, struct mfs_error *err);

#endif
