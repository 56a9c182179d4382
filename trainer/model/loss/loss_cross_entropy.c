/*
 * Cross entropy with the labels: -log softmax(logits)[label] of each token, and the gradient of the
 * logits in their place.
 *
 * Source: megatron/core/tensor_parallel/cross_entropy.py: VocabParallelCrossEntropy.
 */
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/loss/loss.h"

#define STATS 3 /* of a row and a process: struct mfk_cross_entropy */

static int plan(struct mft_net *net, struct mft_loss *l, struct mft_part_plan *plan,
		struct mfs_error *err)
{
	const int64_t stats = STATS * (int64_t)net->parallel->size.tp;

	(void)err;
	if (mft_is_divided(net))
		l->scratch = mft_part_plan_scratch(plan, mft_matrix_bytes(MFK_F32, l->rows, stats));
	return 0;
}

/* The columns of the vocabulary are divided: all processes send what each row needs. */
static void divided(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_loss *l, struct mfk_cross_entropy *e)
{
	const struct mft_parallel *p = net->parallel;
	const uint64_t each = STATS * (uint64_t)e->rows;

	e->part = p->place.tp;
	e->parts = p->size.tp;
	e->first = e->vocab * e->part;
	e->all = e->vocab * e->parts;
	e->stats = mft_net_scratch(net, l->scratch);
	net->backend->ops->cross_entropy_part(pass->ctx, e);
	mft_tensor_gather(net, pass->ctx, MFK_F32, e->stats, e->stats + each * p->place.tp, each);
	net->backend->ops->cross_entropy_join(pass->ctx, e);
}

static void chunk(const struct mft_net *net, const struct mft_pass *pass, const struct mft_loss *l,
		  const struct mft_loss_chunk *c)
{
	struct mfk_cross_entropy e = {
		.dtype = net->io,
		.rows = c->rows,
		.vocab = c->cols,
		.ld = c->ld,
		.logits = c->logits,
		.labels = pass->labels + c->first,
		.scale = c->scale,
		.loss = c->terms[0],
		.dlogits = pass->train ? c->logits : NULL,
	};

	if (mft_is_divided(net))
		divided(net, pass, l, &e);
	else
		net->backend->ops->cross_entropy(pass->ctx, &e);
}

const struct mft_loss_kind mft_loss_cross_entropy = {
	.terms = {"lm loss"},
	.plan = plan,
	.chunk = chunk,
};
