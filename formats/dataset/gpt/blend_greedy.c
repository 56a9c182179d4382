/*
 * The search for the largest error.
 *
 * Errors are computed as Megatron does, a product and a difference, each rounded: vectors round as
 * single numbers do, but an FMA does not, which -ffp-contract=off forbids.
 *
 * Of many classes a short list is made, for the next so many samples. A rounded product grows with
 * the sample's number or stays, and so does a rounded difference: a class's error is never above
 * what it will be at the last of those samples, unless it is chosen. Classes for which that is
 * below a bound are left out; and as long as what is chosen from the rest is not below the bound,
 * it is what all would have given.
 */
#include "formats/dataset/gpt/blend_greedy.h"

#include <math.h>

#define MANY 128 /* classes from which short lists pay */

/* The first of the n classes with the largest error; n is a multiple of MFS_BLEND_LANES. */
typedef uint32_t largest_fn(const double *weight, const double *count, uint32_t n, double m,
			    double *ret_error);
/* Appends to list the classes whose error at m is not below the bound; false if there are too
 * many. */
typedef bool gather_fn(const double *weight, const double *count, uint32_t n, double m,
		       double bound, uint32_t *list, uint32_t room, uint32_t *ret_length);

static inline uint32_t largest_plain(const double *weight, const double *count, uint32_t n,
				     double m, double *ret_error)
{
	double best = -INFINITY;
	uint32_t found = 0;

	for (uint32_t k = 0; k < n; k++) {
		const double error = weight[k] * m - count[k];
		const bool more = error > best;

		best = more ? error : best;
		found = more ? k : found;
	}
	*ret_error = best;
	return found;
}

