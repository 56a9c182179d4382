/* Comparing tensors (formats/plan/compare.h), and saying where an element lies
 * (formats/ckpt/element.h). */
#include "formats/plan/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/numbers/half.h"
#include "formats/ckpt/element.h"
#include "formats/ckpt/target.h"
#include "tests/unit/fake_files.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* Two checkpoints of one tensor each, and what was changed in the second. */
struct sides {
	struct mfs_ckpt ckpt[2];
	struct fake_files files[2];
	struct mfs_plan *plan[2];
};

static void open_sides(struct sides *s, uint64_t rows, uint64_t cols, enum mfs_dtype a,
		       enum mfs_dtype b)
{
	*s = (struct sides){0};
	for (int i = 0; i < 2; i++) {
		struct mfs_whole_target t;
		char dir[] = "side0";

		dir[4] += (char)i;
		s->ckpt[i] = (struct mfs_ckpt){.dir = "/ckpt"};
		fake_add(&s->ckpt[i], "", "x", -1, -1, (int64_t)rows, (int64_t)cols)->dtype =
			i ? b : a;
		fake_sort(&s->ckpt[i]);
		fake_store(&s->files[i], &s->ckpt[i], dir);
		mfs_whole_target_init(&t, &s->ckpt[i], s->ckpt[i].tensors);
		unit_ok(mfs_plan_new(&t.base, &s->plan[i], &err), &err);
	}
}

static void close_sides(struct sides *s)
{
	for (int i = 0; i < 2; i++) {
		mfs_plan_free(s->plan[i]);
		fake_unstore(&s->files[i]);
		fake_release(&s->ckpt[i]);
	}
}

/* Changes an element of the second side's files, before they are mapped; returns its file. */
static void change(struct sides *s, uint64_t index, const void *bytes)
{
	const struct mfs_global_tensor *t = s->ckpt[1].tensors;
	const unsigned element = mfs_dtype_size(t->dtype);
	const uint64_t row = index / t->shape[1], col = index % t->shape[1];

	for (uint32_t i = 0; i < t->chunk_count; i++) {
		const struct mfs_chunk *c = &s->ckpt[1].chunks[t->first_chunk + i];
		char name[] = "side1/file0";
		char path[600];
		FILE *f;

		if (row < c->lo[0] || row >= c->lo[0] + c->size[0] || col < c->lo[1] ||
		    col >= c->lo[1] + c->size[1])
			continue;
		name[10] += (char)c->storage;
		snprintf(path, sizeof(path), "%s/%s", unit_tmpdir(), name);
		f = fopen(path, "r+b");
		ck_assert_ptr_nonnull(f);
		fseek(f,
		      (long)((c->origin + (row - c->lo[0]) * c->stride[0] +
			      (col - c->lo[1]) * c->stride[1]) *
			     element),
		      SEEK_SET);
		ck_assert_uint_eq(fwrite(bytes, 1, element, f), element);
		fclose(f);
		return;
	}
	ck_abort_msg("element %llu is in no chunk", (unsigned long long)index);
}

/* A fileset notes a file's time: the changed one must be opened anew. */
static void reopen(struct sides *s)
{
	char path[600];
	uint32_t file;

	mfs_fileset_free(s->ckpt[1].files);
	snprintf(path, sizeof(path), "%s/side1", unit_tmpdir());
	unit_ok(mfs_fileset_new(path, &s->ckpt[1].files, &err), &err);
	for (unsigned i = 0; i < FAKE_FILES; i++) {
		char name[] = "file0";

		name[4] += (char)i;
		unit_ok(mfs_fileset_add(s->ckpt[1].files, name, &file, &err), &err);
	}
	s->plan[1]->files = s->ckpt[1].files;
}

/* Whole, and in random parts in random order: the same is found. */
static struct mfs_comparison compare_all(const struct sides *s, uint64_t count)
{
	struct mfs_comparison whole = {0}, parts = {0}, part;
	const uint64_t middle = count / 3;
	struct mfs_comparer *c;

	unit_ok(mfs_comparer_new(&c, &err), &err);
	unit_ok(mfs_compare(c, s->plan[0], s->plan[1], 0, count, &whole, &err), &err);
	part = (struct mfs_comparison){0};
	unit_ok(mfs_compare(c, s->plan[0], s->plan[1], middle, count - middle, &part, &err), &err);
	mfs_comparison_add(&parts, &part);
	part = (struct mfs_comparison){0};
	unit_ok(mfs_compare(c, s->plan[0], s->plan[1], 0, middle, &part, &err), &err);
	mfs_comparison_add(&parts, &part);
	ck_assert_mem_eq(&whole, &parts, sizeof(whole));
	ck_assert_uint_eq(whole.elements, count);
	mfs_comparer_free(c);
	return whole;
}

