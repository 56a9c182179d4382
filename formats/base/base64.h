/* Base64 (RFC 4648, section 4), as files hold bytes in. */
#ifndef MFS_BASE_BASE64_H
#define MFS_BASE_BASE64_H

#include <stddef.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

/* Appends the bytes. -EINVAL: it is not base64. */
int mfs_base64_decode(const char *text, size_t len, struct mfs_buf *ret, struct mfs_error *err);

#endif
