#include "formats/tokenizer/spm/spm.h"

#include <stdlib.h>

#include "formats/base/absent.h"
#include "formats/tokenizer/spm/spm_i.h"
#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* ---- encoding ---- */

bool mfs_spm_room(void *at, size_t *room, size_t count, size_t size)
{
	void **array = at;
	void *more;

	if (count <= *room)
		return true;
	if (count > SIZE_MAX / 2 / size)
		return false;
	count += count / 2;
	free(*array); /* nothing of it is needed */
	more = malloc(count * size);
	*array = more;
	*room = more ? count : 0;
	return more;
}

int mfs_spm_emit(const struct mfs_spm *spm, struct mfs_spm_scratch *s, uint32_t id,
		 const char *text, size_t len, struct mfs_token_ids *ids)
{
	const bool unknown = id == MFS_SPM_UNKNOWN;
	const bool again = unknown && s->after_unknown;

	s->after_unknown = unknown;
	if (unknown && spm->file.byte_fallback) {
		if (mfs_token_ids_room(ids, len, NULL))
			return -ENOMEM;
		for (size_t i = 0; i < len; i++)
			ids->at[ids->count++] = spm->bytes[(uint8_t)text[i]];
		return 0;
	}
	if (again)
		return 0;
	if (mfs_token_ids_room(ids, 1, NULL))
		return -ENOMEM;
	ids->at[ids->count++] = unknown ? (uint32_t)spm->unk : id;
	return 0;
}

typedef int word_fn(const struct mfs_spm *spm, struct mfs_spm_scratch *s, const char *word,
		    size_t len, struct mfs_token_ids *ids);

/* The bytes of the next word. */
static size_t word_at(const struct mfs_spm *spm, const char *text, size_t len)
{
	bool space = mfs_spm_is_space(text, len);
	size_t at;

	if (!spm->any_cut)
		return len;
	for (at = mfs_spm_char(text, len); at < len; at += mfs_spm_char(text + at, len - at)) {
		const bool next = mfs_spm_is_space(text + at, len - at);

		if (spm->cuts[2 * space + next])
			return at;
		space = next;
	}
	return len;
}

static int encode_words(const struct mfs_spm *spm, struct mfs_spm_scratch *s, word_fn *encode,
			struct mfs_token_ids *ids)
{
	int rc = 0;

	for (size_t at = 0; at < s->len && !rc;) {
		const size_t len = word_at(spm, s->text + at, s->len - at);

		rc = encode(spm, s, s->text + at, len, ids);
		at += len;
	}
	return rc;
}

static int encode_text(const struct mfs_spm *spm, struct mfs_spm_scratch *s,
		       struct mfs_token_ids *ids)
{
	switch (spm->file.model) {
	case MFS_PIECES_UNIGRAM:
		return encode_words(spm, s, mfs_spm_unigram, ids);
	case MFS_PIECES_BPE:
		return encode_words(spm, s, mfs_spm_bpe, ids);
	case MFS_PIECES_WORD:
		return mfs_spm_words(spm, s, s->text, s->len, ids);
	default:
		return mfs_spm_characters(spm, s, s->text, s->len, ids);
	}
}

static int encode(struct mfs_encoder *enc, const char *text, size_t len, bool add_special,
		  struct mfs_token_ids *ids, struct mfs_error *err)
{
	const struct mfs_spm *spm = enc->tok->impl;
	struct mfs_spm_scratch *s = enc->impl;
	int rc;

	(void)add_special; /* a model puts nothing around a text */
	s->base = 0;
	s->after_unknown = false;
	rc = mfs_spm_normalize(spm, s, text, len);
	if (!rc)
		rc = encode_text(spm, s, ids);
	if (rc == -EFBIG)
		return mfs_fail(err, -ENOTSUP, "a text of %zu bytes is too long", len);
	return rc ? mfs_fail_nomem(err) : 0;
}

static int encoder_init(struct mfs_encoder *enc, struct mfs_error *err)
{
	struct mfs_spm_scratch *s = calloc(1, sizeof(*s));

	enc->impl = s;
	return s && !mfs_word_cache_init(&s->cache) ? 0 : mfs_fail_nomem(err);
}