START_TEST(equal_however_they_lie)
{
	static const enum mfs_dtype types[] = {MFS_BF16, MFS_F32, MFS_F16, MFS_U8, MFS_F64};
	struct sides s;
	struct mfs_comparison c;

	srand((unsigned)_i + 1);
	open_sides(&s, 1 + fake_below(900), 1 + fake_below(700), types[_i % 5], types[_i % 5]);
	c = compare_all(&s, s.ckpt[0].tensors->shape[0] * s.ckpt[0].tensors->shape[1]);
	ck_assert_uint_eq(c.differing, 0);
	ck_assert(c.largest == 0);
	close_sides(&s);
}
END_TEST

START_TEST(changed_elements_are_counted)
{
	const uint64_t rows = 500, cols = 300, changes = 1 + (uint64_t)_i * 7;
	uint64_t first = rows * cols, differing = 0;
	struct mfs_comparison c;
	struct sides s;
	bool *changed = calloc(rows * cols, sizeof(*changed));
	double largest = 0;

	srand((unsigned)_i + 1);
	open_sides(&s, rows, cols, MFS_F32, MFS_F32);
	for (uint64_t i = 0; i < changes; i++) {
		const uint64_t at = fake_below((uint32_t)(rows * cols));
		const float more = (float)(1 + fake_below(1000)) / 1024;
		uint8_t old[4];
		float v, was;

		if (changed[at])
			continue;
		fake_element(s.ckpt[0].tensors, at, old);
		memcpy(&was, old, 4);
		v = was + more;
		change(&s, at, &v);
		changed[at] = true;
		differing++;
		first = at < first ? at : first;
		largest = fabs((double)was - v) > largest ? fabs((double)was - v) : largest;
	}
	reopen(&s);
	c = compare_all(&s, rows * cols);
	ck_assert_uint_eq(c.differing, differing);
	ck_assert_uint_eq(c.first, first);
	ck_assert(c.largest == largest);
	close_sides(&s);
	free(changed);
}
END_TEST

START_TEST(zeros_and_nans_by_their_bytes)
{
	const float values[] = {-0.0f, 0.0f, NAN, INFINITY};
	const uint32_t other_nan = 0x7fc00001;
	struct mfs_comparison c;
	struct sides s;

	srand(1);
	open_sides(&s, 4, 4, MFS_F32, MFS_F32);
	change(&s, 3, &values[2]);
	change(&s, 7, &other_nan);
	change(&s, 9, &values[3]);
	reopen(&s);
	c = compare_all(&s, 16);
	ck_assert_uint_eq(c.differing, 3);
	ck_assert_uint_eq(c.nans, 2);
	ck_assert_uint_eq(c.first, 3);
	ck_assert(isinf(c.largest) && isnan(c.b));
	close_sides(&s);
	open_sides(&s, 1, 2, MFS_U8, MFS_U8);
	for (int i = 0; i < 2; i++)
		s.plan[i]->dtype = s.plan[i]->shown = MFS_F8_E4M3;
	change(&s, 0, "\x7e"); /* the largest float8_e4m3fn: 448 */
	change(&s, 1, "\x01"); /* the smallest: 2^-9 */
	reopen(&s);
	c = compare_all(&s, 1);
	ck_assert(c.b == 448);
	close_sides(&s);
}
END_TEST

/* fp32 against bf16: what rounding explains is told from what it does not. */
START_TEST(two_types)
{
	const uint64_t rows = 40, cols = 30;
	struct mfs_comparison c;
	struct sides s;
	uint16_t half;

	srand(5);
	open_sides(&s, rows, cols, MFS_F32, MFS_BF16);
	for (uint64_t i = 0; i < rows * cols; i++) {
		uint8_t bytes[4];
		float v;

		fake_element(s.ckpt[0].tensors, i, bytes);
		memcpy(&v, bytes, 4);
		half = mfs_float_to_bf16(v);
		if (i == 77)
			half ^= 1;
		change(&s, i, &half);
	}
	reopen(&s);
	c = compare_all(&s, rows * cols);
	ck_assert_uint_eq(c.beyond_rounding, 1);
	ck_assert_uint_gt(c.differing, rows * cols * 9 / 10);
	ck_assert(c.largest < 0.01 && c.largest > 0);
	ck_assert(mfs_compare_rounds(MFS_F32, MFS_BF16) && !mfs_compare_rounds(MFS_BF16, MFS_F16));
	close_sides(&s);
}
END_TEST

