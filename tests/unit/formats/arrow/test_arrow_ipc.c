/*
 * Arrow streams and files: formats/arrow/arrow_ipc.h, flatbuffer.h. Inputs are those that pyarrow
 * wrote for the fuzz target (tests/fuzz/make_arrow_seeds.py); refused ones:
 * tests/fuzz/reject/arrow.
 */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/arrow/arrow_ipc.h"
#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/arrow/flatbuffer.h"

static struct mfs_error err;

/* ---- FlatBuffers by hand ---- */

/* A root table of four fields: u8 7, absent, a string "ab", a vector of two int64. */
/* clang-format off */
static const uint8_t flat_bytes[] = {
	20, 0, 0, 0,                                      /* root at 20 */
	/* vtable at 4: its size, the table's, fields */
	12, 0, 16, 0, 4, 0, 0, 0, 8, 0, 12, 0,
	0, 0, 0, 0,
	16, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 12, 0, 0, 0, /* table at 20: 16 back; 7; offsets */
	2, 0, 0, 0, 'a', 'b', 0, 0,                       /* string at 36 */
	2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, /* vector at 44 */
};
/* clang-format on */

START_TEST(flatbuffer_fields)
{
	struct mfs_flat f = {.bytes = flat_bytes, .size = sizeof(flat_bytes)};
	struct mfs_flat_table root = mfs_flat_root(&f);
	struct mfs_flat_vector v = mfs_flat_vector(&root, 3, 8);

	ck_assert_uint_eq(root.at, 20);
	ck_assert_uint_eq(mfs_flat_u8(&root, 0, 1), 7);
	ck_assert_int_eq(mfs_flat_i64(&root, 1, -5), -5);
	ck_assert_int_eq(mfs_flat_i32(&root, 4, 99), 99); /* its vtable ends before */
	ck_assert_str_eq(mfs_flat_string(&root, 2), "ab");
	ck_assert_ptr_null(mfs_flat_string(&root, 1));
	ck_assert_uint_eq(v.count, 2);
	ck_assert_uint_eq(mfs_le64(mfs_flat_element(&v, 1)), 2);
	ck_assert_uint_eq(mfs_flat_table(&root, 1).at, 0);
	ck_assert(!f.bad);
}
END_TEST

/* One byte of the buffer above changed; something that is then asked for marks it. */
static const struct {
	const char *what;
	unsigned at;
	uint8_t value;
} bad_bytes[] = {
	{"root behind the end", 0, 61},
	{"root at itself", 0, 0},
	{"vtable before the buffer", 20, 21},
	{"vtable longer than the buffer", 5, 1},
	{"table longer than the buffer", 7, 1},
	{"field behind the table", 8, 16},
	{"field over the distance to the vtable", 8, 2},
	{"string behind the end", 29, 1},
	{"string of no end", 42, 1},
	{"vector behind the end", 44, 3},
	{"vector of 2^24", 47, 1},
	{"string of 2^24", 39, 1},
};

START_TEST(flatbuffer_damaged)
{
	uint8_t bytes[sizeof(flat_bytes)];
	struct mfs_flat f = {.bytes = bytes, .size = sizeof(bytes)};
	struct mfs_flat_table root;

	memcpy(bytes, flat_bytes, sizeof(bytes));
	bytes[bad_bytes[_i].at] = bad_bytes[_i].value;
	root = mfs_flat_root(&f);
	mfs_flat_u8(&root, 0, 0);
	mfs_flat_string(&root, 2);
	mfs_flat_vector(&root, 3, 8);
	ck_assert_msg(f.bad, "%s", bad_bytes[_i].what);
}
END_TEST

/* ---- Arrow ---- */

static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const int32_t offsets[] = {0, 3, 3, 4, 8, 9};

static uint8_t *seed(const char *name, size_t *ret_len)
{
	char path[200];

	snprintf(path, sizeof(path), "tests/fuzz/%s", name);
	return unit_slurp(path, ret_len);
}

static struct mfs_arrow *open_seed(const char *name, uint8_t **ret_bytes)
{
	struct mfs_arrow *a;
	struct mfs_source src;
	size_t len;

