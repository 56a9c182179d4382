/* Arguments of a run, from namespaces pickled here: formats/args/megatron_args.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/args/hybrid_layers.h"
#include "formats/args/megatron_args.h"
#include "formats/torch/pickle.h"

static struct mfs_error err;
static struct mfs_buf stream;
static struct mfs_arena arena;
static struct mfs_megatron_args args;

/* ---- argparse.Namespace in protocol 2 ---- */

static void begin(void)
{
	stream.len = 0;
	mfs_buf_add(&stream, "\x80\x02", 2);
	mfs_buf_adds(&stream, "cargparse\nNamespace\n)");
	mfs_buf_add(&stream, "\x81}(", 3);
}

static void text(const char *s)
{
	const uint32_t len = (uint32_t)strlen(s);

	mfs_buf_adds(&stream, "X");
	mfs_buf_add(&stream, &len, 4); /* little-endian, as are all machines that run this */
	mfs_buf_adds(&stream, s);
}

static void set_int(const char *key, int32_t value)
{
	text(key);
	mfs_buf_adds(&stream, "J");
	mfs_buf_add(&stream, &value, 4);
}

static void set_text(const char *key, const char *value)
{
	text(key);
	text(value);
}

static void set_none(const char *key)
{
	text(key);
	mfs_buf_adds(&stream, "N");
}

static void set_bool(const char *key, bool value)
{
	text(key);
	mfs_buf_add(&stream, value ? "\x88" : "\x89", 1);
}

static void set_list(const char *key, const int32_t *values, size_t count)
{
	text(key);
	mfs_buf_adds(&stream, "](");
	for (size_t i = 0; i < count; i++) {
		mfs_buf_adds(&stream, "J");
		mfs_buf_add(&stream, &values[i], 4);
	}
	mfs_buf_adds(&stream, "e");
}

static void set_real(const char *key, double value)
{
	uint8_t bytes[8];
	uint64_t bits;

	memcpy(&bits, &value, 8);
	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(bits >> (56 - 8 * i));
	text(key);
	mfs_buf_adds(&stream, "G");
	mfs_buf_add(&stream, bytes, 8);
}

static void sizes(void)
{
	set_int("num_layers", 4);
	set_int("hidden_size", 64);
	set_int("num_attention_heads", 8);
}

static int finish(void)
{
	struct mfs_pickle *doc;
	int rc;

	mfs_buf_adds(&stream, "ub.");
	ck_assert(!stream.failed);
	unit_ok(mfs_pickle_parse(stream.data, stream.len, "args", NULL, &doc, &err), &err);
	rc = mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err);
	mfs_pickle_free(doc);
	return rc;
}

static void tear_down(void)
{
	mfs_buf_release(&stream);
	mfs_arena_release(&arena);
}

/* ---- what Megatron means ---- */

START_TEST(absent_arguments_have_megatrons_defaults)
{
	begin();
	sizes();
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.ffn_hidden_size, 256);
	ck_assert_int_eq(args.kv_channels, 8);
	ck_assert_int_eq(args.num_query_groups, 8);
	ck_assert(args.layernorm && args.add_bias_linear && args.tied && !args.swiglu);
	ck_assert_int_eq(args.vocab_size, MFS_ABSENT);
	ck_assert_int_eq(args.num_experts, MFS_ABSENT);
	ck_assert_str_eq(args.position_embedding_type, "learned_absolute");
	ck_assert(args.norm_epsilon == 1e-5 && args.rotary_base == 10000);
	ck_assert_int_eq(args.virtual_pipeline_model_parallel_size, 1);
}
END_TEST

/* num_query_groups is 1 by default and means nothing without group_query_attention. */
START_TEST(query_groups)
{
	begin();
	sizes();
	set_int("num_query_groups", 1);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.num_query_groups, 8);
	begin();
	sizes();
	set_int("num_query_groups", 2);
	set_bool("group_query_attention", true);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.num_query_groups, 2);
	begin();
	sizes();
	set_int("num_query_groups", 3);
	set_bool("group_query_attention", true);
	unit_fails(finish(), &err, -EINVAL, "num_query_groups");
}
END_TEST

