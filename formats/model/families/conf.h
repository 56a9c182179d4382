/*
 * The lines of a configuration file:
 *
 *	# a comment
 *	[section name]
 *	key = value, which goes on
 *	      in lines that begin with a blank
 *
 * Keys have no '='. Blanks around names, keys and values count for nothing; between the lines of a
 * value stands one blank.
 */
#ifndef MFS_MODEL_FAMILIES_CONF_H
#define MFS_MODEL_FAMILIES_CONF_H

#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

struct mfs_conf_line {
	const char *section, *key, *value; /* section: "" before the first */
	unsigned number;		   /* from 1; of the value's first line */
};

/* Texts and lines lie in arena. name: for messages. -EINVAL: a line is none of these, or has a
 * control character; the message begins with "NAME:LINE: ". */
int mfs_conf_parse(const char *name, const char *bytes, size_t len, struct mfs_arena *arena,
		   struct mfs_conf_line **ret, size_t *ret_count, struct mfs_error *err);

#endif
