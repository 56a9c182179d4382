/*
 * The right to read one file for a time, as a part of its URL:
 *
 *   ?expires=SECONDS&signature=DIGITS
 *
 * signature is the HMAC-SHA256 (RFC 2104), in hexadecimal digits, of what is read and until when. A
 * holder of the secret makes such URLs and checks them. A holder of a URL reads that file.
 */
#ifndef MFS_NET_SIGNED_URL_H
#define MFS_NET_SIGNED_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_SIGNED_URL_SIGNATURE 65 /* hexadecimal digits and a NUL */

struct mfs_signed_url {
	const char *repo;   /* "org/model", "datasets/org/name": no newline is in it */
	const char *commit; /* the same */
	const char *file;
	int64_t expires; /* seconds since 1970 */
};

/* The signature of all fields of u by a secret, as hexadecimal digits. -ENOMEM. */
int mfs_signed_url_sign(const char *secret, const struct mfs_signed_url *u,
			char ret[MFS_SIGNED_URL_SIGNATURE], struct mfs_error *err);

/* Whether the signature is that of the secret; compared in constant time. It does not look at the
 * time. -EKEYREJECTED: it is another one; -ENOMEM. */
int mfs_signed_url_verify(const char *secret, const struct mfs_signed_url *u, const char *signature,
			  struct mfs_error *err);

/* Reads "expires": digits alone, as they are made. False: it is no such number. */
bool mfs_signed_url_time(const char *text, int64_t *ret);

#endif
