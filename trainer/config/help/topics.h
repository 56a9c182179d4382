/*
 * Topics of --help: "used" is the flags that have an effect; any other names sections and flags.
 *
 * A topic is words that stand together in a section's title or in a flag's dest, each whole, or
 * without its last s: "moe" is the section moe, and --moe-router-topk of another one; "expert" is
 * --num-experts. Case does not matter, and '-', '_' and ' ' are the same.
 */
#ifndef MFT_TRAINER_CONFIG_HELP_TOPICS_H
#define MFT_TRAINER_CONFIG_HELP_TOPICS_H

#include <stdbool.h>

#include "trainer/config/flag.h"

/* Whether a topic of --help has a group's title, or a flag of the group. topic NULL: it has
 * everything. */
bool mft_topic_has_title(const char *topic, const char *title);
bool mft_topic_has_flag(const char *topic, const struct mft_flag_group *group,
			const struct mft_flag *f);

#endif