static void encoder_release(struct mfs_encoder *enc)
{
	struct mfs_spm_scratch *s = enc->impl;

	if (!s)
		return;
	free(s->text);
	free(s->nodes);
	free(s->symbols);
	free(s->heap);
	free(s->splits);
	free(s->split_at);
	mfs_word_cache_release(&s->cache);
	free(s);
}

/* ---- decoding ---- */

struct decoding {
	char bytes[4]; /* of byte pieces, which are no character yet */
	unsigned count;
	bool at_begin; /* a space that the normaliser has put there may come */
	bool any;      /* there was output */
};

/* How many bytes a character has that begins so, or 1. */
static unsigned size_of(uint8_t lead)
{
	return lead >= 0xf0 && lead < 0xf8   ? 4
	       : lead >= 0xe0 && lead < 0xf0 ? 3
	       : lead >= 0xc0 && lead < 0xe0 ? 2
					     : 1;
}

/* util.cc: each byte that begins no character is one U+FFFD. all: no bytes follow. */
static void put_bytes(struct decoding *d, bool all, struct mfs_buf *out)
{
	while (d->count) {
		unsigned used = size_of((uint8_t)d->bytes[0]);

		if (used > d->count && !all)
			return;
		if (used <= d->count && mfs_utf8_valid(d->bytes, used) == used) {
			mfs_buf_add(out, d->bytes, used);
		} else {
			mfs_buf_adds(out, REPLACEMENT);
			used = 1;
		}
		d->any = true;
		d->count -= used;
		memmove(d->bytes, d->bytes + used, d->count);
	}
}

static int byte_of(const struct mfs_vocab_piece *piece)
{
	const char *digits = "0123456789ABCDEF";

	return (int)(strchr(digits, piece->text[3]) - digits) << 4 |
	       (int)(strchr(digits, piece->text[4]) - digits);
}

static void put_spaced(const char *text, size_t len, struct mfs_buf *out)
{
	while (len) {
		size_t n = 0;

		while (n < len && !mfs_spm_is_space(text + n, len - n))
			n++;
		mfs_buf_add(out, text, n);
		if (n == len)
			return;
		mfs_buf_add(out, " ", 1);
		text += n + MFS_SPM_SPACE_SIZE;
		len -= n + MFS_SPM_SPACE_SIZE;
	}
}

/* sentencepiece_processor.cc: DecodeOptimized() */
static void put_piece(const struct mfs_spm *spm, struct decoding *d,
		      const struct mfs_vocab_piece *piece, struct mfs_buf *out)
{
	const struct mfs_piece_file *file = &spm->file;
	const char *text = piece->text;
	size_t len = piece->len;
	bool space = false;
	const size_t before = out->len;

	put_bytes(d, true, out);
	d->at_begin &= !d->any;
	if (piece->type == MFS_PIECE_CONTROL)
		return;
	if (d->at_begin && (file->dummy_prefix || file->remove_extra_whitespaces) &&
	    mfs_spm_is_space(text, len)) {
		text += MFS_SPM_SPACE_SIZE;
		len -= MFS_SPM_SPACE_SIZE;
		space = !file->remove_extra_whitespaces;
	}
	if (piece->type == MFS_PIECE_UNKNOWN)
		mfs_buf_add(out, file->unk_surface.at,
			    (size_t)(file->unk_surface.end - file->unk_surface.at));
	else
		put_spaced(text, len, out);
	d->any |= out->len > before;
	d->at_begin &= !space && !d->any;
}

static int decode(struct mfs_decoder *dec, const uint32_t *ids, size_t count, struct mfs_buf *out,
		  struct mfs_error *err)
{
	const struct mfs_spm *spm = dec->tok->impl;
	struct decoding *d = dec->impl;

	for (size_t i = 0; i < count; i++) {
		const struct mfs_vocab_piece *piece;

		if (ids[i] >= spm->file.count)
			return mfs_fail(err, -EINVAL, "id %u; expected less than %u", ids[i],
					spm->file.count);
		piece = &spm->file.pieces[ids[i]];
		if (piece->type != MFS_PIECE_BYTE) {
			put_piece(spm, d, piece, out);
			continue;
		}
		d->bytes[d->count++] = (char)byte_of(piece);
		put_bytes(d, false, out);
	}
	return out->failed ? mfs_fail_nomem(err) : 0;
}

