#include "formats/delta/delta_rules.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

#define PREFIX "weight_v"
#define DIGITS 6 /* at least */

static const char *const encodings[MFS_DELTA_ENCODINGS] = {"xor", "overwrite"};
static const char *const sums[MFS_DELTA_SUMS] = {"xxh3-128", "adler32"};

static bool find_word(const char *const *words, unsigned count, const char *word, unsigned *ret)
{
	for (*ret = 0; *ret < count; ++*ret)
		if (!strcmp(words[*ret], word))
			return true;
	return false;
}

const char *mfs_delta_encoding_word(enum mfs_delta_encoding_kind kind)
{
	return encodings[kind];
}

const char *mfs_delta_sum_word(enum mfs_delta_sum_kind kind)
{
	return sums[kind];
}

int mfs_delta_encoding_parse(const char *word, enum mfs_delta_encoding_kind *ret,
			     struct mfs_error *err)
{
	unsigned kind;

	if (!find_word(encodings, MFS_DELTA_ENCODINGS, word, &kind))
		return mfs_fail(err, -ENOTSUP,
				"the encoding of a delta is 'xor' or 'overwrite', found '%.40s'",
				word);
	*ret = (enum mfs_delta_encoding_kind)kind;
	return 0;
}

int mfs_delta_sum_parse(const char *word, enum mfs_delta_sum_kind *ret, struct mfs_error *err)
{
	unsigned kind;

	if (!find_word(sums, MFS_DELTA_SUMS, word, &kind))
		return mfs_fail(err, -ENOTSUP,
				"the checksums of a delta are 'xxh3-128' or 'adler32', found "
				"'%.40s'",
				word);
	*ret = (enum mfs_delta_sum_kind)kind;
	return 0;
}

const char *mfs_delta_dir_name(uint32_t version, char ret[MFS_DELTA_DIR_SIZE])
{
	snprintf(ret, MFS_DELTA_DIR_SIZE, PREFIX "%0*u", DIGITS, version);
	return ret;
}

bool mfs_delta_dir_version(const char *name, uint32_t *ret)
{
	char again[MFS_DELTA_DIR_SIZE];
	uint64_t version = 0;

	if (strncmp(name, PREFIX, strlen(PREFIX)))
		return false;
	for (const char *p = name + strlen(PREFIX); *p; p++) {
		if (*p < '0' || *p > '9' || version > UINT32_MAX / 10)
			return false;
		version = version * 10 + (uint64_t)(*p - '0');
	}
	/* As it would be written: no other number of zeros. */
	if (version > UINT32_MAX || strcmp(mfs_delta_dir_name((uint32_t)version, again), name))
		return false;
	*ret = (uint32_t)version;
	return true;
}
