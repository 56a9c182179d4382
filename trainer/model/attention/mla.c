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
#include "trainer/model/attention/qk_clip.h"
#include "trainer/model/base/dropout.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/tensor_parallel.h"

/* One way down and up. down.weight NULL: up is of x itself. */
struct lora {
	struct mft_linear down, up;
	struct mft_norm norm;	     /* weight NULL: none */
	uint64_t low, normed, stats; /* kept: [T, rank] twice, fp32 [2, T] */
};

struct mla {
	struct lora q, kv;
	struct mft_linear k_rope, proj;
	int64_t heads, nope, rope, v_dim;
	float scale;
	struct mft_attention_kept kept;
	struct mft_core core;
	struct mft_qk_clip *clip;
	/* scratch */
	uint64_t q_up, kv_up, k_rope_out;
	uint64_t dout, dq, dk, dv, dq_up, dkv_up, dk_rope, dnormed, dlow;
};

/* ---- what it is made of ---- */

/* Scores have YaRN's magnitude whatever the rope type is. */
static float softmax_scale(const struct mfs_megatron_args *a)
{
	const double by = mft_yarn_mscale(a->rotary_scaling_factor, a->mscale_all_dim);

	return (float)(by * by / sqrt((double)(a->qk_head_dim + a->qk_pos_emb_head_dim)));
}