START_TEST(swiglu_width)
{
	begin();
	set_int("num_layers", 1);
	set_int("hidden_size", 1024);
	set_int("num_attention_heads", 8);
	set_bool("swiglu", true);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.ffn_hidden_size, 2688); /* floor(4 * 1024 * 2/3 / 64) * 64 */
}
END_TEST

START_TEST(layers_with_experts_follow_their_frequency)
{
	static const int32_t pattern[] = {0, 1, 1, 1}, few[] = {0, 1};

	begin();
	sizes();
	set_int("num_experts", 4);
	set_int("moe_layer_freq", 2);
	unit_ok(finish(), &err);
	ck_assert(args.moe_layers[0] && !args.moe_layers[1] && args.moe_layers[2]);
	begin();
	sizes();
	set_int("num_experts", 4);
	set_list("moe_layer_freq", pattern, 4);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.first_dense_layers, 1);
	begin();
	sizes();
	set_int("num_experts", 4);
	set_list("moe_layer_freq", few, 2);
	unit_fails(finish(), &err, -EINVAL, "moe_layer_freq");
}
END_TEST

static void delta_net(const char *variant)
{
	begin();
	sizes();
	set_text("experimental_attention_variant", variant);
}

/* Of layers counted from 1 every Nth has no linear attention. */
START_TEST(layers_with_linear_attention_follow_their_frequency)
{
	static const int32_t pattern[] = {0, 1, 1, 0}, few[] = {0, 1};

	begin();
	sizes();
	unit_ok(finish(), &err);
	ck_assert(!args.linear_layers && !args.foreign);
	delta_net("gated_delta_net");
	set_int("linear_attention_freq", 2);
	set_int("linear_num_key_heads", 3);
	set_int("linear_num_value_heads", 6);
	unit_ok(finish(), &err);
	ck_assert_mem_eq(args.linear_layers, "\1\0\1\0", 4);
	ck_assert(args.linear_num_key_heads == 3 && args.linear_num_value_heads == 6);
	ck_assert(args.linear_conv_kernel_dim == 4 && args.linear_key_head_dim == 128);
	ck_assert(!args.foreign && !args.untrainable);
	delta_net("gdn");
	set_list("linear_attention_freq", pattern, 4);
	unit_ok(finish(), &err);
	ck_assert_mem_eq(args.linear_layers, "\0\1\1\0", 4);
	ck_assert(!args.foreign);
	delta_net("gdn");
	set_list("linear_attention_freq", few, 2);
	unit_fails(finish(), &err, -EINVAL, "linear_attention_freq");
	delta_net("gdn");
	unit_fails(finish(), &err, -EINVAL, "linear_attention_freq");
	delta_net("gdn");
	set_int("linear_attention_freq", 2);
	set_int("linear_num_value_heads", 24);
	unit_fails(finish(), &err, -EINVAL, "a multiple of linear_num_key_heads");
	delta_net("gdn2");
	set_int("linear_attention_freq", 2);
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.foreign, "linear_attention_freq (2)");
	ck_assert(!args.linear_layers);
}
END_TEST

static void hybrid(const char *name, const char *pattern)
{
	begin();
	sizes();
	set_text(name, pattern);
	set_int("num_experts", 4);
	set_int("mamba_num_groups", 2);
}

