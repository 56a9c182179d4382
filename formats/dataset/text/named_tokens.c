#include "formats/dataset/text/named_tokens.h"

#include <stdlib.h>

#include "formats/base/bytes.h"

#define CHUNK 1024 /* ids that are decoded at once */

enum how {
	DECODED,
	BY_NAME,   /* a special token that the decoder leaves out */
	BY_NUMBER, /* there is no such token */
};

struct mfs_named_tokens {
	const struct mfs_tokenizer *tok;
	uint32_t count;
	uint8_t how[]; /* of each id */
};

struct mfs_named_decoder {
	const struct mfs_named_tokens *names;
	struct mfs_decoder *dec;
	uint32_t ids[CHUNK];
};

/* ---- which ids are decoded ---- */

/* trial is without a text before and after. */
static int is_left_out(struct mfs_decoder *trial, uint32_t id, struct mfs_buf *text, bool *ret,
		       struct mfs_error *err)
{
	int rc;

	text->len = 0;
	rc = mfs_decode(trial, &id, 1, text, err);
	if (!rc)
		rc = mfs_decode_end(trial, text, err);
	*ret = !rc && !text->len;
	return rc;
}

static int fill(struct mfs_named_tokens *n, struct mfs_error *err)
{
	struct mfs_decoder *trial;
	struct mfs_buf text = {0};
	bool left_out;
	size_t len;
	int rc = mfs_decoder_new(n->tok, false, &trial, err);

	if (rc)
		return rc;
	for (uint32_t id = 0; id < n->count && !rc; id++) {
		if (!mfs_tokenizer_token(n->tok, id, &len)) {
			n->how[id] = BY_NUMBER;
		} else if (mfs_tokenizer_is_special(n->tok, id)) {
			rc = is_left_out(trial, id, &text, &left_out, err);
			n->how[id] = left_out ? BY_NAME : DECODED;
		}
	}
	if (!rc && text.failed)
		rc = mfs_fail_nomem(err);
	mfs_buf_release(&text);
	mfs_decoder_free(trial);
	return rc;
}

int mfs_named_tokens_new(const struct mfs_tokenizer *tok, struct mfs_named_tokens **ret,
			 struct mfs_error *err)
{
	const uint32_t count = mfs_tokenizer_size(tok);
	struct mfs_named_tokens *n = calloc(1, sizeof(*n) + count);
	int rc;

	if (!n)
		return mfs_fail_nomem(err);
	n->tok = tok;
	n->count = count;
	rc = fill(n, err);
	if (rc)
		free(n);
	else
		*ret = n;
	return rc;
}

void mfs_named_tokens_free(struct mfs_named_tokens *names)
{
	free(names);
}

const struct mfs_tokenizer *mfs_named_tokens_of(const struct mfs_named_tokens *names)
{
	return names->tok;
}

/* ---- decoding ---- */

int mfs_named_decoder_new(const struct mfs_named_tokens *names, struct mfs_named_decoder **ret,
			  struct mfs_error *err)
{
	struct mfs_named_decoder *d = malloc(sizeof(*d));
	int rc;

	if (!d)
		return mfs_fail_nomem(err);
	d->names = names;
	rc = mfs_decoder_new(names->tok, false, &d->dec, err);
	if (rc)
		free(d);
	else
		*ret = d;
	return rc;
}

void mfs_named_decoder_free(struct mfs_named_decoder *d)
{
	if (!d)
		return;
	mfs_decoder_free(d->dec);
	free(d);
}

static enum how how_of(const struct mfs_named_tokens *n, int64_t token)
{
	return token < 0 || token >= n->count ? BY_NUMBER : (enum how)n->how[token];
}

/* A token that is not decoded. Before it the decoder's text ends, as it may hold back bytes. */
static int add_named(struct mfs_named_decoder *d, int64_t token, struct mfs_buf *out,
		     struct mfs_error *err)
{
	const char *name;
	size_t len;
	int rc = mfs_decode_end(d->dec, out, err);

	if (rc)
		return rc;
	if (how_of(d->names, token) == BY_NUMBER) {
		mfs_buf_printf(out, "<%lld>", (long long)token);
		return 0;
	}
	name = mfs_tokenizer_token(d->names->tok, (uint32_t)token, &len);
	mfs_buf_add(out, name, len);
	return 0;
}

int mfs_named_decode(struct mfs_named_decoder *d, const int64_t *tokens, uint64_t count,
		     struct mfs_buf *out, struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t n; count && !rc; tokens += n, count -= n) {
		const uint64_t most = mfs_min_u64(count, CHUNK);

		for (n = 0; n < most && how_of(d->names, tokens[n]) == DECODED; n++)
			d->ids[n] = (uint32_t)tokens[n];
		if (n)
			rc = mfs_decode(d->dec, d->ids, n, out, err);
		else
			rc = add_named(d, tokens[n++], out, err);
	}
	return !rc && out->failed ? mfs_fail_nomem(err) : rc;
}

int mfs_named_decode_end(struct mfs_named_decoder *d, struct mfs_buf *out, struct mfs_error *err)
{
	int rc = mfs_decode_end(d->dec, out, err);

	return !rc && out->failed ? mfs_fail_nomem(err) : rc;
}
