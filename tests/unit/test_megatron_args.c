/* Arguments of a run, from namespaces pickled here: formats/megatron_args.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/megatron_args.h"
#include "formats/pickle.h"

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

START_TEST(test_defaults)
{
	begin();
	sizes();
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.ffn_hidden_size, 256);
	ck_assert_int_eq(args.kv_channels, 8);
	ck_assert_int_eq(args.num_query_groups, 8);
	ck_assert(args.layernorm && args.add_bias_linear && args.tied && !args.swiglu);
	ck_assert_int_eq(args.vocab_size, MFS_UNSET);
	ck_assert_int_eq(args.num_experts, MFS_UNSET);
	ck_assert_str_eq(args.position_embedding_type, "learned_absolute");
	ck_assert(args.norm_epsilon == 1e-5 && args.rotary_base == 10000);
	ck_assert_int_eq(args.virtual_pipeline_model_parallel_size, 1);
}
END_TEST

/* num_query_groups is 1 by default and means nothing without group_query_attention. */
START_TEST(test_query_groups)
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

START_TEST(test_swiglu_width)
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

START_TEST(test_moe_layers)
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

/* None (since core 0.14) and no such argument (before) both mean YaRN; before, its other values differed. */
START_TEST(test_rope_type_of_mla)
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
	bool foreign;
} routing[] = {
	{"moe_router_load_balancing_type", "aux_loss", false},
	{"moe_router_load_balancing_type", "none", false},
	{"moe_router_load_balancing_type", "sinkhorn", true},
	{"moe_extended_tp", NULL, true},
	{"moe_router_force_load_balancing", NULL, true},
};

START_TEST(test_what_leaves_no_tensor)
{
	begin();
	sizes();
	set_int("num_experts", 4);
	if (routing[_i].value)
		set_text(routing[_i].name, routing[_i].value);
	else
		set_bool(routing[_i].name, true);
	unit_ok(finish(), &err);
	ck_assert_int_eq(args.foreign != NULL, routing[_i].foreign);
	if (routing[_i].foreign)
		ck_assert_str_eq(args.foreign, routing[_i].name);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(test_missing)
{
	begin();
	set_int("num_layers", 4);
	set_int("hidden_size", 64);
	unit_fails(finish(), &err, -ENODATA, "num_attention_heads");
}
END_TEST

START_TEST(test_impossible_values)
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

START_TEST(test_no_namespace)
{
	struct mfs_pickle *doc;

	unit_ok(mfs_pickle_parse("\x80\x02}.", 4, "args", NULL, &doc, &err), &err);
	unit_fails(mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err), &err,
		   -EINVAL, "Namespace");
	mfs_pickle_free(doc);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("megatron_args");
	TCase *c = unit_case(s, "Meaning", test_defaults);

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, test_query_groups);
	tcase_add_test(c, test_swiglu_width);
	tcase_add_test(c, test_moe_layers);
	tcase_add_test(c, test_rope_type_of_mla);
	tcase_add_loop_test(c, test_what_leaves_no_tensor, 0, sizeof(routing) / sizeof(routing[0]));
	c = unit_case(s, "Refused", test_missing);
	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, test_impossible_values);
	tcase_add_test(c, test_no_namespace);
	return s;
}
