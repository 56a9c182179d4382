/*
 * A YAML document as a tree, within limits: files are somebody's. Nothing is made of a tag; what a
 * tagged node is, its reader decides.
 */
#ifndef MFS_BASE_YAML_TREE_H
#define MFS_BASE_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

#define MFS_YAML_BYTES (1u << 20)
#define MFS_YAML_DEPTH 16
#define MFS_YAML_NODES 20000

enum mfs_yaml_kind { MFS_YAML_SCALAR, MFS_YAML_SEQUENCE, MFS_YAML_MAPPING };

struct mfs_yaml_node {
	enum mfs_yaml_kind kind;
	unsigned line;	  /* from 1 */
	const char *text; /* of a scalar */
	const char *tag;  /* NULL: none */
	bool quoted;	  /* a scalar that is text whatever it looks like */
	/* items of a sequence; of a mapping key, value, key, value, ... An alias has its anchor's
	 * items: a walk of the whole tree may meet them many times. */
	struct mfs_yaml_node *first, *next;
};

/* Without this flag aliases, anchors and tags are taken, as programs write them (PyYAML). With it
 * they are refused, as people do not need them. */
#define MFS_YAML_PLAIN 1u

/* flags: MFS_YAML_PLAIN or 0. NULL in *ret: the document is empty. Keys of a mapping are scalars,
 * and differ. -EINVAL: it is not YAML, or more of it than is taken; the message has name and
 * line. */
int mfs_yaml_tree(const char *name, const void *bytes, size_t len, unsigned flags,
		  struct mfs_arena *arena, struct mfs_yaml_node **ret, struct mfs_error *err);

/* The value under a key of a mapping. NULL: there is none, or n is NULL or no mapping. */
const struct mfs_yaml_node *mfs_yaml_get(const struct mfs_yaml_node *n, const char *key);

/* ---- scalars: each is false of NULL, which mfs_yaml_get() has for a missing key ---- */

/* True for a scalar without quotes that is null (Null, NULL), ~ or empty, as of "key:". */
bool mfs_yaml_is_null(const struct mfs_yaml_node *n);
/* A plain true, false, yes, no, on or off, in PyYAML's spellings. */
bool mfs_yaml_truth(const struct mfs_yaml_node *n, bool *ret);
/* A plain decimal integer; a plain decimal number. */
bool mfs_yaml_int(const struct mfs_yaml_node *n, int64_t *ret);
bool mfs_yaml_real(const struct mfs_yaml_node *n, double *ret);

#endif
