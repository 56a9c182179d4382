/* The model of a run_config.yaml or model.yaml: formats/args/model_config.h and the tree that it
 * reads, formats/base/yaml_tree.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/base/yaml_tree.h"
#include "formats/args/megatron_args.h"
#include "formats/args/model_config.h"
#include "formats/args/namespace.h"

#define SIZES                                                                                      \
	"  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 8\n  ffn_hidden_size: 176\n"
#define SILU "  activation_func:\n    _call_: false\n    _target_: torch.nn.functional.silu\n"

static struct mfs_error err;
static struct mfs_arena arena;
static struct mfs_megatron_args args;

static void tear_down(void)
{
	mfs_arena_release(&arena);
}

/* The bytes of a Namespace that has these arguments. */
static struct mfs_buf written(const struct mfs_megatron_args *a)
{
	struct mfs_pickle_writer w;
	struct mfs_buf out = {0};

	mfs_pickle_begin(&w, &out, 2);
	mfs_namespace_write(&w, a);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	return out;
}

/* What a state keeps of the tree must be read as the tree is. */
static void check_pickled(const struct mfs_yaml_node *root, int want)
{
	const struct mfs_error read = err;
	struct mfs_megatron_args again;
	struct mfs_pickle_writer w;
	struct mfs_pickle *doc = NULL;
	struct mfs_buf out = {0};
	int rc;

	mfs_pickle_begin(&w, &out, 2);
	rc = mfs_model_config_write(&w, root, "run_config.yaml", false, &err);
	if (rc) {
		mfs_pickle_abandon(&w);
	} else {
		unit_ok(mfs_pickle_end(&w, &err), &err);
		unit_ok(mfs_pickle_parse(out.data, out.len, "args", NULL, &doc, &err), &err);
		rc = mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &again, &err);
	}
	ck_assert_int_eq(rc, want);
	if (rc) {
		ck_assert_str_eq(err.msg, read.msg);
	} else {
		struct mfs_buf a = written(&args), b = written(&again);

		ck_assert(a.len == b.len && !memcmp(a.data, b.data, a.len));
		ck_assert(args.foreign ? !strcmp(args.foreign, again.foreign) : !again.foreign);
		mfs_buf_release(&a);
		mfs_buf_release(&b);
	}
	mfs_pickle_free(doc);
	mfs_buf_release(&out);
}

static int read_whole(const char *yaml)
{
	struct mfs_model_config config;
	struct mfs_args_source source;
	struct mfs_yaml_node *root;
	int rc = mfs_yaml_tree("run_config.yaml", yaml, strlen(yaml), 0, &arena, &root, &err);

	if (rc)
		return rc;
	rc = mfs_model_config_read(root, "run_config.yaml", false, &arena, &config, &err);
	if (!rc) {
		source = mfs_args_of_config(&config);
		rc = mfs_args_read(&source, &arena, &args, &err);
	}
	check_pickled(root, rc);
	return rc;
}

/* What programs write has further sections after the model's. */
static int read_args(const char *yaml)
{
	char *whole;
	int rc;

	ck_assert_int_gt(asprintf(&whole, "%strain: {}\n", yaml), 0);
	rc = read_whole(whole);
	free(whole);
	return rc;
}

static void check_llama(void)
{
	ck_assert_int_eq(args.num_layers, 4);
	ck_assert_int_eq(args.num_query_groups, 2);
	ck_assert_int_eq(args.num_experts, MFS_ABSENT);
	ck_assert_int_eq(args.max_position_embeddings, 128);
	ck_assert(args.swiglu && !args.tied && !args.layernorm && !args.add_bias_linear);
	ck_assert_double_eq(args.rotary_base, 500000);
	ck_assert_double_eq(args.norm_epsilon, 1e-6);
	ck_assert_str_eq(args.params_dtype, "bfloat16");
	ck_assert_str_eq(args.position_embedding_type, "rope");
	ck_assert_ptr_null(args.foreign);
}