static int check(const struct mft_net *net, struct mfs_error *err)
{
	if (net->args->attention_output_gate)
		return mfs_fail(err, -ENOTSUP,
				"--attention-output-gate with --multi-latent-attention cannot be "
				"trained here");
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

static void set_gradient(struct mft_net *net, struct mft_linear *l)
{
	mft_linear_replaces(net, l);
	if (l->weight->part.split == MFS_TP_NONE)
		mft_net_gradient_is_term(net, l->weight);
}

static int find_linear(struct mft_net *net, const char *prefix, uint32_t layer,
		       struct mft_linear *ret, struct mfs_error *err)
{
	const int r = mft_linear_find(net, prefix, (int32_t)layer, -1, ret, err);

	if (!r)
		set_gradient(net, ret);
	return r;
}

static int find_down(struct mft_net *net, const char *prefix, uint32_t layer,
		     struct mft_linear *ret, struct mfs_error *err)
{
	const int r = mft_linear_find_whole(net, prefix, (int32_t)layer, ret, err);

	if (!r)
		set_gradient(net, ret);
	return r;
}

static int find_norm(struct mft_net *net, const char *prefix, uint32_t layer, struct mft_norm *ret,
		     struct mfs_error *err)
{
	const int r =
		net->args->qk_layernorm ? mft_norm_find(net, prefix, (int32_t)layer, ret, err) : 0;

	if (!r) {
		mft_net_gradient_is_term(net, ret->weight);
		mft_net_gradient_is_term(net, ret->bias);
	}
	return r;
}

static int find_q(struct mft_net *net, uint32_t layer, struct lora *q, struct mfs_error *err)
{
	int r;

	if (net->args->q_lora_rank == MFS_ABSENT) {
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

static int find_kv(struct mft_net *net, uint32_t layer, struct mla *a, struct mfs_error *err)
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
	return a->k_rope.recipe
		       ? mft_eight_check("linear_kv_down_proj", layer, a->kv.down.out, a->rope, err)
		       : 0;
}

/* ---- memory ---- */

static struct mfk_attention shape(const struct mft_net *net, const struct mla *a)
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

static uint64_t per_token(const struct mft_net *net, int64_t elements)
{
	return mft_matrix_bytes(net->io, net->tokens, elements);
}

static void plan_lora(const struct mft_net *net, struct lora *l, struct mft_part_plan *p)
{
	if (!l->down.weight)
		return;
	l->low = mft_part_plan_keep(p, per_token(net, l->down.out));
	l->normed = l->low;
	if (!l->norm.weight)
		return;
	l->normed = mft_part_plan_keep(p, per_token(net, l->down.out));
	l->stats = mft_part_plan_keep(p, mft_norm_stats_bytes(net->tokens));
}

/* First of all scratch: forward's and backward's are one place. */
static void plan_whole(const struct mft_net *net, struct mla *a, struct mft_part_plan *p)
{
	if (a->q.down.weight && a->q.down.gathered)
		a->q.down.whole = mft_part_plan_scratch(
			p, mft_matrix_bytes(net->io, a->q.down.out, net->hidden));
	if (!a->kv.down.gathered)
		return;
	a->kv.down.whole = a->k_rope.whole = mft_part_plan_scratch(
		p, mft_matrix_bytes(net->io, a->kv.down.out + a->rope, net->hidden));
}

static void plan_terms(const struct mft_net *net, struct mla *a, struct mft_part_plan *p)
{
	if (a->q.down.weight && a->q.down.gathered)
		a->q.down.term = mft_part_plan_scratch(
			p, mft_matrix_bytes(net->grad, a->q.down.out, net->hidden));
	if (!a->kv.down.gathered)
		return;
	a->kv.down.term = a->k_rope.term = mft_part_plan_scratch(
		p, mft_matrix_bytes(net->grad, a->kv.down.out + a->rope, net->hidden));
}

static void plan_memory(const struct mft_net *net, struct mla *a, struct mft_part_plan *p)
{
	const uint64_t qk = per_token(net, a->q.up.out), v = per_token(net, a->heads * a->v_dim);
	const uint64_t rope = per_token(net, a->rope);
	const int64_t q_rank = a->q.down.weight ? a->q.down.out : 0;
	const uint64_t low = per_token(net, q_rank > a->kv.down.out ? q_rank : a->kv.down.out);

	plan_lora(net, &a->q, p);
	plan_lora(net, &a->kv, p);
	a->kept.q = mft_part_plan_keep(p, qk);
	a->kept.k = mft_part_plan_keep(p, qk);
	a->kept.v = mft_part_plan_keep(p, v);
	a->kept.out = mft_part_plan_keep(p, v);
	a->kept.lse = mft_part_plan_keep(p, mft_matrix_bytes(MFK_F32, net->tokens, a->heads));
	plan_whole(net, a, p);
	a->q_up = mft_part_plan_scratch(p, qk);
	a->kv_up = mft_part_plan_scratch(p, per_token(net, a->kv.up.out));
	a->k_rope_out = mft_part_plan_scratch(p, rope);
	mft_core_plan(net, &a->core, p, false);
	mft_part_plan_scratch_anew(p);
	plan_whole(net, a, p);
	plan_terms(net, a, p);
	a->dout = mft_part_plan_scratch(p, v);
	a->dq = mft_part_plan_scratch(p, qk);
	a->dk = mft_part_plan_scratch(p, qk);
	a->dv = mft_part_plan_scratch(p, v);
	a->dq_up = mft_part_plan_scratch(p, qk);
	a->dkv_up = mft_part_plan_scratch(p, per_token(net, a->kv.up.out));
	a->dk_rope = mft_part_plan_scratch(p, rope);
	a->dnormed = mft_part_plan_scratch(p, low);
	a->dlow = mft_part_plan_scratch(p, low);
	mft_core_plan(net, &a->core, p, true);
}

/* Rows of a head: its own of queries, those with positions; of keys, of values. */
static int add_clip(struct mft_net *net, const struct mft_part *part, struct mla *a,
		    struct mfs_error *err)
{
	const int64_t query = a->nope + a->rope;
	const double alpha = net->config->qk_clip_alpha;
	const struct mft_qk_clip clip = {
		.heads = a->heads,
		.units = a->heads,
		.rows = {{a->q.up.weight, query, 0, a->nope, alpha},
			 {a->q.up.weight, query, a->nope, a->rope, 1},
			 {a->kv.up.weight, a->nope + a->v_dim, 0, a->nope, 1 - alpha}},
	};

	return mft_qk_clip_add(net, part->layer, &clip, &a->clip, err);
}

static int plan(struct mft_net *net, struct mft_part *part, struct mft_part_plan *p,
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
		r = mft_core_find(net, part->layer, &whole, &a->core, err);
	if (!r)
		r = add_clip(net, part, a, err);
	if (!r)
		plan_memory(net, a, p);
	return r;
}

/* ---- down and up ---- */

static void *kept(const struct mft_net *net, const struct mft_part *part, uint64_t offset)
{
	return mft_part_kept(net, part, offset);
}

static void lora_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const struct lora *l, const void *x, void *y)
{
	const void *up_of = x;

	if (l->down.weight) {
		mft_linear_forward(net, pass, &l->down, net->tokens, x, kept(net, part, l->low));
		up_of = kept(net, part, l->normed);
	}
	if (l->norm.weight)
		mft_norm_forward(net, pass, &l->norm, net->tokens, kept(net, part, l->low), NULL,
				 NULL, kept(net, part, l->normed), kept(net, part, l->stats));
	mft_linear_forward(net, pass, &l->up, net->tokens, up_of, y);
}

static void lora_backward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, const struct lora *l, const void *x,
			  const void *dy, void *dx)
{
	const struct mla *a = part->own;
	void *dnormed = mft_net_scratch(net, a->dnormed), *dlow = dnormed;

	if (!l->down.weight) {
		mft_linear_backward(net, pass, &l->up, net->tokens, x, dy, dx);
		return;
	}
	mft_linear_backward(net, pass, &l->up, net->tokens, kept(net, part, l->normed), dy,
			    dnormed);
	if (l->norm.weight) {
		dlow = mft_net_scratch(net, a->dlow);
		mft_norm_backward(net, pass, &l->norm, net->tokens, kept(net, part, l->low),
				  kept(net, part, l->stats), dnormed, NULL, dlow);
	}
	mft_linear_backward(net, pass, &l->down, net->tokens, x, dlow, dx);
}

