#include "formats/optim/rules/optim_rules.h"

#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/optim/rules/state_dict.h"

/* What has a layout of its own that is not followed here. */
static const char *const fsdp[] = {"use_megatron_fsdp", "use_torch_fsdp2"};
static const char *const unsupported[] = {
	"overlap_param_gather_with_optimizer_step",
};

struct args {
	const struct mfs_pickle *doc;
	mfs_value args;
};

static bool flag(const struct args *a, const char *name)
{
	bool v;

	return mfs_value_bool(a->doc, mfs_value_attr(a->doc, a->args, name), &v) && v;
}

static bool is_set(const struct args *a, const char *name)
{
	return !mfs_value_is_none(a->doc, mfs_value_attr(a->doc, a->args, name));
}

static bool knows(const struct args *a, const char *name)
{
	return mfs_value_has(a->doc, mfs_value_state(a->doc, a->args), name);
}

static uint64_t number(const struct args *a, const char *name)
{
	int64_t v;

	return mfs_value_int(a->doc, mfs_value_attr(a->doc, a->args, name), &v) && v > 0
		       ? (uint64_t)v
		       : 0;
}

/* Of the optimizer's state, where it is here; 0: not. */
static mfs_value first_group(const struct args *a, mfs_value root)
{
	mfs_value one = mfs_optim_state_at(a->doc, mfs_value_get(a->doc, root, "optimizer"), 0);

	return mfs_value_at(a->doc, mfs_optim_state_groups(a->doc, one), 0);
}

static void read_groups(const struct args *a, struct mfs_optim_rules *ret)
{
	mfs_value qk = mfs_value_attr(a->doc, a->args, "no_weight_decay_cond_type");

	/* Releases tell themselves apart by what they call an argument: --norm-epsilon's has been
	 * 'layernorm_epsilon' since 0.16, the one in which groups became sorted. */
	ret->sorted_groups = knows(a, "layernorm_epsilon") || !knows(a, "norm_epsilon");
	ret->decay_qk_norms = flag(a, "apply_wd_to_qk_layernorm") ||
			      mfs_value_is_str(a->doc, qk, "apply_wd_to_qk_layernorm");
	/* training.py of 0.14 and 0.15: default_skip_embedding_weight_decay. */
	ret->skip_embedding_decay = !ret->sorted_groups && is_set(a, "embedding_init_method_std");
	ret->decoupled_lr = is_set(a, "decoupled_lr");
	ret->foreign_groups = flag(a, "use_mup") ? "use_mup" : NULL;
	/* Since 0.19 (cd4afffa64), of which --freeze-all-layers is, too. */
	ret->expert_tensor_groups = knows(a, "freeze_all_layers");
}

void mfs_optim_rules_of(const struct mfs_ckpt *ckpt, struct mfs_optim_rules *ret)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(ckpt);
	struct args a;

	*ret = (struct mfs_optim_rules){.sorted_groups = true,
					.expert_tensor_groups = true,
					.grad_fp32 = true,
					.aligned = true};
	ret->kept = mfs_kept_states(ckpt);
	if (!state)
		return;
	a.doc = state->archive.doc;
	a.args = mfs_value_get(a.doc, state->root, "args");
	read_groups(&a, ret);
	if (knows(&a, "accumulate_allreduce_grads_in_fp32"))
		ret->grad_fp32 = flag(&a, "accumulate_allreduce_grads_in_fp32");
	ret->overlap_grad_reduce = flag(&a, "overlap_grad_reduce");
	ret->pad_high = flag(&a, "ddp_pad_buckets_for_high_nccl_busbw");
	ret->bucket_size = number(&a, "ddp_bucket_size");
	ret->num_buckets = number(&a, "ddp_num_buckets");
	ret->quantised_weights = flag(&a, "fp8_param_gather") || flag(&a, "fp4_param_gather");
	if (flag(&a, "first_last_layers_bf16")) {
		ret->bf16_start = number(&a, "num_layers_at_start_in_bf16");
		ret->bf16_end = number(&a, "num_layers_at_end_in_bf16");
	}
	if (first_group(&a, state->root))
		ret->sorted_groups =
			mfs_value_has(a.doc, first_group(&a, state->root), "default_config");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(unsupported); i++)
		if (flag(&a, unsupported[i]))
			ret->unsupported = unsupported[i];
	/* Its own saves have no buffers, and say all by numbers or names. */
	for (size_t i = 0; i < 2 && !mfs_ckpt_format(ckpt)->is_plain; i++)
		if (flag(&a, fsdp[i]))
			ret->unsupported = fsdp[i];
}

/* fp8_utils.py: get_fp8_context() around the construction of layers, those of MTP too. A router and
 * what a mixer keeps itself are no linear modules. */
bool mfs_optim_is_fp8(const struct mfs_optim_rules *rules, const char *name, unsigned ndim,
		      int64_t layer, int64_t layers)
{
	static const char *const modules[] = {".linear_", ".in_proj.", ".out_proj.", ".eh_proj."};

	if (ndim != 2 || !strstr(name, ".weight") ||
	    (layer >= 0 && ((uint64_t)layer < rules->bf16_start ||
			    (uint64_t)(layers - layer) <= rules->bf16_end)))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(modules); i++)
		if (strstr(name, modules[i]))
			return true;
	return false;
}

bool mfs_optim_is_muon(const struct mfs_optim_rules *rules, const char *name, unsigned ndim)
{
	return rules->kept.matrices && mfs_optim_muon_takes(name, ndim);
}

unsigned mfs_optim_kept(const struct mfs_optim_rules *rules, const char *name, unsigned ndim)
{
	return mfs_optim_is_muon(rules, name, ndim) ? rules->kept.matrices : rules->kept.others;
}

int mfs_optim_check_read(const struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const char *name = mfs_ckpt_args(ckpt)->unread_optimizer;

	return name ? mfs_fail(err, -ENOTSUP,
			       "%s: the state of --optimizer %s is not read; -o no_optim shows the "
			       "model without it",
			       mfs_ckpt_dir(ckpt), name)
		    : 0;
}

/* arguments.py: validate_args; "dist_muon" until core 0.18. */
bool mfs_optim_run_is_layer_wise(const struct mfs_ckpt *ckpt)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(ckpt);
	struct args a;

	if (!state)
		return false;
	a.doc = state->archive.doc;
	a.args = mfs_value_get(a.doc, state->root, "args");
	return flag(&a, "use_layer_wise_distributed_optimizer") ||
	       mfs_value_is_str(a.doc, mfs_value_attr(a.doc, a.args, "optimizer"), "dist_muon");
}

bool mfs_optim_decays(const struct mfs_optim_rules *rules, const char *name, unsigned ndim)
{
	const bool bias = mfs_str_ends(name, ".bias");

	if (rules->skip_embedding_decay && strstr(name, "embedding"))
		return false;
	if (ndim != 1 && !bias)
		return true;
	return rules->decay_qk_norms &&
	       (strstr(name, "q_layernorm.") || strstr(name, "k_layernorm."));
}

bool mfs_optim_decoupled(const struct mfs_optim_rules *rules, const char *name)
{
	return rules->decoupled_lr && (!strcmp(name, "embedding.word_embeddings.weight") ||
				       !strcmp(name, "output_layer.weight"));
}

bool mfs_optim_muon_takes(const char *name, unsigned ndim)
{
	return ndim == 2 && strcmp(name, "embedding.word_embeddings.weight") != 0 &&
	       strcmp(name, "output_layer.weight") != 0;
}