	*ret_bytes = seed(name, &len);
	src = mfs_source_memory(*ret_bytes, len, "seed");
	unit_ok(mfs_arrow_open(&src, &a, &err), &err);
	return a;
}

static const struct mfs_arrow_column *column_called(const struct mfs_arrow *a, const char *name)
{
	for (uint32_t i = 0; i < mfs_arrow_column_count(a); i++)
		if (!strcmp(mfs_arrow_column(a, i)->name, name))
			return mfs_arrow_column(a, i);
	ck_abort_msg("no column '%s'", name);
}

START_TEST(columns_have_their_types_and_widths)
{
	static const struct {
		const char *name, *type;
	} want[] = {
		{"null", "null"},
		{"bool", "bool"},
		{"float", "float"},
		{"string", "string"},
		{"binary", "large_binary"},
		{"view", "string_view"},
		{"other_view", "string_view"},
		{"fixed", "fixed_size_binary"},
		{"struct", "struct"},
		{"map", "map"},
		{"strings", "list<string>"},
		{"lists", "list<list>"},
		{"list_view", "list_view"},
		{"dictionary", "string, dictionary-encoded"},
		{"runs", "run_end_encoded"},
		{"sparse", "union"},
		{"dense", "union"},
		{"when", "timestamp"},
		{"decimal", "decimal"},
		{"length", "int16"},
		{"input_ids", "list<uint16>"},
	};
	uint8_t *bytes;
	struct mfs_arrow *a = open_seed("corpus/arrow/ok-behind-all-types", &bytes);
	char text[64];

	ck_assert_uint_eq(mfs_arrow_column_count(a), 21);
	for (uint32_t i = 0; i < 21; i++) {
		const struct mfs_arrow_column *c = mfs_arrow_column(a, i);

		ck_assert_str_eq(c->name, want[i].name);
		ck_assert_str_eq(mfs_arrow_type_text(c, text, sizeof(text)), want[i].type);
		ck_assert(mfs_arrow_is_int_list(c) == (i == 20));
		ck_assert(mfs_arrow_is_int(c) == (i == 19));
	}
	mfs_arrow_free(a);
	free(bytes);
}
END_TEST

/* Five rows of nine tokens in batches of some rows, whatever they are framed and mixed with. */
static const struct {
	const char *name;
	unsigned batch, token, offset; /* rows; bytes */
} layouts[] = {
	{"ok-uint16", 5, 2, 4},
	{"ok-int32", 5, 4, 4},
	{"ok-int64", 5, 8, 4},
	{"ok-uint8", 5, 1, 4},
	{"ok-large-list", 5, 8, 8},
	{"ok-several-batches", 2, 4, 4},
	{"ok-behind-all-types", 3, 2, 4},
	{"ok-version-4", 2, 4, 4},
	{"ok-legacy-framing", 2, 4, 4},
	{"ok-file", 2, 4, 4},
	{"ok-file-legacy-framing", 2, 4, 4},
	{"ok-file-blank-in-front", 2, 4, 4},
	{"ok-file-blank-in-front-version-4", 2, 4, 4},
	{"ok-file-blank-in-front-legacy-framing", 2, 4, 4},
	{"ok-file-schema-without-size", 2, 4, 4},
};

static void check_batch(const uint8_t *bytes, const struct mfs_arrow_array *array, unsigned first,
			unsigned token, unsigned offset)
{
	ck_assert_uint_eq(array->nulls, 0);
	for (uint64_t i = 0; i <= array->rows; i++) {
		int64_t v = 0;

		memcpy(&v, bytes + array->offsets + i * offset, offset);
		ck_assert_int_eq(v, offsets[first + i] - offsets[first]);
	}
	for (uint64_t i = 0; i < array->items; i++) {
		uint64_t v = 0;

		memcpy(&v, bytes + array->values + i * token, token);
		ck_assert_uint_eq(v, tokens[offsets[first] + (int32_t)i]);
	}
}

