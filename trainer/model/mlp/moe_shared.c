/*
 * The experts that every token goes to: an MLP, whose output a gate may weigh.
 *
 * With --sequence-parallel it is divided as the MLP of a dense layer is: each process computes a
 * term of all tokens' output (tensor_parallel.c).
 */
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/moe_i.h"

static int find_gate(struct mfs_net *net, struct mfs_shared_experts *s, uint32_t layer,
		     struct mfs_error *err)
{
	const struct mfs_param *weight;

	if (!net->args->moe_shared_expert_gate)
		return 0;
	weight = mfs_params_find(net->params, "decoder.layers.mlp.shared_experts.gate_weight",
				 (int32_t)layer, -1);
	if (!weight)
		return mfs_fail(err, -ENODATA,
				"the model has no mlp.shared_experts.gate_weight in layer %u",
				layer);
	s->mlp.fc1.ends_dx = false;
	s->gate = (struct mfs_linear){
		.weight = weight, .out = 1, .in = net->hidden, .adds = true, .ends_dx = true};
	mfs_linear_replaces(net, &s->gate);
	mfs_net_gradient_is_term(net, weight);
	return 0;
}

int mfs_shared_experts_plan(struct mfs_net *net, uint32_t layer, struct mfs_shared_experts *s,
			    struct mfs_part_plan *p, struct mfs_error *err)
{
	int rc;

	s->exist = net->args->moe_shared_expert_intermediate_size != MFS_UNSET;
	if (!s->exist)
		return 0;
	s->mlp.again = mfs_recomputes(net, "shared_experts");
	rc = mfs_mlp_plan(net, "decoder.layers.mlp.shared_experts", layer, &s->mlp, p, err);
	if (!rc)
		rc = find_gate(net, s, layer, err);
	if (rc)
		return rc;
	s->mlp.fc1.adds = !mfs_is_divided(net);
	if (!s->gate.weight)
		return 0;
	s->gate_logits = mfs_part_plan_keep(p, mfs_matrix_bytes(net->io, net->tokens, 1));
	s->gate_choice = mfs_part_plan_keep(p, mfs_matrix_bytes(MFK_F32, net->tokens, 1));
	s->gate_prob = mfs_part_plan_keep(p, mfs_matrix_bytes(MFK_F32, net->tokens, 1));
	return 0;
}

void mfs_shared_experts_plan_scratch(const struct mfs_net *net, struct mfs_shared_experts *s,
				     struct mfs_part_plan *p)
{
	if (s->gate.weight)
		s->dgate = mfs_part_plan_scratch(p, mfs_matrix_bytes(MFK_F32, net->tokens, 2));
	if (s->exist && mfs_is_divided(net))
		s->dx = mfs_part_plan_scratch(p, mfs_matrix_bytes(net->io, net->rows, net->hidden));
}

/* The sigmoid of the gate: a router of one expert. */
static struct mfk_route gate_of(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct mfs_moe *m = part->own;
	const struct mfs_shared_experts *s = &m->shared;

	return (struct mfk_route){
		.dtype = net->io,
		.score = MFK_SCORE_SIGMOID,
		.tokens = net->tokens,
		.experts = 1,
		.top_k = 1,
		.scale = 1,
		.logits = mfs_part_kept(net, part, s->gate_logits),
		.expert = mfs_part_kept(net, part, s->gate_choice),
		.prob = mfs_part_kept(net, part, s->gate_prob),
		.balance_tokens = net->tokens,
	};
}

/* fc2 is linear, so that the gate may be applied before it. */
static const float *gate_forward(const struct mfs_net *net, const struct mfs_pass *run,
				 const struct mfs_part *part, const void *x)
{
	const struct mfs_moe *m = part->own;
	struct mfk_route r;

	if (!m->shared.gate.weight)
		return NULL;
	r = gate_of(net, part);
	mfs_linear_forward(net, run, &m->shared.gate, net->tokens, x,
			   mfs_part_kept(net, part, m->shared.gate_logits));
	net->backend->ops->route(run->ctx, &r);
	return r.prob;
}

void mfs_shared_experts_forward(const struct mfs_net *net, const struct mfs_pass *run,
				const struct mfs_part *part, const void *x, void *y)
{
	const struct mfs_moe *m = part->own;
	const void *all = mfs_stream_gather(net, run, MFS_GATHERED_X, x);
	void *term = y ? mfs_stream_term(net, y) : NULL;

	mfs_mlp_forward(net, run, part, &m->shared.mlp, gate_forward(net, run, part, all), all,
			term);
	if (y)
		mfs_stream_sum(net, run, term, y);
}

/* A term of dx of all tokens. The gate's gradient is a term, too: of the columns that each has. */
static void term_backward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct mfs_moe *m = part->own;
	const struct mfs_shared_experts *s = &m->shared;
	struct mfk_route r;
	float *dgate;

	if (!s->gate.weight) {
		mfs_mlp_backward(net, run, part, &s->mlp, NULL, NULL, x, dy, dx);
		return;
	}
	dgate = mfs_net_scratch(net, s->dgate);
	r = gate_of(net, part);
	mfs_mlp_backward(net, run, part, &s->mlp, r.prob, dgate, x, dy, dx);
	r.dprob = dgate;
	r.dlogits = dgate + net->tokens;
	net->backend->ops->route_backward(run->ctx, &r);
	mfs_linear_backward(net, run, &s->gate, net->tokens, x, r.dlogits, dx);
}

void mfs_shared_experts_backward(const struct mfs_net *net, const struct mfs_pass *run,
				 const struct mfs_part *part, const void *x, const void *dy,
				 void *dx)
{
	const struct mfs_moe *m = part->own;
	struct mfs_pass of_term = *run;
	struct mfs_dx_sum sum;
	void *own;

	if (!mfs_is_divided(net)) {
		term_backward(net, run, part, x, dy, dx);
		return;
	}
	own = mfs_net_scratch(net, m->shared.dx);
	sum = mfs_dx_sum_new(net, own);
	of_term.dx_sum = &sum;
	dy = mfs_stream_gather(net, run, MFS_GATHERED_DY, dy);
	x = mfs_stream_gather_beside(net, run, MFS_GATHERED_X, x);
	term_backward(net, &of_term, part, x, dy, sum.term);
	mfs_dx_sum_end(net, &of_term);
	net->backend->ops->add(run->ctx, net->io, dx, dx, own, net->rows * net->hidden);
}
