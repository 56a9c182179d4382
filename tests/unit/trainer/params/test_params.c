/*
 * The parameters of a run (trainer/params/params.h) against real checkpoints: the model of a
 * checkpoint's arguments has exactly the checkpoint's tensors, with their shapes; the flat buffers
 * hold each of them once; groups and initial values follow trainer.md's table.
 */
#include "trainer/params/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/dims.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/optim_open.h"
#include "formats/plan/vfile.h"
#include "tests/unit/train_model.h"

static struct mfs_error err;

static const char *const fixtures[] = {
	"weights/llama-torch-tp2-pp2/iter_0000040",
	"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040",
	"weights/gpt2-torch-tp2-pp2/iter_0000040",
	"weights/qwen3-torch_dist-tp4/iter_0000040",
	"weights/mixtral-torch-pp2-ep2/iter_0000040",
	"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
	"resume/llama-torch-tp2-pp2/iter_0000020",
	"resume/llama-torch_dist-tp2-pp2/iter_0000020",
	"resume/llama-torch_dist-tp2-pp2-vpp2/iter_0000020",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
	"optim/llama-torch_dist-tp2-float16/iter_0000001",
	"optim/mixtral-torch-tp2-ep2-etp1-distopt/iter_0000001",
	"optim/qwen2-torch_dist-pp2-buckets/iter_0000001",
};

static struct mft_train_config config_of(struct mfs_ckpt *ckpt)
{
	struct mft_train_config c = {.model = *mfs_ckpt_args(ckpt),
				     .embedding_init_method_std = -1,
				     .decoupled_lr = -1,
				     .params_dtype = MFS_BF16,
				     .main_grads_dtype = MFS_F32,
				     .main_params_dtype = MFS_F32,
				     .exp_avg_dtype = MFS_F32,
				     .exp_avg_sq_dtype = MFS_F32};

	c.model.padded_vocab_size = (int64_t)mfs_dims_padded_vocab(ckpt);
	return c;
}

/* ---- what there is ---- */

static void same_tensors(const struct mfs_ckpt *blank, const struct mfs_ckpt *ckpt)
{
	char name[MFS_CKPT_NAME_SIZE];

	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);
		const struct mfs_global_tensor *b =
			mfs_ckpt_find(blank, t->name, t->layer, t->expert);

		mfs_global_tensor_name(t, name, sizeof(name));
		ck_assert_msg(b != NULL, "%s: '%s' is not of the model", mfs_ckpt_dir(ckpt), name);
		ck_assert_msg(b->ndim == t->ndim &&
				      !memcmp(b->shape, t->shape, t->ndim * sizeof(*t->shape)),
			      "%s: '%s' has another shape", mfs_ckpt_dir(ckpt), name);
	}
	for (uint32_t i = 0; i < mfs_ckpt_count(blank); i++) {
		const struct mfs_global_tensor *b = mfs_ckpt_at(blank, i);

		ck_assert_msg(mfs_ckpt_find(ckpt, b->name, b->layer, b->expert) != NULL,
			      "%s: has no '%s'", mfs_ckpt_dir(ckpt),
			      mfs_global_tensor_name(b, name, sizeof(name)));
	}
	ck_assert_uint_eq(mfs_ckpt_count(blank), mfs_ckpt_count(ckpt));
}

/* Optimizer states are those of the checkpoint, where it has any. */
static void same_states(const struct mfs_ckpt *blank, const struct mfs_ckpt *ckpt)
{
	if (mfs_ckpt_count_all(ckpt) == mfs_ckpt_count(ckpt))
		return;
	ck_assert_uint_eq(mfs_ckpt_count_all(blank), mfs_ckpt_count_all(ckpt));
	for (uint32_t i = 0; i < mfs_ckpt_count_all(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		ck_assert_ptr_nonnull(
			mfs_ckpt_find_state(blank, t->state, t->name, t->layer, t->expert));
	}
}

/* ---- the flat buffers ---- */

static void check_places(const struct mft_params *p)
{
	uint64_t end = 0, sum = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];

		ck_assert_uint_eq(q->start % MFT_PARAM_ALIGN, 0);
		ck_assert_uint_ge(q->start, end);
		ck_assert_uint_lt(q->start - end, MFT_PARAM_ALIGN);
		end = q->start + q->elements;
		sum += q->elements;
		ck_assert_ptr_eq(
			mft_params_find(p, q->tensor->name, q->tensor->layer, q->tensor->expert),
			q);
	}
	ck_assert_uint_eq(p->parameters, sum);
	ck_assert_uint_ge(p->elements, end);
	ck_assert_uint_lt(p->elements - end, MFT_PARAM_ALIGN);
	ck_assert_uint_eq(p->count + p->buffer_count, mfs_ckpt_count(p->ckpt));
	ck_assert_ptr_null(mft_params_find(p, "decoder.layers.nothing.weight", 0, -1));
}

