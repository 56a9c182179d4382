/*
 * Buckets (trainer/params/buckets.h) of lists of random sizes: every element is in one bucket, a
 * bucket's slices are equal and each is owned by one process, and the places of what a process owns
 * are those that walking over all elements counts.
 */
#include "trainer/params/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "trainer/params/params.h"

#define MOST_PARAMS 40

static struct mfs_error err;

static uint64_t below(uint64_t *state, uint64_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % n;
}

static const struct mfs_global_tensor layers[] = {{.layer = 0}, {.layer = 1}, {.layer = 2}};

/* A list of sizes alone; drawn_from says which parameter it was. */
static struct mft_params *random_params(uint64_t *seed)
{
	struct mft_params *p = calloc(1, sizeof(*p));

	p->count = (uint32_t)(1 + below(seed, MOST_PARAMS));
	p->list = calloc(p->count, sizeof(*p->list));
	for (uint32_t i = 0; i < p->count; i++) {
		p->list[i].elements = 1 + below(seed, below(seed, 3) ? 3000 : 130);
		p->list[i].is_expert = i > 0 && below(seed, 3) == 0;
		p->list[i].part.is_shared = i == 0;
		p->list[i].drawn_from = i;
		p->list[i].tensor = &layers[(uint64_t)i * 3 / p->count];
		p->list[i].unit = p->list[i].tensor->layer;
	}
	return p;
}

static void release(struct mft_params *p)
{
	free(p->list);
	free(p->buckets);
	free(p->owned);
	free(p);
}

static struct mft_bucket_rule random_rule(uint64_t *seed)
{
	const uint32_t dense = (uint32_t)(1 + below(seed, 5));
	const bool apart = below(seed, 2);
	const uint32_t experts = apart ? (uint32_t)(1 + below(seed, 3)) : dense;

	return (struct mft_bucket_rule){
		.size = below(seed, 3) ? 1 + below(seed, 9000) : UINT64_MAX,
		.dense = {MFT_GROUP_GRADS, dense, (uint32_t)below(seed, dense)},
		.experts = {MFT_GROUP_EXPERT_GRADS, experts, (uint32_t)below(seed, experts)},
		.apart = apart,
		.shared_alone = below(seed, 2),
		.units = below(seed, 2),
	};
}

/* ---- places ---- */

static const struct mft_bucket *bucket_of(const struct mft_params *p, uint64_t element)
{
	const struct mft_bucket *found = NULL;

	for (uint32_t i = 0; i < p->bucket_count; i++) {
		const struct mft_bucket *b = &p->buckets[i];

		if (element < b->first || element >= b->first + b->count)
			continue;
		ck_assert_ptr_null(found);
		found = b;
	}
	ck_assert_ptr_nonnull(found);
	return found;
}

static void check_params(const struct mft_params *p, const struct mft_bucket_rule *rule)
{
	uint64_t end = 0, before[2] = {0};
	bool experts = false;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		const struct mft_bucket *b = bucket_of(p, q->start);
		const bool apart = rule->apart && q->is_expert;

		ck_assert_uint_eq(q->start % MFT_PARAM_ALIGN, 0);
		ck_assert_uint_ge(q->start, end);
		end = q->start + q->elements;
		ck_assert_ptr_eq(bucket_of(p, end - 1), b);
		ck_assert_int_eq(b->group, apart ? MFT_GROUP_EXPERT_GRADS : MFT_GROUP_GRADS);
		ck_assert_uint_eq(b->parts, apart ? rule->experts.count : rule->dense.count);
		ck_assert_ptr_eq(&p->buckets[q->bucket], b);
		ck_assert(i >= b->first_param && i < b->first_param + b->params);
		ck_assert(!rule->units || q->unit == b->unit);
		if (rule->shared_alone && q->part.is_shared)
			ck_assert_uint_lt(b->count - q->elements,
					  (uint64_t)b->parts * MFT_PARAM_ALIGN);
		/* Dense ones first, each in their order. */
		ck_assert(!experts || apart || !rule->apart);
		experts |= apart;
		ck_assert(!before[apart] || q->drawn_from >= before[apart]);
		before[apart] = q->drawn_from + 1;
	}
	ck_assert_uint_ge(p->elements, end);
}

static uint64_t aligned(const struct mft_param *p)
{
	return (p->elements + MFT_PARAM_ALIGN - 1) / MFT_PARAM_ALIGN * MFT_PARAM_ALIGN;
}

/* Experts of a layer are in one bucket. */
static bool belong(const struct mft_param *a, const struct mft_param *b)
{
	return a->is_expert && b->is_expert && a->tensor == b->tensor;
}

static void check_experts(const struct mft_params *p)
{
	for (uint32_t i = 1; i < p->count; i++) {
		const struct mft_param *a = &p->list[i - 1], *b = &p->list[i];

		if (!belong(a, b))
			continue;
		ck_assert_uint_eq(b->start, a->start + aligned(a));
		ck_assert_ptr_eq(bucket_of(p, a->start), bucket_of(p, b->start));
	}
}

/* A bucket is as large as the rule says, and no larger than its first parameter makes it, with the
 * experts that belong to it. */
