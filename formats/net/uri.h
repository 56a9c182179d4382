/*
 * Percent-encoding of URIs (RFC 3986), as AWS signs it: every byte but the unreserved ones
 * (letters, digits, '-', '.', '_', '~') becomes '%' and two upper-case digits.
 */
#ifndef MFS_NET_URI_H
#define MFS_NET_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/buf.h"

/* Appends len bytes encoded. keep_slash: '/' stays, as in a path. */
void mfs_uri_encode(struct mfs_buf *b, const char *bytes, size_t len, bool keep_slash);

/* Appends len bytes decoded. -EINVAL: two digits do not follow a '%', or a '%' stands for a NUL,
 * which no name can hold. plus_is_space: as in a query that a form has made. */
int mfs_uri_decode(struct mfs_buf *b, const char *text, size_t len, bool plus_is_space);

/* Like mfs_uri_decode(), in place: text does not get longer, and ends with a NUL as before. */
int mfs_uri_decode_text(char *text, bool plus_is_space);

#endif
