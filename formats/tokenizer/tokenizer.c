#include "formats/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <xxhash.h>

#include "formats/tokenizer/tokenizer_kind.h"
#include "formats/tokenizer/unicode/utf8.h"

void mfs_tokenizer_add_file(struct mfs_tokenizer *tok, const char *text, size_t len)
{
	tok->hash = XXH3_64bits_withSeed(text, len, tok->hash);
}

int mfs_tokenizer_parse(const struct mfs_tokenizer_kind *kind, const char *path, const char *text,
			size_t len, struct mfs_tokenizer **ret, struct mfs_error *err)
{
	struct mfs_tokenizer *tok = calloc(1, sizeof(*tok));
	int rc;

	if (!tok)
		return mfs_fail_nomem(err);
	tok->roles = (struct mfs_tokenizer_roles){MFS_ABSENT, MFS_ABSENT, MFS_ABSENT, MFS_ABSENT,
						  MFS_ABSENT, MFS_ABSENT, MFS_ABSENT};
	tok->arena.block = 1u << 16;
	mfs_tokenizer_add_file(tok, text, len);
	rc = kind->read(tok, path, text, len, err);
	if (rc)
		mfs_tokenizer_free(tok);
	else
		*ret = tok;
	return rc ? mfs_fail_in(err, "%s", path) : 0;
}

void mfs_tokenizer_free(struct mfs_tokenizer *tok)
{
	if (!tok)
		return;
	if (tok->ops && tok->ops->release)
		tok->ops->release(tok);
	mfs_added_tokens_release(&tok->added);
	mfs_token_table_release(&tok->tokens);
	mfs_arena_release(&tok->arena);
	free(tok);
}

/* ---- tokens ---- */

uint64_t mfs_tokenizer_hash(const struct mfs_tokenizer *tok)
{
	return tok->hash;
}

uint32_t mfs_tokenizer_size(const struct mfs_tokenizer *tok)
{
	return tok->added.id_count > tok->tokens.count ? tok->added.id_count : tok->tokens.count;
}

const char *mfs_tokenizer_token(const struct mfs_tokenizer *tok, uint32_t id, size_t *ret_len)
{
	const struct mfs_added_token *added = mfs_added_tokens_by_id(&tok->added, id);

	if (added) {
		*ret_len = added->len;
		return added->text;
	}
	if (id >= tok->tokens.count)
		return NULL;
	*ret_len = tok->tokens.at[id].len;
	return tok->tokens.at[id].text;
}

int64_t mfs_tokenizer_id(const struct mfs_tokenizer *tok, const char *text, size_t len)
{
	const struct mfs_added_token *added = mfs_added_tokens_by_text(&tok->added, text, len);
	uint32_t id;

	if (added)
		return added->id;
	id = mfs_token_table_find(&tok->tokens, text, len);
	return id == MFS_NO_ID ? MFS_ABSENT : (int64_t)id;
}

bool mfs_tokenizer_is_special(const struct mfs_tokenizer *tok, uint32_t id)
{
	const struct mfs_added_token *added = mfs_added_tokens_by_id(&tok->added, id);

	return added && added->special;
}

const struct mfs_tokenizer_roles *mfs_tokenizer_roles(const struct mfs_tokenizer *tok)
{
	return &tok->roles;
}

/* ---- encoders and decoders ---- */

int mfs_encoder_new(const struct mfs_tokenizer *tok, struct mfs_encoder **ret,
		    struct mfs_error *err)
{
	struct mfs_encoder *enc = calloc(1, sizeof(*enc));
	int rc;

	if (!enc)
		return mfs_fail_nomem(err);
	enc->tok = tok;
	rc = tok->ops->encoder_init ? tok->ops->encoder_init(enc, err) : 0;
	if (rc)
		mfs_encoder_free(enc);
	else
		*ret = enc;
	return rc;
}

void mfs_encoder_free(struct mfs_encoder *enc)
{
	if (!enc)
		return;
	if (enc->tok->ops->encoder_release)
		enc->tok->ops->encoder_release(enc);
	mfs_buf_release(&enc->repaired);
	free(enc);
}

int mfs_encode(struct mfs_encoder *enc, const char *text, size_t len, bool add_special,
	       struct mfs_token_ids *ids, struct mfs_error *err)
{
	if (mfs_utf8_valid(text, len) != len) {
		enc->repaired.len = 0;
		mfs_utf8_repair(&enc->repaired, text, len);
		if (enc->repaired.failed)
			return mfs_fail_nomem(err);
		text = enc->repaired.data;
		len = enc->repaired.len;
	}
	return enc->tok->ops->encode(enc, text, len, add_special, ids, err);
}

int mfs_decoder_new(const struct mfs_tokenizer *tok, bool skip_special, struct mfs_decoder **ret,
		    struct mfs_error *err)
{
	struct mfs_decoder *dec = calloc(1, sizeof(*dec));
	int rc;

	if (!dec)
		return mfs_fail_nomem(err);
	dec->tok = tok;
	dec->skip_special = skip_special;
	rc = tok->ops->decoder_init ? tok->ops->decoder_init(dec, err) : 0;
	if (rc)
		mfs_decoder_free(dec);
	else
		*ret = dec;
	return rc;
}

void mfs_decoder_free(struct mfs_decoder *dec)
{
	if (!dec)
		return;
	if (dec->tok->ops->decoder_release)
		dec->tok->ops->decoder_release(dec);
	free(dec);
}

int mfs_decode(struct mfs_decoder *dec, const uint32_t *ids, size_t count, struct mfs_buf *out,
	       struct mfs_error *err)
{
	return dec->tok->ops->decode(dec, ids, count, out, err);
}

int mfs_decode_end(struct mfs_decoder *dec, struct mfs_buf *out, struct mfs_error *err)
{
	return dec->tok->ops->decode_end ? dec->tok->ops->decode_end(dec, out, err) : 0;
}
