/* Blends: formats/dataset/gpt/blend.h, blend_args.h. Random cases against Megatron's own code:
 * tests/interop/test_gpt_dataset.py. */
#include "tests/unit/unit.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/blend_args.h"
#include "formats/dataset/random/numpy.h"

static struct mfs_error err;

/* helpers.cpp as it stands there. sizes: exhaustive, else NULL. */
static void megatron(const double *weights, const uint64_t *sizes, uint32_t n, uint64_t size,
		     int16_t *dataset, int64_t *sample)
{
	int64_t *counts = calloc(n, sizeof(*counts));

	for (uint64_t s = 0; s < size; s++) {
		const double m = s ? (double)s : 1;
		double best = -1e300;
		uint32_t found = 0;

		for (uint32_t d = 0; d < n; d++) {
			const double error = weights[d] * m - (double)counts[d];

			if (error > best && !(sizes && (uint64_t)counts[d] == sizes[d])) {
				best = error;
				found = d;
			}
		}
		dataset[s] = (int16_t)found;
		sample[s] = counts[found]++;
	}
	free(counts);
}

static double *some_weights(uint32_t n, int kind)
{
	double *w = calloc(n, sizeof(*w));

	for (uint32_t i = 0; i < n; i++) {
		const double r = rand() / (double)RAND_MAX;

		w[i] = kind == 0   ? r + 1e-6
		       : kind == 1 ? 1 + rand() % 5
		       : kind == 2 ? 0.1
		       : kind == 3 ? pow(10, 9 * r - 6)
				   : 1 + 1e-9 * r;
	}
	return w;
}

/* Reads everything in pieces from random places, as often as it takes. */
static void check_blend(struct mfs_blend *b, const int16_t *dataset, const int64_t *sample)
{
	static int16_t d[100000];
	static int64_t s[100000];
	const uint64_t size = mfs_blend_size(b);

	for (int i = 0; i < 12; i++) {
		const uint64_t first = (uint64_t)rand() % size;
		const uint64_t left = size - first, n = left < 100000 ? left : 100000;

		unit_ok(mfs_blend_read(b, first, n, i % 3 ? d : NULL, i % 4 ? s : NULL, &err),
			&err);
		ck_assert(!(i % 3) || !memcmp(d, dataset + first, n * sizeof(*d)));
		ck_assert(!(i % 4) || !memcmp(s, sample + first, n * sizeof(*s)));
	}
}

START_TEST(the_greedy_order_is_that_of_a_plain_loop)
{
	static const uint32_t counts[] = {1, 2, 3, 7, 8, 9, 17, 64, 127, 128, 129, 400};
	static const uint64_t sizes[] = {1, 10, 5000, 65536, 65537, 200000};
	int16_t *dataset = calloc(200000, sizeof(*dataset));
	int64_t *sample = calloc(200000, sizeof(*sample));

	srand(11);
	for (unsigned i = 0; i < 12; i++)
		for (int kind = 0; kind < 5; kind++) {
			const uint32_t n = counts[i];
			const uint64_t size = n < 64 ? sizes[rand() % 6] : sizes[rand() % 4];
			double *w = some_weights(n, kind);
			struct mfs_blend *b;

			unit_ok(mfs_blend_new(w, n, size, &b, &err), &err);
			unit_ok(mfs_blend_normalize(w, n, &err), &err);
			megatron(w, NULL, n, size, dataset, sample);
			check_blend(b, dataset, sample);
			mfs_blend_free(b);
			free(w);
		}
	free(dataset);
	free(sample);
}
END_TEST

START_TEST(an_exhaustive_blend_takes_each_sample_once)
{
	uint64_t sizes[200];
	double w[200];

	srand(12);
	for (int i = 0; i < 60; i++) {
		const uint32_t n = 1 + (uint32_t)rand() % 200, high = 1 + (uint32_t)rand() % 600;
		uint64_t total = 0, counts[200];
		int16_t *dataset;
		int64_t *sample;
		struct mfs_blend *b;

		for (uint32_t d = 0; d < n; d++)
			total += sizes[d] = 1 + (uint64_t)rand() % high;
		for (uint32_t d = 0; d < n; d++)
			w[d] = (double)sizes[d] / (double)total;
		dataset = calloc(total, sizeof(*dataset));
		sample = calloc(total, sizeof(*sample));
		megatron(w, sizes, n, total, dataset, sample);
		unit_ok(mfs_blend_new_exhaustive(sizes, n, &b, &err), &err);
		check_blend(b, dataset, sample);
		unit_ok(mfs_blend_counts(b, total, counts, &err), &err);
		ck_assert_mem_eq(counts, sizes, n * sizeof(*sizes));
		unit_ok(mfs_blend_check(b, sizes, &err), &err);
		mfs_blend_free(b);
		free(dataset);
		free(sample);
	}
}
END_TEST