/* Of four layers, under both names of the argument. */
START_TEST(hybrid_patterns_are_read_under_both_names)
{
	hybrid("hybrid_override_pattern", "M*-E");
	set_int("mamba_num_heads", 6);
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.hybrid_layers, "M*-E");
	ck_assert_mem_eq(args.moe_layers, "\0\0\0\1", 4);
	ck_assert(args.mamba_num_heads == 6 && args.mamba_state_dim == 128);
	ck_assert(!args.mamba_conv_params);
	/* Models are shown, but none is trained. */
	ck_assert(!args.foreign && args.untrainable && !args.other_stages);
	hybrid("hybrid_layer_pattern", "MM|*-");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.hybrid_layers, "MM*-");
	ck_assert(!args.moe_layers && args.num_experts == MFS_ABSENT && !args.other_stages);
	ck_assert_int_eq(args.mamba_num_heads, 2); /* 64 twice, in heads of 64 */
	hybrid("hybrid_layer_pattern", "MM*|-");
	unit_ok(finish(), &err);
	ck_assert(args.other_stages);
	/* What is not known here: other layers, and multi-token prediction of layers of its own. */
	hybrid("hybrid_layer_pattern", "MG*-");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.foreign, "hybrid_layer_pattern (MG*-)");
	ck_assert(!args.hybrid_layers);
	hybrid("hybrid_layer_pattern", "MM*-/M");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.foreign, "hybrid_layer_pattern (MM*-/M)");
	hybrid("hybrid_layer_pattern", "MM*-/M/*");
	unit_fails(finish(), &err, -EINVAL, "expected the same letters after each '/'");
	hybrid("hybrid_layer_pattern", "MM*");
	unit_fails(finish(), &err, -EINVAL, "'MM*' is of 3 layers, expected num_layers, 4");
	hybrid("hybrid_layer_pattern", "MMX*");
	unit_fails(finish(), &err, -EINVAL, "'MMX*' has 'X', expected letters of");
	hybrid("hybrid_layer_pattern", "MM*-");
	set_int("mamba_head_dim", 48);
	unit_fails(finish(), &err, -EINVAL, "mamba_head_dim");
	hybrid("hybrid_layer_pattern", "MM*-");
	set_int("mamba_num_heads", 5);
	unit_fails(finish(), &err, -EINVAL, "a multiple of mamba_num_groups");
	begin();
	sizes();
	set_text("hybrid_layer_pattern", "M*-E");
	set_int("mamba_num_groups", 2);
	unit_fails(finish(), &err, -EINVAL, "num_experts");
}
END_TEST

/* Attention and an MLP in turns, of four layers: a GPTModel's two blocks. */
START_TEST(patterns_of_blocks_are_those_of_a_GPTModel)
{
	static const struct {
		const char *pattern;
		bool mla, even, split;
		const char *moe, *linear; /* NULL: no block */
		int mtp;
	} cases[] = {
		{"*-*-", false, true, false, NULL, NULL, 0},
		{"*-|*-", false, true, false, NULL, NULL, 0},
		{"*-*E", false, true, false, "\0\1", NULL, 0},
		{"G-*-", false, true, false, NULL, "\1\0", 0},
		{"+E+E", true, true, false, "\1\1", NULL, 0},
		{"*-*|-", false, false, true, NULL, NULL, 0},
		{"*-*E/*E/*E", false, true, false, "\0\1", NULL, 2},
		{"*-*-/", false, true, false, NULL, NULL, 0},
	};
	static const char *const others[] = {"-*-*", "**--", "*-*-/*E", "*-*-/*-*-",
					     "+-*-", "D-D-", "*-*M"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		hybrid("hybrid_layer_pattern", cases[i].pattern);
		/* Nobody has Mamba mixers here. */
		set_int("mamba_num_heads", 5);
		unit_ok(finish(), &err);
		ck_assert(args.hybrid_form && !args.hybrid_layers && !args.foreign);
		ck_assert(!args.untrainable && args.num_layers == 2);
		ck_assert_int_eq(args.multi_latent_attention, cases[i].mla);
		ck_assert_int_eq(args.other_stages, !cases[i].even);
		ck_assert_int_eq(args.splits_blocks, cases[i].split);
		ck_assert_int_eq(args.mtp_num_layers, cases[i].mtp);
		ck_assert_int_eq(!args.moe_layers, !cases[i].moe);
		ck_assert_int_eq(!args.linear_layers, !cases[i].linear);
		if (cases[i].moe)
			ck_assert_mem_eq(args.moe_layers, cases[i].moe, 2);
		if (cases[i].linear)
			ck_assert_mem_eq(args.linear_layers, cases[i].linear, 2);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++) {
		hybrid("hybrid_layer_pattern", others[i]);
		unit_ok(finish(), &err);
		ck_assert(!args.hybrid_form && args.num_layers == 4 && args.untrainable);
	}
}
END_TEST

