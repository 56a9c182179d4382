#include "trainer/config/batch_steps.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 9e18 /* tokens */

/* "250B" at *at, up to end. */
static bool read_number(const char **at, char end, uint64_t *ret)
{
	static const char letters[] = "KMBT";
	const char *letter;
	char *rest;
	double number;

	if (!isdigit((unsigned char)**at) && **at != '.')
		return false;
	number = strtod(*at, &rest);
	letter = *rest ? strchr(letters, toupper((unsigned char)*rest)) : NULL;
	for (const char *l = letters; letter && l <= letter; l++)
		number *= 1000;
	rest += letter != NULL;
	if (*rest != end && !(end == ' ' && (!*rest || *rest == ',' || isspace(*rest))))
		return false;
	if (!(number >= 0 && number < LARGEST))
		return false;
	*ret = (uint64_t)number;
	*at = rest;
	return true;
}

static int by_threshold(const void *a, const void *b)
{
	const struct mfs_batch_step *x = a, *y = b;

	return (x->threshold > y->threshold) - (x->threshold < y->threshold);
}

static int check(const struct mfs_batch_step *steps, uint32_t count, const char *text,
		 struct mfs_error *err)
{
	if (!count || steps[0].threshold)
		return mfs_fail(err, -EINVAL,
				"--step-batch-size-schedule: expected a first threshold of 0, "
				"found '%.80s'",
				text);
	for (uint32_t i = 1; i < count; i++)
		if (steps[i].threshold == steps[i - 1].threshold)
			return mfs_fail(err, -EINVAL,
					"--step-batch-size-schedule: expected thresholds that "
					"differ, found %llu samples twice",
					(unsigned long long)steps[i].threshold);
	return 0;
}

int mfs_batch_steps_parse(const char *text, int64_t seq_length, struct mfs_arena *arena,
			  const struct mfs_batch_step **ret, uint32_t *ret_count,
			  struct mfs_error *err)
{
	struct mfs_batch_step *steps;
	uint32_t count = 0;
	int r;

	*ret = NULL;
	*ret_count = 0;
	if (!text)
		return 0;
	steps = mfs_arena_array(arena, strlen(text) / 2 + 1, sizeof(*steps));
	if (!steps)
		return mfs_fail_nomem(err);
	for (const char *at = text;; count++) {
		at += strspn(at, " \t\r\n,");
		if (!*at)
			break;
		if (!read_number(&at, ':', &steps[count].threshold) || *at++ != ':' ||
		    !read_number(&at, ' ', &steps[count].batch) || !steps[count].batch)
			return mfs_fail(err, -EINVAL,
					"--step-batch-size-schedule: expected THRESHOLD:BATCH, as "
					"\"0:768 250B:1536\", found '%.80s'",
					text);
		steps[count].threshold /= (uint64_t)seq_length;
	}
	qsort(steps, count, sizeof(*steps), by_threshold);
	r = check(steps, count, text, err);
	if (!r) {
		*ret = steps;
		*ret_count = count;
	}
	return r;
}
