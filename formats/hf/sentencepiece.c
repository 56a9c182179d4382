#include "formats/hf/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"

/* Fields of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec. */
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, MODEL_DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_MODEL = 3, TRAINER_SUFFIX = 24, TRAINER_BYTE_FALLBACK = 35 };
enum { TRAINER_UNK_SURFACE = 44, TRAINER_UNK = 45, TRAINER_BOS, TRAINER_EOS, TRAINER_PAD };
enum { NORMALIZER_CHARSMAP = 2, NORMALIZER_PREFIX, NORMALIZER_EXTRA, NORMALIZER_ESCAPE };

struct reader {
	const char *name;
	const uint8_t *begin;
	struct mfs_piece_file *file;
	struct mfs_error *err;
};

static int fail(const struct reader *r, const uint8_t *at, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: byte %zu: %s; expected a SentencePiece model",
			r->name, (size_t)(at - r->begin), what);
}

/* The next field. b is not empty. */
static int read_field(const struct reader *r, struct mfs_proto_bytes *b, struct mfs_proto_field *f)
{
	const uint8_t *begin = b->at;
	const char *what = mfs_proto_next(b, f);

	return what ? fail(r, begin, what) : 0;
}

static struct mfs_proto_bytes bytes_of(const char *text)
{
	return (struct mfs_proto_bytes){(const uint8_t *)text,
					(const uint8_t *)text + strlen(text)};
}

/* model_interface.cc: an empty one is the usual one. */
static void note_text(struct mfs_proto_bytes *text, const struct mfs_proto_field *f)
{
	if (f->bytes.at < f->bytes.end)
		*text = f->bytes;
}

static void note_trainer_bytes(struct mfs_piece_file *file, const struct mfs_proto_field *f)
{
	if (f->number == TRAINER_UNK_SURFACE)
		file->unk_surface = f->bytes;
	else if (f->number == TRAINER_UNK)
		note_text(&file->unk, f);
	else if (f->number == TRAINER_BOS)
		note_text(&file->bos, f);
	else if (f->number == TRAINER_EOS)
		note_text(&file->eos, f);
	else if (f->number == TRAINER_PAD)
		note_text(&file->pad, f);
}

/* Fields that the trainer's message leaves out stay as they are. */
static void note_trainer(struct mfs_piece_file *file, const struct mfs_proto_field *f)
{
	if (f->form == MFS_PROTO_BYTES)
		note_trainer_bytes(file, f);
	if (f->form != MFS_PROTO_VARINT)
		return;
	if (f->number == TRAINER_MODEL && f->value >= MFS_PIECES_UNIGRAM &&
	    f->value <= MFS_PIECES_CHAR)
		file->model = (enum mfs_piece_model)f->value;
	else if (f->number == TRAINER_SUFFIX)
		file->whitespace_as_suffix = f->value;
	else if (f->number == TRAINER_BYTE_FALLBACK)
		file->byte_fallback = f->value;
}

static void note_normalizer(struct mfs_piece_file *file, const struct mfs_proto_field *f)
{
	if (f->number == NORMALIZER_CHARSMAP && f->form == MFS_PROTO_BYTES)
		file->charsmap = f->bytes;
	if (f->form != MFS_PROTO_VARINT)
		return;
	if (f->number == NORMALIZER_PREFIX)
		file->dummy_prefix = f->value;
	else if (f->number == NORMALIZER_EXTRA)
		file->remove_extra_whitespaces = f->value;
	else if (f->number == NORMALIZER_ESCAPE)
		file->escape_whitespaces = f->value;
}

static void note_denormalizer(struct mfs_piece_file *file, const struct mfs_proto_field *f)
{
	if (f->number == NORMALIZER_CHARSMAP && f->form == MFS_PROTO_BYTES)
		file->denormalizer = f->bytes;
}

/* A message that is there several times is merged: the last field of a number counts. */
static int read_message(const struct reader *r, struct mfs_proto_bytes b,
			void (*note)(struct mfs_piece_file *, const struct mfs_proto_field *))
{
	struct mfs_proto_field f;
	int rc = 0;

	while (!rc && b.at < b.end) {
		rc = read_field(r, &b, &f);
		if (!rc)
			note(r->file, &f);
	}
	return rc;
}

static float float_of(uint64_t bits)
{
	const uint32_t low = (uint32_t)bits;
	float value;

	memcpy(&value, &low, sizeof(value));
	return value;
}

static void note_piece(struct mfs_vocab_piece *piece, const struct mfs_proto_field *f)
{
	if (f->number == PIECE_TEXT && f->form == MFS_PROTO_BYTES) {
		piece->text = (const char *)f->bytes.at;
		piece->len = (uint32_t)(f->bytes.end - f->bytes.at);
	} else if (f->number == PIECE_SCORE && f->form == MFS_PROTO_FIXED32) {
		piece->score = float_of(f->value);
	} else if (f->number == PIECE_TYPE && f->form == MFS_PROTO_VARINT &&
		   f->value >= MFS_PIECE_NORMAL && f->value <= MFS_PIECE_BYTE) {
		piece->type = (uint8_t)f->value;
	}
}

