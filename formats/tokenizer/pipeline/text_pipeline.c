#include "formats/tokenizer/pipeline/text_pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/unicode/byte_chars.h"
#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"
#include "formats/tokenizer/word_cache.h"

/* What one thread needs. */
struct encoder {
	const struct mfs_text_pipeline *pipeline;
	const struct mfs_added_tokens *added;
	struct mfs_regex_memory *regex;
	struct mfs_normalize_memory normalize;
	struct mfs_pre_tokenize_memory pre_tokenize;
	struct mfs_word_scratch scratch;
	struct mfs_word_cache cache;
	struct mfs_buf characters; /* of a word's bytes */
	struct mfs_token_ids *ids; /* of the text that is encoded */
};

/* ---- words ---- */

static int encode_new_word(struct encoder *e, const char *word, size_t len, struct mfs_error *err)
{
	const struct mfs_word_model *model = e->pipeline->model;

	if (e->pipeline->pre_tokenizers.bytes_remain) {
		e->characters.len = 0;
		mfs_byte_chars_add(&e->characters, word, len);
		if (e->characters.failed)
			return mfs_fail_nomem(err);
		word = e->characters.data;
		len = e->characters.len;
	}
	return model->ops->encode(model, &e->scratch, word, len, e->ids, err);
}

static int encode_word(void *arg, const char *word, size_t len, struct mfs_error *err)
{
	struct encoder *e = arg;
	const size_t begin = e->ids->count;
	const uint32_t *known;
	size_t count;
	uint64_t hash;
	int rc;

	if (len > MFS_WORD_CACHE_LONGEST)
		return encode_new_word(e, word, len, err);
	hash = mfs_token_hash(word, len);
	known = mfs_word_cache_find(&e->cache, word, len, hash, &count);
	if (known)
		return mfs_token_ids_append(e->ids, known, count, err);
	rc = encode_new_word(e, word, len, err);
	count = e->ids->count - begin;
	if (!rc)
		mfs_word_cache_add(&e->cache, word, len, hash, count ? e->ids->at + begin : NULL,
				   count);
	return rc;
}

/* ---- added tokens, and what is between them ---- */

typedef int (*between)(struct encoder *e, const struct mfs_text_part *part, struct mfs_error *err);

static int cut_added(struct encoder *e, const struct mfs_byte_trie *trie,
		     const struct mfs_text_part *part, between rest, struct mfs_error *err)
{
	struct mfs_added_walk walk = {e->added, trie, part->text, part->len, 0, 0};
	const struct mfs_added_token *token;
	struct mfs_text_part before;
	size_t start, end;
	int rc = 0;

	while (!rc && (token = mfs_added_walk_next(&walk, &start, &end))) {
		if (walk.done < start) {
			before = mfs_text_part_slice(part, walk.done, start);
			rc = rest(e, &before, err);
		}
		walk.done = end;
		if (!rc && start < end)
			rc = mfs_token_ids_append(e->ids, &token->id, 1, err);
	}
	if (rc || walk.done >= part->len)
		return rc;
	before = mfs_text_part_slice(part, walk.done, part->len);
	return rest(e, &before, err);
}

static int encode_normalized(struct encoder *e, const struct mfs_text_part *part,
			     struct mfs_error *err)
{
	static const struct mfs_pre_tokenize_hooks hooks = {encode_word};

	return mfs_pre_tokenize(&e->pipeline->pre_tokenizers, &e->pre_tokenize, part, &hooks, e,
				err);
}

static int encode_raw(struct encoder *e, const struct mfs_text_part *part, struct mfs_error *err)
{
	struct mfs_text_part normalized = *part;
	int rc = mfs_normalize(&e->pipeline->normalizers, &e->normalize, &normalized, err);

	return rc || !normalized.len
		       ? rc
		       : cut_added(e, &e->added->normalized, &normalized, encode_normalized, err);
}

static int encode(struct mfs_encoder *enc, const char *text, size_t len, bool add_special,
		  struct mfs_token_ids *ids, struct mfs_error *err)
{
	struct encoder *e = enc->impl;
	const struct mfs_text_pipeline *p = e->pipeline;
	const struct mfs_text_part whole = {text, len, len ? mfs_utf8_size(text[0]) : 0};
	int rc = 0;

