/* Reads a family's file (docs/FAMILIES.md). */
#ifndef MFS_MODEL_FAMILIES_READ_H
#define MFS_MODEL_FAMILIES_READ_H

#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/model/families/family.h"

/* The family that a base names; NULL: there is none. */
typedef const struct mfs_family *(*mfs_find_base)(const char *name, void *arg);

/* file: for messages. Everything lies in arena. -EINVAL: a rule is broken; the message begins with
 * "FILE:LINE: ", or with "FILE: " if something is missing. */
int mfs_family_read(const char *file, const char *bytes, size_t len, mfs_find_base find, void *arg,
		    struct mfs_arena *arena, struct mfs_family **ret, struct mfs_error *err);

#endif
