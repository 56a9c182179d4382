/* Who gets which samples: formats/dataset/gpt/sampler.h, formats/dataset/random/torch_randperm.h.
 * Against Megatron's own samplers: tests/interop/test_samples.py. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/gpt/sampler.h"
#include "formats/dataset/random/torch_randperm.h"

static struct mfs_error err;

/* torch 2.13: torch.randperm(n, generator=torch.Generator().manual_seed(seed)) */
START_TEST(permutations_are_torchs)
{
	static const struct {
		uint32_t seed, count, order[12];
	} cases[] = {
		{0, 10, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
		{1, 7, {0, 6, 1, 3, 5, 2, 4}},
		{5, 1, {0}},
		{3, 2, {0, 1}},
		{1234, 12, {3, 1, 8, 5, 2, 6, 0, 7, 11, 9, 4, 10}},
	};
	static uint32_t order[100000];
	uint64_t sum = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		mfs_torch_randperm(cases[i].seed, order, cases[i].count);
		ck_assert_mem_eq(order, cases[i].order, 4 * cases[i].count);
	}
	mfs_torch_randperm(0, order, 0);
	mfs_torch_randperm(2, order, 100000);
	for (uint64_t i = 0; i < 100000; i++)
		sum += i * order[i];
	ck_assert_uint_eq(sum, 250282180460525);
	ck_assert_uint_eq(order[99999], 5909);
}
END_TEST

static void draws(struct mfs_sampler *s, uint64_t microbatch, uint32_t rank, const char *expected)
{
	uint64_t samples[8] = {0};
	char text[128] = "";
	int rc = mfs_sampler_draw(s, microbatch, rank, samples, &err);

	unit_ok(rc, &err);
	for (size_t i = 0; i < strlen(expected) / 3; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%2u ",
			 (unsigned)samples[i]);
	ck_assert_str_eq(text, expected);
}

START_TEST(one_pass_takes_samples_in_order)
{
	const struct mfs_sampler_config c = {
		.total = 31, .micro_batch = 2, .ranks = 3, .consumed = 5};
	struct mfs_sampler *s;
	uint64_t samples[2];

	unit_ok(mfs_sampler_new(&c, &s, &err), &err);
	draws(s, 0, 0, " 5  6 ");
	draws(s, 0, 2, " 9 10 ");
	draws(s, 3, 1, "25 26 ");
	/* 29 and 30 are left, which are no microbatch of all. */
	unit_fails(mfs_sampler_draw(s, 4, 0, samples, &err), &err, -ENODATA, "31 samples");
	unit_fails(mfs_sampler_draw(s, UINT64_MAX, 0, samples, &err), &err, -ENODATA, NULL);
	unit_fails(mfs_sampler_draw(s, 0, 3, samples, &err), &err, -EINVAL, "rank 3");
	mfs_sampler_free(s);
}
END_TEST

/* 13 samples, 12 of which are a whole number of microbatches of 2 for 2 ranks. Each rank has a
 * bucket of 6, in the order of torch.randperm(6) with seed 0, 1, 2: 2 5 3 0 1 4, 1 5 2 0 3 4, 0 3 1
 * 2 4 5. */
START_TEST(each_epoch_is_shuffled_by_its_number)
{
	struct mfs_sampler_config c = {
		.type = MFS_SAMPLER_CYCLIC, .total = 13, .micro_batch = 2, .ranks = 2};
	struct mfs_sampler *s;

	unit_ok(mfs_sampler_new(&c, &s, &err), &err);
	draws(s, 0, 0, " 2  5 ");
	draws(s, 2, 1, " 7 10 ");
	draws(s, 3, 0, " 1  5 ");
	draws(s, 4, 1, " 8  6 ");
	draws(s, 8, 0, " 4  5 ");
	draws(s, 1, 1, " 9  6 ");
	mfs_sampler_free(s);
	/* Resumed in the second epoch, after its first microbatch. */
	c.consumed = 16;
	unit_ok(mfs_sampler_new(&c, &s, &err), &err);
	draws(s, 0, 0, " 2  0 ");
	draws(s, 1, 1, " 9 10 ");
	draws(s, 2, 0, " 0  3 ");
	mfs_sampler_free(s);
}
END_TEST

