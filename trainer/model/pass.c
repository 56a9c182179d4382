/*
 * A microbatch through the model chunks of this process, from top to bottom and back:
 *
 *   take          one copy to the device
 *   forward       embed, or what the chunk before has sent: x of the first sublayer
 *                 the layers, of two sublayers each
 *                 the last norm, or the stream that the next chunk goes on with
 *   backward      head: losses, and at once the gradient of the last norm's output; or the stream's
 *                 gradient, which the next chunk has sent
 *                 the layers in reverse; those that were not kept are run again first
 *                 embed_backward, or the stream's gradient, which is sent
 *
 * Without a backward pass forward ends with the head and its losses.
 *
 * All of it is submitted to the context; nothing here waits.
 */
#include "trainer/model/net_i.h"

static void *branch_of(const struct mfs_net *net)
{
	return mfs_net_branch(net, net->now.output);
}

/* The gradient of the residual stream. */
static void *dx_of(const struct mfs_net *net)
{
	return mfs_net_dx(net, net->now.dx);
}

/* ---- the residual stream ---- */

/* The gradient of what a dropout was given; dx itself if there is none. */
static const void *before_dropout(const struct mfs_net *net, const struct mfs_pass *run,
				  uint32_t layer, enum mfs_dropout_site site)
{
	struct mfk_dropout d = mfs_dropout_at(net, run, layer, site);

	if (!mfs_drops(net, run))
		return dx_of(net);
	d.x = dx_of(net);
	d.y = mfs_net_at(net, net->dropped);
	mfs_drop(net, run, net->backend->ops->dropout_backward, &d);
	return d.y;
}

/* x = x of before + dropout(its output), and the norm of that: one operation without dropout.
 * before NULL: x is there. */
static void join(const struct mfs_net *net, const struct mfs_pass *run,
		 const struct mfs_sublayer *before, const struct mfs_joint *at)
{
	void *x = mfs_pass_at(net, at->x), *normed = mfs_pass_at(net, at->normed);
	float *stats = mfs_pass_at(net, at->stats);

	if (before && mfs_drops(net, run)) {
		struct mfk_dropout d = mfs_dropout_at(net, run, before->part.layer, before->site);

		d.x = branch_of(net);
		d.residual = mfs_pass_at(net, before->in.x);
		d.y = x;
		mfs_drop(net, run, net->backend->ops->dropout, &d);
		before = NULL;
	}
	if (before)
		mfs_norm_forward(net, run, &at->norm, net->rows, branch_of(net),
				 mfs_pass_at(net, before->in.x), x, normed, stats);
	else
		mfs_norm_forward(net, run, &at->norm, net->rows, x, NULL, NULL, normed, stats);
}

/* dx = gradient of dnormed through the norm, + dx of the stream (NULL: the stream ends here). */
static void join_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_joint *at, const void *dnormed, const void *dstream)
{
	mfs_norm_backward(net, run, &at->norm, net->rows, mfs_pass_at(net, at->x),
			  mfs_pass_at(net, at->stats), dnormed, dstream, dx_of(net));
}

/* ---- parts, of the stream's rows ---- */

/* y NULL: it is not wanted. */
static void part_forward(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_part *part, const void *x, void *y)
{
	void *term = y;

	if (part->kind->divided) {
		x = mfs_stream_gather(net, run, MFS_GATHERED_X, x);
		term = y ? mfs_stream_term(net, y) : NULL;
	}
	part->kind->forward(net, run, part, x, term);
	if (part->kind->divided && y)
		mfs_stream_sum(net, run, term, y);
}

static void part_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	void *term = dx;

	if (part->kind->divided) {
		x = mfs_stream_gather(net, run, MFS_GATHERED_X, x);
		dy = mfs_stream_gather(net, run, MFS_GATHERED_DY, dy);
		term = mfs_stream_term(net, dx);
	}
	part->kind->backward(net, run, part, x, dy, term);
	if (part->kind->divided)
		mfs_stream_sum(net, run, term, dx);
}

