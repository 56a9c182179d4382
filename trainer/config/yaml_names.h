/* Megatron-Bridge's names of arguments (src/megatron/bridge/training/config.py,
 * models/gpt_provider.py). */
#ifndef MFS_TRAINER_CONFIG_YAML_NAMES_H
#define MFS_TRAINER_CONFIG_YAML_NAMES_H

#include <stdbool.h>

struct mfs_yaml_alias {
	const char *section, *key, *dest;
	bool inverse; /* true there is False here */
};

/* A section of Megatron-Bridge's container. */
bool mfs_yaml_is_section(const char *name);
/* NULL: a key of the section has the dest's name, or there is none. */
const struct mfs_yaml_alias *mfs_yaml_alias(const char *section, const char *key);

#endif
