/* A small YAML document as a tree, within limits (yaml.h). */
#ifndef MFS_TRAINER_CONFIG_YAML_TREE_H
#define MFS_TRAINER_CONFIG_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

enum mfs_yaml_kind { MFS_YAML_SCALAR, MFS_YAML_SEQUENCE, MFS_YAML_MAPPING };

struct mfs_yaml_node {
	enum mfs_yaml_kind kind;
	unsigned line;	  /* from 1 */
	const char *text; /* of a scalar */
	bool quoted;	  /* a scalar that is text whatever it looks like */
	/* items of a sequence; of a mapping key, value, key, value, ... */
	struct mfs_yaml_node *first, *next;
};

/* NULL in *ret: the document is empty. Keys of a mapping are scalars, and differ. -EINVAL: it is
 * not YAML, or more of it than is taken; the message has name and line. */
int mfs_yaml_tree(const char *name, const void *bytes, size_t len, struct mfs_arena *arena,
		  struct mfs_yaml_node **ret, struct mfs_error *err);

/* A plain null, ~ or nothing. */
bool mfs_yaml_is_null(const struct mfs_yaml_node *n);
/* A plain true, false, yes, no, on or off, in PyYAML's spellings. */
bool mfs_yaml_truth(const struct mfs_yaml_node *n, bool *ret);

#endif
