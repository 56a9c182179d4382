/* Writing and copying pickles: formats/torch/pickle_write.h. What Python makes of them:
 * tests/interop/test_written.py. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"

static struct mfs_error err;
static struct mfs_buf out;
static struct mfs_pickle *doc, *copy;
static struct mfs_pickle_writer w;

static void teardown(void)
{
	mfs_pickle_free(doc);
	mfs_pickle_free(copy);
	doc = copy = NULL;
	mfs_buf_release(&out);
}

static mfs_value parse(const void *bytes, size_t len)
{
	mfs_pickle_free(doc);
	unit_ok(mfs_pickle_parse(bytes, len, "test", NULL, &doc, &err), &err);
	return mfs_pickle_root(doc);
}

#define PARSE(text) parse(text, sizeof(text) - 1)

static mfs_value written(void)
{
	unit_ok(mfs_pickle_end(&w, &err), &err);
	return parse(out.data, out.len);
}

static void begin(int protocol)
{
	mfs_buf_release(&out);
	mfs_pickle_begin(&w, &out, protocol);
}

/* The stream, without PROTO and STOP, is these bytes. */
static void assert_bytes(const void *want, size_t len)
{
	unit_ok(mfs_pickle_end(&w, &err), &err);
	ck_assert_uint_eq(out.len, len + 3);
	ck_assert_mem_eq(out.data + 2, want, len);
}

#define ASSERT_BYTES(text) assert_bytes(text, sizeof(text) - 1)

/* What pickle.dumps() of CPython 3.11 gives. */
static const struct {
	int64_t value;
	const char *bytes;
	size_t len;
} integers[] = {
#define CODE(text) text, sizeof(text) - 1
	{0, CODE("K\0")},
	{255, CODE("K\xff")},
	{256, CODE("M\0\1")},
	{65535, CODE("M\xff\xff")},
	{65536, CODE("J\0\0\1\0")},
	{INT32_MAX, CODE("J\xff\xff\xff\x7f")},
	{-1, CODE("J\xff\xff\xff\xff")},
	{INT32_MIN, CODE("J\0\0\0\x80")},
	{INT64_C(1) << 31, CODE("\x8a\5\0\0\0\x80\0")},
	{-(INT64_C(1) << 31) - 1, CODE("\x8a\5\xff\xff\xff\x7f\xff")},
	{INT64_C(0x7fffffffff), CODE("\x8a\5\xff\xff\xff\xff\x7f")},
	{INT64_C(0x8000000000), CODE("\x8a\6\0\0\0\0\x80\0")},
	{-INT64_C(0x8000000000), CODE("\x8a\5\0\0\0\0\x80")},
	{INT64_MAX, CODE("\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f")},
	{INT64_MIN, CODE("\x8a\x8\0\0\0\0\0\0\0\x80")},
};

START_TEST(integers_have_torchs_bytes)
{
	int64_t v;

	begin(2);
	mfs_pickle_int(&w, integers[_i].value);
	assert_bytes(integers[_i].bytes, integers[_i].len);
	ck_assert(mfs_value_int(doc, parse(out.data, out.len), &v));
	ck_assert_int_eq(v, integers[_i].value);
}
END_TEST

START_TEST(values_have_pickles_bytes)
{
	begin(2);
	mfs_pickle_uint(&w, UINT64_MAX);
	ASSERT_BYTES("\x8a\x9\xff\xff\xff\xff\xff\xff\xff\xff\0");
	begin(2);
	mfs_pickle_float(&w, -1.5);
	ASSERT_BYTES("G\xbf\xf8\0\0\0\0\0\0");
	begin(4);
	mfs_pickle_str(&w, "ab");
	ASSERT_BYTES("\x8c\2ab");
	begin(2);
	mfs_pickle_str(&w, "ab");
	ASSERT_BYTES("X\2\0\0\0ab");
	begin(4);
	mfs_pickle_bytes(&w, "a\0\xff", 3);
	ASSERT_BYTES("C\3a\0\xff");
	begin(2);
	mfs_pickle_bytes(&w, "a\0\xff\x80", 4);
	ASSERT_BYTES("c_codecs\nencode\nq\0X\6\0\0\0a\0\xc3\xbf\xc2\x80X\6\0\0\0latin1q\1\x86R");
	begin(2);
	mfs_pickle_global(&w, "builtins", "set");
	ASSERT_BYTES("c__builtin__\nset\nq\0");
}
END_TEST

