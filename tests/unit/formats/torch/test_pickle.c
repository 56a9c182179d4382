/* The pickle machine: formats/torch/pickle.h. Malformed streams: tests/fuzz/reject/pickle. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/torch/pickle.h"

static struct mfs_error err;
static struct mfs_pickle *doc;

static void teardown(void)
{
	mfs_pickle_free(doc);
	doc = NULL;
}

static mfs_value parse(const void *bytes, size_t len)
{
	unit_ok(mfs_pickle_parse(bytes, len, "test", NULL, &doc, &err), &err);
	return mfs_pickle_root(doc);
}

#define PARSE(text) parse(text, sizeof(text) - 1)

static void assert_int(mfs_value v, int64_t want)
{
	int64_t i;

	ck_assert(mfs_value_int(doc, v, &i));
	ck_assert_int_eq(i, want);
}

static const struct {
	const char *bytes;
	size_t len;
	int64_t value;
} integers[] = {
#define STREAM(text) "\x80\x02" text ".", sizeof(text) + 2
	{STREAM("K\xff"), 255},
	{STREAM("M\xff\xff"), 65535},
	{STREAM("J\xff\xff\xff\xff"), -1},
	{STREAM("J\x00\x00\x00\x80"), INT32_MIN},
	{STREAM("\x8a\x00"), 0},
	{STREAM("\x8a\x01\x80"), -128},
	{STREAM("\x8a\x02\x80\x00"), 128},
	{STREAM("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), INT64_MAX},
	{STREAM("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"), INT64_MIN},
	{STREAM("\x8b\x03\x00\x00\x00\x01\x00\x01"), 65537},
};

START_TEST(integers_of_each_width_are_read)
{
	assert_int(parse(integers[_i].bytes, integers[_i].len), integers[_i].value);
}
END_TEST

START_TEST(values_of_each_type_are_read)
{
	mfs_value v = PARSE("\x80\x02(N\x88\x89G?\xf8\x00\x00\x00\x00\x00\x00"
			    "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01X\x02\x00\x00\x00hi"
			    "C\x02\x00\xfft.");
	const uint8_t *bytes;
	const char *text;
	double f;
	size_t len;
	int64_t i = 7;
	bool b;

	ck_assert_int_eq(mfs_value_type(doc, v), MFS_V_TUPLE);
	ck_assert_uint_eq(mfs_value_count(doc, v), 7);
	ck_assert(mfs_value_is_none(doc, mfs_value_at(doc, v, 0)));
	ck_assert(mfs_value_bool(doc, mfs_value_at(doc, v, 1), &b) && b);
	ck_assert(mfs_value_bool(doc, mfs_value_at(doc, v, 2), &b) && !b);
	ck_assert(mfs_value_float(doc, mfs_value_at(doc, v, 3), &f) && fabs(f - 1.5) < 1e-12);
	ck_assert_int_eq(mfs_value_type(doc, mfs_value_at(doc, v, 4)), MFS_V_BIGINT);
	ck_assert(!mfs_value_int(doc, mfs_value_at(doc, v, 4), &i) && i == 7);
	ck_assert(mfs_value_str(doc, mfs_value_at(doc, v, 5), &text, &len));
	ck_assert(len == 2 && !memcmp(text, "hi", 2));
	ck_assert(mfs_value_bytes(doc, mfs_value_at(doc, v, 6), &bytes, &len));
	ck_assert(len == 2 && bytes[1] == 0xff);
	ck_assert(!mfs_value_str(doc, mfs_value_at(doc, v, 6), &text, &len));
	ck_assert(mfs_value_is_none(doc, mfs_value_at(doc, v, 7)));
}
END_TEST

/* {"a": 1, "b": 2, "a": 3}: the last one counts, as in Python. */
START_TEST(dict_keeps_the_last)
{
	mfs_value v = PARSE("\x80\x02}(U\x01"
			    "aK\x01U\x01"
			    "bK\x02U\x01"
			    "aK\x03u.");

	assert_int(mfs_value_get(doc, v, "a"), 3);
	assert_int(mfs_value_get(doc, v, "b"), 2);
	ck_assert(mfs_value_has(doc, v, "b") && !mfs_value_has(doc, v, "c"));
	ck_assert_uint_eq(mfs_value_get(doc, v, "c"), 0);
}
END_TEST

