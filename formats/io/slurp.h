/* Whole files of people: keys, lists, configurations. */
#ifndef MFS_IO_SLURP_H
#define MFS_IO_SLURP_H

#include <stddef.h>

#include "formats/base/error.h"

/* Reads a regular file of at most `most` bytes, and puts a NUL after them. The caller frees *ret.
 * -EFBIG, or -errno of opening and reading it. */
int mfs_slurp(const char *path, size_t most, void **ret, size_t *ret_len, struct mfs_error *err);

#endif