/* ---- forward ---- */

/* Rows of the vocabulary are divided; the positions are one process's term. */
static struct mfk_embedding embedding(const struct mfs_net *net, const struct mfs_pass *run)
{
	const struct mfs_param *positions = net->position_embeddings;
	const int64_t vocab = mfs_param_size(net->word_embeddings, 0);

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
		.wte = mfs_weight(net, net->word_embeddings),
		.wpe = net->parallel->place.tp ? NULL : mfs_weight(net, positions),
		.order = run->order,
		.position_order = run->position_order,
	};
}

static void embed(const struct mfs_net *net, const struct mfs_pass *run)
{
	void *x = mfs_net_first_x(net, net->now.slot);
	struct mfk_embedding e = embedding(net, run);
	struct mfk_dropout d = mfs_dropout_at(net, run, 0, MFS_DROPOUT_EMBEDDING);
	void *y = mfs_drops(net, run) ? branch_of(net) : x;

	e.y = mfs_stream_term(net, y);
	net->backend->ops->embedding(run->ctx, &e);
	mfs_stream_sum(net, run, e.y, y);
	if (!mfs_drops(net, run))
		return;
	d.x = y;
	d.y = x;
	mfs_drop(net, run, net->backend->ops->dropout, &d);
}

static void sublayer_forward(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_sublayer *before, const struct mfs_sublayer *s,
			     void *output)
{
	join(net, run, before, &s->in);
	part_forward(net, run, &s->part, mfs_pass_at(net, s->in.normed), output);
}

/* Layers [first, end) of a chunk; the unit behind is visited then. When they are run again, the
 * last one's output is not wanted. */
static void layers_forward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct mfs_net_chunk *chunk, uint32_t first, uint32_t end,
			   int32_t behind)
{
	const struct mfs_sublayer *before = NULL;

	for (uint32_t i = first; i < end; i++) {
		const struct mfs_layer *l = &chunk->layers[i];
		const struct mfs_net_visit v = {.unit = mfs_layer_unit(l),
						.next = i + 1 < end ? mfs_layer_unit(l + 1)
								    : behind,
						.reads = true};

		mfs_visit_begins(net, run, v);
		sublayer_forward(net, run, before, &l->attention, branch_of(net));
		sublayer_forward(net, run, &l->attention, &l->mlp,
				 i + 1 < end || !run->again ? branch_of(net) : NULL);
		mfs_visit_ends(net, run, v);
		before = &l->mlp;
	}
}

/* The residual stream behind the chunk's last layer, in place of that one's output: the next chunk
 * begins with it. Without dropout the sum is one with p = 0, which keeps every element as it is.
 * last NULL: a chunk without layers, whose stream ends as it began. */
static void output(const struct mfs_net *net, const struct mfs_pass *run,
		   const struct mfs_sublayer *last)
{
	struct mfk_dropout d = {.dtype = net->io};

	if (last && mfs_drops(net, run))
		d = mfs_dropout_at(net, run, last->part.layer, last->site);
	d.x = last ? branch_of(net) : mfs_net_first_x(net, net->now.slot);
	d.y = branch_of(net);
	d.residual = last ? mfs_pass_at(net, last->in.x) : NULL;
	mfs_drop(net, run, net->backend->ops->dropout, &d);
}

