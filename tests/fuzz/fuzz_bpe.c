#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/hf/hf_bpe.h"

#define ROWS 64

/* What a reader of the tokens relies on: each row has a text, and no two have one. */
static void check(const struct mfs_bpe *bpe)
{
	fuzz_require(bpe->count == ROWS && bpe->pre);
	for (uint32_t i = 0; i < ROWS; i++) {
		fuzz_require(bpe->tokens[i].text && bpe->tokens[i].len);
		fuzz_require(strlen(bpe->tokens[i].text) == bpe->tokens[i].len);
		for (uint32_t k = 0; k < i; k++)
			fuzz_require(strcmp(bpe->tokens[i].text, bpe->tokens[k].text) != 0);
	}
	for (uint32_t i = 0; i < bpe->merge_count; i++) {
		const char *space = memchr(bpe->merges[i].text, ' ', bpe->merges[i].len);

		fuzz_require(space && space == strrchr(bpe->merges[i].text, ' '));
		fuzz_require(space > bpe->merges[i].text && space[1]);
	}
	fuzz_require(bpe->special.bos < ROWS && bpe->special.eos < ROWS && bpe->special.pad < ROWS);
}

/* tokenizer.json; after a NUL tokenizer_config.json; after another NUL chat_template.jinja. */
int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const char *text = (const char *)bytes, *end = text + len;
	const char *config = memchr(text, 0, len);
	const char *template = config ? memchr(config + 1, 0, (size_t)(end - config - 1)) : NULL;
	struct mfs_bpe_files files = {.tokenizer = text,
				      .tokenizer_len = config ? (size_t)(config - text) : len};
	struct mfs_bpe bpe = {0};
	int rc;

	if (config) {
		files.config = config + 1;
		files.config_len = (size_t)((template ? template : end) - config - 1);
	}
	if (template) {
		files.chat_template = template + 1;
		files.chat_template_len = (size_t)(end - template - 1);
	}
	rc = mfs_bpe_parse(&files, ROWS, &bpe, err);
	if (!rc)
		check(&bpe);
	mfs_bpe_release(&bpe);
	return rc;
}

FUZZ_TARGET
