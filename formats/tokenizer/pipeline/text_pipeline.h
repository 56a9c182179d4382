/*
 * A tokenizer that is made of parts as HuggingFace's are: added tokens, normalizers,
 * pre-tokenizers, a model, what is put around the ids, decoders. Readers of files fill one; its
 * functions are those of the tokenizer then.
 */
#ifndef MFS_TOKENIZER_PIPELINE_TEXT_PIPELINE_H
#define MFS_TOKENIZER_PIPELINE_TEXT_PIPELINE_H

#include "formats/tokenizer/pipeline/normalizer.h"
#include "formats/tokenizer/pipeline/pre_tokenizer.h"
#include "formats/tokenizer/pipeline/token_decoder.h"
#include "formats/tokenizer/tokenizer_kind.h"
#include "formats/tokenizer/models/word_model.h"

struct mfs_text_pipeline {
	struct mfs_normalizers normalizers;
	struct mfs_pre_tokenizers pre_tokenizers;
	struct mfs_word_model *model;
	struct mfs_token_ids before, after; /* with add_special */
	struct mfs_token_decoders decoders;
};

/* Gives tok an empty pipeline, whose functions are tok's from then on. NULL: out of memory. */
struct mfs_text_pipeline *mfs_text_pipeline_begin(struct mfs_tokenizer *tok);

#endif
