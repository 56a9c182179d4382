/* Input: a character that names the reader, and the bytes of the file: a SentencePiece model (m),
 * ranks of tiktoken (t), tekken.json (k), Megatron's list of ranks (l). What is read encodes a text
 * and decodes its ids. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/tokenizer/read/ranks.h"
#include "formats/tokenizer/spm/spm.h"
#include "formats/tokenizer/tokenizer_kind.h"

static const char text[] =
	" the fox's \xe4\xbd\xa0  \xc3\xa9 <x>th\xff\n 12345 \xe2\x96\x81 aaaa\xef\xac\x81";

static const struct {
	char letter;
	struct mfs_tokenizer_kind kind;
	const char *path; /* which files are next to it */
} kinds[] = {
	{'m', {"x.model", mfs_tokenizer_spm_read}, "nowhere/x"},
	{'t', {"x.tiktoken", mfs_tokenizer_tiktoken_read}, "tests/fixtures/tokenizers/models/x"},
	{'k', {"x.json", mfs_tokenizer_tekken_read}, "nowhere/x"},
	{'l', {"x.json", mfs_tokenizer_rank_list_read}, "nowhere/x"},
};

static void use(const struct mfs_tokenizer *tok)
{
	struct mfs_encoder *enc;
	struct mfs_decoder *dec;
	struct mfs_token_ids ids = {0};
	struct mfs_buf out = {0};

	if (mfs_encoder_new(tok, &enc, NULL) || mfs_decoder_new(tok, false, &dec, NULL))
		abort();
	/* twice: the second time words are known */
	for (int i = 0; i < 2; i++)
		if (mfs_encode(enc, text, sizeof(text) - 1, false, &ids, NULL))
			break;
	for (size_t i = 0; i < ids.count; i++)
		fuzz_require(ids.at[i] < mfs_tokenizer_size(tok));
	fuzz_require(!mfs_decode(dec, ids.at, ids.count, &out, NULL));
	fuzz_require(!mfs_decode_end(dec, &out, NULL));
	mfs_buf_release(&out);
	free(ids.at);
	mfs_decoder_free(dec);
	mfs_encoder_free(enc);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_tokenizer *tok;
	char *copy;
	int rc = mfs_fail(err, -EINVAL, "the first byte names no kind of file");

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds) && len; i++) {
		if (bytes[0] != kinds[i].letter)
			continue;
		copy = malloc(len); /* with a NUL after it */
		memcpy(copy, bytes + 1, len - 1);
		copy[len - 1] = '\0';
		rc = mfs_tokenizer_parse(&kinds[i].kind, kinds[i].path, copy, len - 1, &tok, err);
		free(copy);
		if (!rc) {
			use(tok);
			mfs_tokenizer_free(tok);
		}
	}
	return rc;
}

FUZZ_TARGET