/* Each text is written once; the memo's numbers outgrow a byte; protocols number alike. */
START_TEST(each_text_is_written_once)
{
	mfs_value root, v;
	char name[16];

	begin(_i ? 4 : 2);
	mfs_pickle_list_begin(&w);
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof name, "name %d", i % 300);
		mfs_pickle_name(&w, name);
		mfs_pickle_global(&w, "torch", name);
	}
	mfs_pickle_list_end(&w);
	root = written();
	ck_assert_uint_eq(mfs_value_count(doc, root), 1200);
	for (uint32_t i = 0; i < 600; i++) {
		snprintf(name, sizeof name, "name %u", i % 300);
		ck_assert(mfs_value_is_str(doc, mfs_value_at(doc, root, 2 * i), name));
		v = mfs_value_at(doc, root, 2 * i + 1);
		ck_assert(mfs_value_is_global(doc, v, "torch", name));
	}
	v = mfs_value_at(doc, root, 1);
	ck_assert_uint_eq(v, mfs_value_at(doc, root, 601));
}
END_TEST

START_TEST(state_dict)
{
	const uint64_t shape[] = {2, 3};
	mfs_value root, args, v;
	int64_t i;

	begin(2);
	mfs_pickle_dict_begin(&w);
	mfs_pickle_name(&w, "args");
	mfs_pickle_object_begin(&w, "argparse", "Namespace");
	mfs_pickle_name(&w, "num_layers");
	mfs_pickle_int(&w, 4);
	mfs_pickle_object_end(&w);
	mfs_pickle_name(&w, "size");
	mfs_pickle_size(&w, shape, 2);
	mfs_pickle_name(&w, "none");
	mfs_pickle_size(&w, NULL, 0);
	mfs_pickle_name(&w, "model");
	mfs_pickle_ordered_dict_begin(&w);
	mfs_pickle_name(&w, "weight");
	mfs_pickle_tensor(&w, 17, MFS_BF16, shape, 2);
	mfs_pickle_ordered_dict_end(&w);
	mfs_pickle_dict_end(&w);
	root = written();
	args = mfs_value_get(doc, root, "args");
	ck_assert(mfs_value_is_object_of(doc, args, "Namespace"));
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, args, "num_layers"), &i) && i == 4);
	v = mfs_torch_size(doc, mfs_value_get(doc, root, "size"));
	ck_assert(mfs_value_int(doc, mfs_value_at(doc, v, 1), &i) && i == 3);
	v = mfs_torch_size(doc, mfs_value_get(doc, root, "none"));
	ck_assert_uint_eq(mfs_value_count(doc, v), 0);
	v = mfs_value_get(doc, root, "model");
	ck_assert(mfs_value_is_object_of(doc, v, "OrderedDict"));
	v = mfs_value_args(doc, mfs_value_get(doc, v, "weight"));
	v = mfs_value_persid(doc, mfs_value_at(doc, v, 0));
	ck_assert(mfs_value_is_str(doc, mfs_value_at(doc, v, 2), "17"));
	ck_assert(mfs_value_int(doc, mfs_value_at(doc, v, 4), &i) && i == 6);
}
END_TEST

