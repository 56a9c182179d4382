#include "fs/pack/text/encode_text.h"

#include <stdlib.h>

#include "formats/text/json_text.h"
#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"

/* What one thread encodes with. */
struct worker {
	const struct mfs_text_encoding *e;
	struct mfs_encoder *encoder;
	struct mfs_token_ids ids; /* of the document at hand */
	struct mfs_buf text;	  /* a decoded string */
	struct mfs_json_value *values;
};

/* ---- ids into a batch ---- */

static int put_ids(struct worker *w, struct mfs_buf *tokens, struct mfs_error *err)
{
	const struct mfs_token_ids *ids = &w->ids;
	const size_t size = mfs_dtype_size(w->e->dtype);
	const size_t len = tokens->len;
	uint16_t *narrow;

	for (size_t i = 0; i < ids->count; i++)
		if (ids->at[i] > w->e->high)
			return mfs_fail(err, -ERANGE, "token %u is outside of %s", ids->at[i],
					mfs_dtype_torch(w->e->dtype));
	/* Of narrow elements this makes room: their values follow. */
	mfs_buf_add(tokens, ids->at, ids->count * size);
	if (tokens->failed)
		return mfs_fail_nomem(err);
	if (size == sizeof(uint32_t))
		return 0;
	narrow = (uint16_t *)(tokens->data + len);
	for (size_t i = 0; i < ids->count; i++)
		narrow[i] = (uint16_t)ids->at[i];
	return 0;
}

static void put_number(struct mfs_buf *b, uint32_t n)
{
	mfs_buf_add(b, &n, sizeof(n));
}

/* Ends a sequence that began at id `from`; one without ids is left out. */
static void end_sequence(struct worker *w, struct mfs_packed_text *to, size_t from,
			 uint32_t *sequences)
{
	if (w->ids.count == from)
		return;
	put_number(&to->lengths, (uint32_t)(w->ids.count - from));
	++*sequences;
}

/* The end-of-document token belongs to the last sequence. */
static int add_eod(struct worker *w, struct mfs_packed_text *to, struct mfs_error *err)
{
	const uint32_t eod = (uint32_t)w->e->tokenizer->eod;
	uint32_t last;

	if (!w->e->append_eod || !w->ids.count)
		return 0;
	memcpy(&last, to->lengths.data + to->lengths.len - sizeof(last), sizeof(last));
	last++;
	memcpy(to->lengths.data + to->lengths.len - sizeof(last), &last, sizeof(last));
	return mfs_token_ids_append(&w->ids, &eod, 1, err);
}

static int end_document(struct worker *w, struct mfs_packed_text *to, uint32_t sequences,
			struct mfs_error *err)
{
	int rc = add_eod(w, to, err);

	if (!rc)
		rc = put_ids(w, &to->tokens, err);
	put_number(&to->sequences, sequences);
	w->ids.count = 0;
	return !rc && (to->lengths.failed || to->sequences.failed) ? mfs_fail_nomem(err) : rc;
}

/* ---- documents ---- */

static int tokenize(struct worker *w, const char *text, size_t len, struct mfs_error *err)
{
	return mfs_text_tokenize(w->e->tokenizer, w->encoder, text, len, &w->ids, err);
}

static int tokenize_string(struct worker *w, const struct mfs_json_value *v, struct mfs_error *err)
{
	const size_t len = (size_t)(v->end - v->at);
	int rc;

	if (!memchr(v->at, '\\', len))
		return tokenize(w, v->at, len, err);
	w->text.len = 0;
	rc = mfs_json_text_decode(v, w->e->tokenizer->replaces_halves, &w->text);
	if (rc == -EINVAL)
		return mfs_fail(err, rc, "a \\u escape is half of a surrogate pair");
	return rc ? mfs_fail_nomem(err) : tokenize(w, w->text.data, w->text.len, err);
}

/* A list is of texts that have been split before: each is a sequence. */
static int tokenize_list(struct worker *w, const struct mfs_json_value *list,
			 struct mfs_packed_text *to, uint32_t *sequences, struct mfs_error *err)
{
	struct mfs_json_value v = {.kind = MFS_JSON_ABSENT};
	int rc = 0;

	while (!rc && mfs_json_text_next(list, &v)) {
		const size_t from = w->ids.count;

		if (v.kind != MFS_JSON_STRING)
			return mfs_fail(err, -EINVAL, "expected a list of strings");
		rc = tokenize_string(w, &v, err);
		if (!rc)
			end_sequence(w, to, from, sequences);
	}
	return rc;
}

