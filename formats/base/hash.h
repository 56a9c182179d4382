/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that is drawn once a process: whoever
 * chooses names cannot choose where they fall in a table, and so cannot make every look-up a walk
 * over all of them.
 */
#ifndef MFS_BASE_HASH_H
#define MFS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Another one in every process: not to be stored, and nothing may depend on the order that it
 * gives. */
uint64_t mfs_hash(const void *bytes, size_t len);

/* The function itself; the key is 16 bytes. */
uint64_t mfs_siphash(const void *bytes, size_t len, const uint8_t *key);

#endif
