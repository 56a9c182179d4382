/* Input: a SentencePiece model. */
#include "tests/fuzz/fuzz.h"

#include "formats/hf/sentencepiece.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_sentencepiece model;
	const int rc = mfs_sentencepiece_parse("input.model", bytes, len, &model, err);

	if (rc)
		return rc;
	/* A piece has a tag, a length and a text with both, five bytes at least. */
	fuzz_require(model.count > 0 && model.count <= len / 5);
	fuzz_require(model.eos >= -1 && model.eos < (int64_t)model.count);
	fuzz_require(model.pad >= -1 && model.pad < (int64_t)model.count);
	return 0;
}

FUZZ_TARGET