/* ---- attention ---- */

static struct mfk_mla assembly(const struct mft_net *net, const struct mft_part *part)
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
		.cos = mft_net_at(net, net->rope->cos),
		.sin = mft_net_at(net, net->rope->sin),
		.positions = mft_net_at(net, net->rope->positions),
		.q_up = mft_net_scratch(net, a->q_up),
		.kv_up = mft_net_scratch(net, a->kv_up),
		.k_rope = mft_net_scratch(net, a->k_rope_out),
		.q = kept(net, part, a->kept.q),
		.k = kept(net, part, a->kept.k),
		.v = kept(net, part, a->kept.v),
	};
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_part *part, const void *x, void *y)
{
	const struct mla *a = part->own;
	const struct mfk_mla s = assembly(net, part);
	const struct mfk_attention c = mft_attention_of(net, pass, part, shape(net, a), &a->kept);

	mft_linear_gather(net, pass, &a->q.down);
	mft_linear_gather(net, pass, &a->kv.down);
	lora_forward(net, pass, part, &a->q, x, mft_net_scratch(net, a->q_up));
	lora_forward(net, pass, part, &a->kv, x, mft_net_scratch(net, a->kv_up));
	mft_linear_forward(net, pass, &a->k_rope, net->tokens, x,
			   mft_net_scratch(net, a->k_rope_out));
	net->backend->ops->mla(pass->ctx, &s);
	mft_qk_clip_note(net, pass, a->clip, &c);
	mft_core_forward(net, pass, &a->core, &c);
	if (y)
		mft_linear_forward(net, pass, &a->proj, net->tokens, c.out, y);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	const struct mla *a = part->own;
	struct mfk_mla s = assembly(net, part);
	struct mfk_attention c = mft_attention_of(net, pass, part, shape(net, a), &a->kept);
	void *dout = mft_net_scratch(net, a->dout);

	mft_linear_backward(net, pass, &a->proj, net->tokens, c.out, dy, dout);

	c.dout = dout;
	s.dq = c.dq = mft_net_scratch(net, a->dq);
	s.dk = c.dk = mft_net_scratch(net, a->dk);
	s.dv = c.dv = mft_net_scratch(net, a->dv);
	mft_core_backward(net, pass, &a->core, &c);

	s.dq_up = mft_net_scratch(net, a->dq_up);
	s.dkv_up = mft_net_scratch(net, a->dkv_up);
	s.dk_rope = mft_net_scratch(net, a->dk_rope);
	net->backend->ops->mla_backward(pass->ctx, &s);

	mft_linear_gather(net, pass, &a->q.down);
	mft_linear_gather(net, pass, &a->kv.down);
	mft_stream_await(net, pass);
	/* The first writes dx, the others add to it. */
	lora_backward(net, pass, part, &a->kv, x, s.dkv_up, dx);
	mft_linear_backward(net, pass, &a->k_rope, net->tokens, x, s.dk_rope, dx);
	lora_backward(net, pass, part, &a->q, x, s.dq_up, dx);
	mft_linear_scatter(net, pass, &a->q.down);
	mft_linear_scatter(net, pass, &a->kv.down);
}

const struct mft_part_kind mft_part_mla = {
	.name = "multi-latent attention",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
