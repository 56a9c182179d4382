/* config.json, references and tokenizer files: formats/model/hf_config.h,
 * formats/hf/hf_tokenizer.h. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/model/hf_config.h"
#include "formats/model/families/family.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;

/* A model of some arguments, and its config.json as text and as a tree. */
struct shown {
	struct mfs_ckpt ckpt;
	struct mfs_model *model;
	char *text;
	size_t len;
	json_t *config;
};

static const struct mfs_hf_tokens tokens = {.bos = 1, .eos = 2, .pad = MFS_ABSENT};

static void open_model(struct shown *s, const struct mfs_megatron_args *args)
{
	*s = (struct shown){0};
	fake_ckpt(&s->ckpt, args);
	unit_ok(mfs_model_new(&s->ckpt, NULL, NULL, &s->model, &err), &err);
}

static int write_config(struct shown *s, const char *ref_text)
{
	struct mfs_hf_ref *ref = NULL;
	int rc;

	if (ref_text)
		unit_ok(mfs_hf_ref_parse(ref_text, strlen(ref_text), "ref/config.json", &ref, &err),
			&err);
	rc = mfs_hf_config_json(s->model, ref, &tokens, &s->text, &s->len, &err);
	mfs_hf_ref_free(ref);
	if (rc)
		return rc;
	ck_assert_uint_eq(s->len, strlen(s->text));
	s->config = json_loads(s->text, 0, NULL);
	ck_assert_ptr_nonnull(s->config);
	return 0;
}

static void show(struct shown *s, const struct mfs_megatron_args *args)
{
	open_model(s, args);
	unit_ok(write_config(s, NULL), &err);
}

static void release(struct shown *s)
{
	json_decref(s->config);
	free(s->text);
	mfs_model_free(s->model);
	fake_release(&s->ckpt);
}

/* The value under a key as JSON text must be want; "absent" if there must be none. */
static void has(const struct shown *s, const char *key, const char *want)
{
	json_t *value = json_object_get(s->config, key);
	char *text = value ? json_dumps(value,
					JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(15))
			   : strdup("absent");

	ck_assert_msg(!strcmp(text, want), "%s is %s instead of %s", key, text, want);
	free(text);
}

/* ---- config.json alone ---- */

START_TEST(llama_to_the_byte)
{
	static const char want[] = "{\n"
				   "  \"architectures\": [\n"
				   "    \"LlamaForCausalLM\"\n"
				   "  ],\n"
				   "  \"attention_bias\": false,\n"
				   "  \"attention_dropout\": 0.0,\n"
				   "  \"bos_token_id\": 1,\n"
				   "  \"dtype\": \"bfloat16\",\n"
				   "  \"eos_token_id\": 2,\n"
				   "  \"head_dim\": 16,\n"
				   "  \"hidden_act\": \"silu\",\n"
				   "  \"hidden_size\": 64,\n"
				   "  \"initializer_range\": 0.02,\n"
				   "  \"intermediate_size\": 176,\n"
				   "  \"max_position_embeddings\": 256,\n"
				   "  \"mcorefs\": {\n"
				   "    \"family\": \"llama\",\n"
				   "    \"padded_vocab_size\": 1024,\n"
				   "    \"vocab_size_source\": \"unknown, padding kept\"\n"
				   "  },\n"
				   "  \"mlp_bias\": false,\n"
				   "  \"model_type\": \"llama\",\n"
				   "  \"num_attention_heads\": 4,\n"
				   "  \"num_hidden_layers\": 2,\n"
				   "  \"num_key_value_heads\": 2,\n"
				   "  \"pad_token_id\": null,\n"
				   "  \"rms_norm_eps\": 1e-5,\n"
				   "  \"rope_parameters\": {\n"
				   "    \"rope_theta\": 10000.0,\n"
				   "    \"rope_type\": \"default\"\n"
				   "  },\n"
				   "  \"rope_scaling\": null,\n"
				   "  \"rope_theta\": 10000.0,\n"
				   "  \"tie_word_embeddings\": false,\n"
				   "  \"torch_dtype\": \"bfloat16\",\n"
				   "  \"use_cache\": true,\n"
				   "  \"vocab_size\": 1024\n"
				   "}\n";
	struct mfs_megatron_args args = fake_llama();
	struct shown s;

	show(&s, &args);
	ck_assert_str_eq(s.text, want);
	release(&s);
}
END_TEST