START_TEST(counts_before_a_sample_are_right)
{
	const double weights[] = {5, 1, 3, 1};
	const uint64_t size = 140000;
	int16_t *dataset = calloc(size, sizeof(*dataset));
	uint64_t counts[4], want[4] = {0};
	struct mfs_blend *b;

	unit_ok(mfs_blend_new(weights, 4, size, &b, &err), &err);
	unit_ok(mfs_blend_read(b, 0, size, dataset, NULL, &err), &err);
	for (uint64_t s = 0; s <= size; s++) {
		if (s % 9973 == 0 || s == size || s % 65536 < 2) {
			unit_ok(mfs_blend_counts(b, s, counts, &err), &err);
			ck_assert_mem_eq(counts, want, sizeof(want));
		}
		want[s < size ? dataset[s] : 0]++;
	}
	unit_ok(mfs_blend_check(b, counts, &err), &err);
	counts[2]--;
	unit_fails(mfs_blend_check(b, counts, &err), &err, -ERANGE, "dataset 2");
	unit_fails(mfs_blend_counts(b, size + 1, counts, &err), &err, -EINVAL, "samples");
	unit_fails(mfs_blend_read(b, size, 1, dataset, NULL, &err), &err, -EINVAL, "samples");
	ck_assert_uint_eq(mfs_blend_datasets(b), 4);
	mfs_blend_free(b);
	free(dataset);
}
END_TEST

START_TEST(weights_that_are_no_shares_are_refused)
{
	static const double bad[][2] = {{1, 0}, {1, -1}, {NAN, 1}, {1, INFINITY}, {1e300, 1e-300}};
	static double many[MFS_BLEND_MAX + 1];
	const uint64_t sizes[] = {3, 0};
	struct mfs_blend *b;

	for (unsigned i = 0; i < 5; i++)
		unit_fails(mfs_blend_new(bad[i], 2, 10, &b, &err), &err, -EINVAL, "weight");
	unit_fails(mfs_blend_new(many, MFS_BLEND_MAX + 1, 10, &b, &err), &err, -EINVAL, "32767");
	unit_fails(mfs_blend_new(many, 0, 10, &b, &err), &err, -EINVAL, "takes");
	unit_fails(mfs_blend_new_exhaustive(sizes, 2, &b, &err), &err, -EINVAL, "dataset 1");
}
END_TEST

static void *read_backwards(void *arg)
{
	struct mfs_blend *b = arg;
	int16_t d[1000];
	int64_t s[1000];
	uint64_t sum = 0;

	for (uint64_t at = mfs_blend_size(b); at; at -= 1000) {
		if (mfs_blend_read(b, at - 1000, 1000, d, s, NULL))
			return NULL;
		for (int i = 0; i < 1000; i++)
			sum = sum * 31 + (uint64_t)d[i] * 7 + (uint64_t)s[i];
	}
	return (void *)(uintptr_t)sum;
}

START_TEST(threads_read_the_same_order)
{
	double *w = some_weights(150, 0);
	pthread_t threads[3];
	struct mfs_blend *b;
	void *sums[3];

	unit_ok(mfs_blend_new(w, 150, 300000, &b, &err), &err);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_backwards, b), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], &sums[i]);
	ck_assert_ptr_eq(sums[0], sums[1]);
	ck_assert_ptr_eq(sums[0], sums[2]);
	ck_assert_ptr_nonnull(sums[0]);
	mfs_blend_free(b);
	free(w);
}
END_TEST

/* ---- arguments ---- */

START_TEST(arguments_are_weights_and_prefixes)
{
	static const char text[] = " 30 a\n\t7e1 b \n";
	static const char *const odd[] = {"1", "a", "2"};
	static const char *const mixed[] = {"a", "b", "1", "c"}, *const begun[] = {"1", "a", "b",
										   "c"};
	static const char *const named[] = {"nan", "x", "1_0", "y"}, *const hex[] = {"0x1", "a"};
	struct mfs_blend_args a;

	unit_ok(mfs_blend_args_parse_text(text, sizeof(text) - 1, &a, &err), &err);
	ck_assert_uint_eq(a.count, 2);
	ck_assert_str_eq(a.prefixes[1], "b");
	ck_assert(a.weights[0] == 30 && a.weights[1] == 70);
	mfs_blend_args_release(&a);
	unit_ok(mfs_blend_args_parse(odd, 3, &a, &err), &err);
	ck_assert_uint_eq(a.count, 3);
	ck_assert_ptr_null(a.weights);
	ck_assert_str_eq(a.prefixes[2], "2");
	mfs_blend_args_release(&a);
	unit_fails(mfs_blend_args_parse(mixed, 4, &a, &err), &err, -EINVAL, "'1'");
	unit_ok(mfs_blend_args_parse(begun, 4, &a, &err), &err);
	ck_assert_uint_eq(a.count, 4);
	mfs_blend_args_release(&a);
	unit_ok(mfs_blend_args_parse(named, 4, &a, &err), &err);
	ck_assert(isnan(a.weights[0]) && a.weights[1] == 10);
	mfs_blend_args_release(&a);
	unit_ok(mfs_blend_args_parse(hex, 2, &a, &err), &err);
	ck_assert_ptr_null(a.weights);
	mfs_blend_args_release(&a);
	unit_fails(mfs_blend_args_parse(hex, 0, &a, &err), &err, -EINVAL, NULL);
	unit_fails(mfs_blend_args_parse_text("  ", 2, &a, &err), &err, -EINVAL, NULL);
}
END_TEST

