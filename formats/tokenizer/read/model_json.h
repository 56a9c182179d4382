/* The model of tokenizer.json: its vocabulary and what it does with it. */
#ifndef MFS_TOKENIZER_READ_MODEL_JSON_H
#define MFS_TOKENIZER_READ_MODEL_JSON_H

#include "formats/hf/json_scan.h"
#include "formats/tokenizer/pipeline/text_pipeline.h"

/* Fills tok->tokens and the pipeline's model from the value of "model". -ENOTSUP: a type that is
 * not known; -EINVAL. */
int mfs_model_json_read(struct mfs_tokenizer *tok, struct mfs_scan model, struct mfs_error *err);

/* The reader of tokenizer.json. */
int mfs_tokenizer_json_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			    size_t len, struct mfs_error *err);

#endif
