/* Samples as text: what no decoder prints, and the order of what it holds back. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/text/named_tokens.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"
#include "fs/sample/sample.h"

#define TOKENIZERS "tests/fixtures/tokenizers/"
#define REPLACED   "\xef\xbf\xbd" /* of bytes that are no UTF-8 */

static int64_t id_of(const struct mfs_tokenizer *tok, const char *text)
{
	const int64_t id = mfs_tokenizer_id(tok, text, strlen(text));

	ck_assert_int_ge(id, 0);
	return id;
}

static void says(const struct mfs_tokenizer *tok, const int64_t *ids, uint64_t count,
		 const char *want)
{
	struct mfs_named_tokens *names;
	struct mfs_buf text = {0};
	struct mfs_error err;

	unit_ok(mfs_named_tokens_new(tok, &names, &err), &err);
	unit_ok(mfs_sample_add_text(&text, names, ids, count, &err), &err);
	mfs_named_tokens_free(names);
	ck_assert_str_eq(text.data, want);
	mfs_buf_release(&text);
}

/* SentencePiece leaves its control pieces out, and waits for the rest of a character. */
START_TEST(names_come_after_what_is_held)
{
	struct mfs_tokenizer *tok;
	struct mfs_error err;

	unit_ok(mfs_tokenizer_open(TOKENIZERS "models/unigram_bytes.model", &tok, &err), &err);
	says(tok, (int64_t[]){id_of(tok, "<0xE6>"), id_of(tok, "</s>")}, 2, "\"" REPLACED "</s>\"");
	says(tok, (int64_t[]){id_of(tok, "<0xE6>"), -1, id_of(tok, "<0x41>")}, 3,
	     "\"" REPLACED "<-1>A\"");
	says(tok, (int64_t[]){id_of(tok, "<s>"), id_of(tok, "<0x41>"), id_of(tok, "</s>")}, 3,
	     "\"<s>A</s>\"");
	mfs_tokenizer_free(tok);
}
END_TEST

/* Special tokens of tokenizer.json are printed by its decoder, now or later. */
START_TEST(special_tokens_are_printed_once)
{
	static const char *const files[] = {"byte_level.json", "end_of_word.json", "wordpiece.json",
					    "sentencepiece_bpe.json", "unigram.json"};
	struct mfs_tokenizer *tok;
	struct mfs_error err;
	char path[128], want[128];
	size_t len;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), TOKENIZERS "%s", files[i]);
		unit_ok(mfs_tokenizer_open(path, &tok, &err), &err);
		for (uint32_t id = 0; id < mfs_tokenizer_size(tok); id++) {
			const char *name = mfs_tokenizer_token(tok, id, &len);

			if (!mfs_tokenizer_is_special(tok, id))
				continue;
			snprintf(want, sizeof(want), "\"%.*s<-1>\"", (int)len, name);
			says(tok, (int64_t[]){id, -1}, 2, want);
		}
		mfs_tokenizer_free(tok);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sample_text");

	unit_case(s, "held", names_come_after_what_is_held);
	unit_case(s, "once", special_tokens_are_printed_once);
	return s;
}
