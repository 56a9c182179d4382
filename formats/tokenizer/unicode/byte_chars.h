/* GPT-2's characters for bytes, which have no blanks and no controls among them: U+0120 for a blank
 * (tokenizers: pre_tokenizers/byte_level.rs, bytes_char). */
#ifndef MFS_TOKENIZER_UNICODE_BYTE_CHARS_H
#define MFS_TOKENIZER_UNICODE_BYTE_CHARS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"

/* Appends the characters of bytes. */
void mfs_byte_chars_add(struct mfs_buf *b, const char *bytes, size_t len);
/* The byte of a character; -1: it stands for none. */
int mfs_byte_chars_byte(uint32_t c);

#endif