/* os.system("x") is a value like any other: nothing is called. */
START_TEST(calls_are_remembered_not_made)
{
	mfs_value v = PARSE("\x80\x02"
			    "cos\nsystem\nU\x01x\x85R.");
	size_t len;

	ck_assert_int_eq(mfs_value_type(doc, v), MFS_V_OBJECT);
	ck_assert(mfs_value_is_global(doc, mfs_value_callable(doc, v), "os", "system"));
	ck_assert(mfs_value_is_str(doc, mfs_value_at(doc, mfs_value_args(doc, v), 0), "x"));
	ck_assert(mfs_value_is_object_of(doc, v, "system"));
	ck_assert(!strncmp(mfs_value_class(doc, v, &len), "system", 6) && len == 6);
}
END_TEST

/* argparse.Namespace() with {"lr": 1} by BUILD; OrderedDict with items by SETITEM; list
 * subclass. */
START_TEST(objects_with_state_and_items)
{
	mfs_value v = PARSE("\x80\x02("
			    "cargparse\nNamespace\n)\x81}U\x02lrK\x01sb"
			    "ccollections\nOrderedDict\n)RU\x01kK\x02s"
			    "cm\nList\n)\x81K\x03"
			    "at.");
	mfs_value dict = mfs_value_at(doc, v, 1), list = mfs_value_at(doc, v, 2);

	assert_int(mfs_value_attr(doc, mfs_value_at(doc, v, 0), "lr"), 1);
	ck_assert_uint_eq(mfs_value_attr(doc, mfs_value_at(doc, v, 0), "wd"), 0);
	ck_assert_uint_eq(mfs_value_pairs(doc, dict), 1);
	assert_int(mfs_value_get(doc, dict, "k"), 2);
	ck_assert_uint_eq(mfs_value_count(doc, list), 1);
	assert_int(mfs_value_at(doc, list, 0), 3);
}
END_TEST

/* Memo by number (protocol 2) and by count (protocol 4), a persistent id, STACK_GLOBAL. */
START_TEST(memo_and_persistent_id)
{
	mfs_value v = PARSE("\x80\x04(U\x01xq\x05h\x05\x8c\x05torch\x94\x8c\x08"
			    "bfloat16\x94\x93"
			    "K\x07\x85Qt.");
	mfs_value id = mfs_value_persid(doc, mfs_value_at(doc, v, 3));

	ck_assert(mfs_value_is_str(doc, mfs_value_at(doc, v, 1), "x"));
	ck_assert(mfs_value_is_global(doc, mfs_value_at(doc, v, 2), "torch", "bfloat16"));
	ck_assert_int_eq(mfs_value_type(doc, mfs_value_at(doc, v, 3)), MFS_V_PERSID);
	assert_int(mfs_value_at(doc, id, 0), 7);
}
END_TEST

/* Legacy torch.save concatenates pickles: the length says where the next one starts. */
START_TEST(stops_at_stop)
{
	PARSE("\x80\x02K\x01.rest");
	ck_assert_uint_eq(mfs_pickle_length(doc), 5);
}
END_TEST

/* What is read past is not kept, and memo numbers after it still mean the same values. */
START_TEST(discarded_value_keeps_memo_numbers)
{
	static const char stream[] = "\x80\x04}\x94(\x8c\x01"
				     "a\x94\x8c\x03"
				     "AAA\x94\x8c\x05plans\x94](\x8c\x01x\x94\x8c\x01y\x94"
				     "e\x94\x8c\x01"
				     "b\x94h\x02u.";
	const struct mfs_pickle_options opt = {.discard_key = "plans"};
	mfs_value v;

	unit_ok(mfs_pickle_parse(stream, sizeof stream - 1, "test", &opt, &doc, &err), &err);
	v = mfs_pickle_root(doc);
	ck_assert(mfs_value_is_str(doc, mfs_value_get(doc, v, "a"), "AAA"));
	ck_assert_uint_eq(mfs_value_count(doc, mfs_value_get(doc, v, "plans")), 0);
}
END_TEST