START_TEST(names_that_pickle_cannot_have_are_refused)
{
	const uint64_t wide[] = {UINT64_MAX, 2};

	begin(2);
	mfs_pickle_global(&w, "a", "b\nq");
	mfs_pickle_none(&w);
	unit_fails(mfs_pickle_end(&w, &err), &err, -EINVAL, "class");
	begin(2);
	mfs_pickle_global(&w, "outer", "Class.Inner");
	unit_fails(mfs_pickle_end(&w, &err), &err, -ENOTSUP, "Class.Inner");
	begin(4);
	mfs_pickle_global(&w, "outer", "Class.Inner");
	unit_ok(mfs_pickle_end(&w, &err), &err);
	begin(2);
	mfs_pickle_tensor(&w, 0, MFS_F32, wide, 2);
	unit_fails(mfs_pickle_end(&w, &err), &err, -EINVAL, "overflows");
	begin(2);
	mfs_pickle_tensor(&w, 0, MFS_DTYPE_NONE, wide, 1);
	unit_fails(mfs_pickle_end(&w, &err), &err, -EINVAL, "type");
}
END_TEST

/* ---- copying ---- */

static bool same(mfs_value a, mfs_value b, unsigned depth);

static bool same_collections(mfs_value a, mfs_value b, unsigned depth)
{
	uint32_t count = mfs_value_count(doc, a), pairs = mfs_value_pairs(doc, a);

	if (count != mfs_value_count(copy, b) || pairs != mfs_value_pairs(copy, b))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (!same(mfs_value_at(doc, a, i), mfs_value_at(copy, b, i), depth))
			return false;
	for (uint32_t i = 0; i < pairs; i++)
		if (!same(mfs_value_key(doc, a, i), mfs_value_key(copy, b, i), depth) ||
		    !same(mfs_value_item(doc, a, i), mfs_value_item(copy, b, i), depth))
			return false;
	return true;
}

static bool same_text(const void *a, size_t a_len, const void *b, size_t b_len)
{
	return a_len == b_len && !memcmp(a, b, a_len);
}

static bool same_global(mfs_value a, mfs_value b)
{
	const char *module[2] = {"", ""}, *name[2] = {"", ""};
	size_t module_len[2] = {0}, name_len[2] = {0};

	if (!mfs_value_global(doc, a, &module[0], &module_len[0], &name[0], &name_len[0]))
		return mfs_value_type(copy, b) != MFS_V_GLOBAL;
	return mfs_value_global(copy, b, &module[1], &module_len[1], &name[1], &name_len[1]) &&
	       same_text(module[0], module_len[0], module[1], module_len[1]) &&
	       same_text(name[0], name_len[0], name[1], name_len[1]);
}

static bool same_scalar(mfs_value a, mfs_value b)
{
	const uint8_t *bytes[2] = {(uint8_t *)"", (uint8_t *)""};
	const char *text[2] = {"", ""};
	size_t len[2] = {0};
	int64_t i[2] = {0};
	double f[2] = {0};
	bool t[2] = {0};

	mfs_value_int(doc, a, &i[0]), mfs_value_int(copy, b, &i[1]);
	mfs_value_float(doc, a, &f[0]), mfs_value_float(copy, b, &f[1]);
	mfs_value_bool(doc, a, &t[0]), mfs_value_bool(copy, b, &t[1]);
	if (i[0] != i[1] || memcmp(&f[0], &f[1], sizeof *f) || t[0] != t[1])
		return false;
	mfs_value_str(doc, a, &text[0], &len[0]), mfs_value_str(copy, b, &text[1], &len[1]);
	if (!same_text(text[0], len[0], text[1], len[1]))
		return false;
	len[0] = len[1] = 0;
	mfs_value_bytes(doc, a, &bytes[0], &len[0]), mfs_value_bytes(copy, b, &bytes[1], &len[1]);
	mfs_value_bigint(doc, a, &bytes[0], &len[0]);
	mfs_value_bigint(copy, b, &bytes[1], &len[1]);
	return same_text(bytes[0], len[0], bytes[1], len[1]) && same_global(a, b);
}

