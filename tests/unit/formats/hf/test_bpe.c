/* Tokenizers of byte-level BPE: formats/hf/hf_bpe.h. Inputs are those of tests/fuzz/fuzz_bpe.c. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/hf/hf_bpe.h"

#define ROWS 64

static struct mfs_error err;

/* tokenizer.json, and after NULs the config and the template. The caller frees *bytes. */
static struct mfs_bpe_files files_of(const char *input, char **bytes)
{
	struct mfs_bpe_files f = {0};
	char path[128], *end, *nul;
	size_t len;

	snprintf(path, sizeof(path), "tests/fuzz/%s", input);
	*bytes = (char *)unit_slurp(path, &len);
	end = *bytes + len;
	f.tokenizer = *bytes;
	nul = memchr(*bytes, 0, len);
	f.tokenizer_len = nul ? (size_t)(nul - *bytes) : len;
	if (nul) {
		f.config = nul + 1;
		nul = memchr(nul + 1, 0, (size_t)(end - nul - 1));
		f.config_len = (size_t)((nul ? nul : end) - f.config);
	}
	if (nul) {
		f.chat_template = nul + 1;
		f.chat_template_len = (size_t)(end - nul - 1);
	}
	return f;
}

static struct mfs_bpe parsed(const char *input)
{
	struct mfs_bpe bpe = {0};
	char *bytes;
	const struct mfs_bpe_files f = files_of(input, &bytes);

	unit_ok(mfs_bpe_parse(&f, ROWS, &bpe, &err), &err);
	free(bytes);
	return bpe;
}

static void is_token(const struct mfs_bpe *bpe, uint32_t id, const char *text,
		     enum mfs_bpe_type type)
{
	ck_assert_str_eq(bpe->tokens[id].text, text);
	ck_assert_uint_eq(bpe->tokens[id].len, strlen(text));
	ck_assert_int_eq(bpe->tokens[id].type, type);
}

START_TEST(tokens_have_their_bytes_and_kinds)
{
	struct mfs_bpe bpe = parsed("corpus/bpe/ok-gpt2");

	ck_assert_uint_eq(bpe.count, ROWS);
	is_token(&bpe, 0, "<|endoftext|>", MFS_BPE_CONTROL);
	is_token(&bpe, 3, "ab", MFS_BPE_NORMAL);
	is_token(&bpe, 5,
		 "\xc4\xa0"
		 "a",
		 MFS_BPE_NORMAL);			       /* escaped in the file */
	is_token(&bpe, 6, "\xf0\x9f\x98\x80", MFS_BPE_NORMAL); /* a surrogate pair there */
	is_token(&bpe, 7, " x", MFS_BPE_USER_DEFINED);
	is_token(&bpe, 63, "[PAD63]", MFS_BPE_UNUSED);
	ck_assert_uint_eq(bpe.merge_count, 2);
	ck_assert_str_eq(bpe.merges[1].text, "\xc4\xa0 a");
	ck_assert_str_eq(bpe.chat_template, "{{ m }}");
	ck_assert_int_eq(bpe.special.bos, 0);
	ck_assert_int_eq(bpe.special.eos, 0);
	ck_assert_int_eq(bpe.special.pad, MFS_ABSENT);
	mfs_bpe_release(&bpe);
}
END_TEST

/* A merge of a token with a space in it is told apart from the space between the two. */
START_TEST(space_in_merge)
{
	struct mfs_bpe bpe = parsed("corpus/bpe/ok-space-in-merge");

	ck_assert_str_eq(bpe.merges[0].text, "a \xc4\xa0"
					     "b");
	ck_assert_ptr_null(bpe.chat_template);
	mfs_bpe_release(&bpe);
}
END_TEST

static const struct {
	const char *input, *pre;
	bool add_bos;
	const char *chat_template;
} kinds[] = {
	{"gpt2", "gpt-2", true, "{{ m }}"},	  {"llama3", "llama-bpe", true, "{{ m }}"},
	{"qwen2", "qwen2", false, "{{ jinja }}"}, {"smollm", "smollm", false, NULL},
	{"tekken", "tekken", false, NULL},	  {"no-merges", "gpt-2", false, NULL},
};