static void check_sizes(const struct mft_params *p, const struct mft_bucket_rule *rule)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < p->bucket_count; i++) {
		const struct mft_bucket *b = &p->buckets[i];
		uint64_t all = 0, first = 0;
		uint32_t count = 0;
		bool at_first = true;

		ck_assert_uint_eq(b->first, end);
		ck_assert_uint_eq(b->count % ((uint64_t)b->parts * MFT_PARAM_ALIGN), 0);
		end = b->first + b->count;
		for (uint32_t k = 0; k < p->count; k++) {
			const struct mft_param *q = &p->list[k];

			if (q->start < b->first || q->start >= end)
				continue;
			at_first &= !count || belong(&p->list[k - 1], q);
			first += at_first ? aligned(q) : 0;
			all += aligned(q);
			count++;
		}
		ck_assert_uint_gt(count, 0);
		ck_assert(all == first || all - first < rule->size);
		if (!rule->apart && !rule->shared_alone && !rule->units)
			ck_assert(!i || all >= rule->size);
		ck_assert_uint_lt(b->count - all, (uint64_t)b->parts * MFT_PARAM_ALIGN);
	}
	ck_assert_uint_eq(p->elements, end);
}

/* ---- what is owned ---- */

static bool owns(const struct mft_params *p, const struct mft_bucket_rule *rule, uint64_t element)
{
	const struct mft_bucket *b = bucket_of(p, element);
	const uint32_t own = b->group == MFT_GROUP_GRADS ? rule->dense.own : rule->experts.own;

	return (element - b->first) / (b->count / b->parts) == own;
}

/* Slices begin and end at multiples of MFT_PARAM_ALIGN. */
static void check_owned(const struct mft_params *p, const struct mft_bucket_rule *rule)
{
	uint64_t count = 0;

	for (uint64_t e = 0; e < p->elements; e += MFT_PARAM_ALIGN) {
		uint64_t at = e, n = mft_params_owned(p, &at, e + MFT_PARAM_ALIGN);
		const bool owned = owns(p, rule, e);

		ck_assert_uint_eq(n, owned ? MFT_PARAM_ALIGN : 0);
		ck_assert_uint_eq(owns(p, rule, e + MFT_PARAM_ALIGN - 1), owned);
		ck_assert_uint_eq(mft_params_owned_before(p, e), count);
		ck_assert_uint_eq(mft_params_owned_before(p, e + 7), count + (owned ? 7 : 0));
		count += owned ? MFT_PARAM_ALIGN : 0;
	}
	ck_assert_uint_eq(mft_params_owned_before(p, p->elements), count);
	ck_assert_uint_eq(p->owned_elements, count);
}

/* A walk over any range meets what is owned of it, in its order and in stretches that have an end
 * there. */
static void check_walks(const struct mft_params *p, uint64_t *seed)
{
	for (int round = 0; round < 20; round++) {
		const uint64_t first = below(seed, p->elements);
		const uint64_t end = first + 1 + below(seed, p->elements - first);
		uint64_t count = 0, last = first;

		for (uint64_t at = first, n; (n = mft_params_owned(p, &at, end)); at += n) {
			ck_assert(at >= last && at + n <= end);
			ck_assert(!count || at > last);
			ck_assert_uint_eq(mft_params_owned_before(p, at) + n,
					  mft_params_owned_before(p, at + n));
			count += n;
			last = at + n;
		}
		ck_assert_uint_eq(count, mft_params_owned_before(p, end) -
						 mft_params_owned_before(p, first));
	}
}

START_TEST(random_sizes)
{
	uint64_t seed = (uint64_t)_i + 1;

	for (int round = 0; round < 40; round++) {
		const struct mft_bucket_rule rule = random_rule(&seed);
		struct mft_params *p = random_params(&seed);

		unit_ok(mft_buckets_lay_out(p, &rule, &err), &err);
		check_params(p, &rule);
		check_sizes(p, &rule);
		check_experts(p);
		check_owned(p, &rule);
		check_walks(p, &seed);
		release(p);
	}
}
END_TEST

/* All processes together own every element once. */
START_TEST(each_is_owned_once)
{
	uint64_t seed = 77;

	for (int round = 0; round < 20; round++) {
		struct mft_bucket_rule rule = random_rule(&seed);
		const uint64_t from = seed;
		uint64_t owned[8] = {0}, elements = 0, sum = 0;

		rule.apart = false;
		for (uint32_t r = 0; r < rule.dense.count; r++) {
			struct mft_params *p;

			seed = from;
			p = random_params(&seed);
			rule.dense.own = r;
			unit_ok(mft_buckets_lay_out(p, &rule, &err), &err);
			owned[r] = p->owned_elements;
			elements = p->elements;
			sum += owned[r];
			release(p);
		}
		ck_assert_uint_eq(sum, elements);
		for (uint32_t r = 1; r < rule.dense.count; r++)
			ck_assert_uint_eq(owned[r], owned[0]);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("buckets");
	TCase *c = tcase_create("buckets");

	tcase_add_loop_test(c, random_sizes, 0, 4);
	tcase_add_test(c, each_is_owned_once);
	suite_add_tcase(s, c);
	return s;
}
