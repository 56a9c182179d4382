/* Names of directories below data/NAME/cache. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/gpt_dataset.h"
#include "fs/data/cache.h"

#define DEFAULT_SEED 1234 /* megatron/training/config/common_config.py */
#define MAX_SAMPLES  ((uint64_t)1 << 53)

/* A number as it is counted, one way to write each: false if there is none, *ret above max if it is too large. */
static bool read_number(const char **p, uint64_t max, uint64_t *ret)
{
	const char *digits = *p;
	char *end;

	if (!isdigit((unsigned char)*digits) ||
	    (*digits == '0' && isdigit((unsigned char)digits[1])))
		return false;
	errno = 0;
	*ret = strtoull(digits, &end, 10);
	if (errno || *ret > max)
		*ret = max + 1;
	*p = end;
	return true;
}

/* "KEY" and a number, if that is what comes next. */
static bool read_field(const char **p, const char *key, uint64_t max, uint64_t *ret)
{
	const char *q = *p;

	if (strncmp(q, key, strlen(key)))
		return false;
	q += strlen(key);
	if (!read_number(&q, max, ret))
		return false;
	*p = q;
	return true;
}

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
	uint64_t seq_length, seed = DEFAULT_SEED;
	const char *p = name;
	int rc;

	if (!read_field(&p, "s", INT32_MAX, &seq_length))
		return no_spec(name, err);
	for (int i = 0; i < MFS_SPLITS; i++)
		if (!read_field(&p, keys[i], MAX_SAMPLES, &spec.samples[i]))
			spec.samples[i] = MFS_GPT_ONE_EPOCH;
	read_field(&p, "-seed", UINT32_MAX, &seed);
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