/* Other arguments of such runs count their layers. */
START_TEST(a_HybridModel_counts_sublayers)
{
	const int32_t window[] = {15, 0};

	hybrid("hybrid_override_pattern", "*-*-");
	set_text("mtp_hybrid_override_pattern", "*-");
	set_int("mtp_num_layers", 1);
	set_int("pipeline_model_parallel_size", 2);
	set_int("decoder_first_pipeline_num_layers", 2);
	unit_ok(finish(), &err);
	ck_assert(args.hybrid_form && !args.splits_blocks && args.mtp_num_layers == 1);
	ck_assert_int_eq(args.first_stage_layers, 1);
	hybrid("hybrid_override_pattern", "*-*-");
	set_text("mtp_hybrid_override_pattern", "*-");
	set_int("mtp_num_layers", 2);
	unit_ok(finish(), &err);
	ck_assert(args.hybrid_form && args.mtp_num_layers == 2);
	hybrid("hybrid_override_pattern", "*-*-");
	set_int("pipeline_model_parallel_size", 4);
	unit_ok(finish(), &err);
	ck_assert(args.splits_blocks);
	/* Every second layer but the fourth, and no attention but the first. */
	hybrid("hybrid_layer_pattern", "*-*-");
	set_list("window_size", window, 2);
	set_int("window_attn_skip_freq", 3);
	unit_ok(finish(), &err);
	ck_assert_mem_eq(args.window_layers, "\1\0", 2);
}
END_TEST

/* As core 0.16.1's allocate_layers() makes them. */
START_TEST(hybrid_ratios)
{
	static const struct {
		int64_t layers;
		double attention, mlp;
		const char *pattern;
	} cases[] = {
		{10, 0.2, 0, "MMM*MM*MMM"},
		{10, 0.3, 0.3, "M-*MM*-*M-"},
		{10, 0, 0.5, "M-M-M-M-M-"},
		{52, 0.08, 0.46, "M-M-M-M-M-*M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-*M-M-M-M-M-"},
		{9, 0.5, 0.5, "-*M*-*-*-"},
		{7, 0.35, 0.21, "MM*M*M-"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		ck_assert_str_eq(mfs_hybrid_from_ratios(cases[i].layers, cases[i].attention,
							cases[i].mlp, &arena),
				 cases[i].pattern);
	begin();
	sizes();
	set_real("hybrid_attention_ratio", 0.25);
	set_int("mamba_num_groups", 1);
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.hybrid_layers, "MM*M");
	begin();
	sizes();
	set_real("hybrid_attention_ratio", 0.75);
	set_real("hybrid_mlp_ratio", 0.5);
	unit_fails(finish(), &err, -EINVAL, "hybrid_attention_ratio");
}
END_TEST

/* None (since core 0.14) and no such argument (before) both mean YaRN; before, its other values
 * differed. */
START_TEST(rope_type_of_mla)
{
	begin();
	sizes();
	set_bool("multi_latent_attention", true);
	set_none("rope_type");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.rope_type, "yarn");
	ck_assert(args.mscale == 1.0 && args.mscale_all_dim == 0.0 && !args.foreign);
	begin();
	sizes();
	set_bool("multi_latent_attention", true);
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.rope_type, "yarn");
	ck_assert(args.mscale == 0.707 && args.mscale_all_dim == 0.707);
	ck_assert(args.rotary_scaling_factor == 40 && !args.foreign);
}
END_TEST

static const struct {
	const char *name, *value; /* NULL: True */
	bool foreign, trainable;
} routing[] = {
	{"moe_router_load_balancing_type", "aux_loss", false, true},
	{"moe_router_load_balancing_type", "none", false, true},
	{"moe_router_load_balancing_type", "sinkhorn", true, true},
	{"moe_router_load_balancing_type", "quantile_balancing", true, false},
	{"moe_extended_tp", NULL, true, false},
	{"moe_router_force_load_balancing", NULL, true, true},
	{"moe_router_force_biased", NULL, true, false},
};

START_TEST(what_leaves_no_tensor)
{
	char says[100];

	begin();
	sizes();
	set_int("num_experts", 4);
	if (routing[_i].value)
		set_text(routing[_i].name, routing[_i].value);
	else
		set_bool(routing[_i].name, true);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.foreign != NULL, routing[_i].foreign);
	ck_assert_int_eq(!args.untrainable, routing[_i].trainable);
	if (routing[_i].foreign) {
		snprintf(says, sizeof(says), "%s (%s)", routing[_i].name,
			 routing[_i].value ? routing[_i].value : "True");
		ck_assert_str_eq(args.foreign, says);
	}
}
END_TEST

