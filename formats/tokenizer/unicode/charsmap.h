/*
 * SentencePiece's compiled table of characters and what takes their places (spm_precompiled;
 * sentencepiece: normalizer.cc): a double array of prefixes, whose leaves are places in a text of
 * strings that end in NULs.
 */
#ifndef MFS_TOKENIZER_UNICODE_CHARSMAP_H
#define MFS_TOKENIZER_UNICODE_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_charsmap {
	uint32_t *units; /* [count]; NULL: an empty table */
	uint32_t count;
	char *strings; /* with a NUL after them */
	size_t strings_len;
};

/* bytes: as the file has them. They are copied. -EINVAL. */
int mfs_charsmap_init(struct mfs_charsmap *map, const uint8_t *bytes, size_t len,
		      struct mfs_error *err);
void mfs_charsmap_release(struct mfs_charsmap *map);

/* What takes the place of the shortest prefix of text that the table has; with longest, of the
 * longest. NULL: it has none. ret_used: bytes of the prefix; may be NULL. */
const char *mfs_charsmap_find(const struct mfs_charsmap *map, const char *text, size_t len,
			      bool longest, size_t *ret_used);

/* Whether a prefix of the table begins with text, or is it. */
bool mfs_charsmap_leads(const struct mfs_charsmap *map, const char *text, size_t len);

#endif