/* at: the blanks before each field. */
#define LLAMA(at)                                                                                  \
	at "add_bias_linear: false\n" at "activation_func: silu\n" at                              \
	   "gated_linear_unit: true\n" at "normalization: RMSNorm\n" at                            \
	   "layernorm_epsilon: 1.0e-06\n" at "num_query_groups: 2\n" at                            \
	   "num_moe_experts: null\n" at "params_dtype:\n" at "  _call_: false\n" at                \
	   "  _target_: torch.bfloat16\n"
#define OUTER                                                                                      \
	"  position_embedding_type: rope\n  rotary_base: 500000\n  seq_length: 128\n"              \
	"  share_embeddings_and_output_weights: false\n"

#define SPEC(function)                                                                             \
	"  transformer_layer_spec:\n    _call_: false\n"                                           \
	"    _target_: megatron.bridge.models.gpt_provider." function "\n"

/* The three forms: fields of one class, TransformerConfig apart, and NeMo's. */
START_TEST(all_three_forms_give_the_same_arguments)
{
	unit_ok(read_args("_target_: megatron.bridge.training.config.ConfigContainer\nmodel:\n"
			  "  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider\n" SIZES
				  OUTER LLAMA("  ")),
		&err);
	check_llama();
	unit_ok(read_args("model:\n  _builder_: megatron.bridge.models.gpt.gpt_builder.B\n"
			  "  _target_: megatron.bridge.models.gpt.model_config."
			  "BridgeGPTModelConfig\n" OUTER
			  "  transformer:\n    num_layers: 4\n    hidden_size: 64\n"
			  "    num_attention_heads: 8\n" LLAMA("    ")),
		&err);
	check_llama();
	unit_ok(read_args("_target_: nemo.collections.llm.gpt.model.llama.LlamaModel\nconfig:\n"
			  "  _target_: nemo.collections.llm.gpt.model.llama.Llama3Config8B\n" SIZES
				  OUTER LLAMA("  ")),
		&err);
	check_llama();
}
END_TEST

/* NeMo copies a tokenizer's folder under its own name; a name on the Hub is no folder. */
START_TEST(nemo_tokenizer)
{
	static const struct {
		const char *given, *found;
	} cases[] = {
		{"tok-32k", "tok-32k"},
		{"meta-llama/Llama-3.1-8B", NULL},
		{"..", NULL},
		{".", NULL},
		{"''", NULL},
		{"null", NULL},
		{"{_target_: nemo.lightning.io.artifact.DirOrStringArtifact}", NULL},
	};
	const char *nemo = "config:\n  _target_: a.LlamaConfig\n" SIZES
			   "tokenizer:\n  pretrained_model_name: ";
	char text[512];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "%s%s\n", nemo, cases[i].given);
		unit_ok(read_args(text), &err);
		if (cases[i].found)
			ck_assert_str_eq(args.nemo_tokenizer, cases[i].found);
		else
			ck_assert_ptr_null(args.nemo_tokenizer);
	}
}
END_TEST

/* transformer_impl says the same whatever the layers are. */
START_TEST(layer_specs)
{
	unit_ok(read_args("model:\n  _target_: a.GPTModelProvider\n" SIZES
			  "  transformer_impl: transformer_engine\n" SPEC("local_layer_spec")),
		&err);
	ck_assert(args.local_spec);
	unit_ok(read_args("model:\n  _target_: a.GPTModelProvider\n" SIZES
			  "  transformer_impl: transformer_engine\n" SPEC("default_layer_spec")),
		&err);
	ck_assert(!args.local_spec);
	unit_ok(read_args("model:\n  _target_: a.GPTModelProvider\n" SIZES
			  "  transformer_impl: local\n"),
		&err);
	ck_assert(args.local_spec);
}
END_TEST

static const struct {
	const char *fields;
	bool swiglu, quick, squared, exact;
	const char *foreign; /* or NULL */
} activations[] = {
	{SILU "  gated_linear_unit: true\n", true, false, false, true, NULL},
	{"  activation_func: torch._C._nn.gelu\n", false, false, false, true, NULL},
	{"  activation_func: gelu\n  bias_activation_fusion: true\n", false, false, false, false,
	 NULL},
	{"  activation_func:\n    _target_: torch._C._nn.gelu\n    _partial_: true\n"
	 "    approximate: tanh\n",
	 false, false, false, false, NULL},
	{"  activation_func: fast_gelu\n", false, false, false, false, NULL},
	{"  activation_func: megatron.core.activations.squared_relu\n", false, false, true, true,
	 NULL},
	{"  activation_func: quick_gelu\n  gated_linear_unit: true\n", false, true, false, true,
	 NULL},
	{"  activation_func: gelu\n  gated_linear_unit: true\n", false, false, false, true,
	 "activation_func (gelu)"},
	{SILU, false, false, false, true, "activation_func (silu)"},
};