/* Values of an argument, as a dense GELU model, a gated one or one of experts has them. */
enum model { GELU, GATED, MOE, MLA, WINDOWED };

static const struct {
	const char *name;
	enum model model;
	double value;
	const char *foreign; /* NULL: harmless */
} numbers[] = {
	{"softmax_scale", GELU, 0.5, NULL}, /* a feature, which families know */
	{"softmax_scale", GELU, -0.5, "softmax_scale (-0.5)"},
	{"softmax_scale", GELU, 0, "softmax_scale (0)"},
	{"softmax_scale", GELU, 0.35355339059327379, NULL}, /* 1 / sqrt(8) */
	{"softmax_scale", MLA, 0.5, NULL},
	{"activation_func_clamp_value", GATED, 7, NULL},
	{"activation_func_clamp_value", GATED, 0, "activation_func_clamp_value (0)"},
	{"activation_func_clamp_value", GELU, 7, NULL},
	{"glu_linear_offset", GATED, 1, NULL},
	{"glu_linear_offset", GATED, 2, "glu_linear_offset (2)"},
	{"glu_linear_offset", GATED, 0, NULL},
	{"moe_expert_capacity_factor", MOE, 1.25, "moe_expert_capacity_factor (1.25)"},
	{"moe_expert_capacity_factor", MOE, -1, NULL},
	{"moe_expert_capacity_factor", GELU, 1.25, NULL},
	{"moe_expert_rank_capacity_factor", MOE, 2, "moe_expert_rank_capacity_factor (2)"},
	{"moe_input_jitter_eps", MOE, 0.01, NULL},
};

static void begin_model(enum model model)
{
	static const int32_t window[] = {127, 0};

	begin();
	sizes();
	if (model == GATED)
		set_bool("swiglu", true);
	if (model == MOE)
		set_int("num_experts", 4);
	if (model == MLA)
		set_bool("multi_latent_attention", true);
	if (model == WINDOWED)
		set_list("window_size", window, 2);
}

START_TEST(numbers_that_leave_no_tensor)
{
	begin_model(numbers[_i].model);
	set_real(numbers[_i].name, numbers[_i].value);
	unit_ok(finish(), &err);
	if (!numbers[_i].foreign)
		ck_assert_ptr_null(args.foreign);
	else
		ck_assert_str_eq(args.foreign, numbers[_i].foreign);
}
END_TEST

static const struct {
	const char *name, *value;
	const char *foreign;
} texts[] = {
	{"softmax_type", "vanilla", NULL},
	{"softmax_type", "learnable", NULL},
	{"softmax_type", "off-by-one", "softmax_type (off-by-one)"},
	{"normalization", "LayerNorm", NULL},
	{"normalization", "L2Norm", "normalization (L2Norm)"},
	{"hybrid_layer_pattern", "MG*-", "hybrid_layer_pattern (MG*-)"},
};

START_TEST(texts_that_leave_no_tensor)
{
	begin_model(GELU);
	set_text(texts[_i].name, texts[_i].value);
	unit_ok(finish(), &err);
	if (!texts[_i].foreign)
		ck_assert_ptr_null(args.foreign);
	else
		ck_assert_str_eq(args.foreign, texts[_i].foreign);
}
END_TEST

/* GPTModel's own YaRN: by Megatron-LM's arguments, and by the fields of Bridge's providers. */
START_TEST(yarn_is_read_by_both_programs_names)
{
	begin();
	sizes();
	set_text("position_embedding_type", "yarn");
	set_real("rotary_scaling_factor", 32);
	set_real("mscale_all_dim", 0.5);
	set_int("yarn_original_max_position_embeddings", 2048);
	set_real("yarn_beta_fast", 16);
	set_bool("yarn_correction_range_round_to_int", false);
	unit_ok(finish(), &err);
	ck_assert(args.rotary_scaling_factor == 32 && args.beta_fast == 16 && args.beta_slow == 1);
	ck_assert(args.mscale == 1 && args.mscale_all_dim == 0); /* one of the two is missing */
	ck_assert_int_eq(args.original_max_position_embeddings, 2048);
	ck_assert(args.yarn_unrounded && !args.foreign);
	begin();
	sizes();
	set_text("position_embedding_type", "yarn");
	set_real("rotary_scaling_factor", 1);
	set_real("yarn_rotary_scaling_factor", 8);
	set_real("yarn_mscale", 2);
	set_real("yarn_mscale_all_dim", 0.5);
	unit_ok(finish(), &err);
	ck_assert(args.rotary_scaling_factor == 8 && args.mscale == 2);
	ck_assert(args.mscale_all_dim == 0.5 && !args.yarn_unrounded);
	begin();
	sizes();
	set_text("position_embedding_type", "yarn");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.foreign, "rotary_scaling_factor (None)");
}
END_TEST

