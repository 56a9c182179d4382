#include "fs/data/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/gpt/run.h"

#define DIGITS "0123456789"

static bool take(const char **text, const char *label)
{
	const size_t len = strlen(label);

	if (strncmp(*text, label, len))
		return false;
	*text += len;
	return true;
}

/* A number of at most max, at most 18 digits. */
static bool take_number(const char **text, uint64_t max, uint64_t *ret)
{
	const size_t digits = strspn(*text, DIGITS);

	if (!digits || digits > 18 || (**text == '0' && digits > 1))
		return false;
	*ret = strtoull(*text, NULL, 10);
	*text += digits;
	return *ret <= max;
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
	struct mfs_samples_spec s = {.samples = MFS_GPT_ONE_EPOCH, .seed = MFS_RUN_SEED};
	uint64_t length, seed;

	while (s.of < MFS_SPLITS && !take(&name, mfs_split_name(s.of)))
		s.of++;
	if (s.of == MFS_SPLITS || !take(&name, "-s") || !take_number(&name, INT32_MAX, &length))
		return false;
	s.seq_length = (uint32_t)length;
	if (take(&name, "-n") && !take_number(&name, INT64_MAX, &s.samples))
		return false;
	if (take(&name, "-seed")) {
		if (!take_number(&name, UINT32_MAX, &seed))
			return false;
		s.seed = (uint32_t)seed;
	}
	if (take(&name, "-split") && !take_split(&name, s.split, sizeof(s.split)))
		return false;
	if (*name || !s.seq_length)
		return false;
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