static bool same(mfs_value a, mfs_value b, unsigned depth)
{
	if (mfs_value_is_none(doc, a))
		return mfs_value_is_none(copy, b);
	ck_assert_uint_lt(depth, 100);
	depth++;
	return mfs_value_type(doc, a) == mfs_value_type(copy, b) &&
	       mfs_value_form(doc, a) == mfs_value_form(copy, b) && same_scalar(a, b) &&
	       same_collections(a, b, depth) &&
	       same(mfs_value_callable(doc, a), mfs_value_callable(copy, b), depth) &&
	       same(mfs_value_args(doc, a), mfs_value_args(copy, b), depth) &&
	       same(mfs_value_kwargs(doc, a), mfs_value_kwargs(copy, b), depth) &&
	       same(mfs_value_state(doc, a), mfs_value_state(copy, b), depth) &&
	       same(mfs_value_persid(doc, a), mfs_value_persid(copy, b), depth);
}

/* Copies doc's root, and parses that into copy. */
static mfs_value copied(int protocol, const struct mfs_pickle_hooks *hooks)
{
	begin(protocol);
	unit_ok(mfs_pickle_copy(&w, doc, mfs_pickle_root(doc), hooks, &err), &err);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	mfs_pickle_free(copy);
	unit_ok(mfs_pickle_parse(out.data, out.len, "copy", NULL, &copy, &err), &err);
	return mfs_pickle_root(copy);
}

static void refuses_copy(int protocol, const struct mfs_pickle_hooks *hooks, int code,
			 const char *words)
{
	struct mfs_error later;

	begin(protocol);
	unit_fails(mfs_pickle_copy(&w, doc, mfs_pickle_root(doc), hooks, &err), &err, code, words);
	/* The writer stays failed. */
	mfs_pickle_none(&w);
	unit_fails(mfs_pickle_end(&w, &later), &later, code, words);
}

static const char *const fixtures[] = {
	"resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_00_000/model_optim_rng.pt",
	"resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_00_001/model_optim_rng.pt",
	"resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_01_000/model_optim_rng.pt",
	"resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_01_001/model_optim_rng.pt",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_00/distrib_optim.pt",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_00/model_optim_rng.pt",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_01/model_optim_rng.pt",
	"weights/gpt2-torch-tp2-pp2/iter_0000040/mp_rank_01_001/model_optim_rng.pt",
	"weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_00_000/model_optim_rng.pt",
	"weights/mixtral-torch-pp2-ep2/iter_0000040/mp_rank_00_001_001/model_optim_rng.pt",
};

static void parse_fixture(const char *path, struct mfs_torch_file *f, uint8_t **bytes)
{
	struct mfs_source src;
	size_t len;

	*bytes = unit_slurp(unit_fixture(path), &len);
	src = mfs_source_memory(*bytes, len, path);
	unit_ok(mfs_torch_file_open(&src, f, &err), &err);
	doc = f->doc;
}

START_TEST(copy_of_real_state_dicts)
{
	struct mfs_torch_file f;
	uint8_t *bytes;

	parse_fixture(fixtures[_i], &f, &bytes);
	ck_assert(same(mfs_pickle_root(doc), copied(2, NULL), 0));
	ck_assert(same(mfs_pickle_root(doc), copied(4, NULL), 0));
	doc = NULL;
	mfs_torch_file_release(&f);
	free(bytes);
}
END_TEST

static const char *const metadata[] = {
	"resume/llama-torch_dist-tp2-pp2/iter_0000040/.metadata",
	"weights/deepseek-torch_dist-pp2-ep2/iter_0000040/.metadata",
	"weights/qwen3-torch_dist-tp4/iter_0000040/.metadata",
};

START_TEST(copy_of_real_metadata)
{
	size_t len;
	uint8_t *bytes = unit_slurp(unit_fixture(metadata[_i]), &len);

	parse(bytes, len);
	ck_assert(same(mfs_pickle_root(doc), copied(4, NULL), 0));
	ck_assert_uint_lt(out.len, len + len / 4); /* torch.Sizes were shared, texts are */
	ck_assert(same(mfs_pickle_root(doc), copied(2, NULL), 0));
	free(bytes);
}
END_TEST

