#include "trainer/params/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/params/params.h"

static uint64_t up_to(uint64_t elements, uint64_t multiple)
{
	return (elements + multiple - 1) / multiple * multiple;
}

/* Dense parameters before experts, each in their order. */
static int put_apart(struct mft_params *p, struct mfs_error *err)
{
	struct mft_param *sorted = calloc(p->count + 1u, sizeof(*sorted));
	uint32_t count = 0;

	if (!sorted)
		return mfs_fail_nomem(err);
	for (int expert = 0; expert < 2; expert++)
		for (uint32_t i = 0; i < p->count; i++)
			if (p->list[i].is_expert == expert)
				sorted[count++] = p->list[i];
	free(p->list);
	p->list = sorted;
	return 0;
}

/* Where one bucket cannot go on into the next parameter, whatever its size. */
static bool differ(const struct mft_bucket_rule *rule, const struct mft_param *a,
		   const struct mft_param *b)
{
	return (rule->apart && a->is_expert != b->is_expert) ||
	       (rule->shared_alone && (a->part.is_shared || b->part.is_shared)) ||
	       (rule->units && a->unit != b->unit);
}

/* A layer's experts lie at one distance from one another, as products of groups need it: no padding
 * comes between. */
static bool belong(const struct mft_param *a, const struct mft_param *b)
{
	return a->is_expert && b->is_expert && a->tensor->layer == b->tensor->layer;
}

/* begins[i]: parameter i is the first of a bucket. Returns how many are. */
static uint32_t cut(const struct mft_params *p, const struct mft_bucket_rule *rule, bool *begins)
{
	uint64_t size = 0;
	uint32_t count = 0;

	for (uint32_t i = p->count; i-- > 0;) {
		size += up_to(p->list[i].elements, MFT_PARAM_ALIGN);
		begins[i] = !i || differ(rule, &p->list[i - 1], &p->list[i]) ||
			    (size >= rule->size && !belong(&p->list[i - 1], &p->list[i]));
		if (!begins[i])
			continue;
		count++;
		size = 0;
	}
	return count;
}

static const struct mft_bucket_parts *parts_of(const struct mft_bucket_rule *rule,
					       const struct mft_param *p)
{
	return rule->apart && p->is_expert ? &rule->experts : &rule->dense;
}

static void end_bucket(struct mft_params *p, const struct mft_bucket_parts *parts)
{
	struct mft_bucket *b = &p->buckets[p->bucket_count++];
	const uint64_t count =
		up_to(p->elements - b->first, (uint64_t)parts->count * MFT_PARAM_ALIGN);
	const uint64_t slice = count / parts->count, first = b->first + parts->own * slice;
	struct mft_owned *last = p->owned_count ? &p->owned[p->owned_count - 1] : NULL;

	b->count = count;
	b->group = parts->group;
	b->parts = parts->count;
	p->elements = b->first + count;
	if (last && last->first + last->count == first)
		last->count += slice;
	else
		p->owned[p->owned_count++] = (struct mft_owned){first, slice, p->owned_elements};
	p->owned_elements += slice;
}

static void place(struct mft_params *p, const struct mft_bucket_rule *rule, const bool *begins)
{
	p->elements = p->owned_elements = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		struct mft_param *q = &p->list[i];

		if (begins[i])
			p->buckets[p->bucket_count] = (struct mft_bucket){
				.first = p->elements, .first_param = i, .unit = q->unit};
		q->start = p->elements;
		q->bucket = p->bucket_count;
		p->buckets[p->bucket_count].params++;
		p->elements += up_to(q->elements, MFT_PARAM_ALIGN);
		if (i + 1 == p->count || begins[i + 1])
			end_bucket(p, parts_of(rule, q));
	}
}

int mft_buckets_lay_out(struct mft_params *p, const struct mft_bucket_rule *rule,
			struct mfs_error *err)
{
	bool *begins = calloc(p->count + 1u, sizeof(*begins));
	int rc = begins ? 0 : mfs_fail_nomem(err);
	uint32_t count = 0;

	if (!rc && rule->apart)
		rc = put_apart(p, err);
	if (!rc) {
		count = cut(p, rule, begins);
		p->buckets = calloc(count + 1u, sizeof(*p->buckets));
		p->owned = calloc(count + 1u, sizeof(*p->owned));
		if (!p->buckets || !p->owned)
			rc = mfs_fail_nomem(err);
	}
	if (!rc)
		place(p, rule, begins);
	free(begins);
	return rc;
}

/* ---- what is owned ---- */

/* The last stretch that begins at or before an element. */
static const struct mft_owned *stretch_of(const struct mft_params *p, uint64_t element)
{
	uint32_t lo = 0, hi = p->owned_count;

	while (hi - lo > 1) {
		const uint32_t middle = lo + (hi - lo) / 2;

		if (p->owned[middle].first <= element)
			lo = middle;
		else
			hi = middle;
	}
	return &p->owned[lo];
}

uint64_t mft_params_owned(const struct mft_params *p, uint64_t *at, uint64_t end)
{
	const struct mft_owned *o = stretch_of(p, *at);
	const struct mft_owned *past = p->owned + p->owned_count;

	if (o < past && *at >= o->first + o->count)
		o++;
	if (o >= past || o->first >= end || *at >= end)
		return 0;
	if (*at < o->first)
		*at = o->first;
	return (o->first + o->count < end ? o->first + o->count : end) - *at;
}

uint64_t mft_params_owned_before(const struct mft_params *p, uint64_t element)
{
	const struct mft_owned *o = stretch_of(p, element);
	const uint64_t beyond = element > o->first ? element - o->first : 0;

	return p->owned_count ? o->at + (beyond < o->count ? beyond : o->count) : 0;
}
