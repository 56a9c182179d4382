/*
 * Counts the wrong tokens that were sent to the form for signing in, by address. A client that
 * sends many must wait. The table has a fixed size, so that nobody can fill memory; when there are
 * more addresses, the one that began first is forgotten.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_GUESSES_H
#define MFS_FS_GATEWAY_ACCESS_GUESSES_H

#include <stdint.h>

#include "formats/base/error.h"

#define MFS_GUESSES_WRONG     10 /* of an address within so many seconds from the first on */
#define MFS_GUESSES_SECONDS   60
#define MFS_GUESSES_ADDRESSES 256 /* that are remembered */

struct mfs_guesses;

int mfs_guesses_new(struct mfs_guesses **ret, struct mfs_error *err);
void mfs_guesses_free(struct mfs_guesses *g);

/* Any thread may call these. client: as struct mfs_request has it, or without a port. Of IPv6 the
 * first 64 bits count, which one machine may have all of. What is no address ("unix") is one
 * client. now: nanoseconds, monotonic. */

/* Seconds that a client must wait until it may guess again; 0: none. */
unsigned mfs_guesses_wait(struct mfs_guesses *g, const char *client, int64_t now);
void mfs_guesses_wrong(struct mfs_guesses *g, const char *client, int64_t now);

#endif
