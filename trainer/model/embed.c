/* Tokens become the residual stream: their embeddings, with dropout, and backward. */
#include "trainer/model/net_i.h"

/* Rows of the vocabulary are divided; the positions are one process's term. */
static struct mfk_embedding embedding(const struct mfs_net *net, const struct mfs_pass *run)
{
	const struct mfs_param *positions = net->chain->position_embeddings;
	const int64_t vocab = mfs_param_size(net->chain->word_embeddings, 0);

	return (struct mfk_embedding){
		.dtype = net->io,
		.grad = net->grad,
		.tokens = net->tokens,
		.cols = net->hidden,
		.vocab = vocab,
		.first = vocab * net->parallel->place.tp,
		.all = vocab * net->parallel->size.tp,
		.positions_max = positions ? mfs_param_size(positions, 0) : 0,
		.ids = run->tokens,
		.positions = run->positions,
		.wte = mfs_weight(net, net->chain->word_embeddings),
		.wpe = net->parallel->place.tp ? NULL : mfs_weight(net, positions),
		.order = run->order,
		.position_order = run->position_order,
	};
}

/* muP's multiplier of what goes in, and of its gradient. */
static void multiply(const struct mfs_net *net, const struct mfs_pass *run, void *x, int64_t rows)
{
	const double by = net->args->mup.embedding;

	if (net->args->mup.on && by != 1)
		net->backend->ops->scale(run->ctx, net->io, x, (float)by, rows * net->hidden);
}

void mfs_embed(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer, void *x)
{
	struct mfk_embedding e = embedding(net, run);
	struct mfk_dropout d = mfs_dropout_at(net, run, layer, MFS_DROPOUT_EMBEDDING);
	void *y = mfs_drops(net, run) ? mfs_branch_now(net) : x;

	e.y = mfs_stream_term(net, y);
	net->backend->ops->embedding(run->ctx, &e);
	mfs_stream_sum(net, run, e.y, y);
	multiply(net, run, y, net->rows);
	if (!mfs_drops(net, run))
		return;
	d.x = y;
	d.y = x;
	mfs_drop(net, run, net->backend->ops->dropout, &d);
}

/* Every process has the whole gradient of all tokens' positions. */
void mfs_embed_backward(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer)
{
	struct mfk_embedding e = embedding(net, run);

	e.dy = mfs_stream_gather(net, run, MFS_GATHERED_DY,
				 mfs_before_dropout(net, run, layer, MFS_DROPOUT_EMBEDDING));
	multiply(net, run, (void *)(uintptr_t)e.dy, net->tokens);
	e.dwte = mfs_grad(net, net->chain->word_embeddings);
	e.dwpe = mfs_grad(net, net->chain->position_embeddings);
	net->backend->ops->embedding_backward(run->ctx, &e);
}