/* The run that made tests/fixtures/data/megatron_index asked for 97 and 226 samples of 320. */
START_TEST(sizes_are_those_that_megatron_asked_for)
{
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	double w[] = {0.7, 0.3};
	uint64_t build[2], size;

	unit_ok(mfs_blend_normalize_first(w, 2, &rules, &err), &err);
	unit_ok(mfs_blend_sizes(w, 2, 320, &rules, build, &size, &err), &err);
	ck_assert_uint_eq(build[0], 226);
	ck_assert_uint_eq(build[1], 97);
	ck_assert_uint_eq(size, 320);
	unit_ok(mfs_dataset_rules_of("0.10.0", &rules, &err), &err);
	unit_ok(mfs_blend_sizes(w, 2, 320, &rules, build, &size, &err), &err);
	ck_assert_uint_eq(size, 226 + 97);
	rules.renormalize = true;
	unit_ok(mfs_blend_sizes(w, 2, 320, &rules, build, &size, &err), &err);
	ck_assert(w[0] == 226. / 323);
	unit_fails(mfs_blend_sizes(w, 2, 1ull << 60, &rules, build, &size, &err), &err, -ERANGE,
		   "too many");
}
END_TEST

START_TEST(rules_follow_the_release)
{
	static const struct {
		const char *version;
		enum mfs_surplus_rule surplus;
		bool before_core, separate;
	} cases[] = {
		{"0.16.1", MFS_SURPLUS_ON_TOP, false, true},
		{"0.11.0rc0", MFS_SURPLUS_ON_TOP, false, true},
		{"0.10.0", MFS_SURPLUS_WITHIN, false, true},
		{"0.3.0", MFS_SURPLUS_WITHIN, true, true},
		{"2.6", MFS_SURPLUS_WITHIN, true, true},
		{"1.1.5", MFS_SURPLUS_WITHIN, true, false},
		{"23.06", MFS_SURPLUS_WITHIN, true, true},
		{"24.09", MFS_SURPLUS_WITHIN, false, true},
		{"25.04", MFS_SURPLUS_ON_TOP, false, true},
	};
	struct mfs_dataset_rules r;

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		unit_ok(mfs_dataset_rules_of(cases[i].version, &r, &err), &err);
		ck_assert_int_eq(r.surplus_rule, cases[i].surplus);
		ck_assert_int_eq(r.before_core, cases[i].before_core);
		ck_assert_int_eq(r.separate_last_epoch, cases[i].separate);
	}
	unit_fails(mfs_dataset_rules_of("latest", &r, &err), &err, -EINVAL, "latest");
}
END_TEST

/* numpy's own sums of these numbers. */
START_TEST(sums_are_numpys)
{
	static const struct {
		size_t count;
		double sum;
	} want[] = {{3, 0x1.5b22d0e560419p-1},	 {7, 0x1.3b645a1cac084p+1},
		    {8, 0x1.55810624dd2f2p+1},	 {9, 0x1.7e147ae147ae2p+1},
		    {127, 0x1.1f20c49ba5e35p+7}, {128, 0x1.22db22d0e5604p+7},
		    {129, 0x1.26cf5c28f5c29p+7}, {136, 0x1.43374bc6a7efap+7},
		    {300, 0x1.52a0000000000p+9}};
	double v[300];

	for (int i = 1; i <= 300; i++)
		v[i - 1] = .1 * (i % 7) + .013 * i;
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(want); i++)
		ck_assert_msg(mfs_numpy_sum(v, want[i].count) == want[i].sum, "%zu", want[i].count);
	ck_assert(mfs_numpy_sum(v, 0) == 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("blend");

	unit_case(s, "greedy", the_greedy_order_is_that_of_a_plain_loop);
	unit_case(s, "exhaustive", an_exhaustive_blend_takes_each_sample_once);
	unit_case(s, "counts", counts_before_a_sample_are_right);
	unit_case(s, "refused", weights_that_are_no_shares_are_refused);
	unit_case(s, "threads", threads_read_the_same_order);
	unit_case(s, "arguments", arguments_are_weights_and_prefixes);
	unit_case(s, "sizes", sizes_are_those_that_megatron_asked_for);
	unit_case(s, "rules", rules_follow_the_release);
	unit_case(s, "sum", sums_are_numpys);
	return s;
}
