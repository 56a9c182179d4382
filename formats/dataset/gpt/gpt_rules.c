#include "formats/dataset/gpt/gpt_rules.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

struct mfs_dataset_rules mfs_dataset_rules_default(void)
{
	return (struct mfs_dataset_rules){.core = UINT_MAX,
					  .surplus_rule = MFS_SURPLUS_ON_TOP,
					  .surplus = 0.005,
					  .separate_last_epoch = true};
}

/* Megatron-LM's own numbers ended with 3; 23.04 and the like are a year and a month. What Megatron
 * was then in terms of core: the data moved there in 2023-10, the surplus changed in 2025-02. */
static unsigned core_of_date(unsigned year, unsigned month)
{
	const unsigned months = year * 12 + month;

	return months < 23 * 12 + 11 ? 3 : months < 25 * 12 + 2 ? 10 : 11;
}

int mfs_dataset_rules_of(const char *version, struct mfs_dataset_rules *ret, struct mfs_error *err)
{
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	unsigned major, minor, core;

	if (sscanf(version, "%5u.%5u", &major, &minor) != 2)
		return mfs_fail(err, -EINVAL,
				"'%.40s' is not a version of Megatron, such as 0.16 (core) or 2.6",
				version);
	core = !major ? minor : major >= 20 ? core_of_date(major, minor) : major > 3 ? 11 : 0;
	rules.core = core;
	if (core < 11)
		rules.surplus_rule = MFS_SURPLUS_WITHIN;
	rules.before_core = core < 4;
	/* Version 2.0 is the first that has it. */
	rules.separate_last_epoch = major != 1;
	*ret = rules;
	return 0;
}
