/*
 * Multi-token prediction: a chain of MTP layers follows the model. Number k of them, from 0 on,
 * tells the token k + 2 places on, from what the layer before it gives (of the first one: the last
 * norm) and from the token k + 1 places on, which batches have as ahead[k]:
 *
 *   x       = eh_proj([enorm(embedding of ahead[k].tokens), hnorm(hidden state of the one before)])
 *   hidden  = final_layernorm(a transformer layer of x)
 *   loss    = the head's, of hidden and ahead[k].labels
 *
 * Embedding and head are the model's own. Gradients of a loss are weighted by
 * mtp_loss_scaling_factor / layers, and by the tokens that the model's loss counts, divided by
 * those that this one counts.
 *
 * All of it is done in backward, forward of these layers too, as the head does its backward at
 * once: so what they keep is there for one microbatch alone, however many passes wait for backward.
 * Nothing of it is in a validation, which reports the model's own loss.
 *
 * Columns of eh_proj are those of the embedding, then those of the hidden state: two products, so
 * that neither is copied next to the other.
 *
 * Source: megatron/core/transformer/multi_token_prediction.py: MultiTokenPredictionLayer,
 * process_mtp_loss.
 */
#include "formats/base/str.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/model/net_i.h"

/* ---- what there is ---- */

static int check(const struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;

	if (a->mtp_num_layers > MFT_MTP_MOST)
		return mfs_fail(err, -ENOTSUP, "--mtp-num-layers: expected at most %d, found %lld",
				MFT_MTP_MOST, (long long)a->mtp_num_layers);
	/* The last stage has no copy of position embeddings. */
	if (net->parallel->size.pp > 1 &&
	    mfs_str_is(a->position_embedding_type, "learned_absolute"))
		return mfs_fail(err, -ENOTSUP,
				"--mtp-num-layers: expected --position-embedding-type rope or none "
				"with several stages, found %s",
				a->position_embedding_type);
	return 0;
}

/* Columns [i * hidden, i * hidden + hidden) of eh_proj, and the columns of its output that the
 * process computes. */
static struct mft_linear half_of(const struct mft_net *net, const struct mft_linear *whole, int i)
{
	struct mft_linear half = *whole;

	half.in = net->hidden;
	half.row = 2 * net->hidden;
	half.col = i * net->hidden;
	half.ld = net->hidden;
	half.sums = i > 0;
	half.ends_dx = true;
	return half;
}

static int find_projection(struct mft_net *net, struct mft_mtp_layer *m, int32_t depth,
			   struct mfs_error *err)
{
	struct mft_linear whole;
	const int r = mft_linear_find(net, "mtp.layers.eh_proj", depth, -1, &whole, err);

	if (r)
		return r;
	mft_linear_replaces(net, &whole);
	for (int i = 0; i < 2; i++)
		m->halves[i] = half_of(net, &whole, i);
	return 0;
}

static int find(struct mft_net *net, struct mft_mtp_layer *m, int32_t depth, struct mfs_error *err)
{
	int r = mft_stream_norm_find(net, "mtp.layers.enorm", depth, &m->embedding.norm, err);

	if (!r)
		r = mft_stream_norm_find(net, "mtp.layers.hnorm", depth, &m->hidden.norm, err);
	if (!r)
		r = mft_stream_norm_find(net, "mtp.layers.final_layernorm", depth, &m->out.norm,
					 err);
	return r ? r : find_projection(net, m, depth, err);
}

int mft_mtp_plan(struct mft_net *net, struct mft_part_plan *scratch, struct mfs_error *err)
{
	struct mft_mtp *mtp = &net->chain->mtp;
	int r = mtp->count ? check(net, err) : 0;

	for (uint32_t k = 0; !r && k < mtp->count; k++) {
		struct mft_mtp_layer *m = &mtp->layers[k];

		r = find(net, m, (int32_t)k, err);
		if (!r)
			r = mft_layer_plan(net, m->layer, (uint32_t)net->args->num_layers + k,
					   scratch, err);
	}
	return r;
}

/* ---- where it lies ---- */