START_TEST(numbers_that_need_all_their_digits)
{
	struct mfs_megatron_args args = fake_llama();
	struct shown s;

	args.norm_epsilon = 1.0 / 3;
	show(&s, &args);
	ck_assert(json_real_value(json_object_get(s.config, "rms_norm_eps")) == 1.0 / 3);
	release(&s);
}
END_TEST

START_TEST(qwen_windows)
{
	struct mfs_megatron_args args = fake_qwen2();
	struct shown s;

	show(&s, &args);
	has(&s, "use_sliding_window", "false");
	has(&s, "sliding_window", "null");
	has(&s, "tie_word_embeddings", "true");
	has(&s, "layer_types", "[\"full_attention\", \"full_attention\"]");
	release(&s);
	args.window_size = 128;
	show(&s, &args);
	has(&s, "use_sliding_window", "true");
	has(&s, "sliding_window", "128");
	has(&s, "max_window_layers", "0");
	has(&s, "layer_types", "[\"sliding_attention\", \"sliding_attention\"]");
	release(&s);
}
END_TEST

START_TEST(mixtral_has_its_experts_keys)
{
	struct mfs_megatron_args args = fake_mixtral();
	struct shown s;

	show(&s, &args);
	has(&s, "intermediate_size", "48");
	has(&s, "num_local_experts", "4");
	has(&s, "num_experts_per_tok", "2");
	has(&s, "sliding_window", "null");
	release(&s);
}
END_TEST

START_TEST(deepseek_router)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct shown s;

	args.moe_shared_expert_intermediate_size = 96;
	show(&s, &args);
	has(&s, "topk_method", "\"noaux_tc\"");
	has(&s, "n_group", "1");
	has(&s, "routed_scaling_factor", "1.0");
	has(&s, "norm_topk_prob", "true");
	has(&s, "n_shared_experts", "2");
	has(&s, "first_k_dense_replace", "1");
	has(&s, "num_nextn_predict_layers", "0");
	release(&s);
	args.moe_router_num_groups = 4;
	args.moe_router_group_topk = 1;
	args.moe_router_topk_scaling_factor = 2.5;
	args.q_lora_rank = MFS_ABSENT;
	show(&s, &args);
	has(&s, "n_group", "4");
	has(&s, "topk_group", "1");
	has(&s, "routed_scaling_factor", "2.5");
	has(&s, "q_lora_rank", "null");
	release(&s);
}
END_TEST

/* A family's other names are kept; without a family that has them, they say nothing. */
START_TEST(other_names_of_a_family)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct shown s;

	args.hf_model_type = "kimi_k2";
	show(&s, &args);
	has(&s, "model_type", "\"kimi_k2\"");
	has(&s, "architectures", "[\"DeepseekV3ForCausalLM\"]");
	release(&s);
	args.hf_architecture = "KimiK2ForCausalLM";
	show(&s, &args);
	has(&s, "architectures", "[\"KimiK2ForCausalLM\"]");
	release(&s);
	args.hf_architecture = args.hf_model_type = "llama";
	show(&s, &args);
	has(&s, "model_type", "\"deepseek_v3\"");
	has(&s, "architectures", "[\"DeepseekV3ForCausalLM\"]");
	release(&s);
}
END_TEST

START_TEST(family_named_by_a_person)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct shown s = {0};

	args.hf_model_type = "kimi_k2";
	args.hf_architecture = "KimiK2ForCausalLM";
	fake_ckpt(&s.ckpt, &args);
	unit_ok(mfs_model_new(&s.ckpt, "deepseek-v3", NULL, &s.model, &err), &err);
	unit_ok(write_config(&s, NULL), &err);
	has(&s, "model_type", "\"deepseek_v3\"");
	has(&s, "architectures", "[\"DeepseekV3ForCausalLM\"]");
	release(&s);
}
END_TEST

