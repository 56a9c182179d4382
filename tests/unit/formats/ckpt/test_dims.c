/* Arguments of a run against the shapes of its tensors, for views of either kind:
 * formats/ckpt/dims.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/dims.h"
#include "formats/megatron/rank.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;

static struct mfs_megatron_args fake_deepseek_mtp(void)
{
	struct mfs_megatron_args a = fake_deepseek();

	a.mtp_num_layers = 1;
	return a;
}

static struct mfs_megatron_args (*const makers[])(void) = {
	fake_llama,   fake_qwen2,	 fake_qwen3,	  fake_gpt2,
	fake_mixtral, fake_deepseek_mtp, fake_qwen3_next, fake_nemotron_h};

#define MAKERS ((int)(MFS_ARRAY_SIZE(makers)))

/* ---- one table for both ---- */

static void in_scope(const struct mfs_megatron_args *a, const struct mfs_family_tensor *row,
		     const char *prefix)
{
	char name[MFS_CKPT_NAME_SIZE];
	enum mfs_dim axes[MFS_PARAM_AXES];

	snprintf(name, sizeof(name), "%s%s", prefix, row->name);
	ck_assert_msg(mfs_dims_of(a, name, axes), "%s", name);
	ck_assert_msg(!memcmp(axes, row->shape, sizeof(axes)), "%s", name);
}

/* The families' tables say the same of Megatron's shapes. */
START_TEST(families_agree)
{
	const struct mfs_megatron_args a = makers[_i]();
	const mfs_features features = mfs_features_of(&a);
	const struct mfs_family *f;

	unit_ok(mfs_family_choose(&a, NULL, &f, &err), &err);
	for (const struct mfs_family_tensor *row = f->tensors; row->hf; row++) {
		if (!mfs_applies(row->when, row->unless, features))
			continue;
		if (row->scope == MFS_SCOPE_BEFORE || row->scope == MFS_SCOPE_AFTER)
			in_scope(&a, row, "");
		if (row->scope == MFS_SCOPE_LAYER) {
			in_scope(&a, row, "decoder.layers.");
			in_scope(&a, row, "mtp.layers.transformer_layer.");
		}
		if (row->scope == MFS_SCOPE_MTP)
			in_scope(&a, row, "mtp.layers.");
	}
}
END_TEST

/* Both report a fault of a tensor's shape in the same words. */
START_TEST(every_shape_is_checked)
{
	const struct mfs_megatron_args a = makers[_i]();
	struct mfs_ckpt ckpt;
	struct mfs_model *model;
	struct mfs_error hf = {0};

	fake_ckpt(&ckpt, &a);
	unit_ok(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_LOCAL, &err), &err);
	for (uint32_t i = 0; i < ckpt.tensor_count; i++) {
		struct mfs_global_tensor *t = &ckpt.tensors[i];

		for (unsigned axis = 0; axis < t->ndim; axis++) {
			t->shape[axis]++;
			unit_fails(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_LOCAL, &err), &err, -EINVAL,
				   "by the run's");
			ck_assert_int_eq(mfs_model_new(&ckpt, NULL, NULL, &model, &hf), -EINVAL);
			ck_assert_str_eq(err.msg, hf.msg);
			t->shape[axis]--;
		}
	}
	fake_release(&ckpt);
}
END_TEST

/* ---- absurd arguments ---- */

#define ARGUMENT(name_) #name_, offsetof(struct mfs_megatron_args, name_)

