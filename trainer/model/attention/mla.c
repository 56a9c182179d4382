/*
 * Multi-latent attention (DeepSeek): queries, and keys with values, are projected down to a few
 * numbers, normalised, and up again.
 *
 *   q          = q_up(norm(q_down(x)))       or q_proj(x) without --q-lora-rank
 *   keys, v    = kv_up(norm(kv_down(x)))     rows [0, kv_lora_rank) of linear_kv_down_proj
 *   k_rope     = k_rope(x)                   its other rows; one for all heads
 *   out        = proj(attend(q, keys and k_rope, v))
 *
 * Tensor parallel processes share the heads. What leads down is used whole in each, and gets the
 * gradient of its heads: a term of a sum, as everything after it is linear in it. With
 * --transformer-impl local rows of it are divided: it is gathered before it is used. (Megatron
 * gathers what it gives instead; the sums are the same.)
 *
 * Source: megatron/core/transformer/multi_latent_attention.py.
 */
#include <math.h>

#include "formats/ckpt/names.h"
#include "trainer/model/attention/attention_i.h"
#include "trainer/model/base/dropout.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/tensor_parallel.h"

/* One way down and up. down.weight NULL: up is of x itself. */
struct lora {
	struct mfs_linear down, up;
	struct mfs_norm norm;	     /* weight NULL: none */
	uint64_t low, normed, stats; /* kept: [T, rank] twice, fp32 [2, T] */
};

struct mla {
	struct lora q, kv;
	struct mfs_linear k_rope, proj;
	int64_t heads, nope, rope, v_dim;
	float scale;
	struct mfs_attention_kept kept;
	struct mfs_core core;
	/* scratch */
	uint64_t q_up, kv_up, k_rope_out;
	uint64_t dout, dq, dk, dv, dq_up, dkv_up, dk_rope, dnormed, dlow;
};

/* ---- what it is made of ---- */

/* Scores have YaRN's magnitude whatever the rope type is. */
static float softmax_scale(const struct mfs_megatron_args *a)
{
	const double by = mfs_yarn_mscale(a->rotary_scaling_factor, a->mscale_all_dim);

	return (float)(by * by / sqrt((double)(a->qk_head_dim + a->qk_pos_emb_head_dim)));
}

static int check(const struct mfs_net *net, struct mfs_error *err)
{
	if (net->args->rotary_interleaved)
		return mfs_fail(err, -ENOTSUP,
				"--rotary-interleaved with --multi-latent-attention cannot be "
				"trained here");
	if (net->args->qk_pos_emb_head_dim % 2)
		return mfs_fail(err, -EINVAL,
				"--qk-pos-emb-head-dim: expected an even number, "
				"found %lld",
				(long long)net->args->qk_pos_emb_head_dim);
	return 0;
}

static int find_linear(struct mfs_net *net, const char *prefix, uint32_t layer,
		       struct mfs_linear *ret, struct mfs_error *err)
{
	const int r = mfs_linear_find(net, prefix, (int32_t)layer, -1, ret, err);

	if (r)
		return r;
	mfs_linear_replaces(net, ret);
	if (ret->weight->part.split == MFS_TP_NONE)
		mfs_net_gradient_is_term(net, ret->weight);
	return 0;
}

static int find_down(struct mfs_net *net, const char *prefix, uint32_t layer,
		     struct mfs_linear *ret, struct mfs_error *err)
{
	const int r = find_linear(net, prefix, layer, ret, err);

	if (r || !mfs_is_divided(net) || ret->weight->part.split == MFS_TP_NONE)
		return r;
	ret->gathered = true;
	ret->out *= net->parallel->size.tp;
	return 0;
}

static int find_norm(struct mfs_net *net, const char *prefix, uint32_t layer, struct mfs_norm *ret,
		     struct mfs_error *err)
{
	const int r =
		net->args->qk_layernorm ? mfs_norm_find(net, prefix, (int32_t)layer, ret, err) : 0;

	if (!r) {
		mfs_net_gradient_is_term(net, ret->weight);
		mfs_net_gradient_is_term(net, ret->bias);
	}
	return r;
}

