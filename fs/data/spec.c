#include "fs/data/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/gpt/gpt_run.h"

#define DIGITS "0123456789"

/* "KEY" and a decimal number without leading zeros, if that is what comes next; a number above max
 * is max + 1. */
static bool take(const char **text, const char *key, uint64_t max, uint64_t *ret)
{
	const size_t len = strlen(key);
	const char *number = *text + len;
	size_t digits;

	if (strncmp(*text, key, len))
		return false;
	digits = strspn(number, DIGITS);
	if (!digits || (*number == '0' && digits > 1))
		return false;
	errno = 0;
	*ret = strtoull(number, NULL, 10);
	if (errno || *ret > max)
		*ret = max + 1;
	*text = number + digits;
	return true;
}

/* Up to three numbers with commas between them, which mfs_splits_parse() is left to understand. */
static bool take_split(const char **text, char *ret, size_t size)
{
	size_t len = 0;

	for (int i = 0; i < MFS_SPLITS; i++) {
		const size_t digits = strspn(*text + len, DIGITS ".");

		if (!digits)
			return false;
		len += digits;
		if ((*text)[len] != ',')
			break;
		len++;
	}
	if (len >= size || (*text)[len - 1] == ',')
		return false;
	memcpy(ret, *text, len);
	ret[len] = '\0';
	*text += len;
	return true;
}

bool mfs_samples_spec_parse(const char *name, struct mfs_samples_spec *ret)
{
	struct mfs_samples_spec s = {.samples = MFS_GPT_ONE_EPOCH};
	uint64_t length, seed = MFS_RUN_SEED, samples = 0;
	const char *p;

	while (s.of < MFS_SPLITS &&
	       strncmp(name, mfs_split_name(s.of), strlen(mfs_split_name(s.of))))
		s.of++;
	if (s.of == MFS_SPLITS)
		return false;
	p = name + strlen(mfs_split_name(s.of));
	if (!take(&p, "-s", INT32_MAX, &length))
		return false;
	if (take(&p, "-n", INT64_MAX, &samples))
		s.samples = samples;
	take(&p, "-seed", UINT32_MAX, &seed);
	if (!strncmp(p, "-split", 6)) {
		p += 6;
		if (!take_split(&p, s.split, sizeof(s.split)))
			return false;
	}
	if (*p || !length || length > INT32_MAX || samples > INT64_MAX || seed > UINT32_MAX)
		return false;
	s.seq_length = (uint32_t)length;
	s.seed = (uint32_t)seed;
	*ret = s;
	return true;
}

const char *mfs_samples_spec_name(const struct mfs_samples_spec *s, char text[MFS_SPEC_SIZE])
{
	int used = snprintf(text, MFS_SPEC_SIZE, "%s-s%u", mfs_split_name(s->of), s->seq_length);

	if (s->samples != MFS_GPT_ONE_EPOCH)
		used += snprintf(text + used, MFS_SPEC_SIZE - (size_t)used, "-n%llu",
				 (unsigned long long)s->samples);
	if (s->seed != MFS_RUN_SEED)
		used += snprintf(text + used, MFS_SPEC_SIZE - (size_t)used, "-seed%u", s->seed);
	if (*s->split)
		snprintf(text + used, MFS_SPEC_SIZE - (size_t)used, "-split%s", s->split);
	return text;
}

/* ---- of caches ---- */

#define MAX_SAMPLES ((uint64_t)1 << 53)

static int no_spec(const char *name, struct mfs_error *err)
{
	return mfs_fail(err, -ENOENT,
			"'%.200s' is not a directory of indices: a name is like "
			"s4096[-train1000][-valid100][-test100][-seed1234][-split99,1,0]",
			name);
}

static int check_spec(const char *name, const struct mfs_cache_spec *spec, uint64_t seed,
		      struct mfs_error *err)
{
	bool possible = spec->seq_length && spec->seq_length < INT32_MAX && seed <= UINT32_MAX;

	for (int i = 0; i < MFS_SPLITS; i++)
		possible &=
			spec->samples[i] <= MAX_SAMPLES || spec->samples[i] == MFS_GPT_ONE_EPOCH;
	return possible ? 0 : mfs_fail(err, -EINVAL, "'%.200s': a number is out of range", name);
}

int mfs_cache_spec_parse(const char *name, struct mfs_cache_spec *ret, struct mfs_error *err)
{
	static const char *const keys[MFS_SPLITS] = {"-train", "-valid", "-test"};
	struct mfs_cache_spec spec = {0};
	uint64_t seq_length, seed = MFS_RUN_SEED;
	const char *p = name;
	int rc;

	if (!take(&p, "s", INT32_MAX, &seq_length))
		return no_spec(name, err);
	for (int i = 0; i < MFS_SPLITS; i++)
		if (!take(&p, keys[i], MAX_SAMPLES, &spec.samples[i]))
			spec.samples[i] = MFS_GPT_ONE_EPOCH;
	take(&p, "-seed", UINT32_MAX, &seed);
	if (!strncmp(p, "-split", 6) && p[6]) {
		spec.split = p + 6;
		p += strlen(p);
	}
	if (*p)
		return no_spec(name, err);
	spec.seq_length = (uint32_t)seq_length;
	spec.seed = (uint32_t)seed;
	rc = check_spec(name, &spec, seed, err);
	if (!rc)
		*ret = spec;
	return rc;
}
