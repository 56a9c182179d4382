/*
 * Topics of --help: "used" is the flags that have an effect; any other names sections and flags.
 *
 * A topic is words that stand together in a section's title or in a flag's dest, each whole, or
 * without its last s: "moe" is the section moe, and --moe-router-topk of another one; "expert" is
 * --num-experts. Case does not matter, and '-', '_' and ' ' are the same.
 */
#ifndef MFS_TRAINER_CONFIG_TOPICS_H
#define MFS_TRAINER_CONFIG_TOPICS_H

#include <stdbool.h>

#include "trainer/config/flag.h"

/* NULL: everything. */
bool mfs_topic_has_title(const char *topic, const char *title);
bool mfs_topic_has_flag(const char *topic, const struct mfs_flag_group *group,
			const struct mfs_flag *f);

#endif