static int find_q(struct mfs_net *net, uint32_t layer, struct lora *q, struct mfs_error *err)
{
	int r;

	if (net->args->q_lora_rank == MFS_UNSET) {
		r = find_linear(net, "decoder.layers.self_attention.linear_q_proj", layer, &q->up,
				err);
		q->up.adds = q->up.ends_dx = true;
		return r;
	}
	r = find_down(net, "decoder.layers.self_attention.linear_q_down_proj", layer, &q->down,
		      err);
	if (!r)
		r = find_linear(net, "decoder.layers.self_attention.linear_q_up_proj", layer,
				&q->up, err);
	q->down.adds = q->down.ends_dx = true;
	return r ? r
		 : find_norm(net, "decoder.layers.self_attention.q_layernorm", layer, &q->norm,
			     err);
}

static int find_kv(struct mfs_net *net, uint32_t layer, struct mla *a, struct mfs_error *err)
{
	int r = find_down(net, "decoder.layers.self_attention.linear_kv_down_proj", layer,
			  &a->kv.down, err);

	if (!r)
		r = find_linear(net, "decoder.layers.self_attention.linear_kv_up_proj", layer,
				&a->kv.up, err);
	if (!r)
		r = find_norm(net, "decoder.layers.self_attention.kv_layernorm", layer, &a->kv.norm,
			      err);
	if (r)
		return r;
	a->k_rope = a->kv.down;
	a->k_rope.out = a->rope;
	a->k_rope.adds = true;
	a->kv.down.out -= a->rope;
	a->k_rope.first = a->kv.down.out;
	return 0;
}

/* ---- memory ---- */

static struct mfk_attention shape(const struct mfs_net *net, const struct mla *a)
{
	return (struct mfk_attention){
		.dtype = net->io,
		.batch = net->batch,
		.seq = net->seq,
		.heads = a->heads,
		.kv_heads = a->heads,
		.qk_dim = a->nope + a->rope,
		.v_dim = a->v_dim,
		.scale = a->scale,
		.causal = true,
		.atomics = net->config->attention_atomics,
	};
}

static uint64_t per_token(const struct mfs_net *net, int64_t elements)
{
	return mfs_matrix_bytes(net->io, net->tokens, elements);
}

static void plan_lora(const struct mfs_net *net, struct lora *l, struct mfs_part_plan *p)
{
	if (!l->down.weight)
		return;
	l->low = mfs_part_plan_keep(p, per_token(net, l->down.out));
	l->normed = l->low;
	if (!l->norm.weight)
		return;
	l->normed = mfs_part_plan_keep(p, per_token(net, l->down.out));
	l->stats = mfs_part_plan_keep(p, mfs_norm_stats_bytes(net->tokens));
}

/* First of all scratch: forward's and backward's are one place. */
static void plan_whole(const struct mfs_net *net, struct mla *a, struct mfs_part_plan *p)
{
	if (a->q.down.weight && a->q.down.gathered)
		a->q.down.whole = mfs_part_plan_scratch(
			p, mfs_matrix_bytes(net->io, a->q.down.out, net->hidden));
	if (!a->kv.down.gathered)
		return;
	a->kv.down.whole = a->k_rope.whole = mfs_part_plan_scratch(
		p, mfs_matrix_bytes(net->io, a->kv.down.out + a->rope, net->hidden));
}

static void plan_terms(const struct mfs_net *net, struct mla *a, struct mfs_part_plan *p)
{
	if (a->q.down.weight && a->q.down.gathered)
		a->q.down.term = mfs_part_plan_scratch(
			p, mfs_matrix_bytes(net->grad, a->q.down.out, net->hidden));
	if (!a->kv.down.gathered)
		return;
	a->kv.down.term = a->k_rope.term = mfs_part_plan_scratch(
		p, mfs_matrix_bytes(net->grad, a->kv.down.out + a->rope, net->hidden));
}

