#include "formats/hf/sentencepiece.h"

#include <stdbool.h>
#include <string.h>

/* Fields of ModelProto, SentencePiece and TrainerSpec. */
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2 };
enum { PIECE_TEXT = 1, PIECE_TYPE = 3 };
enum { TRAINER_EOS_PIECE = 47, TRAINER_PAD_PIECE = 48 };
/* SentencePiece.Type */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };
/* How a field's value is written. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct bytes {
	const uint8_t *at, *end;
};

/* The texts of the pieces that are asked for. */
struct texts {
	struct bytes eos, pad;
};

struct field {
	uint64_t number;
	unsigned form;
	uint64_t value;	    /* of a VARINT */
	struct bytes bytes; /* of BYTES */
};

struct reader {
	const char *name;
	const uint8_t *begin;
	struct mfs_error *err;
};

static int fail(const struct reader *r, const uint8_t *at, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: byte %zu: %s; expected a SentencePiece model",
			r->name, (size_t)(at - r->begin), what);
}

/* ---- protobuf ---- */

/* Bits that do not fit are dropped. */
static bool read_varint(struct bytes *b, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 70 && b->at < b->end; shift += 7) {
		const uint8_t byte = *b->at++;

		*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

static bool skip(struct bytes *b, uint64_t len)
{
	if (len > (uint64_t)(b->end - b->at))
		return false;
	b->at += len;
	return true;
}

/* The next field. b is not empty. */
static int read_field(const struct reader *r, struct bytes *b, struct field *f)
{
	const uint8_t *begin = b->at;
	uint64_t tag, len = 0;
	bool whole = read_varint(b, &tag);

	if (!whole || !(tag >> 3) || tag >> 3 >= 1u << 29)
		return fail(r, begin, "this is no field");
	*f = (struct field){.number = tag >> 3, .form = tag & 7};
	switch (f->form) {
	case VARINT:
		whole = read_varint(b, &f->value);
		break;
	case FIXED64:
		whole = skip(b, 8);
		break;
	case FIXED32:
		whole = skip(b, 4);
		break;
	case BYTES:
		whole = read_varint(b, &len);
		f->bytes.at = b->at;
		whole = whole && skip(b, len);
		f->bytes.end = b->at;
		break;
	default:
		return fail(r, begin, "this field is of no known form");
	}
	return whole ? 0 : fail(r, begin, "this field is cut short");
}

/* ---- the model ---- */

static struct bytes bytes_of(const char *text)
{
	return (struct bytes){(const uint8_t *)text, (const uint8_t *)text + strlen(text)};
}

static bool is_text(struct bytes a, struct bytes b)
{
	return a.end - a.at == b.end - b.at && !memcmp(a.at, b.at, (size_t)(b.end - b.at));
}

/* What the trainer's message says nothing of stays as it is. */
static int read_trainer(const struct reader *r, struct bytes b, struct texts *texts)
{
	struct field f;
	int rc = 0;

	while (!rc && b.at < b.end) {
		rc = read_field(r, &b, &f);
		/* model_interface.cc: an empty one is the usual one. */
		if (rc || f.form != BYTES || f.bytes.at == f.bytes.end)
			continue;
		if (f.number == TRAINER_EOS_PIECE)
			texts->eos = f.bytes;
		else if (f.number == TRAINER_PAD_PIECE)
			texts->pad = f.bytes;
	}
	return rc;
}

/* The trainer's message stands after the pieces. */
static int find_texts(const struct reader *r, struct bytes b, struct texts *texts)
{
	struct field f;
	int rc = 0;

	while (!rc && b.at < b.end) {
		rc = read_field(r, &b, &f);
		if (!rc && f.number == MODEL_TRAINER && f.form == BYTES)
			rc = read_trainer(r, f.bytes, texts);
	}
	return rc;
}

static int read_piece(const struct reader *r, struct bytes b, struct bytes *text, unsigned *type)
{
	const uint8_t *begin = b.at;
	struct field f;
	int rc = 0;

	*text = (struct bytes){0};
	*type = NORMAL;
	while (!rc && b.at < b.end) {
		rc = read_field(r, &b, &f);
		if (!rc && f.number == PIECE_TEXT && f.form == BYTES)
			*text = f.bytes;
		else if (!rc && f.number == PIECE_TYPE && f.form == VARINT && f.value >= NORMAL &&
			 f.value <= BYTE)
			*type = (unsigned)f.value;
	}
	if (!rc && text->at == text->end)
		return fail(r, begin, "this piece has no text");
	return rc;
}

/* A piece of this text is there once; one that is not a control symbol has no meaning. */
static int note_piece(const struct reader *r, struct bytes text, unsigned type, struct bytes wanted,
		      bool *found, uint64_t id, int64_t *ret)
{
	if (!is_text(text, wanted))
		return 0;
	if (*found)
		return fail(r, text.at, "this piece is there twice");
	*found = true;
	if (type == CONTROL)
		*ret = (int64_t)id;
	return 0;
}

/* sentencepiece_processor.cc: eos_id() and pad_id() are ids of pieces by their texts, and not the
 * trainer's eos_id and pad_id. */
static int read_pieces(const struct reader *r, struct bytes b, const struct texts *texts,
		       struct mfs_sentencepiece *ret)
{
	unsigned unknown = 0, type;
	bool eos = false, pad = false;
	struct bytes text;
	struct field f;

	while (b.at < b.end) {
		int rc = read_field(r, &b, &f);

		if (rc)
			return rc;
		if (f.number != MODEL_PIECES || f.form != BYTES)
			continue;
		rc = read_piece(r, f.bytes, &text, &type);
		if (rc)
			return rc;
		unknown += type == UNKNOWN;
		rc = note_piece(r, text, type, texts->eos, &eos, ret->count, &ret->eos);
		if (!rc)
			rc = note_piece(r, text, type, texts->pad, &pad, ret->count, &ret->pad);
		if (rc)
			return rc;
		ret->count++;
	}
	if (unknown != 1)
		return mfs_fail(r->err, -EINVAL,
				"%s: expected one piece for what is unknown, found %u; expected a "
				"SentencePiece model",
				r->name, unknown);
	return 0;
}

int mfs_sentencepiece_parse(const char *name, const void *bytes, size_t len,
			    struct mfs_sentencepiece *ret, struct mfs_error *err)
{
	const struct reader r = {name, bytes, err};
	const struct bytes all = {bytes, (const uint8_t *)bytes + len};
	struct texts texts = {bytes_of("</s>"), bytes_of("<pad>")}; /* the usual ones */
	int rc;

	if (len > MFS_SENTENCEPIECE_MAX)
		return mfs_fail(err, -ENOTSUP, "%s: it has %zu bytes, more than the limit of %u",
				name, len, MFS_SENTENCEPIECE_MAX);
	*ret = (struct mfs_sentencepiece){.eos = -1, .pad = -1};
	rc = find_texts(&r, all, &texts);
	return rc ? rc : read_pieces(&r, all, &texts, ret);
}