START_TEST(gpt2_has_keys_of_its_own)
{
	struct mfs_megatron_args args = fake_gpt2();
	struct shown s;

	show(&s, &args);
	has(&s, "n_ctx", "256");
	has(&s, "n_inner", "176");
	has(&s, "activation_function", "\"gelu_new\"");
	has(&s, "rope_theta", "absent");
	release(&s);
	args.exact_gelu = true;
	show(&s, &args);
	has(&s, "activation_function", "\"gelu\"");
	ck_assert_uint_eq(s.model->warning_count, 2);
	release(&s);
}
END_TEST

START_TEST(rotary_scalings)
{
	struct mfs_megatron_args args = fake_llama();
	struct shown s;

	args.use_rope_scaling = true;
	args.rotary_base = 500000;
	show(&s, &args);
	has(&s, "rope_scaling",
	    "{\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
	    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}");
	has(&s, "rope_theta", "500000.0");
	release(&s);
	args.use_rope_scaling = false;
	args.rotary_seq_len_interpolation_factor = 2;
	show(&s, &args);
	has(&s, "rope_parameters",
	    "{\"factor\": 2.0, \"rope_theta\": 500000.0, \"rope_type\": \"linear\"}");
	release(&s);
}
END_TEST

/* GPTModel's own, between fractions of pairs. */
START_TEST(yarn_of_gpt_oss)
{
	struct mfs_megatron_args args = fake_gpt_oss();
	struct shown s;

	args.rotary_scaling_factor = 32;
	show(&s, &args);
	has(&s, "rope_scaling",
	    "{\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, \"mscale\": 1.0, "
	    "\"mscale_all_dim\": 0.0, \"original_max_position_embeddings\": 4096, "
	    "\"rope_type\": \"yarn\", \"truncate\": false}");
	has(&s, "layer_types", "[\"sliding_attention\", \"full_attention\"]");
	has(&s, "swiglu_limit", "7.0");
	has(&s, "sliding_window", "128");
	release(&s);
	args.window_size = MFS_ABSENT;
	args.window_layers = NULL;
	show(&s, &args);
	has(&s, "sliding_window", "128"); /* the class wants a number */
	release(&s);
}
END_TEST

START_TEST(yarn_has_its_scaling_dictionary)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct shown s;

	args.rope_type = "yarn";
	args.rotary_scaling_factor = 40;
	args.mscale_all_dim = 1;
	show(&s, &args);
	has(&s, "rope_scaling",
	    "{\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 40.0, \"mscale\": 1.0, "
	    "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, "
	    "\"rope_type\": \"yarn\"}");
	release(&s);
	/* transformers would ignore this mscale */
	args.mscale = 0.5;
	args.mscale_all_dim = 0;
	show(&s, &args);
	ck_assert_double_eq_tol(
		json_real_value(json_object_get(json_object_get(s.config, "rope_scaling"),
						"attention_factor")),
		1 + 0.05 * 3.6888794541139363, 1e-12);
	release(&s);
}
END_TEST

START_TEST(generation_config)
{
	static const char config[] = "{\"bos_token_id\": null, \"eos_token_id\": [2, 3]}";
	size_t len;
	char *text;

	unit_ok(mfs_hf_generation_json(config, strlen(config), &text, &len, &err), &err);
	ck_assert_str_eq(text, "{\n  \"_from_model_config\": true,\n  \"eos_token_id\": [\n    2,\n"
			       "    3\n  ]\n}\n");
	ck_assert_uint_eq(len, strlen(text));
	free(text);
	unit_fails(mfs_hf_generation_json("{", 1, &text, &len, &err), &err, -EINVAL, "line 1");
}
END_TEST

/* ---- references ---- */

static void agrees(const struct mfs_megatron_args *args, const char *ref, const char *key,
		   const char *want)
{
	struct shown s;

	open_model(&s, args);
	unit_ok(write_config(&s, ref), &err);
	has(&s, key, want);
	release(&s);
}

static void disagrees(const struct mfs_megatron_args *args, const char *ref, const char *part)
{
	struct shown s;

	open_model(&s, args);
	unit_fails(write_config(&s, ref), &err, -EINVAL, part);
	release(&s);
}

