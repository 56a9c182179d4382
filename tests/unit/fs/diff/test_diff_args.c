/* What mcorefs diff compares of two runs' arguments (fs/diff/args.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/base/array.h"
#include "formats/base/tensor.h"
#include "formats/ckpt/ckpt_build.h"
#include "fs/diff/diff.h"
#include "tests/unit/fake_ckpt.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* A row either is compared or says why it is not; what is compared has a value of one type. */
START_TEST(what_is_not_compared_says_why)
{
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++) {
		ck_assert_msg((f->scope == MFS_ARGS_APART) == (f->why && *f->why), "%s", f->member);
		ck_assert_msg(f->scope == MFS_ARGS_APART || f->type <= MFS_ARGS_TEXT, "%s",
			      f->member);
	}
}
END_TEST

/* ---- every compared member makes a difference in some model ---- */

static struct mfs_megatron_args with_everything(void)
{
	struct mfs_megatron_args a = fake_mixtral();

	a.moe_router_num_groups = 4;
	a.moe_router_group_topk = 2;
	a.moe_router_score_function = "softmax";
	a.moe_shared_expert_intermediate_size = 96;
	a.use_rope_scaling = true;
	return a;
}

static struct mfs_megatron_args with_yarn(void)
{
	struct mfs_megatron_args a = fake_mixtral();

	a.position_embedding_type = "yarn";
	a.rotary_scaling_factor = 32;
	a.quick_geglu = true;
	a.swiglu = false;
	return a;
}

static struct mfs_megatron_args with_mla(void)
{
	static const uint8_t moe[] = {0, 1}; /* one dense layer, for ffn_hidden_size */
	struct mfs_megatron_args a = fake_deepseek();

	a.moe_layers = moe;
	return a;
}

static struct mfs_megatron_args with_nets(void)
{
	static const uint8_t linear[] = {1, 0};
	struct mfs_megatron_args a = fake_llama();

	a.mup = (struct mfs_mup){true, 2, 1, 1, 1};
	a.linear_layers = linear;
	a.linear_conv_kernel_dim = 4;
	a.linear_key_head_dim = a.linear_value_head_dim = 16;
	a.linear_num_key_heads = a.linear_num_value_heads = 2;
	return a;
}

static struct mfs_megatron_args with_mixers(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.hybrid_layers = "M*";
	a.mamba_state_dim = a.mamba_head_dim = 16;
	a.mamba_num_groups = a.mamba_num_heads = 4;
	return a;
}

static struct mfs_megatron_args (*const models[])(void) = {
	fake_llama, fake_gpt2, with_everything, with_yarn, with_mla, with_nets, with_mixers,
};
#define MODELS MFS_ARRAY_SIZE(models)

static void change(struct mfs_megatron_args *a, const struct mfs_args_field *f)
{
	char *at = (char *)a + f->offset;
	int64_t *integer = (int64_t *)at;

	switch (f->type) {
	case MFS_ARGS_INT:
		*integer = *integer == MFS_ABSENT ? 2 : *integer + 1;
		return;
	case MFS_ARGS_REAL:
		*(double *)at += 1.5;
		return;
	case MFS_ARGS_FLAG:
		*(bool *)at = !*(bool *)at;
		return;
	default:
		*(const char **)at = strcmp(f->member, "hybrid_layers") ? "other" : "**";
		return;
	}
}

/* True if diff names the member where the two differ in it alone. */
static bool is_named(const struct mfs_megatron_args *a, const struct mfs_megatron_args *b,
		     const char *name)
{
	struct mfs_ckpt x = {.args = *a}, y = {.args = *b};
	struct mfs_diff d = {.optimizer = true};
	bool named = false;

	d.sides[0].ckpt = &x;
	d.sides[1].ckpt = &y;
	d.sides[0].number = d.sides[1].number = -1;
	d.sides[0].step = d.sides[1].step = -1;
	unit_ok(mfs_diff_arguments(&d, &err), &err);
	for (uint32_t i = 0; i < d.argument_count; i++)
		named |= !strcmp(d.arguments[i].name, name);
	mfs_arena_release(&d.arena);
	return named;
}

START_TEST(every_compared_member_makes_a_difference)
{
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++) {
		bool named = f->scope == MFS_ARGS_APART;

		for (size_t m = 0; m < MODELS && !named; m++) {
			const struct mfs_megatron_args a = models[m]();
			struct mfs_megatron_args b = a;

			change(&b, f);
			named = is_named(&a, &b, f->shown ? f->shown : f->member);
		}
		ck_assert_msg(named, "two models that differ in %s are equal", f->member);
	}
}
END_TEST

/* What says the same in other words is no difference. */
START_TEST(other_words_for_the_same_are_no_difference)
{
	struct mfs_megatron_args a = fake_llama(), b = a;

	b.softmax_scale = 1 / sqrt((double)a.kv_channels);
	b.provider = "LlamaModelProvider";
	b.rotary_scaling_factor = 7; /* without YaRN */
	b.moe_mlp_glu_interleave_size = 32;
	ck_assert(!is_named(&a, &b, "softmax_scale"));
	ck_assert(!is_named(&a, &b, "model_provider"));
	ck_assert(!is_named(&a, &b, "rotary_scaling_factor"));
	ck_assert(!is_named(&a, &b, "moe_mlp_glu_interleave_size"));
	a.provider = "GemmaModelProvider";
	b.provider = "CodeGemmaModelProvider7B";
	ck_assert(!is_named(&a, &b, "model_provider"));
	b.provider = "Gemma2ModelProvider2B";
	ck_assert(is_named(&a, &b, "model_provider"));
	a = b = with_mla();
	b.softmax_scale = 0.5;
	ck_assert(!is_named(&a, &b, "softmax_scale"));
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("diff_args");
	TCase *c = unit_case(s, "arguments", what_is_not_compared_says_why);

	tcase_add_test(c, every_compared_member_makes_a_difference);
	tcase_add_test(c, other_words_for_the_same_are_no_difference);
	return s;
}
