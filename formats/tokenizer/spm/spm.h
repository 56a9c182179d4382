/* SentencePiece models as a kind of tokenizer (formats/tokenizer/tokenizer_kind.h). */
#ifndef MFS_TOKENIZER_SPM_SPM_H
#define MFS_TOKENIZER_SPM_SPM_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/tokenizer/tokenizer.h"

int mfs_tokenizer_spm_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			   size_t len, struct mfs_error *err);

#endif