START_TEST(every_batch_is_where_it_lies)
{
	char name[100];
	uint8_t *bytes;
	struct mfs_arrow *a;
	struct mfs_arrow_batch b;
	struct mfs_arrow_array array;
	unsigned first = 0;
	bool end;

	snprintf(name, sizeof(name), "corpus/arrow/%s", layouts[_i].name);
	a = open_seed(name, &bytes);
	for (unsigned n = 0;; n++) {
		unit_ok(mfs_arrow_next(a, &b, &end, &err), &err);
		if (end)
			break;
		ck_assert_uint_eq(b.number, n);
		unit_ok(mfs_arrow_array(a, &b, column_called(a, "input_ids"), &array, &err), &err);
		ck_assert_uint_eq(array.rows,
				  first + layouts[_i].batch > 5 ? 5 - first : layouts[_i].batch);
		check_batch(bytes, &array, first, layouts[_i].token, layouts[_i].offset);
		first += (unsigned)array.rows;
	}
	ck_assert_uint_eq(first, 5);
	mfs_arrow_free(a);
	free(bytes);
}
END_TEST

START_TEST(fixed_size_and_nulls)
{
	uint8_t *bytes;
	struct mfs_arrow *a = open_seed("corpus/arrow/ok-fixed-size-list-nulls", &bytes);
	const struct mfs_arrow_column *c = mfs_arrow_column(a, 0);
	struct mfs_arrow_batch b;
	struct mfs_arrow_array array;
	bool end;

	ck_assert_uint_eq(c->list_size, 2);
	unit_ok(mfs_arrow_next(a, &b, &end, &err), &err);
	unit_ok(mfs_arrow_array(a, &b, c, &array, &err), &err);
	ck_assert_uint_eq(array.rows, 5);
	ck_assert_uint_eq(array.nulls, 3);
	ck_assert_uint_eq(bytes[array.validity], 1 << 1 | 1 << 3);
	ck_assert_uint_eq(array.items, 10);
	ck_assert_uint_eq(array.item_nulls, 6);
	ck_assert_uint_eq(mfs_le16(bytes + array.item_validity), 3 << 2 | 3 << 6);
	ck_assert_uint_eq(mfs_le32(bytes + array.values + 4 * 7), 6);
	mfs_arrow_free(a);
	free(bytes);
}
END_TEST

static int read_through(const uint8_t *bytes, size_t len)
{
	const struct mfs_source src = mfs_source_memory(bytes, len, "x.arrow");
	struct mfs_arrow_batch b;
	struct mfs_arrow_array array;
	struct mfs_arrow *a;
	bool end = false;
	int rc = mfs_arrow_open(&src, &a, &err);

	if (rc)
		return rc;
	while (!rc && !end) {
		rc = mfs_arrow_next(a, &b, &end, &err);
		if (!rc && !end)
			rc = mfs_arrow_array(a, &b, column_called(a, "input_ids"), &array, &err);
	}
	mfs_arrow_free(a);
	return rc;
}

/* Wherever it is cut, and with whatever after it, it is refused. */
START_TEST(cut_anywhere)
{
	static const char *const names[] = {"ok-several-batches", "ok-file", "ok-legacy-framing",
					    "ok-file-schema-without-size"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		char name[100];
		uint8_t *bytes, *longer;
		size_t len;

		snprintf(name, sizeof(name), "corpus/arrow/%s", names[i]);
		bytes = seed(name, &len);
		ck_assert_int_eq(read_through(bytes, len), 0);
		for (size_t n = 0; n < len; n++) {
			/* Of its own, so that ASan sees a read of one more. */
			uint8_t *part = malloc(n ? n : 1);

			memcpy(part, bytes, n);
			unit_fails(read_through(part, n), &err, -EINVAL, "x.arrow");
			free(part);
		}
		longer = calloc(1, len + 4);
		memcpy(longer, bytes, len);
		unit_fails(read_through(longer, len + 4), &err, -EINVAL, "x.arrow");
		free(longer);
		free(bytes);
	}
}
END_TEST

/* A schema message by hand: big-endian, and of another version. Message and schema share their
 * vtables' layout. */