/* Without data sharding all ranks take turns in one order: of 10 with seed 0: 4 1 7 5 3 9 0 8 6
 * 2. */
START_TEST(ranks_take_turns_without_sharding)
{
	struct mfs_sampler_config c = {.type = MFS_SAMPLER_CYCLIC,
				       .total = 10,
				       .micro_batch = 1,
				       .ranks = 3,
				       .no_sharding = true};
	struct mfs_sampler *s;

	unit_ok(mfs_sampler_new(&c, &s, &err), &err);
	draws(s, 0, 0, " 4 ");
	draws(s, 0, 2, " 7 ");
	draws(s, 2, 1, " 8 ");
	/* Rank 0 has a fourth one; by then it counts 12 samples of 9, and begins its next epoch
	 * after the first three. The others have no fourth: they begin theirs. Seed 1: 5 6 1 2 0 8
	 * 9 3 7 4. */
	draws(s, 3, 0, " 2 ");
	draws(s, 4, 0, " 2 ");
	draws(s, 3, 1, " 6 ");
	mfs_sampler_free(s);
}
END_TEST

/* Any epoch is found at once. */
START_TEST(far_away)
{
	struct mfs_sampler_config c = {
		.type = MFS_SAMPLER_CYCLIC, .total = 13, .micro_batch = 2, .ranks = 2};
	struct mfs_sampler *s;
	uint32_t order[6];
	uint64_t samples[2];

	unit_ok(mfs_sampler_new(&c, &s, &err), &err);
	mfs_torch_randperm(4000000000u, order, 6);
	unit_ok(mfs_sampler_draw(s, 3 * 4000000000ull, 1, samples, &err), &err);
	ck_assert_uint_eq(samples[0], 6 + order[0]);
	ck_assert_uint_eq(samples[1], 6 + order[1]);
	unit_fails(mfs_sampler_draw(s, 3ull << 33, 0, samples, &err), &err, -ENOTSUP, "epoch");
	unit_fails(mfs_sampler_draw(s, UINT64_MAX, 0, samples, &err), &err, -EINVAL, "far");
	mfs_sampler_free(s);
}
END_TEST

START_TEST(samplers_without_samples_are_refused)
{
	struct mfs_sampler_config c = {.total = 10, .micro_batch = 2, .ranks = 2};
	enum mfs_sampler_type type;
	struct mfs_sampler *s;

	c.consumed = 10;
	unit_fails(mfs_sampler_new(&c, &s, &err), &err, -ENODATA, "left");
	c.type = MFS_SAMPLER_CYCLIC;
	unit_fails(mfs_sampler_new(&c, &s, &err), &err, -EINVAL, "cyclic");
	c.consumed = UINT64_MAX;
	unit_fails(mfs_sampler_new(&c, &s, &err), &err, -EINVAL, "consumed");
	c.consumed = 0;
	c.ranks = 6;
	unit_fails(mfs_sampler_new(&c, &s, &err), &err, -ENODATA, "6 ranks");
	c.ranks = 0;
	unit_fails(mfs_sampler_new(&c, &s, &err), &err, -EINVAL, "0 ranks");
	unit_ok(mfs_sampler_type_of("cyclic", &type, &err), &err);
	ck_assert_int_eq(type, MFS_SAMPLER_CYCLIC);
	unit_fails(mfs_sampler_type_of("external", &type, &err), &err, -EINVAL, "external");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sampler");

	unit_case(s, "randperm", permutations_are_torchs);
	unit_case(s, "single", one_pass_takes_samples_in_order);
	unit_case(s, "cyclic", each_epoch_is_shuffled_by_its_number);
	unit_case(s, "no sharding", ranks_take_turns_without_sharding);
	unit_case(s, "far away", far_away);
	unit_case(s, "refused", samplers_without_samples_are_refused);
	return s;
}
