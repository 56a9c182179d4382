/* Megatron-Bridge's names (src/megatron/bridge/training/config.py, models/gpt_provider.py, and
 * megatron/core/transformer/transformer_config.py), releases 0.2 to 0.3.1. */
#ifndef MFT_TRAINER_CONFIG_PARSE_YAML_NAMES_H
#define MFT_TRAINER_CONFIG_PARSE_YAML_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/nearest.h"

struct mft_yaml_alias {
	const char *section, *key, *dest;
	bool inverse; /* true there is False here */
};

/* A field that no argument stands for. */
struct mft_yaml_field {
	const char *section, *key;
	/* The values that change nothing, with '|' between; NULL: any, and nobody need know. */
	const char *usual;
	bool fixed; /* another value changes results, and is refused */
};

/* A section of Megatron-Bridge's container. */
bool mft_yaml_is_section(const char *name);
/* The row for a key of a section whose argument has another name. NULL: there is no such row, so
 * the key itself is the argument's name, or no argument stands for it. */
const struct mft_yaml_alias *mft_yaml_alias(const char *section, const char *key);
/* The row for a key of a section that no argument stands for. NULL: there is no such row, so an
 * argument stands for the key, or the key is unknown. */
const struct mft_yaml_field *mft_yaml_field(const char *section, const char *key);
/* Tries the section's names that are no argument's. */
void mft_yaml_try_names(const char *section, struct mfs_nearest *near);
/* True if the fields of a class's models say all of them: nothing in its code makes more of
 * them. */
bool mft_yaml_is_plain_model(const char *class_name);

#endif
