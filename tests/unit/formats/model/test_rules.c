/* Rows of q, k and v out of linear_qkv, for many shapes of heads: formats/model/rules/rules.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/model/rules/rules.h"

#define MAX_ROWS 4096

static const struct {
	int64_t heads, groups, head;
	double rotary;
	bool interleaved;
} shapes[] = {
	{4, 4, 16, 1, false},  {4, 2, 16, 1, false},	{8, 1, 4, 1, false}, {1, 1, 2, 1, false},
	{6, 3, 10, 1, false},  {4, 2, 16, 1, true},	{4, 4, 8, 1, true},  {2, 1, 16, 0.5, true},
	{12, 4, 32, 1, false}, {12, 4, 20, 0.25, true},
};

static struct mfs_megatron_args args_of(int i)
{
	return (struct mfs_megatron_args){.num_attention_heads = shapes[i].heads,
					  .num_query_groups = shapes[i].groups,
					  .kv_channels = shapes[i].head,
					  .rotary_percent = shapes[i].rotary,
					  .rotary_interleaved = shapes[i].interleaved};
}

static uint64_t qkv_rows(int i)
{
	return (uint64_t)((shapes[i].heads + 2 * shapes[i].groups) * shapes[i].head);
}

/* Source row of every row of a result. */
struct rows {
	uint64_t of[MAX_ROWS], count;
};

static int collect(const struct mfs_row_map *run, void *arg)
{
	struct rows *rows = arg;

	ck_assert_uint_gt(run->count, 0);
	ck_assert_uint_eq(run->to, rows->count);
	for (uint64_t i = 0; i < run->count; i++)
		rows->of[rows->count++] = run->from + i * run->step;
	return 0;
}

static struct rows *rows_of(enum mfs_rule rule, int shape, uint64_t source_rows, uint64_t vocab)
{
	static struct rows rows;
	struct mfs_megatron_args a = args_of(shape);
	uint64_t count = mfs_rule_rows(rule, &a, source_rows, vocab);

	rows.count = 0;
	ck_assert_int_eq(mfs_rule_maps(rule, &a, source_rows, count, collect, &rows), 0);
	ck_assert_uint_eq(rows.count, count);
	return &rows;
}

/* Where, within a head, HF's row j stands in Megatron's: pairs (2j, 2j+1) come apart. */
static uint64_t unpaired(int i, uint64_t j)
{
	uint64_t rotary = (uint64_t)((double)shapes[i].head * shapes[i].rotary) / 2 * 2;

	if (!shapes[i].interleaved || j >= rotary)
		return j;
	return j < rotary / 2 ? 2 * j : 2 * (j - rotary / 2) + 1;
}

/* The formulas of hf-mapping: row j of query head h, of group g's key and value. */
static uint64_t q_row(int i, uint64_t row)
{
	uint64_t d = (uint64_t)shapes[i].head, r = (uint64_t)(shapes[i].heads / shapes[i].groups);
	uint64_t h = row / d;

	return (h / r * (r + 2) + h % r) * d + unpaired(i, row % d);
}

static uint64_t kv_row(int i, uint64_t row, bool value)
{
	uint64_t d = (uint64_t)shapes[i].head, r = (uint64_t)(shapes[i].heads / shapes[i].groups);
	uint64_t first = (row / d * (r + 2) + r + value) * d;

	return first + (value ? row % d : unpaired(i, row % d));
}

START_TEST(q_k_and_v)
{
	struct rows *rows = rows_of(MFS_RULE_Q, _i, qkv_rows(_i), 0);

	ck_assert_uint_eq(rows->count, (uint64_t)(shapes[_i].heads * shapes[_i].head));
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], q_row(_i, j));
	rows = rows_of(MFS_RULE_K, _i, qkv_rows(_i), 0);
	ck_assert_uint_eq(rows->count, (uint64_t)(shapes[_i].groups * shapes[_i].head));
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], kv_row(_i, j, false));
	rows = rows_of(MFS_RULE_V, _i, qkv_rows(_i), 0);
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], kv_row(_i, j, true));
}
END_TEST