START_TEST(reference_supplies_the_rest)
{
	struct mfs_megatron_args args = fake_llama();

	agrees(&args, "{\"auto_map\": {\"AutoConfig\": \"c.C\"}}", "auto_map",
	       "{\"AutoConfig\": \"c.C\"}");
	agrees(&args, "{\"eos_token_id\": [5, 6]}", "eos_token_id", "[5, 6]");
	agrees(&args, "{\"eos_token_id\": null}", "eos_token_id", "2");
	agrees(&args, "{\"torch_dtype\": \"float32\"}", "torch_dtype", "\"bfloat16\"");
	agrees(&args, "{\"transformers_version\": \"4.40\"}", "transformers_version", "\"4.40\"");
	agrees(&args, "{\"_name_or_path\": \"x\"}", "_name_or_path", "absent");
	agrees(&args, "{\"transformers_weights\": \"x\"}", "transformers_weights", "absent");
	agrees(&args, "{\"head_dim\": null}", "head_dim", "16");
	agrees(&args, "{\"attention_dropout\": 0.5}", "attention_dropout", "0.5");
	agrees(&args, "{\"rms_norm_eps\": 0.0000100000001}", "rms_norm_eps", "1e-5");
	agrees(&args, "{\"rope_theta\": 10000}", "rope_theta", "10000.0");
}
END_TEST

/* What is not known to be harmless is left out; what nobody knows is reported. */
START_TEST(reference_says_no_more)
{
	static const char *const left[] = {
		"return_dict",
		"_experts_implementation",
		"output_attentions",
		"use_return_dict",
		"attn_implementation",
		"torchscript",
		"chunk_size_feed_forward",
		"is_decoder",
		"num_beams",
		"wingspan",
	};
	struct mfs_megatron_args args = fake_llama();
	struct shown s;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(left); i++) {
		char ref[64];

		snprintf(ref, sizeof(ref), "{\"%s\": 7}", left[i]);
		agrees(&args, ref, left[i], "absent");
	}
	open_model(&s, &args);
	unit_ok(write_config(&s, "{\"wingspan\": 7, \"torchscript\": true}"), &err);
	ck_assert_str_eq(s.model->warnings[s.model->warning_count - 1],
			 "the reference's 'wingspan' is left out: nothing here knows what it "
			 "means");
	release(&s);
}
END_TEST

START_TEST(reference_disagrees)
{
	struct mfs_megatron_args args = fake_llama();

	disagrees(&args, "{\"hidden_size\": 128}",
		  "'hidden_size' is 128, but the checkpoint has 64");
	disagrees(&args, "{\"rms_norm_eps\": 1e-6}", "'rms_norm_eps' is 1e-6");
	disagrees(&args, "{\"model_type\": \"mistral\"}", "\"mistral\"");
	disagrees(&args, "{\"tie_word_embeddings\": true}", "tie_word_embeddings");
	disagrees(&args, "{\"rope_parameters\": {\"rope_theta\": 5.0}}", "rope_theta");
	disagrees(&args, "{\"is_causal\": false}", "'is_causal' is false, expected true");
	disagrees(&args, "{\"add_cross_attention\": true}", "'add_cross_attention'");
	disagrees(&args, "{\"pruned_heads\": {\"0\": [1]}}", "'pruned_heads'");
	disagrees(&args, "{\"sliding_window\": 64}", "'sliding_window' is 64");
	disagrees(&args, "{\"logit_scale\": 0.5}", "'logit_scale' is 0.5, expected 1");
	disagrees(&args, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
		  "rope_scaling");
}
END_TEST

START_TEST(reference_by_another_name)
{
	struct mfs_megatron_args args = fake_deepseek();
	struct shown s;

	open_model(&s, &args);
	unit_ok(write_config(&s, "{\"model_type\": \"kimi_k2\","
				 " \"architectures\": [\"KimiK2ForCausalLM\"]}"),
		&err);
	has(&s, "model_type", "\"kimi_k2\"");
	has(&s, "architectures", "[\"KimiK2ForCausalLM\"]");
	release(&s);
	disagrees(&args, "{\"architectures\": [\"KimiK3ForCausalLM\"]}", "KimiK3ForCausalLM");
}
END_TEST

