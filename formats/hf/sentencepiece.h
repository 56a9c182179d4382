/*
 * A SentencePiece model ("tokenizer.model"): its pieces and what its normaliser is told, as the
 * file has them. formats/tokenizer tokenises with it; a trainer needs the number of the pieces, the
 * one that ends a sentence, and the one that is padding.
 *
 * The file is a protobuf message, ModelProto (sentencepiece/src/sentencepiece_model.proto). Its
 * form is docs/formats/sentencepiece.md. What is skipped must be whole.
 */
#ifndef MFS_HF_SENTENCEPIECE_H
#define MFS_HF_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/hf/proto_fields.h"

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

/* SentencePiece.Type */
enum mfs_piece_type {
	MFS_PIECE_NORMAL = 1,
	MFS_PIECE_UNKNOWN,
	MFS_PIECE_CONTROL,
	MFS_PIECE_USER_DEFINED,
	MFS_PIECE_UNUSED,
	MFS_PIECE_BYTE,
};

struct mfs_vocab_piece {
	const char *text; /* not NUL-terminated */
	uint32_t len;	  /* not 0 */
	float score;
	uint8_t type; /* enum mfs_piece_type */
};

/* TrainerSpec.ModelType */
enum mfs_piece_model { MFS_PIECES_UNIGRAM = 1, MFS_PIECES_BPE, MFS_PIECES_WORD, MFS_PIECES_CHAR };

/* Texts lie in the file's bytes, which must stay. Fields that the file leaves out have the values
 * of sentencepiece_model.proto. */
struct mfs_piece_file {
	struct mfs_vocab_piece *pieces; /* [count], by id */
	uint32_t count;
	enum mfs_piece_model model;
	bool byte_fallback, whitespace_as_suffix;
	bool dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
	struct mfs_proto_bytes charsmap, denormalizer; /* precompiled_charsmap; at NULL: none */
	struct mfs_proto_bytes unk, bos, eos, pad;     /* texts of the pieces with these roles */
	struct mfs_proto_bytes unk_surface;
};

/* Reads the whole message. Zero-filled *ret may be released at any time. Errors are those of
 * mfs_sentencepiece_parse(). */
int mfs_piece_file_read(const char *name, const void *bytes, size_t len, struct mfs_piece_file *ret,
			struct mfs_error *err);
void mfs_piece_file_release(struct mfs_piece_file *file);

#endif
