/*
 * What a trainer needs of a SentencePiece model ("tokenizer.model"): the number of its pieces, the
 * one that ends a sentence, and the one that is padding.
 *
 * The file is a protobuf message, ModelProto (sentencepiece/src/sentencepiece_model.proto). Its
 * form is docs/formats/sentencepiece.md. Nothing is decoded but what is asked for; what is skipped
 * must be whole.
 */
#ifndef MFS_HF_SENTENCEPIECE_H
#define MFS_HF_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_SENTENCEPIECE_MAX (64u << 20) /* bytes */

struct mfs_sentencepiece {
	uint64_t count; /* pieces */
	int64_t eos;	/* -1: no piece ends sentences */
	int64_t pad;	/* -1: none is padding */
};

/* Parses the bytes of a model's file. name: of the file, for messages. -EINVAL: not a model that
 * SentencePiece loads; -ENOTSUP: too large. */
int mfs_sentencepiece_parse(const char *name, const void *bytes, size_t len,
			    struct mfs_sentencepiece *ret, struct mfs_error *err);

#endif