/* The trainer has none of these, whatever else views can say. */
START_TEST(first_of_each_kind)
{
	begin_model(GATED);
	set_text("softmax_type", "learnable");
	set_text("hybrid_layer_pattern", "MG*-");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.foreign, "hybrid_layer_pattern (MG*-)");
	ck_assert_str_eq(args.untrainable, "softmax_type (learnable)");
	ck_assert(args.learnable_softmax);
}
END_TEST

START_TEST(own_spec)
{
	static const char *const modules[] = {"megatron.core.models.gpt.gpt_layer_specs",
					      "my.layers"};

	for (size_t i = 0; i < 2; i++) {
		begin_model(GELU);
		text("spec");
		mfs_buf_adds(&stream, "](");
		text(modules[i]);
		text("spec_of_mine");
		mfs_buf_adds(&stream, "e");
		unit_ok(finish(), &err);
		if (i)
			ck_assert_str_eq(args.foreign, "spec ([my.layers, spec_of_mine])");
		else
			ck_assert_ptr_null(args.foreign);
	}
}
END_TEST

/* (left, right) in addition to the token; HF's window counts the token. */
static const struct {
	int32_t pair[3];
	unsigned count;
	int64_t window;
	const char *foreign; /* or the sentence about what is no pair */
} windows[] = {
	{{127, 0}, 2, 128, NULL},
	{{0, 0}, 2, 1, NULL},
	{{-1, 0}, 2, MFS_ABSENT, NULL},
	{{-1, -1}, 2, MFS_ABSENT, NULL},
	{{127, 5}, 2, 128, "window_size ([127, 5])"},
	{{127, -1}, 2, 128, "window_size ([127, -1])"},
	{{127}, 1, 0, "window_size"},
	{{127, 0, 0}, 3, 0, "window_size"},
	{{-2, 0}, 2, 0, "window_size"},
	{{0}, 0, 0, "window_size"},
};

START_TEST(a_window_is_a_pair_that_looks_back)
{
	begin_model(GELU);
	set_list("window_size", windows[_i].pair, windows[_i].count);
	if (!windows[_i].window) {
		unit_fails(finish(), &err, -EINVAL, "'window_size' of the run: expected a pair");
		return;
	}
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.window_size, windows[_i].window);
	if (!windows[_i].foreign)
		ck_assert_ptr_null(args.foreign);
	else
		ck_assert_str_eq(args.foreign, windows[_i].foreign);
}
END_TEST

/* of four layers, as is_layer_window_attention() has it */
static const struct {
	int32_t freq, list[5];
	unsigned count;
	const char *layers; /* "": all; NULL: there is no window */
	const char *refused;
} window_layers[] = {
	{2, {0}, 0, "\1\0\1\0", NULL},
	{4, {0}, 0, "\1\1\1\0", NULL},
	{5, {0}, 0, "", NULL},
	{1, {0}, 0, NULL, NULL},
	{0, {1, 0, 0, 1}, 4, "\1\0\0\1", NULL},
	{0, {1, 1, 1, 1}, 4, "", NULL},
	{0, {0, 0, 0, 0}, 4, NULL, NULL},
	{0, {0}, 0, NULL, "a positive number or a list"},
	{-2, {0}, 0, NULL, "a positive number or a list"},
	{0, {1, 0, 1}, 3, NULL, "one number a layer"},
	{0, {1, 0, 1, 0, 1}, 5, NULL, "one number a layer"},
};