static void place_joint(struct mft_net *net, struct mft_joint *at)
{
	at->x = mft_memory_for_all(net, mft_stream_bytes(net));
	at->normed = mft_memory_for_all(net, mft_stream_bytes(net));
	at->stats = mft_memory_for_all(net, mft_norm_stats_bytes(net->rows));
}

/* Backward follows at once: nothing is recomputed but what a part does by itself. */
static void place_sublayer(struct mft_net *net, struct mft_sublayer *s)
{
	s->norm_again = s->part_again = false;
	place_joint(net, &s->in);
	s->part.kept = mft_memory_for_all(net, s->part.bytes);
}

void mft_mtp_place(struct mft_net *net)
{
	struct mft_mtp *mtp = &net->chain->mtp;

	for (uint32_t k = 0; k < mtp->count; k++) {
		struct mft_mtp_layer *m = &mtp->layers[k];

		place_joint(net, &m->embedding);
		m->hidden.x = k ? mtp->layers[k - 1].out.normed : net->chain->head.in.normed;
		m->hidden.normed = mft_memory_for_all(net, mft_stream_bytes(net));
		m->hidden.stats = mft_memory_for_all(net, mft_norm_stats_bytes(net->rows));
		place_sublayer(net, &m->layer->attention);
		place_sublayer(net, &m->layer->mlp);
		place_joint(net, &m->out);
	}
	if (mtp->count)
		mtp->dhidden = mft_memory_for_all(net, mft_stream_bytes(net));
}

/* ---- a pass of a depth ---- */

#define TAKE(type, name, way) of.name = ahead->name;

/* A microbatch as the layer sees it: embedding and head take tokens further on. */
static struct mft_pass pass_of(const struct mft_pass *pass, uint32_t depth)
{
	const struct mft_batch_ahead *ahead = &pass->ahead[depth];
	struct mft_pass of = *pass;

	MFT_BATCH_ARRAYS_AHEAD(TAKE)
	of.counted = ahead->counted;
	return of;
}

static struct mft_net_visit visit(const struct mft_net *net, uint32_t depth, bool writes)
{
	return (struct mft_net_visit){.unit = mft_layer_unit(net->chain->mtp.layers[depth].layer),
				      .next = MFT_UNIT_NONE,
				      .reads = true,
				      .writes = writes};
}

/* Of eh_proj's output, or its gradient: the columns that the process computes. */
static void *own_columns(const struct mft_net *net, const struct mft_mtp_layer *m, const void *x)
{
	const int64_t first = net->parallel->place.tp * m->halves[0].out;

	return (char *)(uintptr_t)x + (size_t)first * mfk_dtype_size(net->io);
}

static const struct mft_joint *half_input(const struct mft_mtp_layer *m, int i)
{
	return i ? &m->hidden : &m->embedding;
}

/* Each process's term has its own columns, and zeros. */
static void project(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_mtp_layer *m)
{
	void *y = mft_pass_at(net, m->layer->attention.in.x), *term = mft_stream_term(net, y);

	if (mft_is_divided(net))
		net->backend->device->zero(pass->ctx, term,
					   mft_matrix_bytes(net->io, net->tokens, net->hidden));
	for (int i = 0; i < 2; i++) {
		const void *x = mft_pass_at(net, half_input(m, i)->normed);

		x = mft_stream_gather(net, pass, MFT_GATHERED_X, x);
		mft_linear_forward(net, pass, &m->halves[i], net->tokens, x,
				   own_columns(net, m, term));
	}
	mft_stream_sum(net, pass, term, y);
}

static void layer_forward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_mtp_layer *m)
{
	void *output = mft_branch_now(net);

	mft_embed(net, pass, m->layer->attention.part.layer, mft_pass_at(net, m->embedding.x));
	mft_join(net, pass, NULL, &m->embedding);
	mft_join(net, pass, NULL, &m->hidden);
	project(net, pass, m);
	mft_sublayer_forward(net, pass, NULL, &m->layer->attention, output);
	mft_sublayer_forward(net, pass, &m->layer->attention, &m->layer->mlp, output);
	mft_join(net, pass, &m->layer->mlp, &m->out);
}

