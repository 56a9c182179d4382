#include "formats/args/model_config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "formats/base/str.h"

#define MAX_NESTING 3 /* lists in a value: a pipeline layout is a list of lists */

struct reader {
	struct mfs_pickle_writer *w;
	const char *name;
	unsigned written; /* values in lists; an alias repeats its anchor's */
	struct mfs_error *err;
};

static int fail(struct reader *r, const struct mfs_yaml_node *n, const char *field,
		const char *expected)
{
	return mfs_fail(r->err, -EINVAL, "%s: line %u: %s: expected %s", r->name, n->line, field,
			expected);
}

/* ---- values ---- */

/* The part after the last dot: "torch.nn.functional.silu" is "silu". */
static const char *last_word(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

/* What a value is named: a text, or the Python object of a mapping with _target_. NULL: neither. */
static const char *named(const struct mfs_yaml_node *n)
{
	const struct mfs_yaml_node *target = mfs_yaml_get(n, "_target_");

	if (target)
		n = target;
	return n && n->kind == MFS_YAML_SCALAR && !mfs_yaml_is_null(n) ? n->text : NULL;
}

static enum mfs_dtype dtype_of(const struct mfs_yaml_node *n)
{
	const char *path = named(n);

	return path && !strncmp(path, "torch.", 6) ? mfs_dtype_from_torch(path + 6)
						   : MFS_DTYPE_NONE;
}

static void write_scalar(struct reader *r, const struct mfs_yaml_node *n)
{
	int64_t i;
	double f;
	bool b;

	if (mfs_yaml_is_null(n))
		mfs_pickle_none(r->w);
	else if (mfs_yaml_truth(n, &b))
		mfs_pickle_bool(r->w, b);
	else if (mfs_yaml_int(n, &i))
		mfs_pickle_int(r->w, i);
	else if (mfs_yaml_real(n, &f))
		mfs_pickle_float(r->w, f);
	else
		mfs_pickle_str(r->w, n->text);
}

static int write_value(struct reader *r, const char *field, const struct mfs_yaml_node *n,
		       unsigned nesting)
{
	uint64_t i = 0;
	int rc = 0;

	if (n->kind == MFS_YAML_SCALAR) {
		write_scalar(r, n);
		return 0;
	}
	if (n->kind == MFS_YAML_MAPPING || nesting == MAX_NESTING)
		return fail(r, n, field, "numbers or texts in a list");
	mfs_pickle_list_begin(r->w);
	for (const struct mfs_yaml_node *item = n->first; item && !rc; item = item->next) {
		if (++r->written > MFS_YAML_NODES)
			return fail(r, n, field, "at most 20000 values in lists");
		mfs_pickle_batch(r->w, MFS_OP_APPENDS, i++);
		rc = write_value(r, field, item, nesting + 1);
	}
	mfs_pickle_list_end(r->w);
	return rc;
}

static void write_flag(struct reader *r, const char *argument, bool value)
{
	mfs_pickle_name(r->w, argument);
	mfs_pickle_bool(r->w, value);
}

/* ---- fields ---- */

/* Fields that arguments have under another name. */
static const struct {
	const char *field, *argument;
	bool inverse;
} renamed[] = {
	{"num_moe_experts", "num_experts", false},
	{"share_embeddings_and_output_weights", "untie_embeddings_and_output_weights", true},
	{"seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor", false},
	{"rope_scaling", "use_rope_scaling", false},
	{"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers", false},
	{"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers", false},
};

/* Fields that become arguments together with others, or that say nothing about the model. */
static const char *const apart[] = {
	"transformer",
	"activation_func",
	"gated_linear_unit",
	"bias_gelu_fusion",
	"scale_factor",
	"low_freq_factor",
	"high_freq_factor",
	"old_context_len",
	"model_provider",
	"num_query_groups",
	"swiglu",
	"squared_relu",
	"quick_geglu",
	"geglu",
	"tokenizer_type",
	"generation_config",
	"hf_model_id",
	"spec",
	"extra_checkpoint_metadata",
	"group_query_attention",
	"transformer_impl",
};

static bool is_apart(const char *field)
{
	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
		if (!strcmp(field, apart[i]))
			return true;
	return *field == '_';
}

static int write_field(struct reader *r, const char *field, const struct mfs_yaml_node *n)
{
	const char *argument = field;
	bool inverse = false, truth;

	if (is_apart(field))
		return 0;
	if (dtype_of(n) != MFS_DTYPE_NONE) {
		mfs_pickle_name(r->w, field);
		mfs_pickle_dtype(r->w, dtype_of(n));
		return 0;
	}
	if (n->kind == MFS_YAML_MAPPING)
		return 0; /* a Python object: an initialisation, a layer spec, an enum */
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++) {
		if (strcmp(renamed[i].field, field) != 0)
			continue;
		argument = renamed[i].argument;
		inverse = renamed[i].inverse;
	}
	if (inverse) {
		if (!mfs_yaml_truth(n, &truth))
			return fail(r, n, field, "true or false");
		write_flag(r, argument, !truth);
		return 0;
	}
	mfs_pickle_name(r->w, argument);
	return write_value(r, field, n, 0);
}