START_TEST(reference_rotary_forms)
{
	struct mfs_megatron_args args = fake_llama();

	agrees(&args, "{\"rope_scaling\": {\"rope_type\": \"default\"}}", "rope_scaling", "null");
	args.use_rope_scaling = true;
	agrees(&args,
	       "{\"rope_scaling\": {\"factor\": 8, \"high_freq_factor\": 4, \"low_freq_factor\": "
	       "1.0, "
	       "\"original_max_position_embeddings\": 8192, \"type\": \"llama3\"}}",
	       "rope_theta", "10000.0");
	disagrees(&args,
		  "{\"rope_parameters\": {\"factor\": 32.0, \"high_freq_factor\": 3.0, "
		  "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, "
		  "\"rope_theta\": 10000.0, \"rope_type\": \"llama3\"}}",
		  "\"high_freq_factor\":3.0");
	disagrees(&args, "{\"rope_scaling\": {\"rope_type\": \"default\"}}", "rope_scaling");
	args = fake_qwen2();
	/* Qwen writes a window that it does not use. */
	agrees(&args, "{\"use_sliding_window\": false, \"sliding_window\": 131072}",
	       "sliding_window", "131072");
	args.window_size = 64;
	disagrees(&args, "{\"sliding_window\": 131072}", "sliding_window");
}
END_TEST

static void warns(const struct mfs_megatron_args *args, const char *ref, const char *key,
		  const char *want, const char *part)
{
	struct shown s;

	open_model(&s, args);
	unit_ok(write_config(&s, ref), &err);
	has(&s, key, want);
	unit_sentence(s.model->warnings[s.model->warning_count - 1], part);
	release(&s);
}

START_TEST(reference_with_warnings)
{
	struct mfs_megatron_args args = fake_llama();

	warns(&args, "{\"max_position_embeddings\": 8192}", "max_position_embeddings", "8192",
	      "max_position_embeddings 8192 from the reference, not 256");
	warns(&args, "{\"quantization_config\": {}}", "quantization_config", "absent",
	      "quantization_config");
	warns(&args, "{\"pad_token_id\": 1024}", "pad_token_id", "null",
	      "outside of the vocabulary");
	args = fake_deepseek();
	warns(&args, "{\"num_nextn_predict_layers\": 1}", "num_nextn_predict_layers", "0",
	      "num_nextn_predict_layers 0 from the checkpoint, not 1");
}
END_TEST

/* The run's rope_scaling_factor, the reference's (0: there is none), and what is shown. */
static const struct {
	double given, ref;
	const char *factor, *warning;
} factors[] = {
	{8, 0, "8.0", NULL},
	{32, 0, "8.0", "factor is 32, but config.json has 8"},
	{32, 32, "32.0", NULL},
	{32, 8, "8.0", NULL},
	{8, 32, "32.0", "factor 32 from the reference, not 8 from the run's arguments"},
	{32, 16, "16.0", "factor 16 from the reference, not 32 from the run's arguments"},
};

START_TEST(reference_rotary_factor)
{
	struct mfs_megatron_args args = fake_llama();
	char ref[300], want[300];
	struct shown s;

	args.use_rope_scaling = true;
	args.rope_scaling_ignored = factors[_i].given == 8 ? 0 : factors[_i].given;
	snprintf(ref, sizeof(ref),
		 "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %g, "
		 "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
		 "\"original_max_position_embeddings\": 8192}}",
		 factors[_i].ref);
	args.vocab_size = 1000;
	open_model(&s, &args);
	unit_ok(write_config(&s, factors[_i].ref != 0 ? ref : NULL), &err);
	snprintf(want, sizeof(want),
		 "{\"factor\": %s, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
		 "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}",
		 factors[_i].factor);
	has(&s, "rope_scaling", want);
	ck_assert_double_eq(json_real_value(json_object_get(
				    json_object_get(s.config, "rope_parameters"), "factor")),
			    strtod(factors[_i].factor, NULL));
	ck_assert_uint_eq(s.model->warning_count, factors[_i].warning != NULL);
	if (factors[_i].warning)
		unit_sentence(s.model->warnings[0], factors[_i].warning);
	release(&s);
}
END_TEST

