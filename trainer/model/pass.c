/*
 * A microbatch through the model, from top to bottom and back:
 *
 *   batch_copy    one copy to the device
 *   embed         x of the first sublayer
 *   forward       L layers of two sublayers
 *   head          losses, and at once the gradient of the last norm's output
 *   backward      the layers in reverse; those that were not kept are run again first
 *   embed_backward
 *
 * All of it is submitted to the context; nothing here waits.
 */
#include "trainer/model/net_i.h"

static void *branch_of(const struct mfs_net *net)
{
	return mfs_net_at(net, net->branch);
}

/* ---- dropout ---- */

/* splitmix64: neighbours become numbers that have nothing in common. */
static uint64_t mix(uint64_t state, uint64_t value)
{
	uint64_t z = state + value + UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t mfs_pass_seed(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer,
		       enum mfs_dropout_site site)
{
	uint64_t key = mix(0, (uint64_t)net->config->seed);

	key = mix(key, run->pass->iteration);
	key = mix(key, run->pass->microbatch);
	key = mix(key, layer);
	return mix(key, site);
}

static bool drops(const struct mfs_net *net, const struct mfs_pass *run)
{
	return run->train && net->config->hidden_dropout > 0;
}

static struct mfk_dropout dropout_at(const struct mfs_net *net, const struct mfs_pass *run,
				     uint32_t layer, enum mfs_dropout_site site)
{
	return (struct mfk_dropout){
		.dtype = net->io,
		.count = net->tokens * net->hidden,
		.p = (float)net->config->hidden_dropout,
		.seed = mfs_pass_seed(net, run, layer, site),
	};
}

/* The gradient of what a dropout was given; dx itself if there is none. */
static const void *before_dropout(const struct mfs_net *net, const struct mfs_pass *run,
				  uint32_t layer, enum mfs_dropout_site site)
{
	struct mfk_dropout d = dropout_at(net, run, layer, site);

	if (!drops(net, run))
		return mfs_net_at(net, net->dx);
	d.x = mfs_net_at(net, net->dx);
	d.y = mfs_net_at(net, net->dropped);
	net->backend->ops->dropout_backward(run->ctx, &d);
	return d.y;
}

/* ---- the residual stream ---- */

/* x = x of before + dropout(its output), and the norm of that: one operation without dropout.
 * before NULL: x is there. */
static void join(const struct mfs_net *net, const struct mfs_pass *run,
		 const struct mfs_sublayer *before, const struct mfs_joint *at)
{
	void *x = mfs_net_at(net, at->x), *normed = mfs_net_at(net, at->normed);
	float *stats = mfs_net_at(net, at->stats);

	if (before && drops(net, run)) {
		struct mfk_dropout d = dropout_at(net, run, before->part.layer, before->site);

		d.x = branch_of(net);
		d.residual = mfs_net_at(net, before->in.x);
		d.y = x;
		net->backend->ops->dropout(run->ctx, &d);
		before = NULL;
	}
	if (before)
		mfs_norm_forward(net, run, &at->norm, net->tokens, branch_of(net),
				 mfs_net_at(net, before->in.x), x, normed, stats);
	else
		mfs_norm_forward(net, run, &at->norm, net->tokens, x, NULL, NULL, normed, stats);
}

/* dx = gradient of dnormed through the norm, + dx of the stream (NULL: the stream ends here). */
static void join_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_joint *at, const void *dnormed, const void *dstream)
{
	mfs_norm_backward(net, run, &at->norm, net->tokens, mfs_net_at(net, at->x),
			  mfs_net_at(net, at->stats), dnormed, dstream, mfs_net_at(net, net->dx));
}

/* ---- forward ---- */

static struct mfk_embedding embedding(const struct mfs_net *net, const struct mfs_pass *run)
{
	const struct mfs_param *positions = net->position_embeddings;

	return (struct mfk_embedding){
		.dtype = net->io,
		.grad = net->grad,
		.tokens = net->tokens,
		.cols = net->hidden,
		.vocab = net->vocab,
		.positions_max = positions ? mfs_param_size(positions, 0) : 0,
		.ids = run->tokens,
		.positions = run->positions,
		.wte = mfs_weight(net, net->word_embeddings),
		.wpe = mfs_weight(net, positions),
		.order = run->order,
		.position_order = run->position_order,
	};
}

static void embed(const struct mfs_net *net, const struct mfs_pass *run)
{
	void *x = mfs_net_at(net, net->layers[0].attention.in.x);
	struct mfk_embedding e = embedding(net, run);
	struct mfk_dropout d = dropout_at(net, run, 0, MFS_DROPOUT_EMBEDDING);

	e.y = drops(net, run) ? branch_of(net) : x;
	net->backend->ops->embedding(run->ctx, &e);
	if (!drops(net, run))
		return;
	d.x = e.y;
	d.y = x;
	net->backend->ops->dropout(run->ctx, &d);
}

