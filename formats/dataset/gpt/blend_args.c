#include "formats/dataset/gpt/blend_args.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/dataset/random/numpy.h"

/* Python's str.isspace() among the characters of ASCII. */
static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}

static void strip(const char **text, size_t *len)
{
	while (*len && is_space(**text))
		++*text, --*len;
	while (*len && is_space((*text)[*len - 1]))
		--*len;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits with single underscores between them, which are dropped; false if there is none. */
static bool copy_digits(const char **p, char **to)
{
	if (!is_digit(**p))
		return false;
	while (is_digit(**p) || (**p == '_' && is_digit((*p)[1]) && is_digit((*p)[-1]))) {
		if (**p != '_')
			*(*to)++ = **p;
		++*p;
	}
	return true;
}

/* The grammar of a decimal number in float(); text is NUL-terminated, to has as much room. */
static bool copy_decimal(const char *p, char *to)
{
	bool digits;

	if (*p == '+' || *p == '-')
		*to++ = *p++;
	digits = copy_digits(&p, &to);
	if (*p == '.') {
		*to++ = *p++;
		digits |= copy_digits(&p, &to);
	}
	if (!digits)
		return false;
	if (*p == 'e' || *p == 'E') {
		*to++ = *p++;
		if (*p == '+' || *p == '-')
			*to++ = *p++;
		if (!copy_digits(&p, &to))
			return false;
	}
	*to = '\0';
	return !*p;
}

static bool is_word(const char *p)
{
	p += *p == '+' || *p == '-';
	return !strcasecmp(p, "inf") || !strcasecmp(p, "infinity") || !strcasecmp(p, "nan");
}

/* Python's float(): a prefix called "1e5" or "nan" is a number, "0x10" is none. */
static bool python_float(const char *word, double *ret)
{
	const char *text = word;
	size_t len = strlen(word);
	char *copy, *number;
	bool good = false;

	strip(&text, &len);
	copy = strndup(text, len);
	number = malloc(len + 1);
	if (copy && number) {
		good = is_word(copy);
		if (good)
			*ret = strtod(copy, NULL);
		else if (copy_decimal(copy, number)) {
			good = true;
			*ret = strtod(number, NULL);
		}
	}
	free(copy);
	free(number);
	return good;
}

static const char *stripped(struct mfs_blend_args *a, const char *word)
{
	size_t len = strlen(word);

	strip(&word, &len);
	return mfs_arena_strndup(&a->arena, word, len);
}

/* The rule for an even number of words: *ret_weighted, or -EINVAL where Megatron asserts. It looks
 * whether any weight is missing, and then goes on from there to see that all others are. */
static int look_for_weights(const char *const *words, size_t count, bool *ret_weighted,
			    struct mfs_error *err)
{
	size_t missing = count;
	double weight;

	for (size_t i = 0; i < count; i += 2) {
		const bool number = python_float(words[i], &weight);

		if (!number && missing == count)
			missing = i;
		if (number && missing < count)
			return mfs_fail(
				err, -EINVAL,
				"data path: '%.60s' is not a weight, but '%.60s' after it is one",
				words[missing], words[i]);
	}
	*ret_weighted = missing == count;
	return 0;
}

static int fill_args(struct mfs_blend_args *a, const char *const *words, size_t count,
		     struct mfs_error *err)
{
	bool weighted = false;
	int rc = count % 2 ? 0 : look_for_weights(words, count, &weighted, err);

	if (rc)
		return rc;
	a->count = (uint32_t)(weighted ? count / 2 : count);
	a->prefixes = mfs_arena_array(&a->arena, a->count, sizeof(*a->prefixes));
	a->weights = weighted ? mfs_arena_array(&a->arena, a->count, sizeof(*a->weights)) : NULL;
	if (!a->prefixes || (weighted && !a->weights))
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < a->count; i++) {
		if (weighted && !python_float(words[2 * i], &a->weights[i]))
			return mfs_fail_nomem(err); /* it was a number before */
		a->prefixes[i] = stripped(a, words[weighted ? 2 * i + 1 : i]);
		if (!a->prefixes[i])
			return mfs_fail_nomem(err);
	}
	return 0;
}

int mfs_blend_args_parse(const char *const *words, size_t count, struct mfs_blend_args *ret,
			 struct mfs_error *err)
{
	struct mfs_blend_args a = {0};
	int rc;

	if (!count || count > UINT32_MAX)
		return mfs_fail(err, -EINVAL, "the data path is empty");
	rc = fill_args(&a, words, count, err);
	if (rc) {
		mfs_blend_args_release(&a);
		return rc;
	}
	*ret = a;
	return 0;
}

int mfs_blend_args_parse_text(const char *text, size_t len, struct mfs_blend_args *ret,
			      struct mfs_error *err)
{
	char *copy = malloc(len + 1), **words = calloc(len / 2 + 1, sizeof(*words));
	size_t count = 0;
	int rc;

	if (!copy || !words) {
		free(copy);
		free(words);
		return mfs_fail_nomem(err);
	}
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < len; i++) {
		if (is_space(copy[i]) || !copy[i])
			copy[i] = '\0';
		else if (!i || !copy[i - 1])
			words[count++] = copy + i;
	}
	rc = mfs_blend_args_parse((const char *const *)words, count, ret, err);
	free(words);
	free(copy);
	return rc;
}

void mfs_blend_args_release(struct mfs_blend_args *a)
{
	mfs_arena_release(&a->arena);
	*a = (struct mfs_blend_args){0};
}

/* ---- weights and sizes ---- */

static int divide(double *weights, size_t count, double sum, struct mfs_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (!(weights[i] > 0) || !isfinite(sum))
			return mfs_fail(err, -EINVAL,
					"weight %zu of the blend is %g of %g: each must be above 0",
					i, weights[i], sum);
	for (size_t i = 0; i < count; i++) {
		weights[i] /= sum;
		if (!(weights[i] > 0))
			return mfs_fail(err, -EINVAL,
					"weight %zu of the blend vanishes against the others", i);
	}
	return 0;
}

int mfs_blend_normalize(double *weights, size_t count, struct mfs_error *err)
{
	return divide(weights, count, mfs_numpy_sum(weights, count), err);
}

int mfs_blend_normalize_first(double *weights, size_t count, const struct mfs_dataset_rules *rules,
			      struct mfs_error *err)
{
	double sum = 0;

	if (!rules->before_core)
		return mfs_blend_normalize(weights, count, err);
	for (size_t i = 0; i < count; i++)
		sum += weights[i];
	return divide(weights, count, sum, err);
}

int mfs_blend_sizes(double *weights, size_t count, uint64_t samples,
		    const struct mfs_dataset_rules *rules, uint64_t *ret_build, uint64_t *ret_size,
		    struct mfs_error *err)
{
	const double limit = 0x1p53;
	uint64_t size = 0;

	for (size_t i = 0; i < count; i++) {
		const double share = (double)samples * weights[i];
		double use = ceil(share), build = ceil(use * (1 + rules->surplus));

		if (rules->surplus_rule == MFS_SURPLUS_WITHIN)
			use = build = ceil(share * 1.005);
		if (samples > (uint64_t)limit || !(build < limit) ||
		    (size += (uint64_t)use) > (uint64_t)limit)
			return mfs_fail(err, -ERANGE, "%llu samples are too many for a blend",
					(unsigned long long)samples);
		ret_build[i] = (uint64_t)build;
	}
	for (size_t i = 0; rules->renormalize && i < count; i++)
		weights[i] = (double)ret_build[i] / (double)size;
	*ret_size = size;
	return 0;
}