START_TEST(each_tokenizer_has_its_pre_tokenizer)
{
	char input[64];
	struct mfs_bpe bpe;

	snprintf(input, sizeof(input), "corpus/bpe/ok-%s", kinds[_i].input);
	bpe = parsed(input);
	ck_assert_str_eq(bpe.pre, kinds[_i].pre);
	ck_assert_int_eq(bpe.add_bos, kinds[_i].add_bos);
	ck_assert_int_eq(bpe.add_eos, false);
	ck_assert_pstr_eq(bpe.chat_template, kinds[_i].chat_template);
	mfs_bpe_release(&bpe);
}
END_TEST

/* What llama.cpp could not use is legal, and left out; what is damaged is reported. */
static const struct {
	const char *input;
	int code;
	const char *words;
} refused[] = {
	{"cut", -EINVAL, "cut short"},
	{"no-model", -EINVAL, "model is missing"},
	{"unigram", -ENOTSUP, "no BPE"},
	{"byte-fallback", -ENOTSUP, "sentencepiece"},
	{"suffix", -ENOTSUP, "beginning or end of words"},
	{"normalizer", -ENOTSUP, "normalizer"},
	{"regex", -ENOTSUP, "pre_tokenizer is not known"},
	{"inverted", -ENOTSUP, "pre_tokenizer is not known"},
	{"regex-twice", -ENOTSUP, "pre_tokenizer is not known"},
	{"qwen2-ignores-merges", -ENOTSUP, "pre_tokenizer is not known"},
	{"id-outside", -ENOTSUP, "token 64 is outside of the vocabulary of 64 rows"},
	{"id-text", -EINVAL, "no table of ids"},
	{"same-id", -ENOTSUP, "two tokens have the id 1"},
	{"same-text", -ENOTSUP, "have one text"},
	{"same-text-as-padding", -ENOTSUP, "tokens 1 and 9 have one text"},
	{"half-surrogate", -EINVAL, "the string at byte"},
	{"overlong", -EINVAL, "the string at byte"},
	{"nul", -EINVAL, "the string at byte"},
	{"added-other-text", -ENOTSUP, "two tokens have the id 1"},
	{"merge-three", -EINVAL, "merge 0 is no pair"},
	{"merges-open", -EINVAL, "merge 2 is no pair"},
	{"deep-pre", -EINVAL, "pre_tokenizer: not valid JSON"},
	{"config-cut", -EINVAL, "tokenizer_config.json: not valid JSON"},
};

START_TEST(refused_with_a_reason)
{
	struct mfs_bpe bpe = {0};
	char input[64], *bytes;
	struct mfs_bpe_files f;

	snprintf(input, sizeof(input), "reject/bpe/%s", refused[_i].input);
	f = files_of(input, &bytes);
	unit_fails(mfs_bpe_parse(&f, ROWS, &bpe, &err), &err, refused[_i].code, refused[_i].words);
	mfs_bpe_release(&bpe);
	free(bytes);
}
END_TEST

/* A number of a few digits asks for no memory. */
START_TEST(rows_have_a_limit)
{
	struct mfs_bpe bpe = {0};
	const struct mfs_bpe_files none = {0};

	unit_fails(mfs_bpe_parse(&none, MFS_BPE_ROWS_MAX + 1, &bpe, &err), &err, -ENOTSUP,
		   "a vocabulary of 16777217 rows; expected 1 to 16777216");
	mfs_bpe_release(&bpe);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("bpe");
	TCase *c = unit_case(s, "reading", tokens_have_their_bytes_and_kinds);

	tcase_add_test(c, rows_have_a_limit);
	tcase_add_test(c, space_in_merge);
	tcase_add_loop_test(c, each_tokenizer_has_its_pre_tokenizer, 0, MFS_ARRAY_SIZE(kinds));
	tcase_add_loop_test(c, refused_with_a_reason, 0, MFS_ARRAY_SIZE(refused));
	return s;
}