static void hand_made(uint8_t bytes[72], uint8_t version, uint8_t endianness)
{
	/* clang-format off */
	static const uint8_t message[72] = {
		/* size of the metadata: to byte 64 */
		255, 255, 255, 255, 56, 0, 0, 0,
		/* root at 20, counted from byte 8 */
		20, 0, 0, 0,
		/* vtable at 4: version, header type, header */
		12, 0, 16, 0, 4, 0, 6, 0, 8, 0, 0, 0,
		0, 0, 0, 0,
		16, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, /* table at 20: type 1, schema */
		/* vtable at 36: endianness, no fields */
		8, 0, 8, 0, 4, 0, 0, 0,
		8, 0, 0, 0, 0, 0, 0, 0,                           /* schema at 44 */
		0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0,       /* padding, the stream's end */
	};
	/* clang-format on */

	memcpy(bytes, message, sizeof(message));
	bytes[8 + 24] = version;
	bytes[8 + 48] = endianness;
}

START_TEST(versions_and_endianness)
{
	uint8_t bytes[72];

	hand_made(bytes, 4, 0);
	ck_assert_int_eq(read_through(bytes, 72), 0);
	hand_made(bytes, 3, 0);
	ck_assert_int_eq(read_through(bytes, 72), 0);
	hand_made(bytes, 4, 1);
	unit_fails(read_through(bytes, 72), &err, -ENOTSUP, "x.arrow: big-endian");
	hand_made(bytes, 2, 0);
	unit_fails(read_through(bytes, 72), &err, -ENOTSUP, "x.arrow: Arrow metadata version 3");
	hand_made(bytes, 5, 0);
	unit_fails(read_through(bytes, 72), &err, -ENOTSUP, "x.arrow: Arrow metadata version 6");
}
END_TEST

static const struct {
	const char *name;
	int code;
	const char *sentence;
} refused[] = {
	{"lz4", -ENOTSUP, "compressed (LZ4)"},
	{"zstd", -ENOTSUP, "compressed (ZSTD)"},
	{"compressed-as-in-0.17", -ENOTSUP, "compressed (by Arrow 0.17)"},
	{"no-end", -EINVAL, "without the mark of an end"},
	{"bytes-behind-the-end", -EINVAL, "but it goes on to"},
	{"tensor", -ENOTSUP, "expected a record batch"},
	{"two-schemas", -EINVAL, "expected a record batch"},
	{"buffer-overlap", -EINVAL, "record batch 0: buffers overlap"},
	{"node-rows-of-the-column", -EINVAL, "differ in their number of rows"},
	{"views-without-counts", -EINVAL, "does not say how many buffers its views have"},
	{"views-with-too-many", -EINVAL, "its views have more buffers than there are"},
	{"nested-deep", -ENOTSUP, "nested too deep"},
	{"text", -EINVAL, "not an Arrow stream or file"},
	{"buffer-not-at-a-multiple-of-8", -EINVAL, "a buffer does not begin at a multiple of 8"},
	{"batch-called-a-dictionary", -EINVAL, "expected a dictionary"},
	{"file-block-left-out", -EINVAL, "more record batches than its footer says"},
	{"file-block-elsewhere", -EINVAL, "record batch 0 is not where its footer says"},
	{"file-two-schemas", -EINVAL, "two schemas, and they differ"},
	{"file-cut", -EINVAL, "its footer is damaged"},
};

START_TEST(refusals_say_what_was_found)
{
	char name[100];
	uint8_t *bytes;
	size_t len;

	snprintf(name, sizeof(name), "reject/arrow/%s", refused[_i].name);
	bytes = seed(name, &len);
	unit_fails(read_through(bytes, len), &err, refused[_i].code, refused[_i].sentence);
	free(bytes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("arrow_ipc");
	TCase *c = unit_case(s, "flatbuffer", flatbuffer_fields);

	tcase_add_loop_test(c, flatbuffer_damaged, 0, MFS_ARRAY_SIZE(bad_bytes));
	c = unit_case(s, "accepted", columns_have_their_types_and_widths);
	tcase_add_loop_test(c, every_batch_is_where_it_lies, 0, MFS_ARRAY_SIZE(layouts));
	tcase_add_test(c, fixed_size_and_nulls);
	c = unit_case(s, "refused", cut_anywhere);
	tcase_add_test(c, versions_and_endianness);
	tcase_add_loop_test(c, refusals_say_what_was_found, 0, MFS_ARRAY_SIZE(refused));
	return s;
}
