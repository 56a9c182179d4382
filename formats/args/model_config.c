#include "formats/args/model_config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

#define MAX_NESTING 3 /* lists in a value: a pipeline layout is a list of lists */

struct reader {
	struct mfs_arena *arena;
	const char *name;
	struct mfs_model_config *config; /* what has been read so far */
	size_t capacity;
	unsigned listed; /* values in lists; an alias repeats its anchor's */
	int rc;		 /* -ENOMEM: later arguments are dropped */
	struct mfs_error *err;
};

struct mfs_model_argument {
	const char *name;
	struct mfs_arg value;
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

static struct mfs_arg text_arg(enum mfs_arg_type type, const char *text)
{
	return (struct mfs_arg){.type = type, .text = text, .len = strlen(text)};
}

static struct mfs_arg truth_arg(bool truth)
{
	return (struct mfs_arg){.type = MFS_ARG_BOOL, .truth = truth};
}

static struct mfs_arg scalar(const struct mfs_yaml_node *n)
{
	struct mfs_arg v = {.type = MFS_ARG_NONE};

	if (mfs_yaml_is_null(n))
		return v;
	v.type = MFS_ARG_BOOL;
	if (mfs_yaml_truth(n, &v.truth))
		return v;
	v.type = MFS_ARG_INT;
	if (mfs_yaml_int(n, &v.number))
		return v;
	v.type = MFS_ARG_REAL;
	if (mfs_yaml_real(n, &v.real))
		return v;
	return text_arg(MFS_ARG_TEXT, n->text);
}

static int read_value(struct reader *r, const char *field, const struct mfs_yaml_node *n,
		      unsigned nesting, struct mfs_arg *ret);

static int read_list(struct reader *r, const char *field, const struct mfs_yaml_node *n,
		     unsigned nesting, struct mfs_arg *ret)
{
	struct mfs_arg *items;
	uint32_t count = 0;
	int rc = 0;

	for (const struct mfs_yaml_node *item = n->first; item; item = item->next)
		if (++count + r->listed > MFS_YAML_NODES)
			return fail(r, n, field, "at most 20000 values in lists");
	r->listed += count;
	items = mfs_arena_array(r->arena, count ? count : 1, sizeof(*items));
	if (!items)
		return mfs_fail_nomem(r->err);
	*ret = (struct mfs_arg){.type = MFS_ARG_LIST, .count = count, .items = (uintptr_t)items};
	for (const struct mfs_yaml_node *item = n->first; item && !rc; item = item->next)
		rc = read_value(r, field, item, nesting + 1, items++);
	return rc;
}

static int read_value(struct reader *r, const char *field, const struct mfs_yaml_node *n,
		      unsigned nesting, struct mfs_arg *ret)
{
	if (n->kind == MFS_YAML_SCALAR) {
		*ret = scalar(n);
		return 0;
	}
	if (n->kind == MFS_YAML_MAPPING || nesting == MAX_NESTING)
		return fail(r, n, field, "numbers or texts in a list");
	return read_list(r, field, n, nesting, ret);
}

/* ---- arguments ---- */

static void add(struct reader *r, const char *name, struct mfs_arg value)
{
	struct mfs_model_config *c = r->config;

	if (c->count == r->capacity) {
		const size_t more = r->capacity ? 2 * r->capacity : 128;
		struct mfs_model_argument *list = mfs_arena_array(r->arena, more, sizeof(*list));

		if (!list) {
			r->rc = mfs_fail_nomem(r->err);
			return;
		}
		if (c->count)
			memcpy(list, c->arguments, c->count * sizeof(*list));
		c->arguments = list;
		r->capacity = more;
	}
	c->arguments[c->count++] = (struct mfs_model_argument){name, value};
}

static void add_truth(struct reader *r, const char *name, bool value)
{
	add(r, name, truth_arg(value));
}

static void add_text(struct reader *r, const char *name, const char *value)
{
	add(r, name, text_arg(MFS_ARG_TEXT, value));
}

static int add_node(struct reader *r, const char *name, const char *field,
		    const struct mfs_yaml_node *n)
{
	struct mfs_arg value;
	int rc = read_value(r, field, n, 0, &value);

	if (!rc)
		add(r, name, value);
	return rc;
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
	for (size_t i = 0; i < MFS_ARRAY_SIZE(apart); i++)
		if (!strcmp(field, apart[i]))
			return true;
	return *field == '_';
}

static int read_field(struct reader *r, const char *field, const struct mfs_yaml_node *n)
{
	const char *argument = field;
	bool inverse = false, truth;

	if (is_apart(field))
		return 0;
	if (dtype_of(n) != MFS_DTYPE_NONE) {
		add(r, field, text_arg(MFS_ARG_CLASS, mfs_dtype_torch(dtype_of(n))));
		return 0;
	}
	if (n->kind == MFS_YAML_MAPPING)
		return 0; /* a Python object: an initialisation, a layer spec, an enum */
	for (size_t i = 0; i < MFS_ARRAY_SIZE(renamed); i++) {
		if (strcmp(renamed[i].field, field) != 0)
			continue;
		argument = renamed[i].argument;
		inverse = renamed[i].inverse;
	}
	if (inverse) {
		if (!mfs_yaml_truth(n, &truth))
			return fail(r, n, field, "true or false");
		add_truth(r, argument, !truth);
		return 0;
	}
	return add_node(r, argument, field, n);
}

static int read_fields(struct reader *r, const struct mfs_yaml_node *model)
{
	int rc = 0;

	for (const struct mfs_yaml_node *k = model->first; k && !rc; k = k->next->next)
		rc = read_field(r, k->text, k->next);
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
static void read_activation(struct reader *r, const struct mfs_yaml_node *model)
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

	add_truth(r, "swiglu", swiglu);
	add_truth(r, "quick_geglu", quick);
	add_truth(r, "geglu", gated && by_tanh);
	add_truth(r, "squared_relu", squared);
	/* The fused GELU is the one by tanh. */
	add_truth(r, "bias_gelu_fusion", by_tanh || truth_of(model, "bias_activation_fusion"));
	if (swiglu || quick || squared || gelu || (gated && by_tanh))
		return;
	add_truth(r, "gated_linear_unit", gated);
	add_text(r, "activation_func", name);
}

static int read_groups(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *n = field_of(model, "num_query_groups");

	add_truth(r, "group_query_attention", n != NULL);
	if (!n)
		return 0;
	return add_node(r, "num_query_groups", "num_query_groups", n);
}

/* Providers of Llama 3.1 and newer in Megatron-Bridge 0.2 and NeMo have the factor in fields of
 * their own, and always apply it. Megatron-core fixes the three other numbers
 * (rotary_pos_embedding.py: _apply_scaling). */
static int read_llama3_scaling(struct reader *r, const struct mfs_yaml_node *model)
{
	static const struct {
		const char *name;
		double usual;
	} fixed[] = {{"low_freq_factor", 1}, {"high_freq_factor", 4}, {"old_context_len", 8192}};
	const struct mfs_yaml_node *factor = field_of(model, "scale_factor");
	double value;

	if (!factor || !field_of(model, "old_context_len"))
		return 0;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(fixed); i++) {
		const struct mfs_yaml_node *n = field_of(model, fixed[i].name);

		if (n && (!mfs_yaml_real(n, &value) || value != fixed[i].usual))
			return fail(r, n, fixed[i].name, "Llama 3's 1, 4 and 8192");
	}
	add_truth(r, "use_rope_scaling", true);
	return add_node(r, "rope_scaling_factor", "scale_factor", factor);
}