START_TEST(reference_of_itself)
{
	struct mfs_megatron_args args[] = {fake_llama(),   fake_qwen2(),    fake_qwen3(),
					   fake_mixtral(), fake_deepseek(), fake_gpt2()};
	struct shown first, again;

	show(&first, &args[_i]);
	open_model(&again, &args[_i]);
	unit_ok(write_config(&again, first.text), &err);
	ck_assert_str_eq(first.text, again.text);
	ck_assert_uint_eq(first.model->warning_count, again.model->warning_count);
	release(&first);
	release(&again);
}
END_TEST

START_TEST(reference_broken)
{
	static const char *const broken[] = {"", "[]", "3", "{\"a\": 1, \"a\": 2}", "{\"a\": 1}}",
					     "{"};
	struct mfs_hf_ref *ref;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(broken); i++)
		unit_fails(
			mfs_hf_ref_parse(broken[i], strlen(broken[i]), "x/config.json", &ref, &err),
			&err, -EINVAL, "x/config.json");
	unit_fails(mfs_hf_ref_parse("{}", MFS_HF_CONFIG_MAX + 1, "x", &ref, &err), &err, -ENOTSUP,
		   "1048577");
	unit_fails(mfs_hf_ref_open("/nowhere", &ref, &err), &err, -ENODATA, "/nowhere");
}
END_TEST