/* Layers come in their order, the embedding before them and the last norm after them. */
static void check_order(const struct mft_params *p)
{
	int32_t layer = -1;

	ck_assert_str_eq(p->list[0].tensor->name, "embedding.word_embeddings.weight");
	for (uint32_t i = 0; i < p->count; i++) {
		if (strncmp(p->list[i].tensor->name, "decoder.layers.", 15))
			continue;
		ck_assert_int_ge(p->list[i].tensor->layer, layer);
		ck_assert_int_le(p->list[i].tensor->layer, layer + 1);
		layer = p->list[i].tensor->layer;
	}
	ck_assert_int_eq(layer, mfs_ckpt_args(p->ckpt)->num_layers - 1);
}

static void check_rules(const struct mft_params *p, const struct mft_train_config *c)
{
	const double std = c->model.init_method_std,
		     out = std / sqrt(2.0 * (double)c->model.num_layers);

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		const char *name = q->tensor->name, *end = strrchr(name, '.');
		const bool router = strstr(name, "router.bias") != NULL;
		const bool bias = !strcmp(end, ".bias") && !router;
		const bool norm = strstr(name, "norm.") != NULL;

		ck_assert_int_eq(q->decays, q->tensor->ndim == 2);
		ck_assert_int_eq(q->is_expert, q->tensor->expert >= 0);
		ck_assert(!q->decoupled);
		if (bias || norm) {
			ck_assert(q->init_std < 0);
			ck_assert(q->init_value == (norm && !bias ? 1 : 0));
		} else {
			const bool output = strstr(name, "linear_proj") || strstr(name, "_fc2");

			ck_assert_double_eq(q->init_std, output ? out : std);
		}
	}
	for (uint32_t i = 0; i < p->buffer_count; i++)
		ck_assert(strstr(p->buffer_list[i].tensor->name, "expert_bias") &&
			  p->buffer_list[i].tensor->dtype == MFS_F32);
}

/* A model that is in no file reads as zeros. */
static void check_zeros(const struct mfs_ckpt *blank)
{
	struct mfs_whole_target t;
	uint8_t bytes[64], zeros[64] = {0};
	struct mfs_vfile *f;
	size_t len;

	mfs_whole_target_init(&t, (struct mfs_ckpt *)(uintptr_t)blank, mfs_ckpt_at(blank, 0));
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &t.base, &err), &err);
	unit_ok(mfs_vfile_pread(f, 0, bytes, sizeof(bytes), &len, &err), &err);
	ck_assert(len && !memcmp(bytes, zeros, len));
	mfs_vfile_free(f);
}

START_TEST(model_of_arguments)
{
	struct mft_train_config c;
	struct mft_params *p;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture(fixtures[_i]), &ckpt, &err), &err);
	c = config_of(ckpt);
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	same_tensors(p->ckpt, ckpt);
	same_states(p->ckpt, ckpt);
	check_places(p);
	check_order(p);
	check_rules(p, &c);
	check_zeros(p->ckpt);
	mft_params_free(p);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* A router's bias is drawn, as Megatron's is; experts' begin with zeros. */
START_TEST(biases_of_experts)
{
	struct mft_train_config c;
	struct mft_params *p;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture(fixtures[5]), &ckpt, &err), &err);
	c = config_of(ckpt);
	c.model.add_bias_linear = true;
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	check_places(p);
	check_rules(p, &c);
	ck_assert_ptr_nonnull(mft_params_find(p, "decoder.layers.mlp.router.bias", 1, -1));
	ck_assert_ptr_nonnull(
		mft_params_find(p, "decoder.layers.mlp.experts.experts.linear_fc2.bias", 1, 3));
	mft_params_free(p);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(model_of_hf)
{
	static const char *const dirs[] = {"hf/gpt2-safetensors", "hf/llama-safetensors"};
	struct mft_train_config c;
	struct mft_params *p;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_hf_ckpt_open(unit_fixture(dirs[_i]), NULL, 0, &ckpt, &err), &err);
	c = config_of(ckpt);
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	same_tensors(p->ckpt, ckpt);
	mft_params_free(p);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- arguments ---- */

static struct mft_train_config small(void)
{
	struct mfs_megatron_args model = train_plain_model();

	model.num_layers = 2;
	model.hidden_size = 64;
	model.ffn_hidden_size = 96;
	model.num_attention_heads = 4;
	model.num_query_groups = 2;
	model.kv_channels = 16;
	model.max_position_embeddings = 32;
	model.vocab_size = 1000;
	model.padded_vocab_size = MFS_ABSENT;
	model.make_vocab_size_divisible_by = 128;
	model.swiglu = true;
	return (struct mft_train_config){.model = model,
					 .embedding_init_method_std = 0.5,
					 .decoupled_lr = 0.1,
					 .apply_wd_to_qk_layernorm = true,
					 .params_dtype = MFS_F32,
					 .main_grads_dtype = MFS_F32,
					 .main_params_dtype = MFS_F32,
					 .exp_avg_dtype = MFS_BF16,
					 .exp_avg_sq_dtype = MFS_F32};
}

