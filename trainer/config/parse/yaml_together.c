/* Fields of Megatron-Bridge's sections that become arguments together, whatever their order in the
 * file, and what follows from a model's sizes. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/parse/yaml_i.h"

#define INIT_STD   0.02		/* TransformerConfig's init_method_std */
#define AT_THE_END 2147483647ll /* iterations between saves: none before the last one */
#define LARGEST	   (1ll << 31)	/* of any size: products of two fit */

/* ---- fields ---- */

/* NULL: there is none, or it is null. A model's fields may stand apart, under `transformer`. */
static const struct mfs_yaml_node *field(const struct mft_yaml_reader *r, const char *section,
					 const char *key)
{
	const struct mfs_yaml_node *in = mfs_yaml_get(r->root, section);
	const struct mfs_yaml_node *n = mfs_yaml_get(mfs_yaml_get(in, "transformer"), key);

	if (!n)
		n = mfs_yaml_get(in, key);
	return n && !mfs_yaml_is_null(n) ? n : NULL;
}

static const struct mfs_yaml_node *of_model(const struct mft_yaml_reader *r, const char *key)
{
	return field(r, "model", key);
}

/* *ret stays as it is where the field is not there. */
static int truth_of(struct mft_yaml_reader *r, const char *key, bool *ret)
{
	const struct mfs_yaml_node *n = of_model(r, key);

	return !n || mfs_yaml_truth(n, ret)
		       ? 0
		       : mft_yaml_fail(r, n, "expected true or false under", key);
}

bool mft_yaml_is_together(const char *section, const char *key)
{
	static const char *const model[] = {"activation_func",		"gated_linear_unit",
					    "bias_activation_fusion",	"init_method",
					    "output_layer_init_method", "embedding_init_method",
					    "should_pad_vocab"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(model); i++)
		if (mfs_str_is(section, "model") && mfs_str_is(key, model[i]))
			return true;
	return false;
}

/* ---- the activation ---- */

struct activation {
	const char *name; /* of the function */
	bool gated, fused;
	bool tanh; /* GELU's approximation */
	bool bias; /* of linears: the fused GELU adds it */
};

static int refuse_activation(struct mft_yaml_reader *r, const struct activation *a,
			     const struct mfs_yaml_node *at)
{
	return mfs_fail(r->err, -ENOTSUP,
			"%s: line %u: activation_func '%.80s' with gated_linear_unit %s%s is not "
			"supported; expected silu or quick_gelu with true, or gelu or squared_relu "
			"with false",
			r->name, at->line, a->name, a->gated ? "true" : "false",
			a->tanh && !a->gated ? " and without a bias" : "");
}

static bool is_tanh(const char *name, const struct mfs_yaml_node *approximate)
{
	return mfs_str_is(name, "fast_gelu") || mfs_str_is(name, "gelu_pytorch_tanh") ||
	       mfs_str_is(name, "openai_gelu") ||
	       (mfs_str_is(name, "gelu") && approximate && mfs_str_is(approximate->text, "tanh"));
}

static int find_activation(struct mft_yaml_reader *r, struct activation *ret)
{
	const struct mfs_yaml_node *n = of_model(r, "activation_func");
	const struct mfs_yaml_node *target = mfs_yaml_get(n, "_target_");
	const char *dot;
	int rc = truth_of(r, "gated_linear_unit", &ret->gated);

	if (!rc)
		rc = truth_of(r, "bias_activation_fusion", &ret->fused);
	if (rc || !n)
		return rc;
	if (!target)
		target = n;
	if (target->kind != MFS_YAML_SCALAR)
		return mft_yaml_fail(r, n, "expected the name of a function under",
				     "activation_func");
	dot = strrchr(target->text, '.');
	ret->name = dot ? dot + 1 : target->text;
	ret->tanh = is_tanh(ret->name, mfs_yaml_get(n, "approximate"));
	return 0;
}

static void set_fusion(struct mft_yaml_reader *r, bool fused)
{
	mft_yaml_set_truth(r, "bias_gelu_fusion", fused);
	mft_yaml_set_truth(r, "bias_swiglu_fusion", fused);
}

/* transformer/mlp.py: a GELU is torch's, by the error function, unless it is fused with the bias.
 * Without either of both fields the model's activation is what arguments say. */
