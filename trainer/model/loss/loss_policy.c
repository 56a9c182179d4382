/*
 * The loss of a policy (GRPO and what has followed from it), of tokens that it has sampled itself:
 * of each token's log-prob and of what batches have in addition (trainer/data/loader.h).
 *
 * A step's loss is the sum of loss_mask * loss over the tokens of all its microbatches. Log-probs
 * are of logits / temperature over the true vocabulary, as engines report them: padded columns do
 * not take part, other than in Megatron. docs/RL.md says how the formulas relate to other programs.
 */
#include <math.h>

#include "formats/args/megatron_args.h"
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/loss/loss.h"
#include "trainer/parallel/parallel.h"

#define STATS 4 /* of a row and a process: struct mfk_log_probs */

/* ---- what arguments say ---- */

/* --rl-loss */
static const struct policy_word {
	const char *word;
	enum mfk_policy_kind kind;
	bool sequence_ratio;
} policies[] = {
	{"clip", MFK_POLICY_CLIP, false},
	{"gspo", MFK_POLICY_CLIP, true},
	{"cispo", MFK_POLICY_CISPO, false},
	{"plain", MFK_POLICY_PLAIN, false},
};

/* --rl-kl-type */
static const char *const kls[] = {
	[MFK_KL_K1] = "k1",
	[MFK_KL_K2] = "k2",
	[MFK_KL_K3] = "k3",
};

struct policy {
	struct mfk_policy_rule rule;
	/* offsets in scratch: [parts][STATS][rows of a chunk]; fp32 [tokens] three times; and
	 * [batch][limit][2], with sequence_ratio */
	uint64_t stats, entropy, dlog_prob, dentropy, sums;
};

static int find_words(const struct mft_train_config *c, struct mfk_policy_rule *ret,
		      struct mfs_error *err)
{
	size_t kind = 0, kl = 0;

	while (kind < MFS_ARRAY_SIZE(policies) && !mfs_str_is(c->rl_loss, policies[kind].word))
		kind++;
	while (kl < MFS_ARRAY_SIZE(kls) && !mfs_str_is(c->rl_kl_type, kls[kl]))
		kl++;
	if (kind == MFS_ARRAY_SIZE(policies))
		return mfs_fail(err, -EINVAL, "--rl-loss: expected a kind of loss, found %s",
				c->rl_loss);
	if (kl == MFS_ARRAY_SIZE(kls))
		return mfs_fail(err, -EINVAL, "--rl-kl-type: expected k1, k2 or k3, found %s",
				c->rl_kl_type);
	ret->kind = policies[kind].kind;
	ret->sequence_ratio = policies[kind].sequence_ratio;
	ret->kl = (enum mfk_kl_kind)kl;
	return 0;
}

static int check(const struct mft_train_config *c, struct mfs_error *err)
{
	const double most = c->rl_importance_sampling_truncation_coef;

	if (!(c->rl_default_temperature > 0))
		return mfs_fail(err, -EINVAL,
				"--rl-default-temperature: expected a positive number, found %g",
				c->rl_default_temperature);
	if (!(c->grpo_clamp_eps_lower >= 0 && c->grpo_clamp_eps_lower <= 1))
		return mfs_fail(err, -EINVAL, "--grpo-clamp-eps-lower: expected 0 to 1, found %g",
				c->grpo_clamp_eps_lower);
	if (!(c->grpo_clamp_eps_upper >= 0))
		return mfs_fail(err, -EINVAL,
				"--grpo-clamp-eps-upper: expected 0 or more, found %g",
				c->grpo_clamp_eps_upper);
	if (c->rl_dual_clip != 0 && !(c->rl_dual_clip > 1))
		return mfs_fail(err, -EINVAL,
				"--rl-dual-clip: expected 0 or a number above 1, found %g",
				c->rl_dual_clip);
	if (!(c->rl_importance_sampling_lower >= 0) ||
	    (most != 0 && !(most >= c->rl_importance_sampling_lower)))
		return mfs_fail(err, -EINVAL,
				"--rl-importance-sampling-lower: expected 0 or more, and at most "
				"--rl-importance-sampling-truncation-coef, found %g",
				c->rl_importance_sampling_lower);
	if (c->model.mtp_num_layers > 0)
		return mfs_fail(err, -ENOTSUP,
				"--mtp-num-layers: expected none with --perform-rl-step");
	return 0;
}

