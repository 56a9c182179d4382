/* Makes a tensor of a version: the base's bytes with all changes, checked, in a file. */
#ifndef MFS_DELTA_MAKE_H
#define MFS_DELTA_MAKE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_file.h"

/* Writes the part's bytes to the same place of a file. links: as of mfs_delta_file_new(). */
int mfs_delta_make(const struct mfs_delta_base_file *base, const struct mfs_delta_part *part,
		   const struct mfs_delta *const *links, uint32_t link_count, int fd,
		   struct mfs_error *err);

#endif