static void sublayer_forward(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_sublayer *before, const struct mfs_sublayer *s,
			     void *output)
{
	join(net, run, before, &s->in);
	s->part.kind->forward(net, run, &s->part, mfs_net_at(net, s->in.normed), output);
}

/* Layers [first, end). The last one's output is wanted or not. */
static void layers_forward(const struct mfs_net *net, const struct mfs_pass *run, uint32_t first,
			   uint32_t end, bool wanted)
{
	const struct mfs_sublayer *before = NULL;

	for (uint32_t i = first; i < end; i++) {
		const struct mfs_layer *l = &net->layers[i];

		sublayer_forward(net, run, before, &l->attention, branch_of(net));
		sublayer_forward(net, run, &l->attention, &l->mlp,
				 i + 1 < end || wanted ? branch_of(net) : NULL);
		before = &l->mlp;
	}
}

/* ---- backward ---- */

/* What selective recomputation did not keep. */
static void make_again(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_sublayer *s)
{
	struct mfs_pass again = *run;

	again.again = true;
	if (s->norm_again)
		join(net, &again, NULL, &s->in);
	if (s->part_again)
		s->part.kind->forward(net, &again, &s->part, mfs_net_at(net, s->in.normed), NULL);
}

static void sublayer_backward(const struct mfs_net *net, const struct mfs_pass *run,
			      const struct mfs_sublayer *s)
{
	const void *doutput = before_dropout(net, run, s->part.layer, s->site);
	void *dnormed = branch_of(net);

	s->part.kind->backward(net, run, &s->part, mfs_net_at(net, s->in.normed), doutput, dnormed);
	join_backward(net, run, &s->in, dnormed, mfs_net_at(net, net->dx));
}

/* Before the last layer of a chunk goes backward: all of it is run again from its first x. */
static void run_chunk_again(const struct mfs_net *net, const struct mfs_pass *run, uint32_t last)
{
	struct mfs_pass again = *run;

	again.again = true;
	layers_forward(net, &again, last / net->chunk * net->chunk, last + 1, false);
}

static bool ends_chunk(const struct mfs_net *net, uint32_t i)
{
	return i < net->chunked_end && (i + 1 == net->chunked_end || (i + 1) % net->chunk == 0);
}

static void layers_backward(const struct mfs_net *net, const struct mfs_pass *run)
{
	for (uint32_t i = net->layer_count; i-- > 0;) {
		const struct mfs_layer *l = &net->layers[i];

		if (ends_chunk(net, i))
			run_chunk_again(net, run, i);
		if (i >= net->chunked_end)
			make_again(net, run, &l->mlp);
		sublayer_backward(net, run, &l->mlp);
		if (i >= net->chunked_end)
			make_again(net, run, &l->attention);
		sublayer_backward(net, run, &l->attention);
	}
}

static void embed_backward(const struct mfs_net *net, const struct mfs_pass *run)
{
	struct mfk_embedding e = embedding(net, run);

	e.dy = before_dropout(net, run, 0, MFS_DROPOUT_EMBEDDING);
	e.dwte = mfs_grad(net, net->word_embeddings);
	e.dwpe = mfs_grad(net, net->position_embeddings);
	net->backend->ops->embedding_backward(run->ctx, &e);
}

/* ---- all of it ---- */

static int run_forward(struct mfs_net *net, struct mfs_pass *run, struct mfs_error *err)
{
	const int r = mfs_batch_copy(net, run, err);

	if (r)
		return r;
	embed(net, run);
	layers_forward(net, run, 0, net->layer_count, true);
	join(net, run, &net->layers[net->layer_count - 1].mlp, &net->head.in);
	return 0;
}

int mfs_net_run(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_net_pass *pass,
		struct mfs_error *err)
{
	struct mfs_pass run = {
		.ctx = ctx, .pass = pass, .train = pass->backward, .first = pass->first};
	const int r = run_forward(net, &run, err);

	if (r)
		return r;
	mfs_head_run(net, &run, branch_of(net));
	if (!run.train)
		return 0;
	join_backward(net, &run, &net->head.in, branch_of(net), NULL);
	layers_backward(net, &run);
	embed_backward(net, &run);
	return 0;
}

int mfs_net_logits(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_batch *batch,
		   float *ret, struct mfs_error *err)
{
	const struct mfs_net_pass pass = {.batch = batch};
	struct mfs_pass run = {.ctx = ctx, .pass = &pass};
	const int r = run_forward(net, &run, err);

	return r ? r : mfs_head_logits(net, &run, ret, err);
}
