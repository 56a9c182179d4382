/* Tokens become the residual stream: their embeddings, with dropout, and backward. */
#include "trainer/model/net_i.h"

/* Rows of the vocabulary are divided; the positions are one process's term. */
static struct mfk_embedding embedding(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_param *positions = net->chain->position_embeddings;
	const int64_t vocab = mft_param_size(net->chain->word_embeddings, 0);

	return (struct mfk_embedding){
		.dtype = net->io,
		.grad = net->grad,
		.tokens = net->tokens,
		.cols = net->hidden,
		.vocab = vocab,
		.first = vocab * net->parallel->place.tp,
		.all = vocab * net->parallel->size.tp,
		.positions_max = positions ? mft_param_size(positions, 0) : 0,
		.ids = pass->tokens,
		.positions = pass->positions,
		.wte = mft_weight(net, net->chain->word_embeddings),
		.wpe = net->parallel->place.tp ? NULL : mft_weight(net, positions),
		.order = pass->order,
		.position_order = pass->position_order,
	};
}

/* muP's multiplier of what goes in, and of its gradient. */
static void multiply(const struct mft_net *net, const struct mft_pass *pass, void *x, int64_t rows)
{
	const double by = net->args->mup.embedding;

	if (net->args->mup.on && by != 1)
		net->backend->ops->scale(pass->ctx, net->io, x, (float)by, rows * net->hidden);
}

void mft_embed(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer, void *x)
{
	struct mfk_embedding e = embedding(net, pass);
	struct mfk_dropout d = mft_dropout_at(net, pass, layer, MFT_DROPOUT_EMBEDDING);
	void *y = mft_drops(net, pass) ? mft_branch_now(net) : x;

	e.y = mft_stream_term(net, y);
	net->backend->ops->embedding(pass->ctx, &e);
	mft_stream_sum(net, pass, e.y, y);
	multiply(net, pass, y, net->rows);
	if (!mft_drops(net, pass))
		return;
	d.x = y;
	d.y = x;
	mft_drop(net, pass, net->backend->ops->dropout, &d);
}

/* Every process has the whole gradient of all tokens' positions. */
void mft_embed_backward(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer)
{
	struct mfk_embedding e = embedding(net, pass);

	e.dy = mft_stream_gather(net, pass, MFT_GATHERED_DY,
				 mft_before_dropout(net, pass, layer, MFT_DROPOUT_EMBEDDING));
	multiply(net, pass, (void *)(uintptr_t)e.dy, net->tokens);
	e.dwte = mft_grad(net, net->chain->word_embeddings);
	e.dwpe = mft_grad(net, net->chain->position_embeddings);
	net->backend->ops->embedding_backward(pass->ctx, &e);
}