	e->ids = ids;
	if (add_special)
		rc = mfs_token_ids_append(ids, p->before.at, p->before.count, err);
	if (!rc)
		rc = cut_added(e, &e->added->raw, &whole, encode_raw, err);
	if (!rc && add_special)
		rc = mfs_token_ids_append(ids, p->after.at, p->after.count, err);
	return rc;
}

static void release_encoder(struct mfs_encoder *enc)
{
	struct encoder *e = enc->impl;

	if (!e)
		return;
	mfs_pre_tokenize_memory_release(&e->pre_tokenize, &e->pipeline->pre_tokenizers);
	mfs_buf_release(&e->normalize.even);
	mfs_buf_release(&e->normalize.odd);
	mfs_buf_release(&e->characters);
	mfs_word_scratch_release(&e->scratch);
	mfs_word_cache_release(&e->cache);
	mfs_regex_memory_free(e->regex);
	free(e);
	enc->impl = NULL;
}

static int init_encoder(struct mfs_encoder *enc, struct mfs_error *err)
{
	struct encoder *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return mfs_fail_nomem(err);
	enc->impl = e;
	e->pipeline = enc->tok->impl;
	e->added = &enc->tok->added;
	rc = mfs_regex_memory_new(&e->regex, err);
	e->normalize.regex = e->regex;
	if (!rc)
		rc = mfs_pre_tokenize_memory_init(&e->pre_tokenize, &e->pipeline->pre_tokenizers,
						  e->regex, err);
	if (!rc && mfs_word_cache_init(&e->cache))
		rc = mfs_fail_nomem(err);
	return rc;
}

/* ---- the pipeline ---- */

static void release(struct mfs_tokenizer *tok)
{
	struct mfs_text_pipeline *p = tok->impl;

	if (!p)
		return;
	mfs_normalizers_release(&p->normalizers);
	mfs_pre_tokenizers_release(&p->pre_tokenizers);
	if (p->model)
		p->model->ops->free(p->model);
	free(p->before.at);
	free(p->after.at);
	mfs_token_decoders_release(&p->decoders);
	free(p);
	tok->impl = NULL;
}

static int init_decoder(struct mfs_decoder *dec, struct mfs_error *err)
{
	const struct mfs_text_pipeline *p = dec->tok->impl;

	return mfs_token_decode_new(&p->decoders, (struct mfs_token_decode **)&dec->impl, err);
}

static void release_decoder(struct mfs_decoder *dec)
{
	mfs_token_decode_free(dec->impl);
}

/* tokenizers: TokenizerImpl::decode. Ids that no token has are passed over. */
static int decode(struct mfs_decoder *dec, const uint32_t *ids, size_t count, struct mfs_buf *out,
		  struct mfs_error *err)
{
	const struct mfs_tokenizer *tok = dec->tok;
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		const struct mfs_added_token *added = mfs_added_tokens_by_id(&tok->added, ids[i]);
		const char *text = added ? added->pattern : NULL;
		size_t len = added ? added->pattern_len : 0;

		if (!added)
			text = mfs_tokenizer_token(tok, ids[i], &len);
		if (!text)
			continue;
		if (dec->skip_special) {
			added = mfs_added_tokens_by_text(&tok->added, text, len);
			if (added && added->special)
				continue;
		}
		rc = mfs_token_decode_put(dec->impl, text, len, out, err);
	}
	return rc;
}

static int decode_end(struct mfs_decoder *dec, struct mfs_buf *out, struct mfs_error *err)
{
	return mfs_token_decode_end(dec->impl, out, err);
}

static const struct mfs_tokenizer_ops ops = {
	.encoder_init = init_encoder,
	.encoder_release = release_encoder,
	.encode = encode,
	.decoder_init = init_decoder,
	.decoder_release = release_decoder,
	.decode = decode,
	.decode_end = decode_end,
	.release = release,
};

struct mfs_text_pipeline *mfs_text_pipeline_begin(struct mfs_tokenizer *tok)
{
	struct mfs_text_pipeline *p = calloc(1, sizeof(*p));

	tok->impl = p;
	tok->ops = &ops;
	return p;
}