static int write_fields(struct reader *r, const struct mfs_yaml_node *model)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = model->first; k && !rc; k = k->next->next)
		rc = write_field(r, k->text, k->next);
	return rc;
}

/* ---- fields that become arguments together ---- */

/* A field of the model, or of its TransformerConfig. */
static const struct mfs_yaml_node *field_of(const struct mfs_yaml_node *model, const char *name)
{
	const struct mfs_yaml_node *n = mfs_yaml_get(mfs_yaml_get(model, "transformer"), name);

	if (!n)
		n = mfs_yaml_get(model, name);
	return n && mfs_yaml_is_null(n) ? NULL : n;
}

static bool truth_of(const struct mfs_yaml_node *model, const char *name)
{
	const struct mfs_yaml_node *n = field_of(model, name);
	bool truth;

	return n && mfs_yaml_truth(n, &truth) && truth;
}

/* Activation functions have no argument each: a name that none stands for is kept, and the reader
 * of arguments says that it does not know it (megatron_foreign.c). */
static void write_activation(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *n = field_of(model, "activation_func");
	const struct mfs_yaml_node *approximate = mfs_yaml_get(n, "approximate");
	const char *name = n && named(n) ? last_word(named(n)) : "gelu";
	const bool gated = truth_of(model, "gated_linear_unit");
	const bool swiglu = gated && mfs_str_is(name, "silu");
	const bool quick = gated && mfs_str_is(name, "quick_gelu");
	const bool squared = !gated && (mfs_str_is(name, "squared_relu") || !strcmp(name, "relu2"));
	const bool by_tanh = mfs_str_is(name, "fast_gelu") ||
			     mfs_str_is(name, "gelu_pytorch_tanh") ||
			     mfs_str_is(name, "openai_gelu") ||
			     (approximate && mfs_str_is(approximate->text, "tanh"));
	const bool gelu = !gated && (by_tanh || mfs_str_is(name, "gelu"));

	write_flag(r, "swiglu", swiglu);
	write_flag(r, "quick_geglu", quick);
	write_flag(r, "geglu", gated && by_tanh);
	write_flag(r, "squared_relu", squared);
	/* The fused GELU is the one by tanh. */
	write_flag(r, "bias_gelu_fusion", by_tanh || truth_of(model, "bias_activation_fusion"));
	if (swiglu || quick || squared || gelu || (gated && by_tanh))
		return;
	write_flag(r, "gated_linear_unit", gated);
	mfs_pickle_name(r->w, "activation_func");
	mfs_pickle_str(r->w, name);
}

static int write_groups(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *n = field_of(model, "num_query_groups");

	write_flag(r, "group_query_attention", n != NULL);
	if (!n)
		return 0;
	mfs_pickle_name(r->w, "num_query_groups");
	return write_value(r, "num_query_groups", n, 0);
}

/* Providers of Llama 3.1 and newer in Megatron-Bridge 0.2 and NeMo have the factor in fields of
 * their own, and always apply it. Megatron-core fixes the three other numbers
 * (rotary_pos_embedding.py: _apply_scaling). */