/* The host has multiplied advantages by weights of whole responses. */
static bool corrects_tokens(const struct mft_train_config *c)
{
	return c->rl_inference_logprobs_is_correction &&
	       mfs_str_is(c->rl_importance_sampling_level, "token");
}

static void fill_rule(const struct mft_train_config *c, struct mfk_policy_rule *ret)
{
	const double most = c->rl_importance_sampling_truncation_coef;

	ret->least = (float)(1 - c->grpo_clamp_eps_lower);
	ret->most = (float)(1 + c->grpo_clamp_eps_upper);
	ret->dual = c->rl_dual_clip != 0 ? (float)c->rl_dual_clip : INFINITY;
	ret->kl_weight = (float)c->grpo_kl_beta;
	ret->entropy_weight = (float)c->grpo_entropy_term_weight;
	ret->corrects = corrects_tokens(c);
	ret->weight_masks = mfs_str_is(c->rl_importance_sampling_mode, "mask");
	ret->weight_least = (float)c->rl_importance_sampling_lower;
	ret->weight_most = most != 0 ? (float)most : INFINITY;
}

static bool takes(const struct mft_train_config *c)
{
	return c->perform_rl_step;
}

/* ---- memory ---- */

static int plan(struct mft_net *net, struct mft_loss *l, struct mft_part_plan *plan,
		struct mfs_error *err)
{
	const int64_t stats = STATS * (int64_t)net->parallel->size.tp;
	const uint64_t per_token = mft_matrix_bytes(MFK_F32, net->tokens, 1);
	struct policy *own = mfs_arena_array(&net->arena, 1, sizeof(*own));
	int rc;

	if (!own)
		return mfs_fail_nomem(err);
	rc = check(net->config, err);
	if (!rc)
		rc = find_words(net->config, &own->rule, err);
	if (rc)
		return rc;
	fill_rule(net->config, &own->rule);
	own->stats = mft_part_plan_scratch(plan, mft_matrix_bytes(MFK_F32, l->rows, stats));
	own->entropy = mft_part_plan_scratch(plan, per_token);
	own->dlog_prob = mft_part_plan_scratch(plan, per_token);
	own->dentropy = mft_part_plan_scratch(plan, per_token);
	if (own->rule.sequence_ratio)
		own->sums = mft_part_plan_scratch(
			plan, mft_matrix_bytes(MFK_F32, net->batch, 2 * net->context.whole));
	l->own = own;
	return 0;
}

static float *at(const struct mft_net *net, uint64_t offset, int64_t row)
{
	return (float *)mft_net_scratch(net, offset) + row;
}

/* ---- log-probs ---- */

static struct mfk_log_probs log_probs_of(const struct mft_net *net, const struct mft_pass *pass,
					 const struct policy *own, const struct mft_loss_chunk *c)
{
	const struct mft_parallel *p = net->parallel;
	const bool divided = mft_is_divided(net);
	const int64_t padded = divided ? c->cols * p->size.tp : c->cols;
	const int64_t known = (int64_t)mfs_args_true_vocab(net->args, (uint64_t)padded);

	return (struct mfk_log_probs){
		.dtype = net->io,
		.rows = c->rows,
		.vocab = c->cols,
		.ld = c->ld,
		.by = (float)(1 / net->config->rl_default_temperature),
		.logits = c->logits,
		.labels = pass->labels + c->first,
		.first = divided ? c->cols * p->place.tp : 0,
		.known = known ? known : padded,
		.part = divided ? p->place.tp : 0,
		.parts = divided ? p->size.tp : 1,
		.stats = at(net, own->stats, 0),
		.log_prob = c->log_probs + c->first,
		.entropy = at(net, own->entropy, c->first),
	};
}

static void find_log_probs(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mfk_log_probs *a)
{
	const uint64_t each = STATS * (uint64_t)a->rows;

	net->backend->ops->log_probs_part(pass->ctx, a);
	if (a->parts > 1)
		mft_tensor_gather(net, pass->ctx, MFK_F32, a->stats, a->stats + each * a->part,
				  each);
	net->backend->ops->log_probs_join(pass->ctx, a);
}