START_TEST(activations_are_known_by_function_and_gate)
{
	char yaml[512];

	snprintf(yaml, sizeof(yaml), "model:\n  _target_: a.GPTModelProvider\n%s%s", SIZES,
		 activations[_i].fields);
	unit_ok(read_args(yaml), &err);
	ck_assert_int_eq(args.swiglu, activations[_i].swiglu);
	ck_assert_int_eq(args.quick_geglu, activations[_i].quick);
	ck_assert_int_eq(args.squared_relu, activations[_i].squared);
	ck_assert_int_eq(args.exact_gelu, activations[_i].exact);
	if (activations[_i].foreign)
		ck_assert_str_eq(args.foreign, activations[_i].foreign);
	else
		ck_assert_ptr_null(args.foreign);
}
END_TEST

/* What such a class does beyond its fields is not known here. */
START_TEST(a_provider_is_known_by_the_name_of_its_class)
{
	unit_ok(read_args("model:\n  _target_: m.gemma.Gemma2ModelProvider\n" SIZES), &err);
	ck_assert_str_eq(args.provider, "Gemma2ModelProvider");
	ck_assert_ptr_null(args.foreign);
	unit_ok(read_args("model:\n  _target_: m.Qwen25VLModelProvider\n" SIZES), &err);
	ck_assert_str_eq(args.provider, "Qwen25VLModelProvider");
	unit_ok(read_args("model:\n  _target_: m.Llama\n" SIZES), &err);
	ck_assert_str_eq(args.provider, "Llama");
}
END_TEST

/* These programs pass the factor to the model, whatever it is. */
START_TEST(llama3_scaling)
{
	unit_ok(read_args("model:\n  _target_: m.GPTModelProvider\n  rope_scaling: true\n"
			  "  rope_scaling_factor: 32.0\n" SIZES),
		&err);
	ck_assert(args.use_rope_scaling);
	ck_assert_double_eq(args.rope_scaling_factor, 32);
	ck_assert_double_eq(args.rope_scaling_ignored, 0);
	unit_ok(read_args("config:\n  _target_: m.Llama31Config8B\n  scale_factor: 4\n"
			  "  low_freq_factor: 1\n  high_freq_factor: 4\n"
			  "  old_context_len: 8192\n" SIZES),
		&err);
	ck_assert(args.use_rope_scaling);
	ck_assert_double_eq(args.rope_scaling_factor, 4);
	unit_fails(read_args("config:\n  scale_factor: 4\n  old_context_len: 4096\n" SIZES), &err,
		   -EINVAL, "old_context_len: expected Llama 3's 1, 4 and 8192");
}
END_TEST

/* PyYAML writes an object that it meets twice as an anchor and an alias, and tuples with a tag. */
START_TEST(anchors_and_tuples_of_pyyaml_are_read)
{
	unit_ok(read_args("x: &a [1, 0, 1, 1]\nmodel:\n  _target_: m.GPTModelProvider\n"
			  "  num_moe_experts: 4\n  moe_layer_freq: *a\n"
			  "  window_size: !!python/tuple [127, 0]\n" SIZES),
		&err);
	ck_assert(mfs_args_is_moe(&args, 0) && !mfs_args_is_moe(&args, 1));
	ck_assert_int_eq(args.window_size, 128);
}
END_TEST

static int read_lora(const char *peft, struct mfs_lora_config *ret)
{
	struct mfs_arena arena = {0};
	struct mfs_yaml_node *root;
	char text[256];
	int rc, len = snprintf(text, sizeof(text),
			       "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n%s", peft);

	unit_ok(mfs_yaml_tree("run_config.yaml", text, (size_t)len, 0, &arena, &root, &err), &err);
	rc = mfs_model_config_lora(root, "run_config.yaml", ret, &err);
	mfs_arena_release(&arena);
	return rc;
}