static int write_llama3_scaling(struct reader *r, const struct mfs_yaml_node *model)
{
	static const struct {
		const char *name;
		double usual;
	} fixed[] = {{"low_freq_factor", 1}, {"high_freq_factor", 4}, {"old_context_len", 8192}};
	const struct mfs_yaml_node *factor = field_of(model, "scale_factor");
	double value;

	if (!factor || !field_of(model, "old_context_len"))
		return 0;
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		const struct mfs_yaml_node *n = field_of(model, fixed[i].name);

		if (n && (!mfs_yaml_real(n, &value) || value != fixed[i].usual))
			return fail(r, n, fixed[i].name, "Llama 3's 1, 4 and 8192");
	}
	write_flag(r, "use_rope_scaling", true);
	mfs_pickle_name(r->w, "rope_scaling_factor");
	return write_value(r, "scale_factor", factor, 0);
}

/* The field says transformer_engine also where the layers are core's own. A layer's parameters have
 * another order in these, and flat buffers of an optimizer have that order and no names. */
static int write_spec(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *impl = field_of(model, "transformer_impl");
	const struct mfs_yaml_node *spec = field_of(model, "transformer_layer_spec");

	if (spec && named(spec) && !strcmp(last_word(named(spec)), "local_layer_spec")) {
		mfs_pickle_name(r->w, "transformer_impl");
		mfs_pickle_str(r->w, "local");
		return 0;
	}
	if (!impl)
		return 0;
	mfs_pickle_name(r->w, "transformer_impl");
	return write_value(r, "transformer_impl", impl, 0);
}

/* What the optimizer's reader asks for stands in other sections. */
static int write_sections(struct reader *r, const struct mfs_yaml_node *root)
{
	static const struct {
		const char *section, *field, *argument;
	} others[] = {
		{"optimizer", "use_distributed_optimizer", "use_distributed_optimizer"},
		{"optimizer", "apply_wd_to_qk_layernorm", "apply_wd_to_qk_layernorm"},
		{"optimizer", "decoupled_lr", "decoupled_lr"},
		{"ddp", "grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32"},
		{"ddp", "overlap_grad_reduce", "overlap_grad_reduce"},
		{"ddp", "bucket_size", "ddp_bucket_size"},
		{"ddp", "pad_buckets_for_high_nccl_busbw", "ddp_pad_buckets_for_high_nccl_busbw"},
		{"ddp", "fp8_param_gather", "fp8_param_gather"},
		{"ddp", "fp4_param_gather", "fp4_param_gather"},
		{"checkpoint", "fully_parallel_save", "ckpt_fully_parallel_save"},
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && !rc; i++) {
		const struct mfs_yaml_node *n =
			mfs_yaml_get(mfs_yaml_get(root, others[i].section), others[i].field);

		if (!n)
			continue;
		mfs_pickle_name(r->w, others[i].argument);
		rc = write_value(r, others[i].field, n, 0);
	}
	return rc;
}

/* NeMo copies the folder of a tokenizer into context/, under the folder's own name. The code that
 * reads it checks whether it is a tokenizer. */
static void write_tokenizer(struct reader *r, const struct mfs_yaml_node *root)
{
	const struct mfs_yaml_node *n =
		mfs_yaml_get(mfs_yaml_get(root, "tokenizer"), "pretrained_model_name");

	if (!n || n->kind != MFS_YAML_SCALAR || mfs_yaml_is_null(n))
		return;
	mfs_pickle_name(r->w, "nemo_tokenizer");
	mfs_pickle_str(r->w, n->text);
}

/* The class that makes the model: some make more of it than the fields say. */
static void write_provider(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *target = mfs_yaml_get(model, "_target_");

	mfs_pickle_name(r->w, "model_provider");
	mfs_pickle_str(r->w, target && named(target) ? last_word(named(target)) : "unknown");
}