/* The document may not grow with what is discarded: the plans of a large run exceed all else. */
START_TEST(real_metadata)
{
	const struct mfs_pickle_options opt = {.discard_key = "all_local_plans"};
	size_t len;
	uint8_t *bytes = unit_slurp(
		unit_fixture("weights/mixtral-torch_dist-pp2-ep2/iter_0000040/.metadata"), &len);
	mfs_value root, tensors;

	unit_ok(mfs_pickle_parse(bytes, len, ".metadata", &opt, &doc, &err), &err);
	root = mfs_pickle_root(doc);
	ck_assert(mfs_value_is_object_of(doc, root, "Metadata"));
	tensors = mfs_value_attr(doc, root, "state_dict_metadata");
	ck_assert(mfs_value_has(doc, tensors,
				"decoder.layers.mlp.experts.experts.linear_fc1.weight"));
	ck_assert(mfs_value_is_str(doc, mfs_value_attr(doc, root, "version"), "1.0.0"));
	ck_assert_uint_eq(mfs_pickle_length(doc), len);
	free(bytes);
}
END_TEST

/* Every prefix of a real stream is refused: none is taken for the whole. */
START_TEST(every_prefix_is_refused)
{
	size_t len;
	uint8_t *bytes = unit_slurp("tests/fuzz/corpus/pickle/ok-protocol4", &len);
	struct mfs_pickle *partial = NULL;

	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);

		memcpy(copy, bytes, cut);
		unit_fails(mfs_pickle_parse(copy, cut, "cut", NULL, &partial, &err), &err, -EINVAL,
			   "cut");
		ck_assert_ptr_null(partial);
		free(copy);
	}
	free(bytes);
}
END_TEST

/* Tuples a million deep are read, and freed, without recursion. */
START_TEST(deep_nesting)
{
	const size_t depth = 1 << 20;
	char *bytes = malloc(depth + 4);
	mfs_value v;

	memcpy(bytes, "\x80\x02N", 3);
	memset(bytes + 3, 0x85, depth);
	bytes[depth + 3] = '.';
	v = parse(bytes, depth + 4);
	for (size_t i = 0; i < depth && mfs_value_type(doc, v) == MFS_V_TUPLE; i++)
		v = mfs_value_at(doc, v, 0);
	ck_assert(mfs_value_is_none(doc, v));
	free(bytes);
}
END_TEST

/* count times one opcode, then count times another, then the end. */
static int parse_pile(char up, char down, size_t count, const char *end)
{
	struct mfs_buf b = {0};
	int rc;

	mfs_pickle_free(doc);
	doc = NULL;
	mfs_buf_adds(&b, "\x80\x02(");
	for (size_t i = 0; i < count; i++)
		mfs_buf_add(&b, &up, 1);
	for (size_t i = 0; i < count && down; i++)
		mfs_buf_add(&b, &down, 1);
	mfs_buf_adds(&b, end);
	rc = mfs_pickle_parse(b.data, b.len, "pile", NULL, &doc, &err);
	mfs_buf_release(&b);
	return rc;
}

/* The stack and the marks may be as high as the limit, and no higher. */
START_TEST(stack_has_a_limit)
{
	unit_ok(parse_pile('N', 0, MFS_PICKLE_MAX_DEPTH, "t."), &err);
	ck_assert_uint_eq(mfs_value_count(doc, mfs_pickle_root(doc)), MFS_PICKLE_MAX_DEPTH);
	unit_fails(parse_pile('N', 0, MFS_PICKLE_MAX_DEPTH + 1, "t."), &err, -EINVAL,
		   "byte 1000003: the stack grows without end");
	unit_ok(parse_pile('(', '1', MFS_PICKLE_MAX_DEPTH - 1, "t."), &err);
	unit_fails(parse_pile('(', '1', MFS_PICKLE_MAX_DEPTH, "t."), &err, -EINVAL,
		   "byte 1000002: the stack grows without end");
}
END_TEST