/* The field says transformer_engine also where the layers are core's own. A layer's parameters have
 * another order in these, and flat buffers of an optimizer have that order and no names. */
static int read_spec(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *impl = field_of(model, "transformer_impl");
	const struct mfs_yaml_node *spec = field_of(model, "transformer_layer_spec");

	if (spec && named(spec) && !strcmp(last_word(named(spec)), "local_layer_spec")) {
		add_text(r, "transformer_impl", "local");
		return 0;
	}
	if (!impl)
		return 0;
	return add_node(r, "transformer_impl", "transformer_impl", impl);
}

/* What the optimizer's reader asks for stands in other sections. */
static int read_sections(struct reader *r, const struct mfs_yaml_node *root)
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

	for (size_t i = 0; i < MFS_ARRAY_SIZE(others) && !rc; i++) {
		const struct mfs_yaml_node *n =
			mfs_yaml_get(mfs_yaml_get(root, others[i].section), others[i].field);

		if (!n)
			continue;
		rc = add_node(r, others[i].argument, others[i].field, n);
	}
	return rc;
}

/* NeMo copies the folder of a tokenizer into context/, under the folder's own name. The code that
 * reads it checks whether it is a tokenizer. */
static void read_tokenizer(struct reader *r, const struct mfs_yaml_node *root)
{
	const struct mfs_yaml_node *n =
		mfs_yaml_get(mfs_yaml_get(root, "tokenizer"), "pretrained_model_name");

	if (!n || n->kind != MFS_YAML_SCALAR || mfs_yaml_is_null(n))
		return;
	add_text(r, "nemo_tokenizer", n->text);
}