static void chunk_forward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_net_chunk *chunk)
{
	const struct mfs_sublayer *last =
		chunk->count ? &chunk->layers[chunk->count - 1].mlp : NULL;
	const struct mfs_net_visit embedding = {
		.unit = MFS_UNIT_EMBEDDING, .next = mfs_first_unit(chunk), .reads = true};
	const struct mfs_net_visit norm = {
		.unit = MFS_UNIT_HEAD, .next = MFS_UNIT_NONE, .reads = true};

	if (chunk->embeds) {
		mfs_visit_begins(net, run, embedding);
		embed(net, run);
		mfs_visit_ends(net, run, embedding);
	}
	layers_forward(net, run, chunk, 0, chunk->count,
		       chunk->ends ? MFS_UNIT_HEAD : MFS_UNIT_NONE);
	if (!chunk->ends) {
		output(net, run, last);
		return;
	}
	mfs_visit_begins(net, run, norm);
	join(net, run, last, &net->head.in);
	mfs_visit_ends(net, run, norm);
}

/* ---- the head ---- */

static const void *head_input(const struct mfs_net *net, const struct mfs_pass *run)
{
	return mfs_stream_gather(net, run, MFS_GATHERED_X, mfs_pass_at(net, net->head.in.normed));
}

/* Losses without a backward pass. */
static void head_forward(const struct mfs_net *net, const struct mfs_pass *run)
{
	mfs_head_begins(net, run, false);
	mfs_head_run(net, run, head_input(net, run), NULL);
	mfs_head_ends(net, run, false);
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
		part_forward(net, &again, &s->part, mfs_pass_at(net, s->in.normed), NULL);
}

static void sublayer_backward(const struct mfs_net *net, const struct mfs_pass *run,
			      const struct mfs_sublayer *s)
{
	const void *doutput = before_dropout(net, run, s->part.layer, s->site);
	void *dnormed = branch_of(net);

	part_backward(net, run, &s->part, mfs_pass_at(net, s->in.normed), doutput, dnormed);
	join_backward(net, run, &s->in, dnormed, dx_of(net));
}

/* Before the last one of some layers goes backward: all of them are run again from the first x. */
static void run_layers_again(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_net_chunk *chunk, uint32_t last)
{
	struct mfs_pass again = *run;

	again.again = true;
	layers_forward(net, &again, chunk, last / net->again_layers * net->again_layers, last + 1,
		       MFS_UNIT_NONE);
}

static bool ends_layers(const struct mfs_net *net, const struct mfs_net_chunk *chunk, uint32_t i)
{
	return i < net->again_end && (i + 1 == net->again_end || i + 1 == chunk->count ||
				      (i + 1) % net->again_layers == 0);
}

/* The unit that is visited behind layer i. */
static int32_t before_layer(const struct mfs_net *net, const struct mfs_net_chunk *chunk,
			    uint32_t i)
{
	if (!i)
		return MFS_UNIT_NONE;
	if (ends_layers(net, chunk, i - 1))
		i = (i - 1) / net->again_layers * net->again_layers + 1;
	return mfs_layer_unit(&chunk->layers[i - 1]);
}

static void layers_backward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_net_chunk *chunk)
{
	for (uint32_t i = chunk->count; i-- > 0;) {
		const struct mfs_layer *l = &chunk->layers[i];
		const struct mfs_net_visit v = {.unit = mfs_layer_unit(l),
						.next = before_layer(net, chunk, i),
						.reads = true,
						.writes = true};

		if (ends_layers(net, chunk, i))
			run_layers_again(net, run, chunk, i);
		mfs_visit_begins(net, run, v);
		if (i >= net->again_end)
			make_again(net, run, &l->mlp);
		sublayer_backward(net, run, &l->mlp);
		if (i >= net->again_end)
			make_again(net, run, &l->attention);
		sublayer_backward(net, run, &l->attention);
		mfs_visit_ends(net, run, v);
	}
}

/* Every process has the whole gradient of all tokens' positions. */
static void embed_backward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct mfs_net_chunk *chunk)
{
	const struct mfs_net_visit v = {.unit = MFS_UNIT_EMBEDDING,
					.next = MFS_UNIT_NONE,
					.writes = true,
					.again = net->args->tied && chunk->ends};
	struct mfk_embedding e = embedding(net, run);

	mfs_visit_begins(net, run, v);
	e.dy = mfs_stream_gather(net, run, MFS_GATHERED_DY,
				 before_dropout(net, run, 0, MFS_DROPOUT_EMBEDDING));
	e.dwte = mfs_grad(net, net->word_embeddings);
	e.dwpe = mfs_grad(net, net->position_embeddings);
	net->backend->ops->embedding_backward(run->ctx, &e);
	mfs_visit_ends(net, run, v);
}