static int write_model(struct reader *r, const struct mfs_yaml_node *root,
		       const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *inner = mfs_yaml_get(model, "transformer");
	const struct mfs_yaml_node *length = field_of(model, "seq_length");
	int rc;

	if (inner && inner->kind != MFS_YAML_MAPPING)
		return fail(r, inner, "transformer", "names with values");
	mfs_pickle_object_begin(r->w, "argparse", "Namespace");
	rc = write_fields(r, model);
	if (!rc && inner)
		rc = write_fields(r, inner);
	if (!rc)
		rc = write_groups(r, model);
	if (!rc)
		rc = write_llama3_scaling(r, model);
	if (!rc)
		rc = write_spec(r, model);
	if (!rc)
		rc = write_sections(r, root);
	if (rc)
		return rc;
	write_activation(r, model);
	write_provider(r, model);
	write_tokenizer(r, root);
	if (length && !field_of(model, "max_position_embeddings")) {
		mfs_pickle_name(r->w, "max_position_embeddings");
		rc = write_value(r, "seq_length", length, 0);
	}
	mfs_pickle_object_end(r->w);
	return rc;
}

/* ---- the file ---- */

/* A run with adapters saves these alone. */
static int refuse_adapters(struct reader *r, const struct mfs_yaml_node *root)
{
	const struct mfs_yaml_node *peft = mfs_yaml_get(root, "peft");
	const struct mfs_yaml_node *transform = mfs_yaml_get(root, "model_transform");
	const struct mfs_yaml_node *base =
		mfs_yaml_get(mfs_yaml_get(root, "checkpoint"), "pretrained_checkpoint");
	const char *kind = NULL;

	if (peft && !mfs_yaml_is_null(peft))
		kind = named(peft) ? last_word(named(peft)) : "PEFT";
	else if (transform && named(transform) && strstr(named(transform), ".peft."))
		kind = last_word(named(transform));
	if (!kind)
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s: the checkpoint holds adapters alone (%.40s); the model is in '%.200s'",
			r->name, kind, base && named(base) ? base->text : "another checkpoint");
}

/* Keys are sorted, and the model's keys always come first. A file that ends in the model may lack
 * some of its fields. */
static int check_whole(struct reader *r, const struct mfs_yaml_node *root,
		       const struct mfs_yaml_node *model)
{
	for (const struct mfs_yaml_node *k = root->first; k; k = k->next->next)
		if (k->next == model && !k->next->next)
			return mfs_fail(r->err, -ENODATA,
					"%s: nothing stands behind '%s': the file was cut short",
					r->name, k->text);
	return 0;
}

int mfs_model_config_lora(const struct mfs_yaml_node *root, const char *name,
			  struct mfs_lora_config *ret, struct mfs_error *err)
{
	const struct mfs_yaml_node *peft = mfs_yaml_get(root, "peft");
	const char *kind = peft && named(peft) ? named(peft) : "null";
	int64_t rank;
	double alpha;

	if (!peft || strcmp(kind, "megatron.bridge.peft.lora.LoRA"))
		return mfs_fail(err, -ENOTSUP,
				"%s: peft is '%.80s', expected megatron.bridge.peft.lora.LoRA: no "
				"other adapter is merged",
				name, kind);
	if (!mfs_yaml_int(mfs_yaml_get(peft, "dim"), &rank) || rank <= 0 ||
	    !mfs_yaml_real(mfs_yaml_get(peft, "alpha"), &alpha) || !(fabs(alpha) <= FLT_MAX))
		return mfs_fail(err, -EINVAL,
				"%s: peft: expected 'dim', a whole number above 0, and 'alpha', a "
				"finite number",
				name);
	*ret = (struct mfs_lora_config){(uint64_t)rank, (float)(alpha / (double)rank)};
	return 0;
}

int mfs_model_config_write(struct mfs_pickle_writer *w, const struct mfs_yaml_node *root,
			   const char *name, bool adapters, struct mfs_error *err)
{
	struct reader r = {.w = w, .name = name, .err = err};
	const struct mfs_yaml_node *model = mfs_yaml_get(root, "model");
	int rc = adapters ? 0 : refuse_adapters(&r, root);

	if (!model)
		model = mfs_yaml_get(root, "config");
	if (rc)
		return rc;
	if (!model || model->kind != MFS_YAML_MAPPING)
		return mfs_fail(err, -EINVAL,
				"%s: neither 'model' (Megatron-Bridge) nor 'config' (NeMo) with "
				"fields of a model",
				name);
	rc = check_whole(&r, root, model);
	return rc ? rc : write_model(&r, root, model);
}
