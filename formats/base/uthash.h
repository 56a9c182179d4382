/*
 * uthash for keys that come from files. They are hashed under a secret key, and running out of
 * memory is an error and not the end of the process: an entry whose hh.tbl is NULL after HASH_ADD
 * was not added.
 */
#ifndef MFS_BASE_UTHASH_H
#define MFS_BASE_UTHASH_H

#include "formats/base/hash.h"

#define HASH_NONFATAL_OOM	      1
#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)mfs_hash(key, len))

#include <uthash.h>

#endif
