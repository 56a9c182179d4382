/* Where random numbers come from: dropout of the residual stream, and logits of benchmarks. */
#include "trainer/model/base/dropout.h"

/* splitmix64: neighbours become numbers that have nothing in common. */
static uint64_t mix(uint64_t state, uint64_t value)
{
	uint64_t z = state + value + UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t mft_pass_seed(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer,
		       enum mft_dropout_site site)
{
	uint64_t key = mix(0, (uint64_t)net->config->seed);

	key = mix(key, pass->info->iteration);
	key = mix(key, pass->info->microbatch);
	key = mix(key, layer);
	/* Other heads have other numbers (core/tensor_parallel/random.py:
	 * model_parallel_cuda_manual_seed). */
	if (site == MFT_DROPOUT_SCORES && net->parallel->place.tp)
		key = mix(key, net->parallel->place.tp);
	return mix(key, site);
}

bool mft_drops(const struct mft_net *net, const struct mft_pass *pass)
{
	return pass->train && net->config->hidden_dropout > 0;
}

/* The number in whole sequences of a token of a process's piece: two of each sequence, or, if it
 * has them whole, one of all. */
static int64_t whole_row(const struct mft_context *c, int64_t piece, int64_t token)
{
	if (c->size == 1)
		return token;
	return piece / 2 * c->whole +
	       mft_context_piece(c->size, c->rank, c->whole, (int)(piece % 2)) + token;
}

/* A dropout of the stream, or its backward, for the rows that the process has. Random numbers are
 * those of the elements of whole sequences: a piece of a sequence has some of them, without
 * gaps. */
void mft_drop(const struct mft_net *net, const struct mft_pass *pass,
	      void (*op)(struct mfk_ctx *c, const struct mfk_dropout *a),
	      const struct mfk_dropout *all)
{
	const struct mft_context *c = &net->context;
	const int64_t pieces = c->size > 1 ? 2 * net->batch : 1, tokens = net->tokens / pieces;
	const int64_t end = net->first_row + net->rows;

	for (int64_t row = net->first_row, next; row < end; row = next) {
		const int64_t i = row / tokens;
		struct mfk_dropout d = *all;
		size_t bytes;

		next = (i + 1) * tokens < end ? (i + 1) * tokens : end;
		bytes = (size_t)((row - net->first_row) * net->hidden) * mfk_dtype_size(d.dtype);
		d.count = (next - row) * net->hidden;
		d.x = (const char *)all->x + bytes;
		d.y = (char *)all->y + bytes;
		if (all->residual)
			d.residual = (const char *)all->residual + bytes;
		d.offset = (uint64_t)(whole_row(c, i, row - i * tokens) * net->hidden);
		op(pass->ctx, &d);
	}
}

struct mfk_dropout mft_dropout_at(const struct mft_net *net, const struct mft_pass *pass,
				  uint32_t layer, enum mft_dropout_site site)
{
	return (struct mfk_dropout){
		.dtype = net->io,
		.p = (float)net->config->hidden_dropout,
		.seed = mft_pass_seed(net, pass, layer, site),
	};
}

/* The same in each process that knows the token, and whenever the layer runs. */
void mft_random_logits(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer,
		       enum mfk_dtype type, void *logits, int64_t experts)
{
	const struct mft_context *c = &net->context;
	const uint64_t seed = mft_pass_seed(net, pass, layer, MFT_RANDOM_LOGITS);
	const int64_t pieces = c->size > 1 ? 2 * net->batch : 1, tokens = net->tokens / pieces;
	const size_t bytes = (size_t)(tokens * experts) * mfk_dtype_size(type);

	for (int64_t i = 0; i < pieces; i++)
		net->backend->ops->fill_normal(pass->ctx, type, (char *)logits + (size_t)i * bytes,
					       tokens * experts, 0, 1, seed,
					       (uint64_t)(whole_row(c, i, 0) * experts));
}