static void plan_memory(const struct mfs_net *net, struct mla *a, struct mfs_part_plan *p)
{
	const uint64_t qk = per_token(net, a->q.up.out), v = per_token(net, a->heads * a->v_dim);
	const uint64_t rope = per_token(net, a->rope);
	const int64_t q_rank = a->q.down.weight ? a->q.down.out : 0;
	const uint64_t low = per_token(net, q_rank > a->kv.down.out ? q_rank : a->kv.down.out);

	plan_lora(net, &a->q, p);
	plan_lora(net, &a->kv, p);
	a->kept.q = mfs_part_plan_keep(p, qk);
	a->kept.k = mfs_part_plan_keep(p, qk);
	a->kept.v = mfs_part_plan_keep(p, v);
	a->kept.out = mfs_part_plan_keep(p, v);
	a->kept.lse = mfs_part_plan_keep(p, mfs_matrix_bytes(MFK_F32, net->tokens, a->heads));
	plan_whole(net, a, p);
	a->q_up = mfs_part_plan_scratch(p, qk);
	a->kv_up = mfs_part_plan_scratch(p, per_token(net, a->kv.up.out));
	a->k_rope_out = mfs_part_plan_scratch(p, rope);
	mfs_core_plan(net, &a->core, p, false);
	mfs_part_plan_scratch_anew(p);
	plan_whole(net, a, p);
	plan_terms(net, a, p);
	a->dout = mfs_part_plan_scratch(p, v);
	a->dq = mfs_part_plan_scratch(p, qk);
	a->dk = mfs_part_plan_scratch(p, qk);
	a->dv = mfs_part_plan_scratch(p, v);
	a->dq_up = mfs_part_plan_scratch(p, qk);
	a->dkv_up = mfs_part_plan_scratch(p, per_token(net, a->kv.up.out));
	a->dk_rope = mfs_part_plan_scratch(p, rope);
	a->dnormed = mfs_part_plan_scratch(p, low);
	a->dlow = mfs_part_plan_scratch(p, low);
	mfs_core_plan(net, &a->core, p, true);
}

static int plan(struct mfs_net *net, struct mfs_part *part, struct mfs_part_plan *p,
		struct mfs_error *err)
{
	struct mla *a = part->own = mfs_arena_alloc(&net->arena, sizeof(*a));
	struct mfk_attention whole;
	int r = check(net, err);

	if (!a)
		return mfs_fail_nomem(err);
	a->heads = net->args->num_attention_heads / net->parallel->size.tp;
	a->nope = net->args->qk_head_dim;
	a->rope = net->args->qk_pos_emb_head_dim;
	a->v_dim = net->args->v_head_dim;
	a->scale = softmax_scale(net->args);
	whole = shape(net, a);
	if (!r)
		r = find_q(net, part->layer, &a->q, err);
	if (!r)
		r = find_kv(net, part->layer, a, err);
	if (!r)
		r = find_linear(net, "decoder.layers.self_attention.linear_proj", part->layer,
				&a->proj, err);
	if (!r)
		r = mfs_core_find(net, part->layer, &whole, &a->core, err);
	if (!r)
		plan_memory(net, a, p);
	return r;
}

/* ---- down and up ---- */

static void *kept(const struct mfs_net *net, const struct mfs_part *part, uint64_t offset)
{
	return mfs_part_kept(net, part, offset);
}

static void lora_forward(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_part *part, const struct lora *l, const void *x, void *y)
{
	const void *up_of = x;

	if (l->down.weight) {
		mfs_linear_forward(net, run, &l->down, net->tokens, x, kept(net, part, l->low));
		up_of = kept(net, part, l->normed);
	}
	if (l->norm.weight)
		mfs_norm_forward(net, run, &l->norm, net->tokens, kept(net, part, l->low), NULL,
				 NULL, kept(net, part, l->normed), kept(net, part, l->stats));
	mfs_linear_forward(net, run, &l->up, net->tokens, up_of, y);
}