/* Each of these must come out byte for byte: the copier chooses Python's opcodes. */
static const struct {
	const char *bytes;
	size_t len;
} forms[] = {
#define STREAM(text)                                                                               \
	{                                                                                          \
		"\x80\x04" text ".", sizeof(text) + 2                                              \
	}
	STREAM("\x8a\x9\0\0\0\0\0\0\0\0\1"), /* 2**64 */
	STREAM("\x8f(K\1K\2\x90"),	     /* {1, 2} */
	STREAM("(K\1K\2\x91"),		     /* frozenset */
	STREAM("\x8c\1m\x94\x8c\1"
	       "C\x94\x93\x94)\x81"), /* C.__new__(C) */
	STREAM("\x8c\1m\x94\x8c\1"
	       "C\x94\x93\x94)R"), /* C() */
	STREAM("\x8c\1m\x94\x8c\1"
	       "C\x94\x93\x94)}(\x8c\1a\x94K\1u\x92"), /* with keywords */
	STREAM("\x8c\1m\x94\x8c\1"
	       "C\x94\x93\x94)R(K\1e(K\2K\3u}b"), /* items, pairs, state */
	STREAM("C\2\0\xff"),
	STREAM("(K\1K\2K\3K\4t\x85Q"),
	STREAM("](]})Ne"),
};

START_TEST(copy_keeps_forms)
{
	parse(forms[_i].bytes, forms[_i].len);
	copied(4, NULL);
	ck_assert_uint_eq(out.len, forms[_i].len);
	ck_assert_mem_eq(out.data, forms[_i].bytes, out.len);
}
END_TEST

/* What protocol 2 has no opcode for is a call there. */
START_TEST(copy_to_protocol_2)
{
	mfs_value v;

	PARSE("\x80\x04(K\1K\2\x91.");
	v = copied(2, NULL);
	ck_assert(
		mfs_value_is_global(copy, mfs_value_callable(copy, v), "__builtin__", "frozenset"));
	v = mfs_value_at(copy, mfs_value_args(copy, v), 0);
	ck_assert_uint_eq(mfs_value_count(copy, v), 2);
	PARSE("\x80\x05\x96\2\0\0\0\0\0\0\0\0\xff.");
	v = copied(2, NULL);
	ck_assert(
		mfs_value_is_global(copy, mfs_value_callable(copy, v), "__builtin__", "bytearray"));
	v = copied(4, NULL);
	ck_assert(mfs_value_is_global(copy, mfs_value_callable(copy, v), "builtins", "bytearray"));
	PARSE("\x80\x02"
	      "c__builtin__\ngetattr\nc__builtin__\nint\nX\1\0\0\0a\x86R.");
	v = copied(4, NULL);
	ck_assert(mfs_value_is_global(copy, mfs_value_callable(copy, v), "builtins", "getattr"));
	PARSE("\x80\x04\x8c\3a\nb\x8c\1c\x93.");
	refuses_copy(2, NULL, -EINVAL, "class");
	PARSE("\x80\x04K\1K\2\x93.");
	refuses_copy(4, NULL, -EINVAL, "class");
}
END_TEST

/* ---- hooks ---- */

struct changes {
	mfs_value args;
	uint32_t storages;
};

static int change_pair(void *arg, struct mfs_pickle_writer *to, mfs_value dict, const char *key,
		       size_t len, mfs_value value, struct mfs_error *e)
{
	struct changes *c = arg;

	(void)value, (void)e;
	if (dict != c->args)
		return 0;
	if (len == 4 && !memcmp(key, "rank", 4))
		return 1;
	if (len != 26 || memcmp(key, "tensor_model_parallel_size", 26))
		return 0;
	mfs_pickle_namen(to, key, len);
	mfs_pickle_int(to, 8);
	return 1;
}