static int encode_value(struct worker *w, const struct mfs_json_value *v,
			struct mfs_packed_text *to, struct mfs_error *err)
{
	uint32_t sequences = 0;
	int rc;

	switch (v->kind) {
	case MFS_JSON_STRING:
		rc = tokenize_string(w, v, err);
		if (!rc)
			end_sequence(w, to, 0, &sequences);
		break;
	case MFS_JSON_LIST:
		rc = tokenize_list(w, v, to, &sequences, err);
		break;
	default:
		return mfs_fail(err, -EINVAL, "expected a string, found %.*s",
				(int)(v->end - v->at > 40 ? 40 : v->end - v->at), v->at);
	}
	return rc ? rc : end_document(w, to, sequences, err);
}

static int encode_json(struct worker *w, struct mfs_text_batch *b, uint64_t line, const char *text,
		       size_t len)
{
	const struct mfs_text_line place = {b->name, line};
	const struct mfs_text_encoding *e = w->e;
	int rc = mfs_json_text_find(&place, text, len, e->keys, e->key_count, w->values, &b->err);

	if (rc)
		return rc;
	for (size_t i = 0; i < e->key_count && !rc; i++) {
		if (!w->values[i].kind)
			return mfs_fail(&b->err, -EINVAL,
					"%s, line %llu: the object has no key '%s'", b->name,
					(unsigned long long)line, e->keys[i]);
		rc = encode_value(w, &w->values[i], &b->keys[i], &b->err);
		if (rc)
			mfs_fail_in(&b->err, "%s, line %llu, key '%s'", b->name,
				    (unsigned long long)line, e->keys[i]);
	}
	return rc;
}

static int encode_plain(struct worker *w, struct mfs_text_batch *b, uint64_t number,
			const char *text, size_t len)
{
	const size_t valid = mfs_utf8_valid(text, len);
	uint32_t sequences = 0;
	int rc;

	if (valid < len)
		return mfs_fail(
			&b->err, -EINVAL,
			"%s, document %llu, byte %zu: expected UTF-8, found the byte 0x%02x",
			b->name, (unsigned long long)number, valid + 1, (uint8_t)text[valid]);
	rc = tokenize(w, text, len, &b->err);
	if (rc)
		return mfs_fail_in(&b->err, "%s, document %llu", b->name,
				   (unsigned long long)number);
	end_sequence(w, &b->keys[0], 0, &sequences);
	return end_document(w, &b->keys[0], sequences, &b->err);
}

static void clear(struct mfs_text_batch *b, size_t keys)
{
	b->documents = 0;
	for (size_t i = 0; i < keys; i++)
		b->keys[i].tokens.len = b->keys[i].lengths.len = b->keys[i].sequences.len = 0;
}

static void encode_batch(struct worker *w, struct mfs_text_batch *b)
{
	const struct mfs_text_encoding *e = w->e;
	const char *at = b->text.data, *end = b->text.data + b->text.len, *text;
	size_t len;

	clear(b, e->key_count);
	w->ids.count = 0;
	for (uint64_t i = 0; !b->rc && mfs_separator_next(&e->separator, &at, end, &text, &len);
	     i++) {
		if ((b->document + i) % e->passes != b->pass)
			continue;
		b->rc = e->json ? encode_json(w, b, b->line + i, text, len)
				: encode_plain(w, b, b->line + i, text, len);
		b->documents++;
	}
}

static int begin(struct worker *w, const struct mfs_text_encoding *e, struct mfs_error *err)
{
	*w = (struct worker){.e = e, .values = calloc(e->key_count, sizeof(*w->values))};
	if (!w->values)
		return mfs_fail_nomem(err);
	return e->tokenizer->tok ? mfs_encoder_new(e->tokenizer->tok, &w->encoder, err) : 0;
}

void *mfs_text_encode(void *arg)
{
	const struct mfs_text_encoding *e = arg;
	struct mfs_text_batch *b;
	struct worker w;
	struct mfs_error err;
	int rc = begin(&w, e, &err);

	while ((b = mfs_text_ring_to_encode(e->ring))) {
		if (rc && !b->rc) {
			b->rc = rc;
			b->err = err;
		}
		if (!b->rc)
			encode_batch(&w, b);
		mfs_text_ring_encoded(e->ring, b);
	}
	if (w.encoder)
		mfs_encoder_free(w.encoder);
	free(w.values);
	free(w.ids.at);
	mfs_buf_release(&w.text);
	return NULL;
}
