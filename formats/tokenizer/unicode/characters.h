/* Classes of characters, as Rust's char and tokenizers' crates have them. */
#ifndef MFS_TOKENIZER_UNICODE_CHARACTERS_H
#define MFS_TOKENIZER_UNICODE_CHARACTERS_H

#include <stdbool.h>
#include <stdint.h>

/* White_Space. */
bool mfs_is_space(uint32_t c);
/* \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control. */
bool mfs_is_word(uint32_t c);
/* Nd, Nl, No. */
bool mfs_is_numeric(uint32_t c);
/* ASCII's punctuation, and P. */
bool mfs_is_punctuation(uint32_t c);
/* Mn; M; Cc, Cf, Co. */
bool mfs_is_nonspacing_mark(uint32_t c);
bool mfs_is_mark(uint32_t c);
bool mfs_is_other(uint32_t c);
/* The simple mapping to lower case. */
uint32_t mfs_lower(uint32_t c);

#endif