START_TEST(layers_with_a_window)
{
	const char *layers = window_layers[_i].layers;

	begin_model(WINDOWED);
	if (window_layers[_i].count)
		set_list("window_attn_skip_freq", window_layers[_i].list, window_layers[_i].count);
	else
		set_int("window_attn_skip_freq", window_layers[_i].freq);
	if (window_layers[_i].refused) {
		unit_fails(finish(), &err, -EINVAL, window_layers[_i].refused);
		ck_assert_ptr_nonnull(strstr(err.msg, "'window_attn_skip_freq' of the run"));
		return;
	}
	unit_ok(finish(), &err);
	ck_assert_ptr_null(args.foreign);
	ck_assert_int_eq(args.window_size, layers ? 128 : MFS_ABSENT);
	if (!layers || !*layers)
		ck_assert_ptr_null(args.window_layers);
	else
		ck_assert_mem_eq(args.window_layers, layers, 4);
}
END_TEST

/* Without a window nobody looks at the layers. */
START_TEST(layers_without_a_window)
{
	begin_model(GELU);
	set_int("window_attn_skip_freq", -2);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.window_size, MFS_ABSENT);
	ck_assert_ptr_null(args.foreign);
}
END_TEST

START_TEST(windows_that_are_no_list)
{
	begin_model(GELU);
	set_int("window_size", 128);
	unit_fails(finish(), &err, -EINVAL, "window_size");
	begin_model(GELU);
	set_text("window_size", "(127, 0)");
	unit_fails(finish(), &err, -EINVAL, "window_size");
	begin_model(GELU);
	set_none("window_size");
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.window_size, MFS_ABSENT);
}
END_TEST

/* By tanh where it is fused or Transformer Engine's; openai_gelu and onnx_safe mean nothing. */
static const struct {
	bool fusion, activation, fuser, local, openai;
	bool exact;
} gelus[] = {
	{true, false, false, false, false, false}, {false, false, false, false, false, true},
	{false, true, false, false, false, false}, {false, false, true, false, false, false},
	{false, true, false, true, false, true},   {false, false, true, true, false, true},
	{true, false, false, true, false, false},  {false, false, false, false, true, true},
	{true, true, true, false, true, false},
};

START_TEST(the_form_of_gelu_follows_its_fusions)
{
	begin_model(GELU);
	set_bool("bias_gelu_fusion", gelus[_i].fusion);
	set_bool("use_te_activation_func", gelus[_i].activation);
	set_bool("use_transformer_engine_op_fuser", gelus[_i].fuser);
	set_text("transformer_impl", gelus[_i].local ? "local" : "transformer_engine");
	set_bool("openai_gelu", gelus[_i].openai);
	set_bool("onnx_safe", gelus[_i].openai);
	unit_ok(finish(), &err);
	ck_assert(args.exact_gelu == gelus[_i].exact);
}
END_TEST

START_TEST(the_factor_of_llama_3_is_always_8)
{
	begin_model(GATED);
	set_bool("use_rope_scaling", true);
	set_real("rope_scaling_factor", 32);
	unit_ok(finish(), &err);
	ck_assert(args.rope_scaling_factor == 8 && args.rope_scaling_ignored == 32);
	begin_model(GATED);
	set_bool("use_rope_scaling", true);
	set_real("rope_scaling_factor", 8);
	unit_ok(finish(), &err);
	ck_assert(args.rope_scaling_factor == 8 && args.rope_scaling_ignored == 0);
}
END_TEST

/* Rows of the vocabulary: 1000 in the arguments are 1001 until core 0.17, and 1000 since
 * null_tokenizer_eod_id is an argument. What would not have been padded to what is stored says
 * nothing. */
static const struct {
	int32_t given;
	bool newer;
	uint64_t stored, rows;
} nulls[] = {
	{1000, false, 1024, 1001}, {1000, true, 1024, 1000},  {1024, true, 1024, 1024},
	{1023, false, 1024, 1024}, {1024, false, 1152, 1025}, {1024, true, 1152, 0},
	{1024, false, 1024, 0},
};