START_TEST(a_file_that_was_cut)
{
	struct mfs_comparison c = {0};
	struct mfs_comparer *comparer;
	struct sides s;
	char path[600];

	srand(2);
	open_sides(&s, 600, 600, MFS_F32, MFS_F32);
	snprintf(path, sizeof(path), "%s/side1", unit_tmpdir());
	for (int k = 0; k < FAKE_FILES; k++) {
		const char name[] = {'f', 'i', 'l', 'e', (char)('0' + k), '\0'};

		unit_write(path, name, "x", 1);
	}
	unit_ok(mfs_comparer_new(&comparer, &err), &err);
	unit_fails(mfs_compare(comparer, s.plan[0], s.plan[1], 0, 360000, &c, &err), &err, -ESTALE,
		   "side1/file");
	mfs_comparer_free(comparer);
	close_sides(&s);
}
END_TEST

/* ---- places ---- */

static const struct {
	struct mfs_megatron_args (*args)(void);
	const char *name;
	int32_t layer;
	uint64_t index[2];
	const char *place;
} places[] = {
	{fake_llama, "embedding.word_embeddings.weight", -1, {17, 5}, "token 17"},
	{fake_llama, "output_layer.weight", -1, {17, 5}, "token 17"},
	/* 2 groups of 2 heads of 16: 64 rows a group */
	{fake_llama,
	 "decoder.layers.self_attention.linear_qkv.weight",
	 0,
	 {17, 5},
	 "query group 0, query head 1 of it, row 1"},
	{fake_llama,
	 "decoder.layers.self_attention.linear_qkv.weight",
	 0,
	 {64 + 33, 5},
	 "query group 1, its key, row 1"},
	{fake_llama,
	 "decoder.layers.self_attention.linear_qkv.weight",
	 1,
	 {127, 5},
	 "query group 1, its value, row 15"},
	{fake_qwen2,
	 "decoder.layers.self_attention.linear_qkv.bias",
	 1,
	 {64, 0},
	 "query group 1, query head 0 of it, row 0"},
	{fake_llama,
	 "decoder.layers.self_attention.linear_proj.weight",
	 1,
	 {3, 33},
	 "query head 2, its column 1"},
	{fake_llama, "decoder.layers.mlp.linear_fc1.weight", 1, {175, 0}, "gate row 175"},
	{fake_llama, "decoder.layers.mlp.linear_fc1.weight", 1, {176, 0}, "up row 0"},
	{fake_gpt2, "decoder.layers.mlp.linear_fc1.weight", 1, {100, 0}, ""},
	{fake_gpt2, "embedding.position_embeddings.weight", -1, {9, 0}, "position 9"},
	{fake_mixtral, "decoder.layers.mlp.router.weight", 1, {3, 0}, "expert 3"},
	/* q: 16 + 8 rows a head; kv: 16 + 16 */
	{fake_deepseek,
	 "decoder.layers.self_attention.linear_q_up_proj.weight",
	 1,
	 {24 + 17, 0},
	 "head 1, rotated row 1"},
	{fake_deepseek,
	 "decoder.layers.self_attention.linear_kv_up_proj.weight",
	 1,
	 {16, 0},
	 "head 0, value row 0"},
	{fake_deepseek,
	 "decoder.layers.self_attention.linear_kv_down_proj.weight",
	 1,
	 {18, 0},
	 "rotated key row 2"},
	{fake_llama, "decoder.layers.input_layernorm.weight", 1, {18, 0}, ""},
};

START_TEST(elements_have_places)
{
	const struct mfs_megatron_args args = places[_i].args();
	struct mfs_ckpt ckpt;
	char text[160];

	fake_ckpt(&ckpt, &args);
	mfs_element_text(&args, fake_find(&ckpt, places[_i].name, places[_i].layer, -1),
			 (const uint64_t[MFS_CKPT_DIMS]){places[_i].index[0], places[_i].index[1]},
			 text, sizeof(text));
	ck_assert_str_eq(text, places[_i].place);
	fake_release(&ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("compare");
	TCase *c = unit_case(s, "Compare", zeros_and_nans_by_their_bytes);

	tcase_add_test(c, two_types);
	tcase_add_test(c, a_file_that_was_cut);
	tcase_add_loop_test(c, equal_however_they_lie, 0, 20);
	tcase_add_loop_test(c, changed_elements_are_counted, 0, 12);
	tcase_add_loop_test(c, elements_have_places, 0, MFS_ARRAY_SIZE(places));
	return s;
}
