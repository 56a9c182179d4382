#include "formats/args/megatron_foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

#define SHOWN 8 /* items of a list in a message */

struct reader {
	const struct mfs_args_source *source;
	const struct mfs_megatron_args *known;
};

static struct mfs_arg lookup(const struct reader *r, const char *name)
{
	return mfs_args_get(r->source, name);
}

/* ---- values in words ---- */

/* Appends a value as Python writes it; of objects the class. */
static void describe(const struct reader *r, struct mfs_arg v, unsigned depth, char *text,
		     size_t size)
{
	const size_t used = strlen(text);
	char *to = text + used;
	const char *s;
	size_t len;
	int64_t i;
	double f;
	bool b;

	if (mfs_arg_is_none(v)) {
		snprintf(to, size - used, "None");
	} else if (mfs_arg_bool(v, &b)) {
		snprintf(to, size - used, "%s", b ? "True" : "False");
	} else if (mfs_arg_int(v, &i)) {
		snprintf(to, size - used, "%lld", (long long)i);
	} else if (mfs_arg_real(v, &f)) {
		snprintf(to, size - used, "%.15g", f);
	} else if (mfs_arg_text(v, &s, &len)) {
		snprintf(to, size - used, "%.*s", (int)(len < 60 ? len : 60), s);
	} else if (v.count && !depth) {
		for (uint32_t k = 0; k < v.count && k < SHOWN; k++) {
			strncat(text, k ? ", " : "[", size - strlen(text) - 1);
			describe(r, mfs_args_item(r->source, v, k), 1, text, size);
		}
		strncat(text, v.count > SHOWN ? ", ...]" : "]", size - strlen(text) - 1);
	} else {
		len = v.type >= MFS_ARG_CLASS ? v.len : 0;
		snprintf(to, size - used, "%.*s", (int)(len < 60 ? len : 60), len ? v.text : "");
	}
}

/* ---- what is usual ---- */

/* None, False, 0, or the text that says the same. */
static bool is_off(struct mfs_arg v, const char *usual)
{
	double number;
	bool b;

	if (mfs_arg_is_none(v) || (usual && mfs_arg_is(v, usual)))
		return true;
	if (mfs_arg_bool(v, &b))
		return !b;
	return mfs_arg_real(v, &number) && number == 0;
}

static bool is_none(const struct reader *r, struct mfs_arg v)
{
	(void)r;
	return mfs_arg_is_none(v);
}

/* A number is args.softmax_scale. MLA has its own. */
static bool is_scale(const struct reader *r, struct mfs_arg v)
{
	double scale;

	return r->known->multi_latent_attention || mfs_arg_is_none(v) ||
	       (mfs_arg_real(v, &scale) && scale > 0);
}

/* A negative one is None (transformer_config.py: __post_init__). */
static bool is_no_capacity(const struct reader *r, struct mfs_arg v)
{
	double factor;

	(void)r;
	return mfs_arg_is_none(v) || (mfs_arg_real(v, &factor) && factor < 0);
}

/* Sinkhorn and quantile_balancing route differently at inference. The auxiliary losses (one, or a
 * list) have an effect in training alone. */
static bool balances_by(const struct reader *r, struct mfs_arg v, bool sinkhorn)
{
	static const char *const kinds[] = {"aux_loss", "seq_aux_loss", "global_aux_loss", "none"};
	const uint32_t listed = v.count;

	for (uint32_t i = 0; i < (listed ? listed : 1); i++) {
		struct mfs_arg kind = listed ? mfs_args_item(r->source, v, i) : v;
		bool known = mfs_arg_is_none(kind) || (sinkhorn && mfs_arg_is(kind, "sinkhorn"));

		for (size_t k = 0; k < MFS_ARRAY_SIZE(kinds); k++)
			known |= mfs_arg_is(kind, kinds[k]);
		if (!known)
			return false;
	}
	return true;
}

static bool balances_by_loss(const struct reader *r, struct mfs_arg v)
{
	return balances_by(r, v, false);
}

static bool balances_as_trained(const struct reader *r, struct mfs_arg v)
{
	return balances_by(r, v, true);
}

/* What follows a token is masked. If a window says otherwise, backends differ. */
static bool ends_at_token(const struct reader *r, struct mfs_arg v)
{
	int64_t right;

	return r->known->window_size == MFS_ABSENT || !v.count ||
	       (mfs_arg_int(mfs_args_item(r->source, v, 1), &right) && !right);
}