static int decode_end(struct mfs_decoder *dec, struct mfs_buf *out, struct mfs_error *err)
{
	struct decoding *d = dec->impl;

	put_bytes(d, true, out);
	*d = (struct decoding){.at_begin = true};
	return out->failed ? mfs_fail_nomem(err) : 0;
}

static int decoder_init(struct mfs_decoder *dec, struct mfs_error *err)
{
	struct decoding *d = calloc(1, sizeof(*d));

	if (!d)
		return mfs_fail_nomem(err);
	d->at_begin = true;
	dec->impl = d;
	return 0;
}

static void decoder_release(struct mfs_decoder *dec)
{
	free(dec->impl);
}

/* ---- the file ---- */

static void release(struct mfs_tokenizer *tok)
{
	if (tok->impl)
		mfs_spm_release(tok->impl);
}

static const struct mfs_tokenizer_ops ops = {
	.encoder_init = encoder_init,
	.encoder_release = encoder_release,
	.encode = encode,
	.decoder_init = decoder_init,
	.decoder_release = decoder_release,
	.decode = decode,
	.decode_end = decode_end,
	.release = release,
};

/* sentencepiece_processor.cc: Load(). Roles belong to pieces of a type. */
static int64_t role_of(const struct mfs_tokenizer *tok, struct mfs_proto_bytes text,
		       enum mfs_piece_type type)
{
	const struct mfs_spm *spm = tok->impl;
	const int64_t id =
		mfs_tokenizer_id(tok, (const char *)text.at, (size_t)(text.end - text.at));

	return id >= 0 && spm->file.pieces[id].type == type ? id : MFS_ABSENT;
}

/* Reserved pieces are special, and found by their texts before others. No text is encoded as one.
 */
static int add_reserved(struct mfs_tokenizer *tok, const struct mfs_vocab_piece *piece, uint32_t id,
			struct mfs_error *err)
{
	const struct mfs_added_token token = {.text = piece->text,
					      .len = piece->len,
					      .id = id,
					      .pattern = piece->text,
					      .pattern_len = piece->len,
					      .special = true};

	if (piece->type != MFS_PIECE_CONTROL && piece->type != MFS_PIECE_UNKNOWN)
		return 0;
	return mfs_added_tokens_add(&tok->added, &token, err);
}

static int add_tokens(struct mfs_tokenizer *tok, struct mfs_error *err)
{
	const struct mfs_piece_file *file = &((struct mfs_spm *)tok->impl)->file;
	int rc = 0;

	for (uint32_t id = 0; id < file->count && !rc; id++)
		rc = mfs_token_table_set(&tok->tokens, id, file->pieces[id].text,
					 file->pieces[id].len, err);
	for (uint32_t id = 0; id < file->count && !rc; id++)
		rc = add_reserved(tok, &file->pieces[id], id, err);
	if (!rc)
		rc = mfs_token_table_index(&tok->tokens, err);
	if (!rc)
		rc = mfs_added_tokens_index(&tok->added, err);
	if (rc)
		return rc;
	tok->roles.unk = role_of(tok, file->unk, MFS_PIECE_UNKNOWN);
	tok->roles.bos = role_of(tok, file->bos, MFS_PIECE_CONTROL);
	tok->roles.eos = role_of(tok, file->eos, MFS_PIECE_CONTROL);
	tok->roles.pad = role_of(tok, file->pad, MFS_PIECE_CONTROL);
	return 0;
}

int mfs_tokenizer_spm_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			   size_t len, struct mfs_error *err)
{
	struct mfs_spm *spm = mfs_arena_alloc(&tok->arena, sizeof(*spm));
	char *bytes = mfs_arena_alloc(&tok->arena, len ? len : 1);
	int rc;

	if (!spm || !bytes)
		return mfs_fail_nomem(err);
	if (len)
		memcpy(bytes, text, len);
	tok->ops = &ops;
	tok->impl = spm;
	rc = mfs_piece_file_read(path, bytes, len, &spm->file, err);
	if (!rc)
		rc = mfs_spm_read(spm, path, err);
	return rc ? rc : add_tokens(tok, err);
}