/* The class that makes the model: some make more of it than the fields say. */
static void read_provider(struct reader *r, const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *target = mfs_yaml_get(model, "_target_");

	add_text(r, "model_provider",
		 target && named(target) ? last_word(named(target)) : "unknown");
}

static int read_model(struct reader *r, const struct mfs_yaml_node *root,
		      const struct mfs_yaml_node *model)
{
	const struct mfs_yaml_node *inner = mfs_yaml_get(model, "transformer");
	const struct mfs_yaml_node *length = field_of(model, "seq_length");
	int rc;

	if (inner && inner->kind != MFS_YAML_MAPPING)
		return fail(r, inner, "transformer", "names with values");
	rc = read_fields(r, model);
	if (!rc && inner)
		rc = read_fields(r, inner);
	if (!rc)
		rc = read_groups(r, model);
	if (!rc)
		rc = read_llama3_scaling(r, model);
	if (!rc)
		rc = read_spec(r, model);
	if (!rc)
		rc = read_sections(r, root);
	if (rc)
		return rc;
	read_activation(r, model);
	read_provider(r, model);
	read_tokenizer(r, root);
	if (length && !field_of(model, "max_position_embeddings")) {
		rc = add_node(r, "max_position_embeddings", "seq_length", length);
	}
	return rc ? rc : r->rc;
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
					"%s: nothing follows '%s': the file was cut short", r->name,
					k->text);
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

int mfs_model_config_read(const struct mfs_yaml_node *root, const char *name, bool adapters,
			  struct mfs_arena *arena, struct mfs_model_config *ret,
			  struct mfs_error *err)
{
	struct mfs_model_config config = {0};
	struct reader r = {.arena = arena, .name = name, .config = &config, .err = err};
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
	if (!rc)
		rc = read_model(&r, root, model);
	if (!rc)
		*ret = config;
	return rc;
}

/* ---- as a source ---- */

/* As in a Namespace, what comes later replaces what was before. */
static bool get(const struct mfs_args_source *s, const char *name, struct mfs_arg *ret)
{
	const struct mfs_model_config *c = s->from;

	for (size_t i = c->count; i-- > 0;)
		if (!strcmp(c->arguments[i].name, name)) {
			*ret = c->arguments[i].value;
			return true;
		}
	return false;
}

static void item(const struct mfs_args_source *s, const struct mfs_arg *of, uint32_t i,
		 struct mfs_arg *ret)
{
	(void)s;
	*ret = ((const struct mfs_arg *)of->items)[i];
}

struct mfs_args_source mfs_args_of_config(const struct mfs_model_config *config)
{
	static const struct mfs_args_source_ops yaml = {get, item};

	return (struct mfs_args_source){.ops = &yaml, .from = config};
}

/* ---- as a Namespace ---- */

static void write_value(struct mfs_pickle_writer *w, const struct mfs_arg *v)
{
	const struct mfs_arg *items = (const struct mfs_arg *)v->items;

	switch (v->type) {
	case MFS_ARG_NONE:
		mfs_pickle_none(w);
		break;
	case MFS_ARG_BOOL:
		mfs_pickle_bool(w, v->truth);
		break;
	case MFS_ARG_INT:
		mfs_pickle_int(w, v->number);
		break;
	case MFS_ARG_REAL:
		mfs_pickle_float(w, v->real);
		break;
	case MFS_ARG_CLASS:
		mfs_pickle_global(w, "torch", v->text);
		break;
	case MFS_ARG_LIST:
		mfs_pickle_list_begin(w);
		for (uint32_t i = 0; i < v->count; i++) {
			mfs_pickle_batch(w, MFS_OP_APPENDS, i);
			write_value(w, &items[i]);
		}
		mfs_pickle_list_end(w);
		break;
	case MFS_ARG_TEXT:
	case MFS_ARG_OTHER:
		mfs_pickle_str(w, v->text);
		break;
	}
}

int mfs_model_config_write(struct mfs_pickle_writer *w, const struct mfs_yaml_node *root,
			   const char *name, bool adapters, struct mfs_error *err)
{
	struct mfs_model_config config;
	struct mfs_arena arena = {0};
	int rc = mfs_model_config_read(root, name, adapters, &arena, &config, err);

	if (!rc) {
		mfs_pickle_object_begin(w, "argparse", "Namespace");
		for (size_t i = 0; i < config.count; i++) {
			mfs_pickle_name(w, config.arguments[i].name);
			write_value(w, &config.arguments[i].value);
		}
		mfs_pickle_object_end(w);
	}
	mfs_arena_release(&arena);
	return rc;
}
