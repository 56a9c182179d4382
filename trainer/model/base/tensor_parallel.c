/*
 * Tensor and sequence parallelism: what the processes that share a model's parts send each other.
 *
 *   forward    x is gathered, each computes its term of the part's output, the terms are added up
 *   backward   x and dy are gathered, each computes its term of dx, the terms are added up
 *
 * Without --sequence-parallel all have x and dy, and a sum goes to all. With it a process has some
 * rows of the stream, and gets these of a sum; what was gathered is not kept.
 *
 * All their communication is in a context of its own (side.c). Most of it is waited for at once.
 * But x is gathered while a part goes backward up to its first linears, and the sum of dx goes on
 * while the gradient of the weight of the last of them is computed. Source:
 * megatron/core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsyncCommunication.
 */
#include "trainer/model/base/part.h"
#include "trainer/model/base/tensor_parallel.h"

bool mft_is_divided(const struct mft_net *net)
{
	return net->parallel->group[MFT_GROUP_TENSOR].size > 1;
}

static bool shares_stream(const struct mft_net *net)
{
	return net->rows < net->tokens;
}

/* ---- the stream ---- */

int mft_stream_divide(struct mft_net *net, struct mfs_error *err)
{
	const struct mft_group_place *tensor = &net->parallel->group[MFT_GROUP_TENSOR];

	net->rows = net->tokens;
	if (!mft_is_divided(net) || !net->config->sequence_parallel)
		return 0;
	if (net->tokens % tensor->size)
		return mfs_fail(err, -EINVAL,
				"--sequence-parallel: the %lld tokens of a microbatch cannot be "
				"divided by --tensor-model-parallel-size %u",
				(long long)net->tokens, tensor->size);
	net->rows = net->tokens / tensor->size;
	net->first_row = net->rows * tensor->rank;
	return 0;
}

void mft_stream_plan(struct mft_net *net)
{
	const uint64_t whole = mft_matrix_bytes(net->io, net->tokens, net->hidden);
	uint64_t terms = 0;

	for (uint32_t i = 0; i < net->params->count; i++)
		if (net->term[i])
			terms += net->params->list[i].elements * mfk_dtype_size(net->grad);
	net->terms = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, terms);
	if (!shares_stream(net))
		return;
	net->gathered[MFT_GATHERED_X] = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, whole);
	net->gathered[MFT_GATHERED_DY] = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, whole);
	net->of_all = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, whole);
}

const void *mft_stream_gather_at_side(const struct mft_net *net, const struct mft_pass *pass,
				      enum mft_gathered which, const void *x)
{
	void *whole;

	if (!shares_stream(net))
		return x;
	whole = mft_net_at(net, net->gathered[which]);
	mft_parallel_all_gather(net->parallel, MFT_GROUP_TENSOR,
				mft_side_submit(net, &net->tensor_side, pass->ctx), net->io, whole,
				x, (uint64_t)(net->rows * net->hidden));
	return whole;
}

void mft_stream_await(const struct mft_net *net, const struct mft_pass *pass)
{
	if (shares_stream(net))
		mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, pass->ctx);
}

const void *mft_stream_gather(const struct mft_net *net, const struct mft_pass *pass,
			      enum mft_gathered which, const void *x)
{
	const void *whole = mft_stream_gather_at_side(net, pass, which, x);

	mft_stream_await(net, pass);
	return whole;
}

void *mft_stream_term(const struct mft_net *net, void *y)
{
	return shares_stream(net) ? mft_net_at(net, net->of_all) : y;
}

static void sum_at_side(const struct mft_net *net, const struct mft_pass *pass, void *term, void *y)
{
	struct mfk_ctx *ctx = mft_side_submit(net, &net->tensor_side, pass->ctx);
	const uint64_t count = (uint64_t)(net->rows * net->hidden);

	if (shares_stream(net))
		mft_parallel_reduce_scatter(net->parallel, MFT_GROUP_TENSOR, ctx, net->io, y, term,
					    count);
	else
		mft_parallel_all_reduce(net->parallel, MFT_GROUP_TENSOR, ctx, MFK_SUM, net->io, y,
					count);
}