static const struct {
	struct mfs_megatron_args (*make)(void);
	const char *name;
	size_t field;
	int64_t value;
	const char *tensor, *expected;
} absurd[] = {
	{fake_llama, ARGUMENT(hidden_size), 1ll << 31, "decoder.final_layernorm.weight",
	 "[2147483648]"},
	{fake_llama, ARGUMENT(num_attention_heads), 1ll << 31,
	 "decoder.layers.0.self_attention.linear_proj.weight", "[64, 34359738368]"},
	{fake_llama, ARGUMENT(num_query_groups), 1,
	 "decoder.layers.0.self_attention.linear_qkv.weight", "[96, 64]"},
	{fake_llama, ARGUMENT(kv_channels), 1ll << 31,
	 "decoder.layers.0.self_attention.linear_proj.weight", "[64, 8589934592]"},
	{fake_llama, ARGUMENT(ffn_hidden_size), 1ll << 31, "decoder.layers.0.mlp.linear_fc1.weight",
	 "[4294967296, 64]"},
	{fake_llama, ARGUMENT(padded_vocab_size), 1ll << 31, "embedding.word_embeddings.weight",
	 "[2147483648, 64]"},
	{fake_gpt2, ARGUMENT(max_position_embeddings), 1ll << 31,
	 "embedding.position_embeddings.weight", "[2147483648, 64]"},
	{fake_mixtral, ARGUMENT(moe_ffn_hidden_size), 1ll << 31,
	 "decoder.layers.0.mlp.experts.experts.0.linear_fc1.weight", "[4294967296, 64]"},
	{fake_deepseek, ARGUMENT(q_lora_rank), 1ll << 31,
	 "decoder.layers.0.self_attention.linear_q_down_proj.weight", "[2147483648, 64]"},
	{fake_deepseek, ARGUMENT(v_head_dim), 1ll << 31,
	 "decoder.layers.0.self_attention.linear_kv_up_proj.weight", "[8589934656, 16]"},
	{fake_qwen3_next, ARGUMENT(linear_key_head_dim), 1ll << 31,
	 "decoder.layers.0.self_attention.conv1d.weight", "[8589934632, 1, 3]"},
	{fake_qwen3_next, ARGUMENT(linear_num_value_heads), 1ll << 31,
	 "decoder.layers.0.self_attention.A_log", "[2147483648]"},
	{fake_qwen3_next, ARGUMENT(linear_conv_kernel_dim), 4,
	 "decoder.layers.0.self_attention.conv1d.weight", "[64, 1, 4]"},
	{fake_nemotron_h, ARGUMENT(mamba_state_dim), 1ll << 31,
	 "decoder.layers.0.mixer.conv1d.bias", "[8589934640]"},
	{fake_nemotron_h, ARGUMENT(mamba_num_heads), 16, "decoder.layers.0.mixer.A_log", "[16]"},
	{fake_deepseek, ARGUMENT(moe_shared_expert_intermediate_size), 96,
	 "decoder.layers.1.mlp.shared_experts.linear_fc1.weight", "[192, 64]"},
};

START_TEST(absurd_arguments)
{
	struct mfs_megatron_args a = absurd[_i].make();
	struct mfs_model *model;
	struct mfs_ckpt ckpt;
	char says[256];

	fake_ckpt(&ckpt, &a);
	*(int64_t *)((char *)&ckpt.args + absurd[_i].field) = absurd[_i].value;
	snprintf(says, sizeof(says), "tensor '%s' is [", absurd[_i].tensor);
	unit_fails(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err, -EINVAL, says);
	unit_sentence(err.msg, absurd[_i].name);
	snprintf(says, sizeof(says), "it should be %s", absurd[_i].expected);
	unit_sentence(err.msg, says);
	ck_assert_int_ne(mfs_model_new(&ckpt, NULL, NULL, &model, &err), 0);
	fake_release(&ckpt);
}
END_TEST

/* Terabytes of padding: what the embedding was never padded to is no divisor of this run's. */
START_TEST(absurd_padding)
{
	struct mfs_megatron_args a = fake_llama();
	struct mfs_ckpt ckpt;

	fake_ckpt(&ckpt, &a);
	ckpt.args.make_vocab_size_divisible_by = 1ll << 31;
	unit_fails(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err, -EINVAL,
		   "tensor 'embedding.word_embeddings.weight' is too small for the run's "
		   "make_vocab_size_divisible_by: expected 2147483648 rows or more, found 1024");
	ckpt.args.make_vocab_size_divisible_by = 2048;
	unit_ok(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err);
	ckpt.args.make_vocab_size_divisible_by = MFS_ABSENT;
	unit_ok(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err);
	fake_release(&ckpt);
}
END_TEST

/* An output gate has a row for each of the queries'; a gate on the shared expert is one row. */
START_TEST(what_no_family_has)
{
	struct mfs_megatron_args a = fake_llama();
	uint64_t dims[MFS_DIM_COUNT];
	enum mfs_dim axes[MFS_PARAM_AXES];

	a.attention_output_gate = true;
	mfs_dims(&a, 1024, dims);
	ck_assert_uint_eq(dims[MFS_DIM_QKV], (2 * 4 + 2 * 2) * 16);
	ck_assert(mfs_dims_of(&a, "decoder.layers.mlp.shared_experts.gate_weight", axes));
	ck_assert_uint_eq(dims[axes[0]], 1);
	ck_assert_uint_eq(dims[axes[1]], 64);
	ck_assert(mfs_dims_of(&a, "decoder.layers.self_attention.core_attention.softmax_offset",
			      axes));
	ck_assert_uint_eq(dims[axes[0]], 4);
	ck_assert(!mfs_dims_of(&a, "decoder.layers.mlp.linear_fc3.weight", axes));
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("dims");
	TCase *c = unit_case(s, "dims", what_no_family_has);

	tcase_add_loop_test(c, families_agree, 0, MAKERS);
	tcase_add_loop_test(c, every_shape_is_checked, 0, MAKERS);
	tcase_add_loop_test(c, absurd_arguments, 0, (int)(MFS_ARRAY_SIZE(absurd)));
	tcase_add_test(c, absurd_padding);
	return s;
}