static bool is_known_norm(const struct reader *r, struct mfs_arg v)
{
	(void)r;
	return mfs_arg_is_none(v) || mfs_arg_is(v, "LayerNorm") || mfs_arg_is(v, "RMSNorm");
}

/* Until core 0.16 mamba, then hybrid. */
static bool is_hybrid_spec(struct mfs_arg module)
{
	return mfs_arg_is(module, "megatron.core.models.mamba.mamba_layer_specs") ||
	       mfs_arg_is(module, "megatron.core.models.hybrid.hybrid_layer_specs");
}

/* --spec MODULE NAME: layers that somebody has written. */
static bool is_own_spec(const struct reader *r, struct mfs_arg v)
{
	return mfs_arg_is_none(v) ||
	       mfs_arg_is(mfs_args_item(r->source, v, 0),
			  "megatron.core.models.gpt.gpt_layer_specs") ||
	       ((r->known->hybrid_layers || r->known->hybrid_form) &&
		is_hybrid_spec(mfs_args_item(r->source, v, 0)));
}

/* The classes of Megatron-Bridge and NeMo that are known are listed in the families' files. */
static bool is_text(const struct reader *r, struct mfs_arg v)
{
	const char *name;
	size_t len;

	(void)r;
	return mfs_arg_is_none(v) || mfs_arg_text(v, &name, &len);
}

static bool is_learnable(const struct reader *r, struct mfs_arg v)
{
	(void)r;
	return mfs_arg_is(v, "learnable");
}

static bool is_one(const struct reader *r, struct mfs_arg v)
{
	double number;

	(void)r;
	return mfs_arg_real(v, &number) && number == 1;
}

static bool is_positive(const struct reader *r, struct mfs_arg v)
{
	double number;

	(void)r;
	return mfs_arg_real(v, &number) && number > 0;
}

/* Megatron-Bridge 0.3.1 gives its model the factor of YaRN without a field that run_config.yaml
 * would have. */
static bool is_known_factor(const struct reader *r, struct mfs_arg v)
{
	const struct mfs_megatron_args *a = r->known;

	return a->multi_latent_attention || !a->position_embedding_type ||
	       strcmp(a->position_embedding_type, "yarn") != 0 || !mfs_arg_is_none(v) ||
	       !mfs_arg_is_none(lookup(r, "yarn_rotary_scaling_factor"));
}

/* Core <= 0.13 scaled the softmax by mscale, not by mscale_all_dim. */
static bool is_later_mscale(const struct reader *r, struct mfs_arg v)
{
	const struct mfs_megatron_args *a = r->known;

	(void)v;
	return !a->multi_latent_attention || a->mscale == a->mscale_all_dim ||
	       mfs_args_has(r->source, "rope_type");
}

static bool is_delta_net(const struct reader *r, struct mfs_arg v)
{
	(void)r;
	return is_off(v, NULL) || mfs_arg_is(v, "gated_delta_net") || mfs_arg_is(v, "gdn");
}

/* Without a variant, no layer has linear attention. */
static bool has_delta_net(const struct reader *r, struct mfs_arg v)
{
	return is_off(v, NULL) || r->known->linear_layers;
}

/* None, or a pattern that is read as a GPTModel's. */
static bool is_gpt(const struct reader *r, struct mfs_arg v)
{
	return is_off(v, NULL) || r->known->hybrid_form;
}

static bool is_hybrid(const struct reader *r, struct mfs_arg v)
{
	(void)v;
	return r->known->hybrid_layers;
}

/* ---- the list ---- */

/* Of which models an argument counts; _TRAINED: the trainer has it. */
enum of { OF_ALL, OF_ALL_TRAINED, OF_MOE, OF_MOE_TRAINED, OF_GATED, OF_WINDOWED, OF_MTP };

