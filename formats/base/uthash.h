/*
 * uthash, with keys that come from files: hashed under a secret key, and out of memory is an error
 * instead of the end. An entry whose hh.tbl is NULL after HASH_ADD was not added.
 */
#ifndef MFS_BASE_UTHASH_H
#define MFS_BASE_UTHASH_H

#include "formats/base/hash.h"

#define HASH_NONFATAL_OOM	      1
#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)mfs_hash(key, len))

#include <uthash.h>

#endif
