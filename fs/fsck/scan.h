/*
 * The pickles in a file, wherever they lie: a torch.save archive or several of them (.distcp), any
 * ZIP or tar with pickles in it, a stream of pickles (torch before 1.6, .metadata, .pkl), an array
 * of NumPy's with objects, and each of these compressed by zlib.
 */
#ifndef MFS_FS_FSCK_SCAN_H
#define MFS_FS_FSCK_SCAN_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/torch/pickle_globals.h"

#define MFS_SCAN_MAX_UNPACKED (256u << 20) /* bytes that are unpacked from one file */
#define MFS_SCAN_MAX_PICKLES  64	   /* that lie one after the other */

/*
 * Calls found for each import. *ret_pickles: how many pickles were seen; 0: the file is none of
 * these, and no unpickler gets anywhere with it. -errno: the file cannot be read; -EINVAL: a pickle
 * is broken after an import, so that nobody can say what follows; -ENOTSUP: one is compressed in a
 * way that is not unpacked, or beyond a limit of the walk; -EFBIG: there is too much of it.
 */
int mfs_scan_file(int dirfd, const char *path, mfs_pickle_found found, void *arg,
		  uint32_t *ret_pickles, struct mfs_error *err);

#endif