static inline bool gather_plain(const double *weight, const double *count, uint32_t n, double m,
				double bound, uint32_t *list, uint32_t room, uint32_t *ret_length)
{
	uint32_t length = 0;

	for (uint32_t k = 0; k < n; k++) {
		if (weight[k] * m - count[k] < bound)
			continue;
		if (length == room)
			return false;
		list[length++] = k;
	}
	*ret_length = length;
	return true;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256d errors(const double *weight, const double *count, __m256d m)
{
	return _mm256_sub_pd(_mm256_mul_pd(_mm256_loadu_pd(weight), m), _mm256_loadu_pd(count));
}

/* Of two candidates in each lane the larger, and of equal ones the one that comes first. */
AVX2 static inline void keep_first(__m256d *error, __m256d *place, __m256d error2, __m256d place2)
{
	const __m256d more = _mm256_cmp_pd(error2, *error, _CMP_GT_OQ);
	const __m256d same = _mm256_cmp_pd(error2, *error, _CMP_EQ_OQ);
	const __m256d before = _mm256_cmp_pd(place2, *place, _CMP_LT_OQ);
	const __m256d other = _mm256_or_pd(more, _mm256_and_pd(same, before));

	*error = _mm256_blendv_pd(*error, error2, other);
	*place = _mm256_blendv_pd(*place, place2, other);
}

/* Eight running maxima with their places, joined at the end. */
AVX2 static inline uint32_t largest_avx2(const double *weight, const double *count, uint32_t n,
					 double m, double *ret_error)
{
	const __m256d mm = _mm256_set1_pd(m);
	__m256d best0 = _mm256_set1_pd(-INFINITY), best1 = best0;
	__m256d at = _mm256_setr_pd(0, 1, 2, 3), found0 = at, found1 = at;

	for (uint32_t k = 0; k < n; k += 8) {
		const __m256d e0 = errors(weight + k, count + k, mm);
		const __m256d e1 = errors(weight + k + 4, count + k + 4, mm);
		const __m256d more0 = _mm256_cmp_pd(e0, best0, _CMP_GT_OQ);
		const __m256d more1 = _mm256_cmp_pd(e1, best1, _CMP_GT_OQ);

		best0 = _mm256_max_pd(e0, best0);
		best1 = _mm256_max_pd(e1, best1);
		found0 = _mm256_blendv_pd(found0, at, more0);
		found1 = _mm256_blendv_pd(found1, at, more1);
		at = _mm256_add_pd(at, _mm256_set1_pd(8));
	}
	keep_first(&best0, &found0, best1, _mm256_add_pd(found1, _mm256_set1_pd(4)));
	keep_first(&best0, &found0, _mm256_permute4x64_pd(best0, 0x4e),
		   _mm256_permute4x64_pd(found0, 0x4e));
	keep_first(&best0, &found0, _mm256_permute_pd(best0, 5), _mm256_permute_pd(found0, 5));
	*ret_error = _mm256_cvtsd_f64(best0);
	return (uint32_t)_mm_cvttsd_si32(_mm256_castpd256_pd128(found0));
}

AVX2 static inline bool gather_avx2(const double *weight, const double *count, uint32_t n, double m,
				    double bound, uint32_t *list, uint32_t room,
				    uint32_t *ret_length)
{
	const __m256d mm = _mm256_set1_pd(m), limit = _mm256_set1_pd(bound);
	uint32_t length = 0;

	for (uint32_t k = 0; k < n; k += 4) {
		const __m256d e = errors(weight + k, count + k, mm);
		unsigned hits = (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(e, limit, _CMP_GE_OQ));

		for (; hits; hits &= hits - 1) {
			if (length == room)
				return false;
			list[length++] = k + (unsigned)__builtin_ctz(hits);
		}
	}
	*ret_length = length;
	return true;
}
#endif

/* ---- samples ---- */

struct output {
	int16_t *dataset; /* NULL: not wanted */
	int64_t *sample;
};

/* The next sample is of class k. */
static inline void take(struct mfs_blend_walk *w, uint32_t k, bool turns, struct output *out)
{
	const struct mfs_blend_classes *c = w->classes;
	double up = w->count[k];

	if (out->dataset)
		*out->dataset++ = (int16_t)w->next[k];
	if (out->sample)
		*out->sample++ = (int64_t)up;
	w->sample++;
	if (turns) {
		const bool last = c->first[k] + ++w->place[k] == c->first[k + 1];

		w->place[k] = last ? 0 : w->place[k];
		w->next[k] = c->members[c->first[k] + w->place[k]];
		if (!last)
			return;
	}
	up += 1;
	w->count[k] = up < c->limit[k] ? up : INFINITY;
}

/* Classes stand in the order of their first datasets. Where one has several, a later class's next
 * dataset may come before an earlier one's, which only ties tell apart. */
static inline uint32_t first_of_ties(const struct mfs_blend_walk *w, const double *weight,
				     const double *count, const uint32_t *class, uint32_t n,
				     double m, double best, uint32_t found)
{
	for (uint32_t i = found + 1; i < n; i++)
		if (weight[i] * m - count[i] == best &&
		    w->next[class ? class[i] : i] < w->next[class ? class[found] : found])
			found = i;
	return found;
}

static inline double multiplier(const struct mfs_blend_walk *w)
{
	return w->sample ? (double)w->sample : 1;
}

#define INLINE static inline __attribute__((always_inline))

/* n samples, looking at all classes. The walk is copied, so that it stays in registers. */
INLINE void walk_all(struct mfs_blend_walk *w, uint64_t n, struct output *out, largest_fn *largest,
		     uint32_t classes)
{
	const bool turns = w->classes->count != w->classes->datasets;
	const double *weight = w->classes->weight;
	struct mfs_blend_walk here = *w;
	struct output to = *out;
	double best = 0;

	for (; n; n--) {
		const double m = multiplier(&here);
		uint32_t k = largest(weight, here.count, classes, m, &best);

		if (turns)
			k = first_of_ties(&here, weight, here.count, NULL, here.classes->count, m,
					  best, k);
		take(&here, k, turns, &to);
	}
	w->sample = here.sample;
	w->list.last = best;
	*out = to;
}

/* Copies what the list needs, and pads it. */
static uint32_t fill_list(struct mfs_blend_walk *w, uint32_t length)
{
	struct mfs_blend_short_list *l = &w->list;
	const uint32_t padded = (length + MFS_BLEND_LANES - 1) / MFS_BLEND_LANES * MFS_BLEND_LANES;

	for (uint32_t i = 0; i < length; i++) {
		l->weight[i] = w->classes->weight[l->class[i]];
		l->count[i] = w->count[l->class[i]];
	}
	for (uint32_t i = length; i < padded; i++) {
		l->weight[i] = 0;
		l->count[i] = INFINITY;
	}
	return padded;
}

/* Up to n samples from a short list; returns how many. */
INLINE uint64_t walk_list(struct mfs_blend_walk *w, uint64_t n, struct output *out,
			  largest_fn *largest, gather_fn *gather)
{
	const struct mfs_blend_classes *c = w->classes;
	struct mfs_blend_short_list *l = &w->list;
	const bool turns = c->count != c->datasets;
	const double bound = l->last - l->margin;
	uint32_t length, padded;
	uint64_t i;

	if (!gather(c->weight, w->count, c->padded, (double)(w->sample + n), bound, l->class,
		    l->room, &length)) {
		l->margin *= 0.5;
		return 0;
	}
	padded = fill_list(w, length);
	for (i = 0; i < n; i++) {
		const double m = multiplier(w);
		double best;
		uint32_t at = largest(l->weight, l->count, padded, m, &best);

		if (!(best >= bound))
			break;
		if (turns)
			at = first_of_ties(w, l->weight, l->count, l->class, length, m, best, at);
		l->last = best;
		take(w, l->class[at], turns, out);
		l->count[at] = w->count[l->class[at]];
	}
	if (i < n)
		l->margin *= 1.25;
	else if (length > l->room / 2)
		l->margin *= 0.9;
	return i;
}

INLINE void walk(struct mfs_blend_walk *w, uint64_t n, struct output *out, largest_fn *largest,
		 gather_fn *gather)
{
	const uint64_t step = w->list.room / 4;
	const uint32_t classes = largest == largest_plain ? w->classes->count : w->classes->padded;

	if (w->classes->count < MANY) {
		walk_all(w, n, out, largest, classes);
		return;
	}
	while (n) {
		uint64_t done = walk_list(w, n < step ? n : step, out, largest, gather);

		n -= done;
		/* Hardly any: the list was too short or too long. */
		if (n && done < step / 8) {
			walk_all(w, 1, out, largest, classes);
			n--;
		}
	}
}

#if defined(__x86_64__)
AVX2 static void walk_avx2(struct mfs_blend_walk *w, uint64_t n, struct output *out)
{
	walk(w, n, out, largest_avx2, gather_avx2);
}
#endif

void mfs_blend_walk_on(struct mfs_blend_walk *w, uint64_t n, int16_t *ret_dataset,
		       int64_t *ret_sample)
{
	struct output out = {ret_dataset, ret_sample};

#if defined(__x86_64__)
	/* Few classes are done before vectors have been set up. */
	if (w->classes->padded > MFS_BLEND_LANES && __builtin_cpu_supports("avx2")) {
		walk_avx2(w, n, &out);
		return;
	}
#endif
	walk(w, n, &out, largest_plain, gather_plain);
}