/* transformer_config.py: __post_init__; optimizer/__init__.py: get_mup_config_overrides. */
START_TEST(mup_scales_initial_values_and_rates)
{
	static const struct {
		const char *name;
		double std; /* times --init-method-std */
		bool matrix;
	} all[] = {
		{"embedding.word_embeddings.weight", 1, false},
		{"output_layer.weight", 1, false},
		{"decoder.layers.self_attention.linear_qkv.weight", 0.5, true},
		{"decoder.layers.mlp.linear_fc1.weight", 0.5, true},
		{"decoder.layers.mlp.linear_fc2.weight", 0.25, true},
		{"decoder.layers.self_attention.linear_proj.weight", 0.25, true},
		{"decoder.layers.input_layernorm.weight", 0, false},
	};

	for (int sgd = 0; sgd < 2; sgd++) {
		struct mft_train_config c = small();
		struct mft_params *p;

		c.embedding_init_method_std = c.decoupled_lr = -1;
		c.optimizer = sgd ? "sgd" : "adam";
		c.model.mup = (struct mfs_mup){true, 4, 1, 0.25, 1};
		unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
		for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
			const int32_t layer = strstr(all[i].name, "layers.") ? 1 : -1;
			const struct mft_param *q = mft_params_find(p, all[i].name, layer, -1);

			ck_assert_msg(q && q->mup == (all[i].matrix != sgd), "%s", all[i].name);
			if (all[i].std > 0)
				ck_assert_double_eq_tol(
					q->init_std, all[i].std * c.model.init_method_std, 1e-12);
		}
		mft_params_free(p);
	}
}
END_TEST

START_TEST(arguments_say)
{
	struct mft_train_config c = small();
	const struct mft_param *embedding;
	struct mft_params *p;

	c.model.qk_layernorm = c.model.zero_centered_gamma = true;
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	ck_assert_uint_eq(p->padded_vocab, 1024);
	embedding = mft_params_find(p, "embedding.word_embeddings.weight", -1, -1);
	ck_assert_double_eq(embedding->init_std, 0.5);
	ck_assert(embedding->decoupled && embedding->decays);
	ck_assert(mft_params_find(p, "output_layer.weight", -1, -1)->decoupled);
	ck_assert(mft_params_find(p, "decoder.layers.self_attention.q_layernorm.weight", 1, -1)
			  ->decays);
	ck_assert(mft_params_find(p, "decoder.layers.input_layernorm.weight", 1, -1)->init_value ==
		  0);
	/* An fp32 run has no main parameters; a state has its own type. */
	ck_assert_ptr_null(mfs_ckpt_find_state(p->ckpt, MFS_STATE_MAIN,
					       "embedding.word_embeddings.weight", -1, -1));
	ck_assert_int_eq(mfs_ckpt_find_state(p->ckpt, MFS_STATE_EXP_AVG,
					     "embedding.word_embeddings.weight", -1, -1)
				 ->dtype,
			 MFS_BF16);
	mft_params_free(p);
	/* Rows that are given are not padded further. */
	c.model.padded_vocab_size = 1001;
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	ck_assert_uint_eq(mft_params_find(p, "output_layer.weight", -1, -1)->elements,
			  UINT64_C(1001) * 64);
	mft_params_free(p);
}
END_TEST

START_TEST(models_without_their_sizes_are_refused)
{
	struct mft_train_config c = small();
	struct mft_params *p = NULL;

	c.model.vocab_size = MFS_ABSENT;
	unit_fails(mft_params_new(&c, NULL, &p, &err), &err, -EINVAL, "--vocab-size");
	c = small();
	c.model.kv_channels = 0;
	unit_fails(mft_params_new(&c, NULL, &p, &err), &err, -EINVAL, "linear_proj");
	c = small();
	c.model.hidden_size = INT64_MAX;
	unit_fails(mft_params_new(&c, NULL, &p, &err), &err, -EINVAL, "too large");
	c = small();
	c.model.untrainable = "softmax_type (learnable)";
	unit_fails(mft_params_new(&c, NULL, &p, &err), &err, -ENOTSUP, "softmax_type");
	ck_assert_ptr_null(p);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("params");
	TCase *c = tcase_create("checkpoints");

	tcase_add_loop_test(c, model_of_arguments, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_test(c, biases_of_experts);
	tcase_add_loop_test(c, model_of_hf, 0, 2);
	suite_add_tcase(s, c);
	tcase_add_test(unit_case(s, "arguments", arguments_say),
		       models_without_their_sizes_are_refused);
	unit_case(s, "mup", mup_scales_initial_values_and_rates);
	return s;
}