#define LONG 1000

/* {'0': 0, 1: 'k', '1': 1, 2: 'k', ...} with '7' set again at its end. */
static void add_long_dict(struct mfs_buf *b)
{
	char key[16];

	mfs_buf_adds(b, "}(");
	for (int i = 0; i < LONG; i++) {
		int len = snprintf(key, sizeof(key), "%d", i);

		mfs_buf_printf(b, "U%c%sJ%c%c%c%c", len, key, i & 255, i >> 8, 0, 0);
		mfs_buf_printf(b, "J%c%c%c%cU\001k", i & 255, i >> 8, 1, 0);
	}
	mfs_buf_adds(b, "U\0017J");
	mfs_buf_add(b, "\xff\xff\xff\xff", 4);
	mfs_buf_adds(b, "u");
}

/* Long dicts have a table, and give the same answers. */
START_TEST(long_dicts)
{
	struct mfs_buf b = {0};
	mfs_value root, twice;
	char key[16];

	mfs_buf_adds(&b, "\x80\x02");
	add_long_dict(&b);
	add_long_dict(&b);
	mfs_buf_adds(&b, "\x86.");
	root = parse(b.data, b.len);
	for (uint32_t d = 0; d < 2; d++) {
		twice = mfs_value_at(doc, root, d);
		for (int i = 0; i < LONG; i++) {
			snprintf(key, sizeof(key), "%d", i);
			assert_int(mfs_value_get(doc, twice, key), i == 7 ? -1 : i);
		}
		ck_assert(!mfs_value_has(doc, twice, "1000"));
		ck_assert(!mfs_value_has(doc, twice, ""));
		ck_assert_uint_eq(mfs_value_get(doc, twice, "k"), 0);
	}
	mfs_buf_release(&b);
}
END_TEST

#define HUGE_KEY (4 << 20)

/* One long key in every pair by reference: hashed for each it would be 800 GB. */
START_TEST(long_keys_in_long_dicts)
{
	char *huge = calloc(1, HUGE_KEY), medium[601];
	struct mfs_buf b = {0};

	memset(huge, 'h', HUGE_KEY);
	memset(medium, 'm', 600);
	medium[600] = 0;
	mfs_buf_adds(&b, "\x80\x02}(X");
	mfs_buf_add(&b, (const uint8_t[]){0, 0, HUGE_KEY >> 16, 0}, 4);
	mfs_buf_add(&b, huge, HUGE_KEY);
	mfs_buf_add(&b, "q\0N", 3);
	for (int i = 0; i < 200000; i++)
		mfs_buf_add(&b, "h\0N", 3);
	mfs_buf_add(&b, "X\x58\x02\0\0", 5);
	mfs_buf_printf(&b, "%sK\005U\004lastK\006u.", medium);
	parse(b.data, b.len);
	assert_int(mfs_value_get(doc, mfs_pickle_root(doc), "last"), 6);
	assert_int(mfs_value_get(doc, mfs_pickle_root(doc), medium), 5);
	ck_assert(!mfs_value_has(doc, mfs_pickle_root(doc), "first"));
	mfs_buf_release(&b);
	free(huge);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("pickle");
	TCase *c = tcase_create("values");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_loop_test(c, integers_of_each_width_are_read, 0, MFS_ARRAY_SIZE(integers));
	tcase_add_test(c, values_of_each_type_are_read);
	tcase_add_test(c, long_dicts);
	tcase_add_test(c, long_keys_in_long_dicts);
	tcase_add_test(c, dict_keeps_the_last);
	tcase_add_test(c, calls_are_remembered_not_made);
	tcase_add_test(c, objects_with_state_and_items);
	tcase_add_test(c, memo_and_persistent_id);
	tcase_add_test(c, stops_at_stop);
	tcase_add_test(c, discarded_value_keeps_memo_numbers);
	tcase_add_test(c, real_metadata);
	tcase_add_test(c, every_prefix_is_refused);
	tcase_add_test(c, deep_nesting);
	tcase_add_test(c, stack_has_a_limit);
	return s;
}
