/*
 * Characters of which HuggingFace tokenizers and the libraries here have different opinions, since
 * they know different versions of Unicode: what Oniguruma (Unicode 16) has and PCRE2 10.42 (14) has
 * not, and where the crates of tokenizers (Unicode 8 to 16) differ from utf8proc 2.8 (15).
 */
#ifndef MFS_TOKENIZER_UNICODE_NEWER_CHARACTERS_H
#define MFS_TOKENIZER_UNICODE_NEWER_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether text, which is valid UTF-8, has characters that PCRE2 does not know. */
bool mfs_newer_in(const char *text, size_t len);
/* Puts others of their categories and of as many bytes in their places. */
void mfs_newer_replace(char *text, size_t len);

/* Classes of characters.h, as bits. */
enum {
	MFS_NEWER_WORD = 1,
	MFS_NEWER_NUMERIC = 2,
	MFS_NEWER_PUNCTUATION = 4,
	MFS_NEWER_MARK = 8,
	MFS_NEWER_NONSPACING = 16,
	MFS_NEWER_OTHER = 32,
};

/* The classes in which tokenizers and utf8proc differ about a character. */
unsigned mfs_newer_classes(uint32_t c);
/* Whether a character has no compatibility decomposition in tokenizers, which knows Unicode 12. */
bool mfs_newer_than_forms(uint32_t c);
/* The lower case of a character that utf8proc does not know. 0: it knows it. */
uint32_t mfs_newer_lower(uint32_t c);

#endif
