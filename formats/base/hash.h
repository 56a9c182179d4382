/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012) with a key that each process draws anew. So somebody
 * who chooses names cannot choose their places in a table, and cannot turn every look-up into a
 * walk over all of them.
 */
#ifndef MFS_BASE_HASH_H
#define MFS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash differs in every process: it must not be stored, and nothing may depend on the order
 * that it gives. */
uint64_t mfs_hash(const void *bytes, size_t len);

/* The function itself; the key is 16 bytes. */
uint64_t mfs_siphash(const void *bytes, size_t len, const uint8_t *key);

#endif