void mft_stream_sum(const struct mft_net *net, const struct mft_pass *pass, void *term, void *y)
{
	sum_at_side(net, pass, term, y);
	mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, pass->ctx);
}

/* ---- in parallel with products ---- */

int mft_tensor_side_begin(struct mft_net *net, struct mfs_error *err)
{
	if (!mft_is_divided(net) || net->tensor_side.ctx)
		return 0;
	return mft_side_begin(net, &net->tensor_side, err);
}

struct mft_dx_sum mft_dx_sum_new(const struct mft_net *net, void *dx)
{
	return (struct mft_dx_sum){.term = mft_stream_term(net, dx), .dx = dx};
}

void mft_dx_sum_begin(const struct mft_net *net, const struct mft_pass *pass)
{
	struct mft_dx_sum *s = pass->dx_sum;

	if (!s || s->begun)
		return;
	sum_at_side(net, pass, s->term, s->dx);
	s->begun = true;
}

void mft_dx_sum_end(const struct mft_net *net, const struct mft_pass *pass)
{
	mft_dx_sum_begin(net, pass);
	mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, pass->ctx);
}

/* ---- what else they say ---- */

void mft_tensor_gather(const struct mft_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
		       void *to, const void *from, uint64_t elements)
{
	mft_parallel_all_gather(net->parallel, MFT_GROUP_TENSOR,
				mft_side_submit(net, &net->tensor_side, ctx), dtype, to, from,
				elements);
	mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, ctx);
}

void mft_tensor_scatter(const struct mft_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
			void *to, void *from, uint64_t elements)
{
	mft_parallel_reduce_scatter(net->parallel, MFT_GROUP_TENSOR,
				    mft_side_submit(net, &net->tensor_side, ctx), dtype, to, from,
				    elements);
	mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, ctx);
}

/* ---- gradients of what all of them have ---- */

void mft_net_gradient_is_term(struct mft_net *net, const struct mft_param *p)
{
	if (p && mft_is_divided(net))
		net->term[p - net->params->list] = true;
}

/* Copies what the process owns of a term, or back. Returns how many elements that is. */
static uint64_t copy_term(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_param *p,
			  char *term, bool back)
{
	const size_t size = mfk_dtype_size(net->grad);
	const uint64_t end = p->start + p->elements;
	uint64_t count = 0;

	for (uint64_t at = p->start, n; (n = mft_params_owned(net->params, &at, end)); at += n) {
		char *grad = mft_params_grads_at(net->params, at), *to = term + count * size;

		net->backend->device->copy(ctx, back ? grad : to, back ? to : grad, n * size);
		count += n;
	}
	return count;
}

/* Copies the terms one after the other, or back: those that tensor parallel processes own are the
 * same elements. Returns how many they are. */
static uint64_t copy_terms(const struct mft_net *net, struct mfk_ctx *ctx, bool back)
{
	const size_t size = mfk_dtype_size(net->grad);
	char *at = mft_net_at(net, net->terms);
	uint64_t count = 0;

	for (uint32_t i = 0; i < net->params->count; i++)
		if (net->term[i])
			count +=
				copy_term(net, ctx, &net->params->list[i], at + count * size, back);
	return count;
}

void mft_tensor_sum_gradients(const struct mft_net *net, struct mfk_ctx *ctx)
{
	uint64_t count;

	if (!mft_is_divided(net))
		return;
	count = copy_terms(net, ctx, false);
	if (!count)
		return;
	mft_parallel_all_reduce(net->parallel, MFT_GROUP_TENSOR,
				mft_side_submit(net, &net->tensor_side, ctx), MFK_SUM, net->grad,
				mft_net_at(net, net->terms), count);
	mft_side_await(net, &net->tensor_side, MFT_GROUP_TENSOR, ctx);
	copy_terms(net, ctx, true);
}