static int settle_activation(struct mft_yaml_reader *r)
{
	const struct mfs_yaml_node *function = of_model(r, "activation_func");
	const struct mfs_yaml_node *gate = of_model(r, "gated_linear_unit");
	struct activation a = {.name = "gelu", .bias = mft_flag_truth(r->v, "add_bias_linear")};
	int rc = find_activation(r, &a);
	bool swiglu, quick, squared;

	if (rc || mft_yaml_is_taken(r, "swiglu") || mft_yaml_is_taken(r, "quick_geglu") ||
	    mft_yaml_is_taken(r, "squared_relu"))
		return rc;
	if (!function && !gate) {
		if (of_model(r, "bias_activation_fusion"))
			set_fusion(r, a.fused);
		return 0;
	}
	swiglu = a.gated && mfs_str_is(a.name, "silu");
	quick = a.gated && mfs_str_is(a.name, "quick_gelu");
	squared = !a.gated && (mfs_str_is(a.name, "squared_relu") || mfs_str_is(a.name, "relu2"));
	if (!swiglu && !quick && !squared &&
	    (a.gated || !(a.tanh ? a.bias : mfs_str_is(a.name, "gelu"))))
		return refuse_activation(r, &a, function ? function : gate);
	mft_yaml_set_truth(r, "swiglu", swiglu);
	mft_yaml_set_truth(r, "quick_geglu", quick);
	mft_yaml_set_truth(r, "squared_relu", squared);
	if (!swiglu && !quick && !squared)
		mft_yaml_set_truth(r, "bias_gelu_fusion", a.tanh || a.fused);
	else if (of_model(r, "bias_activation_fusion"))
		set_fusion(r, a.fused);
	return 0;
}

/* ---- how weights begin ---- */

static double real_of(const struct mfs_yaml_node *n, double otherwise)
{
	double value;

	return mfs_yaml_real(n, &value) ? value : otherwise;
}

/* Whether an initialisation is a normal distribution around 0, as wide as the fields say. */
static int check_init(struct mft_yaml_reader *r, const char *key, double std)
{
	const struct mfs_yaml_node *n = of_model(r, key), *target = mfs_yaml_get(n, "_target_");
	const double found = real_of(mfs_yaml_get(n, "std"), NAN);

	if (!n || (target && mfs_str_is(target->text, "torch.nn.init.normal_") &&
		   real_of(mfs_yaml_get(n, "mean"), NAN) == 0 && fabs(found - std) <= 1e-6 * std))
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s: line %u: %s is not supported; expected torch.nn.init.normal_ with "
			"mean 0 and std %g, or null",
			r->name, n->line, key, std);
}

/* TransformerConfig: __post_init__; utils.py: scaled_init_method_normal. */
static int check_inits(struct mft_yaml_reader *r)
{
	const double std = real_of(of_model(r, "init_method_std"), INIT_STD);
	const double layers = real_of(of_model(r, "num_layers"), 1);
	int rc = check_init(r, "init_method", std);

	if (!rc)
		rc = check_init(r, "embedding_init_method",
				real_of(of_model(r, "embedding_init_method_std"), std));
	return rc ? rc : check_init(r, "output_layer_init_method", std / sqrt(2 * layers));
}

/* ---- sizes ---- */

/* Megatron-Bridge's models have fewer groups than heads without a field like
 * --group-query-attention. Latent attention has by itself as many groups as heads. */
static void settle_groups(struct mft_yaml_reader *r)
{
	const int64_t heads = mft_flag_number(r->v, "num_attention_heads", 0);
	const int64_t groups = mft_flag_number(r->v, "num_query_groups", 0);

	if (of_model(r, "num_query_groups") &&
	    !(mft_flag_truth(r->v, "multi_latent_attention") && groups == heads))
		mft_yaml_set_truth(r, "group_query_attention", true);
}

/* The model's vocab_size is the rows of its embedding, padded with should_pad_vocab alone
 * (gpt_provider.py: provide). The tokenizer's own size may be smaller. */
static int settle_vocab(struct mft_yaml_reader *r)
{
	const struct mfs_yaml_node *n = of_model(r, "vocab_size");
	const int64_t tp = mft_flag_number(r->v, "tensor_model_parallel_size", 1);
	const int64_t multiple = mft_flag_number(r->v, "make_vocab_size_divisible_by", 1);
	bool pads = false;
	int64_t rows;
	int rc = truth_of(r, "should_pad_vocab", &pads);

	if (rc || !of_model(r, "should_pad_vocab") || !mfs_yaml_int(n, &rows) ||
	    mft_yaml_is_taken(r, "vocab_size") || mft_yaml_is_taken(r, "padded_vocab_size"))
		return rc;
	if (pads && rows > 0 && rows < LARGEST && tp > 0 && tp < LARGEST && multiple > 0 &&
	    multiple < LARGEST / tp)
		rows = (rows + multiple * tp - 1) / (multiple * tp) * (multiple * tp);
	mft_yaml_set_number(r, "padded_vocab_size", rows);
	return 0;
}

/* GPTModelProvider has no max_position_embeddings: its model has seq_length. What a checkpoint says
 * counts more. */
static void settle_positions(struct mft_yaml_reader *r)
{
	const int64_t length = mft_flag_number(r->v, "seq_length", 0);
	int64_t rows;

	if (mfs_yaml_int(of_model(r, "seq_length"), &rows) &&
	    mft_flag_is_none(r->v, "max_position_embeddings"))
		mft_flag_set_number(r->v, "max_position_embeddings", rows > length ? rows : length);
}

