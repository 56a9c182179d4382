#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/buf.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer_kind.h"

#define TEXT_MAX 256

/* Words that are tokens, bytes that are no UTF-8, and characters that normalizers change. */
static const char fixed[] = "the <s> a  b\n\xff caf\xc3\xa9 e\xcc\x81 \xef\xac\x81\xe2\x96\x81x 12";

static void decode(const struct mfs_tokenizer *tok, const struct mfs_token_ids *ids)
{
	struct mfs_decoder *dec = NULL;
	struct mfs_buf whole = {0}, pieces = {0};
	struct mfs_error err = {0};
	int rc = mfs_decoder_new(tok, false, &dec, &err);

	if (!rc)
		rc = mfs_decode(dec, ids->at, ids->count, &whole, &err);
	if (!rc)
		rc = mfs_decode_end(dec, &whole, &err);
	for (size_t i = 0; i < ids->count && !rc; i++)
		rc = mfs_decode(dec, ids->at + i, 1, &pieces, &err);
	if (!rc)
		rc = mfs_decode_end(dec, &pieces, &err);
	if (!rc) {
		fuzz_require(whole.len == pieces.len);
		fuzz_require(!whole.len || !memcmp(whole.data, pieces.data, whole.len));
	}
	mfs_buf_release(&whole);
	mfs_buf_release(&pieces);
	mfs_decoder_free(dec);
}

/* Ids are the tokenizer's, a second time the same, and any of them can be decoded. */
static void use(const struct mfs_tokenizer *tok, const char *text, size_t len)
{
	struct mfs_token_ids ids = {0};
	struct mfs_encoder *enc = NULL;
	struct mfs_error err = {0};
	size_t count;

	if (!mfs_encoder_new(tok, &enc, &err) && !mfs_encode(enc, text, len, true, &ids, &err)) {
		count = ids.count;
		for (size_t i = 0; i < count; i++)
			fuzz_require(ids.at[i] < MFS_TOKEN_ID_MAX);
		decode(tok, &ids);
		fuzz_require(!mfs_encode(enc, text, len, true, &ids, &err));
		fuzz_require(ids.count == 2 * count);
		fuzz_require(!count || !memcmp(ids.at, ids.at + count, count * sizeof(*ids.at)));
	}
	free(ids.at);
	mfs_encoder_free(enc);
}

/* tokenizer.json; after a NUL a text that is encoded with it. */
int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const char *text = (const char *)bytes, *nul = memchr(text, 0, len);
	const size_t file_len = nul ? (size_t)(nul - text) : len;
	struct mfs_tokenizer *tok = NULL;
	int rc = mfs_tokenizer_parse(mfs_tokenizer_kind_of("tokenizer.json"),
				     "/nonexistent/tokenizer.json", text, file_len, &tok, err);

	if (rc)
		return rc;
	use(tok, fixed, sizeof(fixed) - 1);
	if (nul)
		use(tok, nul + 1, len - file_len - 1 < TEXT_MAX ? len - file_len - 1 : TEXT_MAX);
	mfs_tokenizer_free(tok);
	return 0;
}

FUZZ_TARGET