START_TEST(reference_directory)
{
	static const char *const names[] = {"config.json",
					    "model.safetensors",
					    "tokenizer.json",
					    "generation_config.json",
					    "chat_template.jinja",
					    "pytorch_model.bin",
					    "model.safetensors.index.json",
					    "modeling_x.py",
					    ".hidden",
					    "adapter_config.json",
					    "tokenizer.model",
					    "hf_quant_config.json",
					    "params.json"};
	static const char *const want[] = {
		"chat_template.jinja", "generation_config.json", "link.txt",
		"modeling_x.py",       "tokenizer.json",	 "tokenizer.model"};
	const char *dir = unit_tmpdir(), *const * found;
	struct mfs_arena arena = {0};
	struct mfs_hf_ref *ref;
	char path[300];
	uint32_t count;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		unit_write(dir, names[i], "{\"vocab_size\": 77, \"auto_map\": {}}", 34);
	snprintf(path, sizeof(path), "%s/link.txt", dir);
	ck_assert_int_eq(symlink("tokenizer.json", path), 0);
	snprintf(path, sizeof(path), "%s/folder", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	unit_ok(mfs_hf_ref_open(dir, &ref, &err), &err);
	ck_assert_uint_eq(mfs_hf_ref_vocab(ref), 77);
	ck_assert(mfs_hf_ref_has_code(ref));
	mfs_hf_ref_free(ref);
	unit_ok(mfs_hf_files(dir, true, &arena, &found, &count, &err), &err);
	ck_assert_uint_eq(count, MFS_ARRAY_SIZE(want));
	for (uint32_t i = 0; i < count; i++)
		ck_assert_str_eq(found[i], want[i]);
	unit_ok(mfs_hf_files(dir, false, &arena, &found, &count, &err), &err);
	ck_assert_uint_eq(count, MFS_ARRAY_SIZE(want) - 1);
	unit_ok(mfs_hf_files("/nowhere", false, &arena, &found, &count, &err), &err);
	ck_assert_uint_eq(count, 0);
	mfs_arena_release(&arena);
}
END_TEST

/* ---- tokenizers ---- */

static struct mfs_hf_text text_of(const char *text)
{
	return (struct mfs_hf_text){text, text ? strlen(text) : 0};
}

static struct mfs_hf_tokens parse_files(const char *config, const char *map, const char *tokenizer)
{
	const struct mfs_hf_token_files files = {text_of(config), text_of(map), text_of(tokenizer)};
	struct mfs_hf_tokens t;

	unit_ok(mfs_hf_tokens_parse(&files, &t, &err), &err);
	return t;
}

static struct mfs_hf_tokens parse_tokens(const char *config, const char *tokenizer)
{
	return parse_files(config, NULL, tokenizer);
}

START_TEST(special_tokens_have_the_ids_of_the_tokenizer)
{
	static const char added[] =
		"{\"version\": \"added_tokens\", \"model\": {\"vocab\": {\"a\": 0}}, "
		"\"added_tokens\": [{\"id\": 7, \"content\": \"<\\u0073>\"}, "
		"{\"id\": 8, \"content\": \"</s>\"}, 3, {\"id\": -4, "
		"\"content\": \"neg\"}]}";
	struct mfs_hf_tokens t;

	t = parse_tokens("{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, "
			 "\"pad_token\": null, \"model_max_length\": "
			 "1000000000000000019884624838656}",
			 added);
	ck_assert_int_eq(t.bos, 7);
	ck_assert_int_eq(t.eos, 8);
	ck_assert_int_eq(t.pad, MFS_ABSENT);
	t = parse_tokens("{\"added_tokens_decoder\": {\"3\": {\"content\": \"</s>\"}, \"x\": 1}, "
			 "\"eos_token\": \"</s>\", \"pad_token\": \"neg\", \"bos_token\": 5}",
			 added);
	ck_assert_int_eq(t.bos, MFS_ABSENT);
	ck_assert_int_eq(t.eos, 3);
	ck_assert_int_eq(t.pad, MFS_ABSENT);
	t = parse_tokens("{\"eos_token\": \"</s>\"}", NULL);
	ck_assert_int_eq(t.eos, MFS_ABSENT);
}
END_TEST

/* Other places of the names of tokens and of their ids: transformers 5 reads the same from each. */
START_TEST(tokens_elsewhere)
{
	static const char pairs[] = "{\"model\": {\"vocab\": {\"a\": 0, \"\\u003cp>\": 4}}, "
				    "\"added_tokens\": []}";
	static const char list[] = "{\"model\": {\"vocab\": [[\"a\", -1], [\"<p>\", -2.5]]}}";

	ck_assert_int_eq(parse_tokens("{\"pad_token\": \"<p>\"}", pairs).pad, 4);
	ck_assert_int_eq(parse_tokens("{\"pad_token\": \"<p>\"}", list).pad, 1);
	ck_assert_int_eq(parse_tokens("{\"pad_token\": \"<q>\"}", list).pad, MFS_ABSENT);
	/* special_tokens_map.json counts before an older tokenizer_config.json. */
	ck_assert_int_eq(parse_files(NULL, "{\"pad_token\": \"<p>\"}", pairs).pad, 4);
	ck_assert_int_eq(
		parse_files("{\"pad_token\": \"a\"}", "{\"pad_token\": \"<p>\"}", pairs).pad, 4);
	ck_assert_int_eq(parse_files("{\"pad_token\": \"a\", \"added_tokens_decoder\": {}}",
				     "{\"pad_token\": \"<p>\"}", pairs)
				 .pad,
			 0);
	/* A class's own. */
	ck_assert_int_eq(
		parse_tokens("{\"tokenizer_class\": \"GemmaTokenizerFast\", "
			     "\"added_tokens_decoder\": {\"7\": {\"content\": \"<pad>\"}}}",
			     NULL)
			.pad,
		7);
	ck_assert_int_eq(
		parse_tokens("{\"tokenizer_class\": \"GemmaTokenizer\", \"pad_token\": "
			     "null, "
			     "\"added_tokens_decoder\": {\"7\": {\"content\": \"<pad>\"}}}",
			     NULL)
			.pad,
		MFS_ABSENT);
}
END_TEST

START_TEST(tokens_of_a_fixture)
{
	const char *dir = unit_fixture("weights/qwen3-torch_dist-tp4/iter_0000040/tokenizer");
	struct mfs_hf_tokens t;
	uint64_t count;

	unit_ok(mfs_hf_tokens_read(dir, &t, &err), &err);
	ck_assert_int_eq(t.bos, 0);
	ck_assert_int_eq(t.eos, 0);
	ck_assert_int_eq(t.pad, MFS_ABSENT);
	unit_ok(mfs_hf_token_count_read(dir, &count, &err), &err);
	ck_assert_uint_eq(count, 1000);
	unit_ok(mfs_hf_tokens_read("/nowhere", &t, &err), &err);
	ck_assert_int_eq(t.eos, MFS_ABSENT);
	unit_fails(mfs_hf_token_count_read("/nowhere", &count, &err), &err, -ENODATA,
		   "tokenizer.json");
}
END_TEST

static const struct {
	const char *text;
	uint64_t count;
} counts[] = {
	{"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\\\"}\": 4, \"b\":2 }}}", 5},
	{"{\"added_tokens\": [{\"id\": 9}], \"model\": {\"vocab\": {}}}", 10},
	{"{\"model\": {\"vocab\": [[\"a\", -1.5], [\"]\", 0]], \"unk_id\": 0}}", 2},
	{"{\"model\": {\"vocab\": []}}", 0},
	{" {\"x\": [1, {\"model\": 3}], \"model\" : {\"vocab\" : {\"a\" : 7}} } ", 8},
};

START_TEST(token_count)
{
	const char *text = counts[_i].text;
	uint64_t count;

	unit_ok(mfs_hf_token_count_parse(text, strlen(text), &count, &err), &err);
	ck_assert_uint_eq(count, counts[_i].count);
	/* cut anywhere, it is an error or the same */
	for (size_t len = 0; len < strlen(text); len++) {
		char *cut = malloc(len ? len : 1);

		memcpy(cut, text, len);
		if (!mfs_hf_token_count_parse(cut, len, &count, &err))
			ck_assert_uint_eq(count, counts[_i].count);
		free(cut);
	}
}
END_TEST

START_TEST(token_count_broken)
{
	static const char *const broken[] = {
		"",
		"[]",
		"{}",
		"{\"model\": {}}",
		"{\"model\": {\"vocab\": 3}}",
		"{\"model\": {\"vocab\": {\"a\": -1}}}",
		"{\"model\": {\"vocab\": {\"a\": 2147483648}}}",
		"{\"model\": {\"vocab\": {\"a\" 1}}}",
		"{\"model\": {\"vocab\": {\"a\": 1 \"b\": 2}}}",
		"{\"model\": {\"vocab\": [1, 2}}",
		"{\"model\": {\"vocab\": {\"a\": 1}}, \"added_tokens\": [{\"id\": 99999999999}]}",
		"{\"added_tokens\": [}, \"model\": {\"vocab\": {}}}",
	};
	uint64_t count;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(broken); i++)
		unit_fails(mfs_hf_token_count_parse(broken[i], strlen(broken[i]), &count, &err),
			   &err, -EINVAL, "tokenizer.json");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hf_config");
	TCase *c = unit_case(s, "config", llama_to_the_byte);

	tcase_add_test(c, numbers_that_need_all_their_digits);
	tcase_add_test(c, qwen_windows);
	tcase_add_test(c, mixtral_has_its_experts_keys);
	tcase_add_test(c, deepseek_router);
	tcase_add_test(c, other_names_of_a_family);
	tcase_add_test(c, family_named_by_a_person);
	tcase_add_test(c, gpt2_has_keys_of_its_own);
	tcase_add_test(c, rotary_scalings);
	tcase_add_test(c, yarn_has_its_scaling_dictionary);
	tcase_add_test(c, yarn_of_gpt_oss);
	tcase_add_test(c, generation_config);
	c = unit_case(s, "reference", reference_supplies_the_rest);
	tcase_add_test(c, reference_says_no_more);
	tcase_add_test(c, reference_disagrees);
	tcase_add_test(c, reference_by_another_name);
	tcase_add_test(c, reference_rotary_forms);
	tcase_add_test(c, reference_with_warnings);
	tcase_add_loop_test(c, reference_rotary_factor, 0, (int)(MFS_ARRAY_SIZE(factors)));
	tcase_add_loop_test(c, reference_of_itself, 0, 6);
	tcase_add_test(c, reference_broken);
	tcase_add_test(c, reference_directory);
	c = unit_case(s, "tokenizer", special_tokens_have_the_ids_of_the_tokenizer);
	tcase_add_test(c, tokens_elsewhere);
	tcase_add_test(c, tokens_of_a_fixture);
	tcase_add_loop_test(c, token_count, 0, MFS_ARRAY_SIZE(counts));
	tcase_add_test(c, token_count_broken);
	return s;
}