/* Sets it back as if it had not been given. */
static void unset(struct mft_yaml_reader *r, const char *dest)
{
	mft_flag_set_none(r->v, dest);
	r->v->from[mft_flag_of_dest(dest)] = MFT_FROM_DEFAULT;
}

/* A layout says how many model chunks there are, and Bridge has both. */
static void settle_chunks(struct mft_yaml_reader *r)
{
	if (!mft_flag_is_none(r->v, "pipeline_model_parallel_layout") &&
	    of_model(r, "virtual_pipeline_model_parallel_size") &&
	    !mft_yaml_is_taken(r, "num_virtual_stages_per_pipeline_rank"))
		unset(r, "num_virtual_stages_per_pipeline_rank");
}

/* ---- training ---- */

/* Megatron sums bf16's gradients in fp32 unless it is told otherwise. */
static int settle_sums(struct mft_yaml_reader *r)
{
	bool fp32;

	if (!r->fp32_sums || mfs_yaml_is_null(r->fp32_sums) ||
	    mft_yaml_is_taken(r, "accumulate_allreduce_grads_in_fp32") ||
	    mft_yaml_is_taken(r, "grad_reduce_in_bf16"))
		return 0;
	if (!mfs_yaml_truth(r->fp32_sums, &fp32))
		return mft_yaml_fail(r, r->fp32_sums, "expected true or false under",
				     "grad_reduce_in_fp32");
	if (!mft_flag_truth(r->v, "bf16"))
		mft_yaml_set_truth(r, "accumulate_allreduce_grads_in_fp32", fp32);
	else if (!fp32)
		mft_yaml_set_truth(r, "grad_reduce_in_bf16", true);
	return 0;
}

/* Bridge decays by the scheduler's numbers, and the optimizer's is none where they are constant
 * (training/optim.py). */
static void settle_decay(struct mft_yaml_reader *r)
{
	const double start = real_of(field(r, "scheduler", "start_weight_decay"), -1);
	const double end = real_of(field(r, "scheduler", "end_weight_decay"), -1);
	const char *style = mft_flag_text(r->v, "weight_decay_incr_style");

	if (start < 0 || start != end || !mfs_str_is(style, "constant") ||
	    mft_yaml_is_taken(r, "start_weight_decay") || mft_yaml_is_taken(r, "end_weight_decay"))
		return;
	unset(r, "start_weight_decay");
	unset(r, "end_weight_decay");
	if (mft_yaml_is_taken(r, "weight_decay"))
		return;
	mft_flag_set_real(r->v, "weight_decay", start);
	r->v->from[mft_flag_of_dest("weight_decay")] = MFT_FROM_YAML;
}

/* Bridge saves at the end alone where nobody says how often (training/pretrain.py). */
static void settle_saves(struct mft_yaml_reader *r)
{
	if (field(r, "checkpoint", "save") && mft_flag_is_none(r->v, "save_interval"))
		mft_yaml_set_number(r, "save_interval", AT_THE_END);
}

/* Two sections say them, and here they are one argument. */
static int check_same(struct mft_yaml_reader *r)
{
	static const struct {
		const char *section, *key, *other_section, *other_key, *dest;
	} pairs[] = {{"dataset", "random_seed", "rng", "seed", "seed"},
		     {"dataset", "sequence_length", "model", "seq_length", "seq_length"},
		     {"dataset", "seq_length", "model", "seq_length", "seq_length"}};
	int64_t one, other;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(pairs); i++) {
		const struct mfs_yaml_node *n = field(r, pairs[i].section, pairs[i].key);

		if (!mfs_yaml_int(n, &one) ||
		    !mfs_yaml_int(field(r, pairs[i].other_section, pairs[i].other_key), &other) ||
		    one == other || mft_yaml_is_taken(r, pairs[i].dest))
			continue;
		return mfs_fail(r->err, -ENOTSUP,
				"%s: line %u: %s.%s %lld is not %s.%s %lld, which is not "
				"supported; expected the same",
				r->name, n->line, pairs[i].section, pairs[i].key, (long long)one,
				pairs[i].other_section, pairs[i].other_key, (long long)other);
	}
	return 0;
}

int mft_yaml_together(struct mft_yaml_reader *r)
{
	int rc = settle_activation(r);

	if (!rc)
		rc = check_inits(r);
	if (!rc)
		rc = check_same(r);
	if (!rc)
		rc = settle_vocab(r);
	if (!rc)
		rc = settle_sums(r);
	if (rc)
		return rc;
	settle_groups(r);
	settle_positions(r);
	settle_chunks(r);
	settle_decay(r);
	settle_saves(r);
	return 0;
}