void mft_mtp_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	for (uint32_t k = 0; k < net->chain->mtp.count; k++) {
		const struct mft_pass of = pass_of(pass, k);
		const struct mft_net_visit v = visit(net, k, false);

		MFT_RANGE_BEGIN("MTP layer %u, forward", k);
		mft_visit_begins(net, pass, v);
		layer_forward(net, &of, &net->chain->mtp.layers[k]);
		mft_visit_ends(net, pass, v);
		MFT_RANGE_END();
	}
}

/* ---- backward ---- */

static struct mft_head_loss loss_of(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_pass *of, uint32_t depth)
{
	const double counted = of->counted ? (double)of->counted : 1;
	const double weight = net->config->mtp_loss_scaling_factor / (double)net->chain->mtp.count;

	return (struct mft_head_loss){
		.grad_scale =
			(float)(weight * pass->info->grad_scale * (double)pass->counted / counted),
		.is_mean = true,
		.mean_of = counted,
		.sums = mft_net_sum(net, MFT_SUM_MTP_LOSS + depth),
		.terms = 1,
		/* The deepest one is the head's first. */
		.adds = depth + 1 < net->chain->mtp.count,
	};
}

/* The gradient of the input of half i is in mft_branch_now(). */
static void project_backward(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_mtp_layer *m, const void *dy, int i)
{
	const void *x = mft_pass_at(net, half_input(m, i)->normed);
	struct mft_dx_sum sum = mft_dx_sum_new(net, mft_branch_now(net));
	struct mft_pass of_half = *pass;

	of_half.dx_sum = &sum;
	x = mft_stream_gather(net, pass, MFT_GATHERED_X, x);
	mft_linear_backward(net, &of_half, &m->halves[i], net->tokens, x, own_columns(net, m, dy),
			    sum.term);
	mft_dx_sum_end(net, &of_half);
}

static void joint_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_joint *at, void *dx)
{
	mft_norm_backward(net, pass, &at->norm, net->rows, mft_pass_at(net, at->x),
			  mft_pass_at(net, at->stats), mft_branch_now(net), NULL, dx);
}

/* Of the gradient of out.normed, which is in mft_branch_now(). */
static void layer_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_mtp_layer *m)
{
	void *dx = mft_dx_now(net);
	const void *dy;

	joint_backward(net, pass, &m->out, dx);
	mft_sublayer_backward(net, pass, &m->layer->mlp);
	mft_sublayer_backward(net, pass, &m->layer->attention);
	dy = mft_stream_gather(net, pass, MFT_GATHERED_DY, dx);
	project_backward(net, pass, m, dy, 1);
	joint_backward(net, pass, &m->hidden, mft_pass_at(net, net->chain->mtp.dhidden));
	project_backward(net, pass, m, dy, 0);
	joint_backward(net, pass, &m->embedding, dx);
	mft_embed_backward(net, pass, m->layer->attention.part.layer);
}

void mft_mtp_add_dhidden(const struct mft_net *net, const struct mft_pass *pass)
{
	void *dnormed = mft_branch_now(net);

	net->backend->ops->add(pass->ctx, net->io, dnormed, dnormed,
			       mft_pass_at(net, net->chain->mtp.dhidden), net->rows * net->hidden);
}

void mft_mtp_backward(const struct mft_net *net, const struct mft_pass *pass)
{
	for (uint32_t k = net->chain->mtp.count; k-- > 0;) {
		const struct mft_pass of = pass_of(pass, k);
		const struct mft_net_visit v = visit(net, k, true);
		const struct mft_head_loss loss = loss_of(net, pass, &of, k);

		MFT_RANGE_BEGIN("MTP layer %u, backward", k);
		mft_visit_begins(net, pass, v);
		mft_head_backward(net, &of, &loss,
				  mft_pass_at(net, net->chain->mtp.layers[k].out.normed));
		if (k + 1 < net->chain->mtp.count)
			mft_mtp_add_dhidden(net, pass);
		layer_backward(net, &of, &net->chain->mtp.layers[k]);
		mft_visit_ends(net, pass, v);
		MFT_RANGE_END();
	}
}
