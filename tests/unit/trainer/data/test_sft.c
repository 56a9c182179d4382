/* Samples of conversations: trainer/data/sft. tests/train/sft.sh trains on them. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/sft/sft_samples.h"

#define S 8

static struct mfs_error err;

static const char rows[] =
	"{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\n"
	"\n"
	"{\"input_ids\": [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}\n"
	"{\"input_ids\": [15, 16, 17, 18, 19, 20], \"loss_mask\": [0, 0, 0, 1, 0, 1]}\n";

static struct mft_sft *opened(bool packs, uint32_t multiple)
{
	static char path[256];
	const struct mft_sft_config c = {.path = path,
					 .format = "default",
					 .packs = packs,
					 .length = S,
					 .multiple = multiple,
					 .vocab = 100};
	const char *dir = unit_tmpdir();
	struct mft_sft *s;

	unit_write(dir, "rows.jsonl", rows, strlen(rows));
	snprintf(path, sizeof(path), "%s/rows.jsonl", dir);
	unit_ok(mft_sft_open(&c, &s, &err), &err);
	return s;
}

/* A sample as "token/label:position.first " of each place, '!' where the loss counts. */
static const char *sample(struct mft_sft *s, uint64_t n)
{
	static char text[1024];
	int32_t tokens[S], labels[S], positions[S], first[S];
	float mask[S];
	const struct mft_sft_sample to = {tokens, labels, positions, first, mask};
	const uint64_t counted = mft_sft_read(s, n, 0, &to);
	uint64_t seen = 0;
	size_t at = 0;

	for (int i = 0; i < S; i++) {
		seen += mask[i] != 0;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%d/%d:%d.%d%s ", tokens[i],
				       labels[i], positions[i], first[i], mask[i] != 0 ? "!" : "");
	}
	ck_assert_uint_eq(seen, counted);
	return text;
}

START_TEST(a_line_is_a_sample_that_is_cut_and_padded)
{
	struct mft_sft *s = opened(false, 1);

	ck_assert_uint_eq(mft_sft_count(s), 3);
	ck_assert_str_eq(sample(s, 0), "1/2:0.0 2/3:1.0! 3/0:2.0 0/0:3.0 0/0:4.0 0/0:5.0 0/0:6.0 "
				       "0/0:7.0 ");
	ck_assert_str_eq(sample(s, 1), "4/5:0.0! 5/6:1.0! 6/7:2.0! 7/8:3.0! 8/9:4.0! 9/10:5.0! "
				       "10/11:6.0! 11/0:7.0 ");
	ck_assert_str_eq(sample(s, 5), "15/16:0.0 16/17:1.0 17/18:2.0! 18/19:3.0 19/20:4.0! "
				       "20/0:5.0 0/0:6.0 0/0:7.0 ");
	mft_sft_free(s);
}
END_TEST

START_TEST(packed_conversations_are_apart)
{
	struct mft_sft *s = opened(true, 1);
	bool seen = false, whole = false;

	ck_assert_uint_eq(mft_sft_count(s), 2);
	for (uint64_t i = 0; i < 2; i++) {
		const char *text = sample(s, i);

		seen |= !strcmp(text, "1/2:0.0 2/3:1.0! 15/16:0.2 16/17:1.2 17/18:2.2! 18/19:3.2 "
				      "19/20:4.2! 0/0:5.2 ");
		whole |= !strcmp(text, "4/5:0.0! 5/6:1.0! 6/7:2.0! 7/8:3.0! 8/9:4.0! 9/10:5.0! "
				       "10/11:6.0! 11/12:7.0! ");
	}
	ck_assert(seen && whole);
	mft_sft_free(s);
	/* Places of four: two of padding after the first conversation. */
	s = opened(true, 4);
	ck_assert_uint_eq(mft_sft_count(s), 3);
	mft_sft_free(s);
}
END_TEST

START_TEST(packs_have_an_order_that_a_run_is_resumed_with)
{
	struct mft_sft *apart = opened(false, 1), *packed = opened(true, 1),
		       *again = opened(true, 1), *wide = opened(true, 4);

	ck_assert_uint_eq(mft_sft_order(apart), 0);
	ck_assert_uint_ne(mft_sft_order(packed), 0);
	ck_assert_uint_le(mft_sft_order(packed), INT64_MAX);
	ck_assert_uint_eq(mft_sft_order(packed), mft_sft_order(again));
	ck_assert_uint_ne(mft_sft_order(packed), mft_sft_order(wide));
	mft_sft_free(apart);
	mft_sft_free(packed);
	mft_sft_free(again);
	mft_sft_free(wide);
}
END_TEST

START_TEST(first_fit_is_that_of_megatron_bridge)
{
	static const uint32_t lengths[] = {3, 7, 5, 2, 2, 8}, order[] = {5, 1, 2, 0, 3, 4},
			      want[] = {2, 1, 2, 3, 3, 0};
	uint32_t bins[6];

	ck_assert_uint_eq(mft_first_fit(lengths, order, 6, 8, bins), 4);
	for (int i = 0; i < 6; i++)
		ck_assert_uint_eq(bins[i], want[i]);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sft");
	TCase *c = unit_case(s, "sft", a_line_is_a_sample_that_is_cut_and_padded);

	tcase_add_test(c, packed_conversations_are_apart);
	tcase_add_test(c, packs_have_an_order_that_a_run_is_resumed_with);
	tcase_add_test(c, first_fit_is_that_of_megatron_bridge);
	return s;
}