START_TEST(null_tokenizer)
{
	begin_model(GELU);
	set_int("vocab_size", nulls[_i].given);
	set_text("tokenizer_type", "NullTokenizer");
	if (nulls[_i].newer)
		set_none("null_tokenizer_eod_id");
	unit_ok(finish(), &err);
	ck_assert_uint_eq(mfs_args_true_vocab(&args, nulls[_i].stored), nulls[_i].rows);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(a_missing_argument_is_named)
{
	begin();
	set_int("num_layers", 4);
	set_int("hidden_size", 64);
	unit_fails(finish(), &err, -ENODATA, "num_attention_heads");
}
END_TEST

START_TEST(impossible_values)
{
	begin();
	sizes();
	set_int("kv_channels", -1);
	unit_fails(finish(), &err, -EINVAL, "kv_channels");
	begin();
	sizes();
	set_text("swiglu", "yes");
	unit_fails(finish(), &err, -EINVAL, "swiglu");
	begin();
	sizes();
	set_int("rotary_percent", 7);
	unit_fails(finish(), &err, -EINVAL, "rotary_percent");
	begin();
	set_int("num_layers", 2000000);
	set_int("hidden_size", 64);
	set_int("num_attention_heads", 8);
	unit_fails(finish(), &err, -EINVAL, "num_layers");
}
END_TEST

START_TEST(no_namespace)
{
	struct mfs_pickle *doc;

	unit_ok(mfs_pickle_parse("\x80\x02}.", 4, "args", NULL, &doc, &err), &err);
	unit_fails(mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err), &err,
		   -EINVAL, "Namespace");
	mfs_pickle_free(doc);
}
END_TEST

/* A checkpoint that says so itself does not lead out of its folder. */
START_TEST(folder_of_a_tokenizer)
{
	static const char *const elsewhere[] = {"", ".", "..", "/etc", "../../elsewhere", "a/b"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(elsewhere); i++) {
		begin();
		sizes();
		set_text("nemo_tokenizer", elsewhere[i]);
		unit_ok(finish(), &err);
		ck_assert_ptr_null(args.nemo_tokenizer);
		tear_down();
	}
	begin();
	sizes();
	set_text("nemo_tokenizer", "tok-32k");
	unit_ok(finish(), &err);
	ck_assert_str_eq(args.nemo_tokenizer, "tok-32k");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("megatron_args");
	TCase *c = unit_case(s, "Meaning", absent_arguments_have_megatrons_defaults);

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, folder_of_a_tokenizer);
	tcase_add_test(c, query_groups);
	tcase_add_test(c, swiglu_width);
	tcase_add_test(c, layers_with_experts_follow_their_frequency);
	tcase_add_test(c, layers_with_linear_attention_follow_their_frequency);
	tcase_add_test(c, hybrid_patterns_are_read_under_both_names);
	tcase_add_test(c, patterns_of_blocks_are_those_of_a_GPTModel);
	tcase_add_test(c, a_HybridModel_counts_sublayers);
	tcase_add_test(c, hybrid_ratios);
	tcase_add_test(c, rope_type_of_mla);
	tcase_add_test(c, yarn_is_read_by_both_programs_names);
	tcase_add_test(c, first_of_each_kind);
	tcase_add_loop_test(c, what_leaves_no_tensor, 0, MFS_ARRAY_SIZE(routing));
	tcase_add_loop_test(c, numbers_that_leave_no_tensor, 0, MFS_ARRAY_SIZE(numbers));
	tcase_add_loop_test(c, texts_that_leave_no_tensor, 0, MFS_ARRAY_SIZE(texts));
	tcase_add_test(c, own_spec);
	tcase_add_loop_test(c, a_window_is_a_pair_that_looks_back, 0, MFS_ARRAY_SIZE(windows));
	tcase_add_loop_test(c, layers_with_a_window, 0, MFS_ARRAY_SIZE(window_layers));
	tcase_add_test(c, layers_without_a_window);
	tcase_add_test(c, windows_that_are_no_list);
	tcase_add_loop_test(c, the_form_of_gelu_follows_its_fusions, 0, MFS_ARRAY_SIZE(gelus));
	tcase_add_test(c, the_factor_of_llama_3_is_always_8);
	tcase_add_loop_test(c, null_tokenizer, 0, MFS_ARRAY_SIZE(nulls));
	c = unit_case(s, "Refused", a_missing_argument_is_named);
	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, impossible_values);
	tcase_add_test(c, no_namespace);
	return s;
}