START_TEST(lora_has_a_rank_and_a_finite_scale)
{
	static const char *const bad[] = {"  alpha: 32\n", "  dim: 0\n  alpha: 32\n", "  dim: 8\n",
					  "  dim: 8\n  alpha: 1e39\n",
					  "  dim: 8\n  alpha: -1e999\n"};
	struct mfs_lora_config given;

	unit_ok(read_lora("  dim: 16\n  alpha: 32\n", &given), &err);
	ck_assert_uint_eq(given.rank, 16);
	ck_assert_float_eq(given.scale, 2);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(read_lora(bad[i], &given), &err, -EINVAL, "expected 'dim'");
}
END_TEST

START_TEST(what_is_no_config_is_refused_by_line)
{
	unit_fails(read_whole("checkpoint: {}\nmodel:\n" SIZES), &err, -ENODATA,
		   "nothing follows 'model': the file was cut short");
	unit_fails(read_args(""), &err, -EINVAL, "run_config.yaml: neither 'model'");
	unit_fails(read_args("model: null\n"), &err, -EINVAL, "neither 'model'");
	unit_fails(read_args("model: {hidden_size: 64}\n"), &err, -ENODATA, "'num_layers'");
	unit_fails(read_args("model:\n  transformer: 5\n"), &err, -EINVAL, "line 2: transformer");
	unit_fails(read_args("model:\n  share_embeddings_and_output_weights: 3\n"), &err, -EINVAL,
		   "line 2: share_embeddings_and_output_weights: expected true or false");
	unit_fails(read_args("model:\n  layout: [[[[1]]]]\n"), &err, -EINVAL, "layout: expected");
	unit_fails(read_args("model:\n  layout: [{a: 1}]\n"), &err, -EINVAL, "layout: expected");
	unit_fails(read_args("a: *b\n"), &err, -EINVAL, "line 1: an alias");
	unit_fails(read_args("a: &b [*b]\n"), &err, -EINVAL, "line 1: an alias");
	unit_fails(read_args("model:\n  num_layers: -4\n  hidden_size: 4\n"), &err, -EINVAL,
		   "'num_layers'");
	unit_fails(read_args("checkpoint: {pretrained_checkpoint: base/llama}\n"
			     "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\nmodel:\n" SIZES),
		   &err, -ENOTSUP, "adapters alone (LoRA); the model is in 'base/llama'");
	unit_fails(read_args("model_transform:\n  _target_: nemo.collections.llm.peft.lora.LoRA\n"
			     "config:\n" SIZES),
		   &err, -ENOTSUP, "adapters alone (LoRA)");
}
END_TEST

/* Each alias is small; the lists that they stand for together are not. */
START_TEST(many_aliases)
{
	struct mfs_buf yaml = {0};

	mfs_buf_adds(&yaml, "a: &a [1");
	for (int i = 0; i < 1000; i++)
		mfs_buf_adds(&yaml, ", 1");
	mfs_buf_adds(&yaml, "]\nmodel:\n  layout: [*a");
	for (int i = 0; i < 1000; i++)
		mfs_buf_adds(&yaml, ", *a");
	mfs_buf_adds(&yaml, "]\n");
	unit_fails(read_args(yaml.data), &err, -EINVAL, "layout: expected at most 20000 values");
	mfs_buf_release(&yaml);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("model_config");
	TCase *c = unit_case(s, "Meaning", all_three_forms_give_the_same_arguments);

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_loop_test(c, activations_are_known_by_function_and_gate, 0,
			    MFS_ARRAY_SIZE(activations));
	tcase_add_test(c, nemo_tokenizer);
	tcase_add_test(c, layer_specs);
	tcase_add_test(c, a_provider_is_known_by_the_name_of_its_class);
	tcase_add_test(c, llama3_scaling);
	tcase_add_test(c, anchors_and_tuples_of_pyyaml_are_read);
	tcase_add_test(c, lora_has_a_rank_and_a_finite_scale);
	c = unit_case(s, "Refused", what_is_no_config_is_refused_by_line);
	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, many_aliases);
	return s;
}