/* Pairs that stand side by side in HF, too, stay as they are. */
START_TEST(pairs_stay_together)
{
	const uint64_t d = (uint64_t)shapes[_i].head;
	struct rows *rows = rows_of(MFS_RULE_Q_PAIRS, _i, qkv_rows(_i), 0);

	ck_assert_uint_eq(rows->count, (uint64_t)(shapes[_i].heads * shapes[_i].head));
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], q_row(_i, j / d * d) + j % d);
	rows = rows_of(MFS_RULE_K_PAIRS, _i, qkv_rows(_i), 0);
	ck_assert_uint_eq(rows->count, (uint64_t)(shapes[_i].groups * shapes[_i].head));
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], kv_row(_i, j / d * d, false) + j % d);
}
END_TEST

START_TEST(concatenated_qkv_uses_every_row_once)
{
	struct rows *rows = rows_of(MFS_RULE_QKV, _i, qkv_rows(_i), 0);
	uint8_t seen[MAX_ROWS] = {0};

	ck_assert_uint_eq(rows->count, qkv_rows(_i));
	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_int_eq(seen[rows->of[j]]++, 0);
	ck_assert_uint_eq(rows->of[0], q_row(_i, 0));
	ck_assert_uint_eq(rows->of[rows->count - 1], qkv_rows(_i) - 1);
}
END_TEST

START_TEST(vector_of_a_head)
{
	struct rows *rows = rows_of(MFS_RULE_HEAD, _i, (uint64_t)shapes[_i].head, 0);

	for (uint64_t j = 0; j < rows->count; j++)
		ck_assert_uint_eq(rows->of[j], unpaired(_i, j));
}
END_TEST

/* [query heads of the group; their gates; key; value]: in HF its gates follow each head. */
START_TEST(output_gates)
{
	struct mfs_megatron_args a = args_of(_i);
	const uint64_t heads = (uint64_t)a.num_attention_heads, d = (uint64_t)a.kv_channels;
	const uint64_t r = heads / (uint64_t)a.num_query_groups, group = (2 * r + 2) * d;
	static struct rows rows;

	a.attention_output_gate = true;
	ck_assert_uint_eq(mfs_rule_rows(MFS_RULE_Q_GATES, &a, 0, 0), 2 * heads * d);
	rows.count = 0;
	ck_assert_int_eq(mfs_rule_maps(MFS_RULE_Q_GATES, &a, 0, 0, collect, &rows), 0);
	ck_assert_uint_eq(rows.count, 2 * heads * d);
	for (uint64_t j = 0; j < rows.count; j++) {
		const uint64_t h = j / (2 * d), row = j % (2 * d);
		const uint64_t first = h / r * group + h % r * d;

		ck_assert_uint_eq(rows.of[j],
				  row < d ? first + unpaired(_i, row) : first + r * d + row - d);
	}
	for (int value = 0; value < 2; value++) {
		rows.count = 0;
		mfs_rule_maps(value ? MFS_RULE_V : MFS_RULE_K, &a, 0, 0, collect, &rows);
		ck_assert_uint_eq(rows.count, (uint64_t)a.num_query_groups * d);
		for (uint64_t j = 0; j < rows.count; j++)
			ck_assert_uint_eq(rows.of[j],
					  j / d * group + (2 * r + (uint64_t)value) * d +
						  (value ? j % d : unpaired(_i, j % d)));
	}
}
END_TEST

/* in_proj is [q; k; v; z; b; a]; HF has of each key head q, k and its value heads' v and z, and in
 * another tensor their b and a. */
START_TEST(delta_net)
{
	const struct mfs_megatron_args a = {.num_attention_heads = 1,
					    .num_query_groups = 1,
					    .linear_num_key_heads = 2,
					    .linear_key_head_dim = 2,
					    .linear_num_value_heads = 4,
					    .linear_value_head_dim = 1};
	static const uint64_t qkvz[] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
	static const uint64_t ba[] = {16, 17, 20, 21, 18, 19, 22, 23};
	static struct rows rows;

	ck_assert_uint_eq(mfs_rule_rows(MFS_RULE_QKVZ, &a, 24, 0), 16);
	ck_assert_int_eq(mfs_rule_maps(MFS_RULE_QKVZ, &a, 24, 16, collect, &rows), 0);
	ck_assert_uint_eq(rows.count, 16);
	ck_assert_mem_eq(rows.of, qkvz, sizeof(qkvz));
	rows.count = 0;
	ck_assert_uint_eq(mfs_rule_rows(MFS_RULE_BA, &a, 24, 0), 8);
	ck_assert_int_eq(mfs_rule_maps(MFS_RULE_BA, &a, 24, 8, collect, &rows), 0);
	ck_assert_uint_eq(rows.count, 8);
	ck_assert_mem_eq(rows.of, ba, sizeof(ba));
}
END_TEST