/* ---- losses ---- */

/* Of tokens from one on. */
static struct mfk_policy policy_from(const struct mft_net *net, const struct mft_pass *pass,
				     const struct policy *own, const float *log_probs,
				     int64_t first)
{
	return (struct mfk_policy){
		.rule = own->rule,
		.first = first,
		.log_prob = log_probs + first,
		.entropy = at(net, own->entropy, first),
		.old = pass->info->old_is_own ? NULL : pass->old + first,
		.reference = own->rule.kl_weight != 0 ? pass->reference + first : NULL,
		.rollout = pass->rollout + first,
		.advantage = pass->advantage + first,
		.mask = pass->loss_mask + first,
		.number = pass->sequence + first,
		.length = net->seq,
		.limit = net->context.whole,
		.sums = own->rule.sequence_ratio ? at(net, own->sums, 0) : NULL,
	};
}

/* Without an older log-prob all ratios are 1. */
static bool looks(const struct mft_net *net, const struct mft_pass *pass, const struct mft_loss *l)
{
	const struct policy *own = l->own;

	(void)net;
	return own->rule.sequence_ratio && !pass->info->old_is_own;
}

/* After the last chunk, sums of whole responses, of all processes that share them. */
static void look(const struct mft_net *net, const struct mft_pass *pass, const struct mft_loss *l,
		 const struct mft_loss_chunk *c)
{
	const struct policy *own = l->own;
	const struct mfk_log_probs probs = log_probs_of(net, pass, own, c);
	struct mfk_policy all = policy_from(net, pass, own, c->log_probs, 0);

	find_log_probs(net, pass, &probs);
	if (c->first + c->rows < net->tokens)
		return;
	all.rows = net->tokens;
	net->backend->ops->policy_sums(pass->ctx, &all);
	mft_parallel_all_reduce(net->parallel, MFT_GROUP_CONTEXT, pass->ctx, MFK_SUM, MFK_F32,
				all.sums, (uint64_t)(2 * net->batch * all.limit));
}

static void chunk(const struct mft_net *net, const struct mft_pass *pass, const struct mft_loss *l,
		  const struct mft_loss_chunk *c)
{
	const struct policy *own = l->own;
	struct mfk_log_probs probs = log_probs_of(net, pass, own, c);
	struct mfk_policy a = policy_from(net, pass, own, c->log_probs, c->first);

	if (c->logits)
		find_log_probs(net, pass, &probs);
	a.rows = c->rows;
	a.scale = c->scale;
	for (int i = 0; i < MFK_POLICY_TERMS; i++)
		a.terms[i] = c->terms[i];
	if (pass->train) {
		a.dlog_prob = at(net, own->dlog_prob, c->first);
		a.dentropy =
			own->rule.entropy_weight != 0 ? at(net, own->dentropy, c->first) : NULL;
	}
	net->backend->ops->policy(pass->ctx, &a);
	if (!pass->train)
		return;
	probs.dlog_prob = a.dlog_prob;
	probs.dentropy = a.dentropy;
	probs.dlogits = c->logits;
	net->backend->ops->log_probs_backward(pass->ctx, &probs);
}

_Static_assert(MFK_POLICY_TERMS <= MFT_LOSS_TERMS, "there is room for all terms");

const struct mft_loss_kind mft_loss_policy = {
	/* Megatron-LM's names, train_rl.py: loss_func; and two of ours */
	.terms =
		{
			[MFK_POLICY_LOSS] = "lm loss",
			[MFK_POLICY_KL] = "rl/kl_term",
			[MFK_POLICY_RATIO] = "rl/pi_over_pi_old",
			[MFK_POLICY_ENTROPY] = "rl/entropy_term",
			[MFK_POLICY_ABOVE] = "rl/truncated_from_above",
			[MFK_POLICY_BELOW] = "rl/truncated_from_below",
			[MFK_POLICY_DRIFT] = "rl/rollout_drift",
			[MFK_POLICY_WEIGHT] = "rl/importance_weight",
		},
	.gives_log_probs = true,
	.takes = takes,
	.plan = plan,
	.looks = looks,
	.look = look,
	.chunk = chunk,
};
