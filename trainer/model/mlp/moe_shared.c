/*
 * The experts that every token goes to: an MLP, whose output a gate may weigh.
 *
 * With --sequence-parallel it is divided as the MLP of a dense layer is: each process computes a
 * term of all tokens' output (tensor_parallel.c).
 */
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/moe_i.h"

static int find_gate(struct mft_net *net, struct mft_shared_experts *s, uint32_t layer,
		     struct mfs_error *err)
{
	const struct mft_param *weight;

	if (!net->args->moe_shared_expert_gate)
		return 0;
	weight = mft_params_find(net->params, "decoder.layers.mlp.shared_experts.gate_weight",
				 (int32_t)layer, -1);
	if (!weight)
		return mfs_fail(err, -ENODATA,
				"the model has no mlp.shared_experts.gate_weight in layer %u",
				layer);
	s->mlp.fc1.ends_dx = false;
	s->gate = (struct mft_linear){
		.weight = weight, .out = 1, .in = net->hidden, .adds = true, .ends_dx = true};
	mft_linear_replaces(net, &s->gate);
	mft_net_gradient_is_term(net, weight);
	return 0;
}

int mft_shared_experts_plan(struct mft_net *net, uint32_t layer, struct mft_shared_experts *s,
			    struct mft_part_plan *p, struct mfs_error *err)
{
	int rc;

	s->exist = net->args->moe_shared_expert_intermediate_size != MFS_ABSENT;
	if (!s->exist)
		return 0;
	s->mlp.again = mft_recomputes(net, "shared_experts");
	rc = mft_mlp_plan(net, "decoder.layers.mlp.shared_experts", layer, &s->mlp, p, err);
	if (!rc)
		rc = find_gate(net, s, layer, err);
	if (rc)
		return rc;
	s->mlp.fc1.adds = !mft_is_divided(net);
	if (!s->gate.weight)
		return 0;
	s->gate_logits = mft_part_plan_keep(p, mft_matrix_bytes(net->io, net->tokens, 1));
	s->gate_choice = mft_part_plan_keep(p, mft_matrix_bytes(MFK_F32, net->tokens, 1));
	s->gate_prob = mft_part_plan_keep(p, mft_matrix_bytes(MFK_F32, net->tokens, 1));
	return 0;
}

void mft_shared_experts_plan_scratch(const struct mft_net *net, struct mft_shared_experts *s,
				     struct mft_part_plan *p)
{
	if (s->gate.weight)
		s->dgate = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, net->tokens, 2));
	if (s->exist && mft_is_divided(net))
		s->dx = mft_part_plan_scratch(p, mft_matrix_bytes(net->io, net->rows, net->hidden));
}

/* The sigmoid of the gate: a router of one expert. */
static struct mfk_route gate_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct mft_moe *m = part->own;
	const struct mft_shared_experts *s = &m->shared;

	return (struct mfk_route){
		.dtype = net->io,
		.score = MFK_SCORE_SIGMOID,
		.tokens = net->tokens,
		.experts = 1,
		.top_k = 1,
		.scale = 1,
		.logits = mft_part_kept(net, part, s->gate_logits),
		.expert = mft_part_kept(net, part, s->gate_choice),
		.prob = mft_part_kept(net, part, s->gate_prob),
		.balance_tokens = net->tokens,
	};
}

/* fc2 is linear, so that the gate may be applied before it. */
static const float *gate_forward(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_part *part, const void *x)
{
	const struct mft_moe *m = part->own;
	struct mfk_route r;

	if (!m->shared.gate.weight)
		return NULL;
	r = gate_of(net, part);
	mft_linear_forward(net, pass, &m->shared.gate, net->tokens, x,
			   mft_part_kept(net, part, m->shared.gate_logits));
	net->backend->ops->route(pass->ctx, &r);
	return r.prob;
}

void mft_shared_experts_forward(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_part *part, const void *x, void *y)
{
	const struct mft_moe *m = part->own;
	const void *all = mft_stream_gather(net, pass, MFT_GATHERED_X, x);
	void *term = y ? mft_stream_term(net, y) : NULL;

	mft_mlp_forward(net, pass, part, &m->shared.mlp, gate_forward(net, pass, part, all), all,
			term);
	if (y)
		mft_stream_sum(net, pass, term, y);
}

/* A term of dx of all tokens. The gate's gradient is a term, too: of the columns that each has. */
static void term_backward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	const struct mft_moe *m = part->own;
	const struct mft_shared_experts *s = &m->shared;
	struct mfk_route r;
	float *dgate;

	if (!s->gate.weight) {
		mft_mlp_backward(net, pass, part, &s->mlp, NULL, NULL, x, dy, dx);
		return;
	}
	dgate = mft_net_scratch(net, s->dgate);
	r = gate_of(net, part);
	mft_mlp_backward(net, pass, part, &s->mlp, r.prob, dgate, x, dy, dx);
	r.dprob = dgate;
	r.dlogits = dgate + net->tokens;
	net->backend->ops->route_backward(pass->ctx, &r);
	mft_linear_backward(net, pass, &s->gate, net->tokens, x, r.dlogits, dx);
}

void mft_shared_experts_backward(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_part *part, const void *x, const void *dy,
				 void *dx)
{
	const struct mft_moe *m = part->own;
	struct mft_pass of_term = *pass;
	struct mft_dx_sum sum;
	void *own;

	if (!mft_is_divided(net)) {
		term_backward(net, pass, part, x, dy, dx);
		return;
	}
	own = mft_net_scratch(net, m->shared.dx);
	sum = mft_dx_sum_new(net, own);
	of_term.dx_sum = &sum;
	dy = mft_stream_gather(net, pass, MFT_GATHERED_DY, dy);
	x = mft_stream_gather_at_side(net, pass, MFT_GATHERED_X, x);
	term_backward(net, &of_term, part, x, dy, sum.term);
	mft_dx_sum_end(net, &of_term);
	net->backend->ops->add(pass->ctx, net->io, dx, dx, own, net->rows * net->hidden);
}