static int add_pairs(void *arg, struct mfs_pickle_writer *to, mfs_value dict, struct mfs_error *e)
{
	struct changes *c = arg;

	(void)e;
	if (dict != c->args)
		return 0;
	mfs_pickle_name(to, "no_save_optim");
	mfs_pickle_bool(to, true);
	return 0;
}

static int count_storage(void *arg, mfs_value persid, const char *key, size_t len, uint32_t *ret,
			 struct mfs_error *e)
{
	struct changes *c = arg;

	(void)key, (void)e;
	ck_assert(len && mfs_value_count(doc, persid) == 5);
	*ret = 1000 + c->storages++;
	return 0;
}

START_TEST(hooks_change_what_is_copied)
{
	struct changes c = {0};
	const struct mfs_pickle_hooks hooks = {
		.arg = &c, .pair = change_pair, .pairs_end = add_pairs, .storage = count_storage};
	struct mfs_torch_file f;
	mfs_value root, args, before, v;
	const char *key;
	uint8_t *bytes;
	size_t len;
	int64_t i;
	bool b;

	parse_fixture(fixtures[0], &f, &bytes);
	args = mfs_value_get(doc, mfs_pickle_root(doc), "args");
	c.args = before = mfs_value_state(doc, args);
	root = copied(2, &hooks);
	args = mfs_value_get(copy, root, "args");
	ck_assert(
		mfs_value_int(copy, mfs_value_attr(copy, args, "tensor_model_parallel_size"), &i) &&
		i == 8);
	ck_assert(mfs_value_bool(copy, mfs_value_attr(copy, args, "no_save_optim"), &b) && b);
	v = mfs_value_state(copy, args);
	ck_assert(mfs_value_has(doc, before, "rank") && !mfs_value_has(copy, v, "rank"));
	ck_assert_uint_eq(mfs_value_pairs(copy, v), mfs_value_pairs(doc, before));
	ck_assert_uint_gt(c.storages, 10);
	v = mfs_value_get(copy, mfs_value_get(copy, root, "model"),
			  "decoder.layers.0.self_attention.linear_qkv.weight");
	v = mfs_value_persid(copy, mfs_value_at(copy, mfs_value_args(copy, v), 0));
	ck_assert(mfs_value_str(copy, mfs_value_at(copy, v, 2), &key, &len));
	ck_assert(len == 4 && key[0] == '1');
	ck_assert(mfs_value_is_str(copy, mfs_value_at(copy, v, 3), "cpu"));
	doc = NULL;
	mfs_torch_file_release(&f);
	free(bytes);
}
END_TEST

static int drop_pair(void *arg, struct mfs_pickle_writer *to, mfs_value dict, const char *key,
		     size_t len, mfs_value value, struct mfs_error *e)
{
	(void)arg, (void)to, (void)dict, (void)key, (void)len, (void)value, (void)e;
	return 1;
}

static int none_for_lists(void *arg, struct mfs_pickle_writer *to, mfs_value v, struct mfs_error *e)
{
	(void)arg, (void)e;
	if (mfs_value_type(doc, v) != MFS_V_LIST)
		return 0;
	mfs_pickle_none(to);
	return 1;
}

static int give_up(void *arg, struct mfs_pickle_writer *to, mfs_value v, struct mfs_error *e)
{
	(void)arg, (void)to, (void)v;
	return mfs_fail(e, -ENODATA, "nothing there");
}