static void lora_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_part *part, const struct lora *l, const void *x,
			  const void *dy, void *dx)
{
	const struct mla *a = part->own;
	void *dnormed = mfs_net_scratch(net, a->dnormed), *dlow = dnormed;

	if (!l->down.weight) {
		mfs_linear_backward(net, run, &l->up, net->tokens, x, dy, dx);
		return;
	}
	mfs_linear_backward(net, run, &l->up, net->tokens, kept(net, part, l->normed), dy, dnormed);
	if (l->norm.weight) {
		dlow = mfs_net_scratch(net, a->dlow);
		mfs_norm_backward(net, run, &l->norm, net->tokens, kept(net, part, l->low),
				  kept(net, part, l->stats), dnormed, NULL, dlow);
	}
	mfs_linear_backward(net, run, &l->down, net->tokens, x, dlow, dx);
}

/* ---- attention ---- */

static struct mfk_mla assembly(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct mla *a = part->own;

	return (struct mfk_mla){
		.dtype = net->io,
		.tokens = net->tokens,
		.heads = a->heads,
		.nope = a->nope,
		.rope = a->rope,
		.rotary_dim = net->rope->dim,
		.v_dim = a->v_dim,
		.cos = mfs_net_at(net, net->rope->cos),
		.sin = mfs_net_at(net, net->rope->sin),
		.positions = mfs_net_at(net, net->rope->positions),
		.q_up = mfs_net_scratch(net, a->q_up),
		.kv_up = mfs_net_scratch(net, a->kv_up),
		.k_rope = mfs_net_scratch(net, a->k_rope_out),
		.q = kept(net, part, a->kept.q),
		.k = kept(net, part, a->kept.k),
		.v = kept(net, part, a->kept.v),
	};
}

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x, void *y)
{
	const struct mla *a = part->own;
	const struct mfk_mla s = assembly(net, part);
	const struct mfk_attention c = mfs_attention_of(net, run, part, shape(net, a), &a->kept);

	mfs_linear_gather(net, run, &a->q.down);
	mfs_linear_gather(net, run, &a->kv.down);
	lora_forward(net, run, part, &a->q, x, mfs_net_scratch(net, a->q_up));
	lora_forward(net, run, part, &a->kv, x, mfs_net_scratch(net, a->kv_up));
	mfs_linear_forward(net, run, &a->k_rope, net->tokens, x,
			   mfs_net_scratch(net, a->k_rope_out));
	net->backend->ops->mla(run->ctx, &s);
	mfs_core_forward(net, run, &a->core, &c);
	if (y)
		mfs_linear_forward(net, run, &a->proj, net->tokens, c.out, y);
}

static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct mla *a = part->own;
	struct mfk_mla s = assembly(net, part);
	struct mfk_attention c = mfs_attention_of(net, run, part, shape(net, a), &a->kept);
	void *dout = mfs_net_scratch(net, a->dout);

	mfs_linear_backward(net, run, &a->proj, net->tokens, c.out, dy, dout);

	c.dout = dout;
	s.dq = c.dq = mfs_net_scratch(net, a->dq);
	s.dk = c.dk = mfs_net_scratch(net, a->dk);
	s.dv = c.dv = mfs_net_scratch(net, a->dv);
	mfs_core_backward(net, run, &a->core, &c);

	s.dq_up = mfs_net_scratch(net, a->dq_up);
	s.dkv_up = mfs_net_scratch(net, a->dkv_up);
	s.dk_rope = mfs_net_scratch(net, a->dk_rope);
	net->backend->ops->mla_backward(run->ctx, &s);

	mfs_linear_gather(net, run, &a->q.down);
	mfs_linear_gather(net, run, &a->kv.down);
	mfs_stream_await(net, run);
	/* The first writes dx, the others add to it. */
	lora_backward(net, run, part, &a->kv, x, s.dkv_up, dx);
	mfs_linear_backward(net, run, &a->k_rope, net->tokens, x, s.dk_rope, dx);
	lora_backward(net, run, part, &a->q, x, s.dq_up, dx);
	mfs_linear_scatter(net, run, &a->q.down);
	mfs_linear_scatter(net, run, &a->kv.down);
}

const struct mfs_part_kind mfs_part_mla = {
	.name = "multi-latent attention",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
