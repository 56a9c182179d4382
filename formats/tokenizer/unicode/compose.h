/* Unicode's normalization forms (UAX #15), by utf8proc. */
#ifndef MFS_TOKENIZER_UNICODE_COMPOSE_H
#define MFS_TOKENIZER_UNICODE_COMPOSE_H

#include <stddef.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

enum mfs_form {
	MFS_NFC,
	MFS_NFD,
	MFS_NFKC,
	MFS_NFKD,
};

/* Appends the form of a text, which is valid UTF-8. -ENOMEM. */
int mfs_compose(const char *text, size_t len, enum mfs_form form, struct mfs_buf *out,
		struct mfs_error *err);

#endif