/* The same in_proj, where HF has its parts as they are. */
START_TEST(delta_net_as_it_is)
{
	const struct mfs_megatron_args a = {.num_attention_heads = 1,
					    .num_query_groups = 1,
					    .linear_num_key_heads = 2,
					    .linear_key_head_dim = 2,
					    .linear_num_value_heads = 4,
					    .linear_value_head_dim = 1};
	static const struct {
		enum mfs_rule rule;
		uint64_t from, count;
	} parts[] = {{MFS_RULE_NET_QKV, 0, 12},
		     {MFS_RULE_NET_Z, 12, 4},
		     {MFS_RULE_NET_B, 16, 4},
		     {MFS_RULE_NET_A, 20, 4}};
	static struct rows rows;

	for (size_t i = 0; i < 4; i++) {
		rows.count = 0;
		ck_assert_uint_eq(mfs_rule_rows(parts[i].rule, &a, 24, 0), parts[i].count);
		ck_assert_int_eq(
			mfs_rule_maps(parts[i].rule, &a, 24, parts[i].count, collect, &rows), 0);
		ck_assert_uint_eq(rows.count, parts[i].count);
		for (uint64_t k = 0; k < rows.count; k++)
			ck_assert_uint_eq(rows.of[k], parts[i].from + k);
	}
}
END_TEST

START_TEST(halves_and_vocabulary)
{
	struct rows *rows = rows_of(MFS_RULE_GATE, 0, 352, 0);

	ck_assert_uint_eq(rows->count, 176);
	ck_assert_uint_eq(rows->of[0], 0);
	rows = rows_of(MFS_RULE_UP, 0, 352, 0);
	ck_assert_uint_eq(rows->count, 176);
	ck_assert_uint_eq(rows->of[0], 176);
	rows = rows_of(MFS_RULE_VOCAB, 0, 1024, 1000);
	ck_assert_uint_eq(rows->count, 1000);
	ck_assert_uint_eq(rows->of[999], 999);
	rows = rows_of(MFS_RULE_DIRECT, 0, 77, 0);
	ck_assert_uint_eq(rows->count, 77);
}
END_TEST

/* Columns, not rows; twice is once. */
START_TEST(swapped_halves)
{
	struct rows *rows = rows_of(MFS_RULE_SWAPPED, 0, 12, 0);

	ck_assert(mfs_rule_is_of_columns(MFS_RULE_SWAPPED));
	ck_assert(!mfs_rule_is_of_columns(MFS_RULE_DIRECT));
	ck_assert_uint_eq(rows->count, 12);
	for (uint64_t j = 0; j < 12; j++) {
		ck_assert_uint_eq(rows->of[j], (j + 6) % 12);
		ck_assert_uint_eq(rows->of[rows->of[j]], j);
	}
}
END_TEST

static int stop(const struct mfs_row_map *run, void *arg)
{
	(void)run;
	return ++*(int *)arg == 2 ? -EINTR : 0;
}

START_TEST(stops_when_told)
{
	struct mfs_megatron_args a = args_of(_i);
	int calls = 0;

	if (shapes[_i].groups < 2 && !shapes[_i].interleaved)
		return;
	ck_assert_int_eq(mfs_rule_maps(MFS_RULE_Q, &a, qkv_rows(_i), 0, stop, &calls), -EINTR);
	ck_assert_int_eq(calls, 2);
}
END_TEST

Suite *mfs_suite(void)
{
	const int count = MFS_ARRAY_SIZE(shapes);
	Suite *s = suite_create("rules");
	TCase *c = unit_case(s, "rows", halves_and_vocabulary);

	tcase_add_loop_test(c, q_k_and_v, 0, count);
	tcase_add_loop_test(c, pairs_stay_together, 0, count);
	tcase_add_loop_test(c, concatenated_qkv_uses_every_row_once, 0, count);
	tcase_add_loop_test(c, vector_of_a_head, 0, count);
	tcase_add_loop_test(c, output_gates, 0, count);
	tcase_add_test(c, delta_net);
	tcase_add_test(c, delta_net_as_it_is);
	tcase_add_test(c, swapped_halves);
	tcase_add_loop_test(c, stops_when_told, 0, count);
	return s;
}