static int read_piece(const struct reader *r, struct mfs_proto_bytes b)
{
	struct mfs_piece_file *file = r->file;
	struct mfs_vocab_piece piece = {.type = MFS_PIECE_NORMAL};
	const uint8_t *begin = b.at;
	struct mfs_proto_field f;

	while (b.at < b.end) {
		const int rc = read_field(r, &b, &f);

		if (rc)
			return rc;
		note_piece(&piece, &f);
	}
	if (!piece.len)
		return fail(r, begin, "this piece has no text");
	if (mfs_grow(&file->pieces, file->count))
		return mfs_fail_nomem(r->err);
	file->pieces[file->count++] = piece;
	return 0;
}

static int read_model(const struct reader *r, struct mfs_proto_bytes b)
{
	struct mfs_proto_field f;
	int rc = 0;

	while (!rc && b.at < b.end) {
		rc = read_field(r, &b, &f);
		if (rc || f.form != MFS_PROTO_BYTES)
			continue;
		if (f.number == MODEL_PIECES)
			rc = read_piece(r, f.bytes);
		else if (f.number == MODEL_TRAINER)
			rc = read_message(r, f.bytes, note_trainer);
		else if (f.number == MODEL_NORMALIZER)
			rc = read_message(r, f.bytes, note_normalizer);
		else if (f.number == MODEL_DENORMALIZER)
			rc = read_message(r, f.bytes, note_denormalizer);
	}
	return rc;
}

/* model_interface.cc: InitializePieces(). */
static int check_unknown(const struct reader *r)
{
	unsigned unknown = 0;

	for (uint32_t i = 0; i < r->file->count; i++)
		unknown += r->file->pieces[i].type == MFS_PIECE_UNKNOWN;
	if (unknown == 1 || (!unknown && r->file->byte_fallback))
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s: expected one piece for what is unknown, found %u; expected a "
			"SentencePiece model",
			r->name, unknown);
}

int mfs_piece_file_read(const char *name, const void *bytes, size_t len, struct mfs_piece_file *ret,
			struct mfs_error *err)
{
	const struct reader r = {name, bytes, ret, err};
	int rc;

	if (len > MFS_SENTENCEPIECE_MAX)
		return mfs_fail(err, -ENOTSUP, "%s: it has %zu bytes, more than the limit of %u",
				name, len, MFS_SENTENCEPIECE_MAX);
	*ret = (struct mfs_piece_file){
		.model = MFS_PIECES_UNIGRAM,
		.dummy_prefix = true,
		.remove_extra_whitespaces = true,
		.escape_whitespaces = true,
		.unk = bytes_of("<unk>"),
		.bos = bytes_of("<s>"),
		.eos = bytes_of("</s>"),
		.pad = bytes_of("<pad>"),
		.unk_surface = bytes_of(" \xe2\x81\x87 "),
	};
	rc = read_model(&r, (struct mfs_proto_bytes){bytes, (const uint8_t *)bytes + len});
	return rc ? rc : check_unknown(&r);
}

void mfs_piece_file_release(struct mfs_piece_file *file)
{
	free(file->pieces);
	*file = (struct mfs_piece_file){0};
}

/* ---- what a trainer needs ---- */

static bool has_text(const struct mfs_vocab_piece *piece, struct mfs_proto_bytes text)
{
	return piece->len == (size_t)(text.end - text.at) &&
	       !memcmp(piece->text, text.at, piece->len);
}

/* sentencepiece_processor.cc: eos_id() and pad_id() are ids of pieces by their texts, and not the
 * trainer's eos_id and pad_id. A piece of this text is there once; one that is not a control symbol
 * has no meaning. */
static int find_role(const struct reader *r, struct mfs_proto_bytes text, int64_t *ret)
{
	bool found = false;

	*ret = -1;
	for (uint32_t i = 0; i < r->file->count; i++) {
		const struct mfs_vocab_piece *piece = &r->file->pieces[i];

		if (!has_text(piece, text))
			continue;
		if (found)
			return fail(r, (const uint8_t *)piece->text, "this piece is there twice");
		found = true;
		if (piece->type == MFS_PIECE_CONTROL)
			*ret = i;
	}
	return 0;
}

int mfs_sentencepiece_parse(const char *name, const void *bytes, size_t len,
			    struct mfs_sentencepiece *ret, struct mfs_error *err)
{
	struct mfs_piece_file file = {0};
	const struct reader r = {name, bytes, &file, err};
	int rc = mfs_piece_file_read(name, bytes, len, &file, err);

	if (!rc) {
		ret->count = file.count;
		rc = find_role(&r, file.eos, &ret->eos);
	}
	if (!rc)
		rc = find_role(&r, file.pad, &ret->pad);
	mfs_piece_file_release(&file);
	return rc;
}
