/* The state of a module of Transformer Engine: formats/torch/extra_state.h. Refusals and what is
 * read again after it was written: tests/fuzz/fuzz_extra_state.c. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/torch/extra_state.h"

#define CORPUS "tests/fuzz/corpus/extra_state/"

static struct mfs_error err;
static struct mfs_arena arena;
static struct mfs_extra_state s;

static void teardown(void)
{
	mfs_arena_release(&arena);
}

static void read_file(const char *path)
{
	size_t len;
	uint8_t *bytes = unit_slurp(path, &len);

	unit_ok(mfs_extra_state_read(bytes, len, path, &arena, &s, &err), &err);
	free(bytes);
}

static const struct {
	const char *path;
	uint32_t products, length;
	int64_t margin;
	bool most_recent;
	double backward;
} states[] = {
	{CORPUS "ok-te2", 1, 3, 1, true, 57344},
	{CORPUS "ok-te2-megatron", 1, 3, 0, false, 448},
	{CORPUS "ok-te2-grouped", 4, 2, 1, true, 57344},
	{CORPUS "ok-te2-split", 1, 2, 1, true, 57344},
	{CORPUS "ok-te1", 1, 4, 0, false, 57344},
	{CORPUS "ok-none", 0, 0, 0, false, 0},
	{CORPUS "ok-empty", 0, 0, 0, false, 0},
	{CORPUS "ok-te1-none", 0, 0, 0, false, 0},
	{CORPUS "ok-tensorwise", 0, 0, 0, false, 0},
	{CORPUS "ok-blockwise", 0, 0, 0, false, 0},
};

START_TEST(forms)
{
	read_file(states[_i].path);
	ck_assert_uint_eq(s.products, states[_i].products);
	ck_assert_uint_eq(s.length, states[_i].length);
	ck_assert_int_eq(s.margin, states[_i].margin);
	ck_assert_int_eq(s.most_recent, states[_i].most_recent);
	ck_assert_double_eq(s.most[MFS_FP8_BACKWARD], states[_i].backward);
	ck_assert_double_eq(s.most[MFS_FP8_FORWARD], s.products ? 448 : 0);
	/* make_extra_state_seeds.py: scales from 1 to 101, a first row of zeros */
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS && s.products; d++)
		for (uint32_t i = 0; i < mfs_extra_state_columns(&s, d); i++) {
			ck_assert(s.scale[d][i] >= 1 && s.scale[d][i] <= 101);
			ck_assert(s.history[d][i] == 0);
		}
}
END_TEST

static const struct {
	const char *key;
	int code;
	uint32_t length;
} values_of[] = {
	{"none", 0, 0},		 {"empty", 0, 0},	  {"te1", 0, 4},     {"te2", 0, 3},
	{"number", -ENOTSUP, 0}, {"floats", -ENOTSUP, 0}, {"missing", 0, 0},
};

/* As they are in a model's dict. */
START_TEST(values)
{
	static const char path[] = "tests/fuzz/corpus/torch_file/ok-extra-states";
	struct mfs_torch_file f;
	struct mfs_source src;
	size_t len;
	uint8_t *bytes = unit_slurp(path, &len);
	mfs_value v;

	src = mfs_source_memory(bytes, len, path);
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
	v = mfs_value_get(f.doc, mfs_pickle_root(f.doc), values_of[_i].key);
	ck_assert_int_eq(mfs_extra_state_value(&f, v, &arena, &s, &err), values_of[_i].code);
	ck_assert_uint_eq(s.length, values_of[_i].length);
	mfs_torch_file_release(&f);
	free(bytes);
}
END_TEST

/* An expert's state, cut out by Megatron and here, is the same. */
START_TEST(split)
{
	struct mfs_extra_state expert;

	read_file(CORPUS "ok-te2-grouped");
	unit_ok(mfs_extra_state_split(&s, 1, &arena, &expert, &err), &err);
	for (uint32_t k = 0; k < MFS_FP8_FORWARD_KINDS; k++)
		ck_assert(expert.scale[MFS_FP8_FORWARD][k] ==
			  s.scale[MFS_FP8_FORWARD][k * s.products + 1]);
	read_file(CORPUS "ok-te2-split");
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		const size_t columns = mfs_extra_state_columns(&s, d) * sizeof(float);

		ck_assert_mem_eq(expert.scale[d], s.scale[d], columns);
		ck_assert_mem_eq(expert.history[d], s.history[d], columns * s.length);
	}
}
END_TEST

START_TEST(join)
{
	struct mfs_extra_state parts[4], joined;
	const struct mfs_extra_state *all[] = {&parts[0], &parts[1], &parts[2], &parts[3]};

	read_file(CORPUS "ok-te2-grouped");
	for (uint32_t i = 0; i < 4; i++)
		unit_ok(mfs_extra_state_split(&s, i, &arena, &parts[i], &err), &err);
	unit_ok(mfs_extra_state_join(all, 4, &arena, &joined, &err), &err);
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++)
		ck_assert_mem_eq(joined.history[d], s.history[d],
				 mfs_extra_state_columns(&s, d) * s.length * sizeof(float));
	parts[2].length = 1;
	unit_fails(mfs_extra_state_join(all, 4, &arena, &joined, &err), &err, -EINVAL,
		   "states of 2 and 1 rows");
	all[2] = &s;
	unit_fails(mfs_extra_state_join(all, 4, &arena, &joined, &err), &err, -EINVAL,
		   "of 4 products");
}
END_TEST

START_TEST(fresh)
{
	struct mfs_buf out = {0};

	s = (struct mfs_extra_state){0};
	unit_ok(mfs_extra_state_write(&s, &out, &err), &err);
	ck_assert_uint_eq(out.len, 0);
	s.products = 2;
	s.length = 1024;
	unit_ok(mfs_extra_state_alloc(&s, &arena, &err), &err);
	ck_assert(s.scale[MFS_FP8_BACKWARD][3] == 1);
	ck_assert(s.history[MFS_FP8_FORWARD][1024 * 6 - 1] == 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *suite = suite_create("extra_state");
	TCase *c = unit_case(suite, "products", split);

	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, join);
	tcase_add_test(c, fresh);
	tcase_add_loop_test(c, forms, 0, MFS_ARRAY_SIZE(states));
	tcase_add_loop_test(c, values, 0, MFS_ARRAY_SIZE(values_of));
	return suite;
}