static const struct foreign {
	const char *name;
	enum of of;
	const char *usual; /* is_off() */
	bool (*is_usual)(const struct reader *r, struct mfs_arg v);
} foreign[] = {
	{"model_provider", OF_ALL, NULL, is_text},
	{"activation_func", OF_ALL, NULL, is_none},
	{"softmax_type", OF_ALL, "vanilla", NULL},
	{"softmax_scale", OF_ALL, NULL, is_scale},
	{"normalization", OF_ALL, NULL, is_known_norm},
	{"window_size", OF_WINDOWED, NULL, ends_at_token},
	{"no_rope_freq", OF_ALL, NULL, NULL},
	{"rotary_scaling_factor", OF_ALL, NULL, is_known_factor},
	{"mscale", OF_ALL, NULL, is_later_mscale},
	{"glu_linear_offset", OF_GATED, NULL, NULL},
	{"activation_func_clamp_value", OF_GATED, NULL, is_none},
	{"linear_attention_freq", OF_ALL, NULL, has_delta_net},
	{"experimental_attention_variant", OF_ALL, NULL, is_delta_net},
	{"apply_residual_connection_post_layernorm", OF_ALL, NULL, NULL},
	{"heterogeneous_layers_config_path", OF_ALL, NULL, NULL},
	{"heterogeneous_layers_config_encoded_json", OF_ALL, NULL, NULL},
	{"hybrid_layer_pattern", OF_ALL, NULL, is_gpt},
	{"hybrid_override_pattern", OF_ALL, NULL, is_gpt},
	{"is_hybrid_model", OF_ALL, NULL, is_gpt},
	{"enable_mhc_connections", OF_ALL, NULL, NULL},
	{"use_mup", OF_ALL_TRAINED, NULL, NULL},
	{"spec", OF_ALL, NULL, is_own_spec},
	{"moe_router_load_balancing_type", OF_MOE_TRAINED, NULL, balances_by_loss},
	{"moe_router_load_balancing_type", OF_MOE, NULL, balances_as_trained},
	{"moe_expert_capacity_factor", OF_MOE_TRAINED, NULL, is_no_capacity},
	{"moe_expert_rank_capacity_factor", OF_MOE, NULL, is_none},
	{"moe_token_dropping", OF_MOE, NULL, NULL},
	{"moe_apply_probs_on_input", OF_MOE, NULL, NULL},
	{"moe_latent_size", OF_MOE, NULL, NULL},
	{"moe_router_topk_limited_devices", OF_MOE, NULL, NULL},
	{"moe_router_force_load_balancing", OF_MOE_TRAINED, NULL, NULL},
	{"moe_router_force_biased", OF_MOE, NULL, NULL},
	{"moe_extended_tp", OF_MOE, NULL,
	 NULL}, /* core 0.8, 0.9: experts cut over TP and EP at once */
	{"mtp_use_repeated_layer", OF_MTP, NULL, NULL},
};

/* Unusual values that the arguments have a field for, though the trainer cannot compute with
 * them. */
static const struct {
	const char *name;
	bool (*is)(const struct reader *r, struct mfs_arg v);
} fields[] = {
	{"softmax_type", is_learnable},
	{"glu_linear_offset", is_one},
	{"activation_func_clamp_value", is_positive},
	{"hybrid_layer_pattern", is_hybrid},
	{"hybrid_override_pattern", is_hybrid},
	{"is_hybrid_model", is_hybrid},
};

static bool has_field(const struct reader *r, const char *name, struct mfs_arg v)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].name, name))
			return fields[i].is(r, v);
	return false;
}

static bool counts(const struct mfs_megatron_args *a, enum of of)
{
	switch (of) {
	case OF_MOE:
	case OF_MOE_TRAINED:
		return a->num_experts != MFS_ABSENT;
	case OF_GATED:
		return mfs_args_gated(a);
	case OF_WINDOWED:
		return a->window_size != MFS_ABSENT;
	case OF_MTP:
		return a->mtp_num_layers > 0;
	case OF_ALL:
	case OF_ALL_TRAINED:
		break;
	}
	return true;
}

int mfs_megatron_foreign(const struct mfs_args_source *source, struct mfs_arena *arena,
			 struct mfs_megatron_args *known, struct mfs_error *err)
{
	const struct reader r = {source, known};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(foreign); i++) {
		const struct foreign *f = &foreign[i];
		struct mfs_arg v = lookup(&r, f->name);
		const char *found;
		char text[200] = "";

		if ((known->foreign && known->untrainable) || !counts(known, f->of) ||
		    (f->is_usual ? f->is_usual(&r, v) : is_off(v, f->usual)))
			continue;
		describe(&r, v, 0, text, sizeof(text));
		found = mfs_arena_printf(arena, "%s (%s)", f->name, text);
		if (!found)
			return mfs_fail_nomem(err);
		if (!known->foreign && !has_field(&r, f->name, v))
			known->foreign = found;
		if (!known->untrainable && f->of != OF_MOE_TRAINED && f->of != OF_ALL_TRAINED)
			known->untrainable = found;
	}
	return 0;
}