static void head_backward(const struct mfs_net *net, const struct mfs_pass *run)
{
	void *dnormed = branch_of(net), *term = mfs_stream_term(net, dnormed);

	mfs_head_begins(net, run, true);
	mfs_head_run(net, run, head_input(net, run), term);
	mfs_stream_sum(net, run, term, dnormed);
	join_backward(net, run, &net->head.in, dnormed, NULL);
	mfs_head_ends(net, run, true);
}

static void chunk_backward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct mfs_net_chunk *chunk)
{
	if (chunk->ends)
		head_backward(net, run);
	layers_backward(net, run, chunk);
	if (chunk->embeds)
		embed_backward(net, run, chunk);
}

/* ---- all of it ---- */

int mfs_net_take(struct mfs_net *net, struct mfk_ctx *ctx, uint32_t place,
		 const struct mfs_net_pass *pass, struct mfs_error *err)
{
	struct mfs_taken *taken = &net->taken[place];
	int rc;

	taken->pass = *pass;
	taken->run = (struct mfs_pass){.ctx = ctx, .pass = &taken->pass, .train = pass->backward};
	rc = mfs_batch_copy(net, &taken->run, place, err);
	taken->pass.batch = NULL;
	return rc;
}

void mfs_net_step(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_pipeline_step *step)
{
	const struct mfs_pass *run = &net->taken[step->batch].run;
	const struct mfs_net_chunk *chunk = &net->chunks[step->chunk];

	net->now.slot = step->slot;
	net->now.dx = step->grad;
	net->now.output = step->output;
	mfs_stages_await(net, ctx, step->after);
	switch (step->kind) {
	case MFS_PIPELINE_FORWARD:
		chunk_forward(net, run, chunk);
		if (chunk->ends && !run->train)
			head_forward(net, run);
		break;
	case MFS_PIPELINE_BACKWARD:
		chunk_backward(net, run, chunk);
		break;
	case MFS_PIPELINE_EXCHANGE:
		mfs_stages_exchange(net, ctx, step);
		break;
	}
}

bool mfs_net_gives_loss(const struct mfs_net *net, const struct mfs_pipeline_step *step)
{
	const bool train = net->taken[step->batch].run.train;

	return net->chunks[step->chunk].ends &&
	       step->kind == (train ? MFS_PIPELINE_BACKWARD : MFS_PIPELINE_FORWARD);
}

int mfs_net_run(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_net_pass *pass,
		struct mfs_error *err)
{
	const int rc = mfs_net_take(net, ctx, 0, pass, err);

	if (rc)
		return rc;
	mfs_net_step(net, ctx, &(struct mfs_pipeline_step){.kind = MFS_PIPELINE_FORWARD});
	if (pass->backward)
		mfs_net_step(net, ctx, &(struct mfs_pipeline_step){.kind = MFS_PIPELINE_BACKWARD});
	return 0;
}

int mfs_net_logits(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_batch *batch,
		   float *ret, struct mfs_error *err)
{
	const struct mfs_net_pass pass = {.batch = batch};
	const struct mfs_pass *run = &net->taken[0].run;
	int rc = mfs_net_take(net, ctx, 0, &pass, err);

	if (rc)
		return rc;
	net->now.slot = net->now.output = 0;
	chunk_forward(net, run, &net->chunks[0]);
	mfs_head_begins(net, run, false);
	rc = mfs_head_logits(net, run, head_input(net, run), ret, err);
	mfs_head_ends(net, run, false);
	return rc;
}