START_TEST(small_hooks)
{
	struct mfs_pickle_hooks hooks = {.pair = drop_pair};

	PARSE("\x80\x04}(\x8c\1a\x94K\1\x8c\1b\x94K\2u.");
	copied(4, &hooks);
	ck_assert_mem_eq(out.data, "\x80\x04}.", 4); /* no mark is left over */
	hooks = (struct mfs_pickle_hooks){.value = none_for_lists};
	PARSE("\x80\x04](K\1K\2e\x85.");
	copied(4, &hooks);
	ck_assert_mem_eq(out.data, "\x80\x04N\x85.", 5);
	hooks = (struct mfs_pickle_hooks){.value = give_up};
	refuses_copy(4, &hooks, -ENODATA, "nothing there");
	hooks = (struct mfs_pickle_hooks){.storage = count_storage};
	PARSE("\x80\x02K\1Q.");
	refuses_copy(2, &hooks, -ENOTSUP, "storage");
}
END_TEST

/* ---- hostile documents ---- */

START_TEST(copy_is_bounded)
{
	struct mfs_pickle_hooks hooks = {.limit = 1000};
	struct mfs_buf deep = {0};

	/* Ten lists, each of ten references to the one before. */
	mfs_buf_adds(&deep, "\x80\x02]q");
	mfs_buf_add(&deep, "\0", 1);
	for (char i = 0; i < 10; i++) {
		mfs_buf_adds(&deep, "](");
		for (int j = 0; j < 10; j++) {
			mfs_buf_adds(&deep, "h");
			mfs_buf_add(&deep, &i, 1);
		}
		mfs_buf_printf(&deep, "eq%c", i + 1);
	}
	for (int i = 0; i < 10; i++)
		mfs_buf_adds(&deep, "\x86");
	mfs_buf_adds(&deep, ".");
	parse(deep.data, deep.len);
	refuses_copy(2, NULL, -ENOTSUP, "bytes");
	refuses_copy(2, &hooks, -ENOTSUP, "1000 bytes");
	ck_assert_uint_lt(out.len, 2000);
	mfs_buf_release(&deep);
	PARSE("\x80\x02]q\0h\0a.");
	refuses_copy(2, NULL, -ENOTSUP, "deep");
	mfs_buf_adds(&deep, "\x80\x02N");
	for (int i = 0; i < 100000; i++)
		mfs_buf_adds(&deep, "\x85");
	mfs_buf_adds(&deep, ".");
	parse(deep.data, deep.len);
	refuses_copy(2, NULL, -ENOTSUP, "deep");
	mfs_buf_release(&deep);
}
END_TEST

/* Longer than one batch, and than the reader's stack. */
START_TEST(long_collections)
{
	begin(4);
	mfs_pickle_dict_begin(&w);
	for (int i = 0; i < MFS_PICKLE_MAX_DEPTH; i++) {
		mfs_pickle_batch(&w, MFS_OP_SETITEMS, (uint64_t)i);
		mfs_pickle_int(&w, i);
		mfs_pickle_none(&w);
	}
	mfs_pickle_dict_end(&w);
	ck_assert_uint_eq(mfs_value_pairs(doc, written()), MFS_PICKLE_MAX_DEPTH);
	copied(2, NULL);
	ck_assert_uint_eq(mfs_value_pairs(copy, mfs_pickle_root(copy)), MFS_PICKLE_MAX_DEPTH);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("pickle_write");
	TCase *c = tcase_create("pickles");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_loop_test(c, integers_have_torchs_bytes, 0, MFS_ARRAY_SIZE(integers));
	tcase_add_test(c, values_have_pickles_bytes);
	tcase_add_loop_test(c, each_text_is_written_once, 0, 2);
	tcase_add_test(c, state_dict);
	tcase_add_test(c, names_that_pickle_cannot_have_are_refused);
	tcase_add_loop_test(c, copy_of_real_state_dicts, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_loop_test(c, copy_of_real_metadata, 0, MFS_ARRAY_SIZE(metadata));
	tcase_add_loop_test(c, copy_keeps_forms, 0, MFS_ARRAY_SIZE(forms));
	tcase_add_test(c, copy_to_protocol_2);
	tcase_add_test(c, hooks_change_what_is_copied);
	tcase_add_test(c, small_hooks);
	tcase_add_test(c, copy_is_bounded);
	tcase_add_test(c, long_collections);
	return s;
}
