/* Tokenizers of other kinds than tokenizer.json: formats/tokenizer. What is expected comes from
 * sentencepiece, tiktoken and mistral-common (tests/fixtures/tokenizers/make_models.py). */
#define _GNU_SOURCE /* memmem */
#include "tests/unit/token_cases.h"

#include "formats/base/array.h"
#include "formats/tokenizer/spm/double_array.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer_kind.h"

#define MODELS "tests/fixtures/tokenizers/models/"

static struct mfs_tokenizer *opened(const char *file)
{
	struct mfs_tokenizer *tok;
	char path[128];

	snprintf(path, sizeof(path), MODELS "%s", file);
	unit_ok(mfs_tokenizer_open(path, &tok, &err), &err);
	return tok;
}

START_TEST(ids_and_texts_are_those_of_their_programs)
{
	static const struct {
		const char *file, *cases;
	} all[] = {
		{"unigram.model", "models/unigram"},
		{"unigram_bytes.model", "models/unigram_bytes"},
		{"merges.model", "models/merges"},
		{"merges_suffix.model", "models/merges_suffix"},
		{"merges_unused.model", "models/merges_unused"},
		{"words.model", "models/words"},
		{"characters.model", "models/characters"},
		{"small.tiktoken", "models/small"},
		{"tekken.json", "models/tekken"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		struct mfs_tokenizer *tok = opened(all[i].file);

		check_cases(tok, all[i].cases);
		mfs_tokenizer_free(tok);
	}
}
END_TEST

/* Megatron's list is the vocabulary of tekken.json. */
START_TEST(lists_of_ranks_have_megatrons_ids)
{
	static const char config[] = "{\"num_special_tokens\": 9, \"vocab_size\": 281}";
	const char *dir = unit_tmpdir();
	struct mfs_tokenizer *tok;
	char path[256];
	size_t len;
	char *tekken = (char *)unit_slurp(MODELS "tekken.json", &len);
	const char *list = memmem(tekken, len, "[{", 2);

	unit_write(dir, "tiktoken.json", config, strlen(config));
	unit_write(dir, "list.json", list, (size_t)(tekken + len - 1 - list));
	snprintf(path, sizeof(path), "%s/list.json", dir);
	unit_ok(mfs_tokenizer_open(path, &tok, &err), &err);
	ck_assert_int_eq(mfs_tokenizer_roles(tok)->eos, 2);
	ck_assert_int_eq(mfs_tokenizer_id(tok, "<SPECIAL_8>", 11), 8);
	check_cases(tok, "models/list");
	mfs_tokenizer_free(tok);
	free(tekken);
}
END_TEST

START_TEST(pieces_have_roles)
{
	struct mfs_tokenizer *tok = opened("unigram.model");
	const struct mfs_tokenizer_roles *roles = mfs_tokenizer_roles(tok);
	size_t len;

	ck_assert_int_eq(roles->unk, 0);
	ck_assert_int_eq(roles->bos, 1);
	ck_assert_int_eq(roles->eos, 2);
	ck_assert_int_eq(roles->pad, MFS_ABSENT);
	ck_assert(mfs_tokenizer_is_special(tok, 1) && !mfs_tokenizer_is_special(tok, 3));
	ck_assert_int_eq(mfs_tokenizer_id(tok, "</s>", 4), 2);
	ck_assert_mem_eq(mfs_tokenizer_token(tok, 3, &len), "<x>", 3);
	mfs_tokenizer_free(tok);
}
END_TEST

START_TEST(an_expression_that_is_not_known_is_asked_for)
{
	const char *dir = unit_tmpdir();
	struct mfs_tokenizer *tok;

	unit_write(dir, "own.tiktoken", "IQ== 0\n", 7);
	unit_fails(mfs_tokenizer_open(dir, &tok, &err), &err, -ENOTSUP, "tiktoken.json");
}
END_TEST

START_TEST(long_ranks_are_refused)
{
	const char *dir = unit_tmpdir();
	struct mfs_buf file = {0};
	struct mfs_tokenizer *tok;

	mfs_buf_adds(&file, "IQ== 0\n");
	for (size_t i = 0; i < 1366; i++)
		mfs_buf_adds(&file, "AAAA");
	mfs_buf_adds(&file, " 1\n");
	unit_write(dir, "own.tiktoken", file.data, file.len);
	unit_fails(mfs_tokenizer_open(dir, &tok, &err), &err, -EINVAL,
		   "4098 bytes; expected at most 4096");
	mfs_buf_release(&file);
}
END_TEST

/* A file of as many ranks as Qwen's: tokens of one byte, of two and of three. */
static void write_qwen(const char *dir)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct mfs_buf file = {0};

	for (uint32_t id = 0; id < 151643; id++) {
		const uint32_t size = id < 256 ? 1 : id < 256 + 65536 ? 2 : 3;
		const uint32_t number = size == 1 ? id << 16 : size == 2 ? (id - 256) << 8 : id;
		char text[4];

		for (unsigned i = 0; i < 4; i++)
			text[i] = i <= size ? digits[number >> (18 - 6 * i) & 63] : '=';
		mfs_buf_add(&file, text, 4);
		mfs_buf_printf(&file, " %u\n", id);
	}
	unit_write(dir, "qwen.tiktoken", file.data, file.len);
	mfs_buf_release(&file);
}

/* tokenization_qwen.py: tokenize(). U+0338 makes one character with the '>' before it. */
START_TEST(qwen_looks_for_special_tokens_in_nfc)
{
	static const char end[] = "<|endoftext|>", no_end[] = "<|endoftext|>\xcc\xb8";
	const char *dir = unit_tmpdir();
	struct mfs_token_ids ids = {0};
	struct mfs_tokenizer *tok;
	struct mfs_encoder *enc;

	write_qwen(dir);
	unit_ok(mfs_tokenizer_open(dir, &tok, &err), &err);
	unit_ok(mfs_encoder_new(tok, &enc, &err), &err);
	unit_ok(mfs_encode(enc, end, strlen(end), false, &ids, &err), &err);
	ck_assert(ids.count == 1 && ids.at[0] == 151643);
	ids.count = 0;
	unit_ok(mfs_encode(enc, no_end, strlen(no_end), false, &ids, &err), &err);
	for (size_t i = 0; i < ids.count; i++)
		ck_assert_uint_lt(ids.at[i], 151643);
	mfs_encoder_free(enc);
	mfs_tokenizer_free(tok);
	free(ids.at);
}
END_TEST

/* Ids that no piece has are an error of decoding a model. */
START_TEST(decoding_knows_its_ids)
{
	static const uint32_t ids[] = {99999};
	struct mfs_tokenizer *tok = opened("merges.model");
	struct mfs_decoder *dec;
	struct mfs_buf out = {0};

	unit_ok(mfs_decoder_new(tok, false, &dec, &err), &err);
	unit_fails(mfs_decode(dec, ids, 1, &out, &err), &err, -EINVAL, "99999");
	mfs_decoder_free(dec);
	mfs_tokenizer_free(tok);
}
END_TEST

/* ---- tries ---- */

static bool has_key(const struct mfs_double_array *t, const char *text, size_t len, int32_t value)
{
	uint32_t node = 0;

	for (size_t i = 0; i < len; i++)
		if (!mfs_double_array_step(t, &node, (uint8_t)text[i]))
			return false;
	return t->units[node].value == value;
}

/* Keys of all bytes: texts of one byte, and of two. */
START_TEST(tries_find_what_was_put_in)
{
	enum { COUNT = 256 + 4096 };
	static char texts[COUNT][2];
	static struct mfs_trie_key keys[COUNT];
	struct mfs_double_array t = {0};
	int32_t twice;
	uint32_t node = 0;

	for (int i = 0; i < COUNT; i++) {
		texts[i][0] = (char)(i < 256 ? i : (i - 256) * 7 / 16);
		texts[i][1] = (char)((i - 256) * 16 + i / 256);
		keys[i] = (struct mfs_trie_key){texts[i], i < 256 ? 1 : 2, i};
	}
	/* the last ones repeat the first */
	ck_assert_int_eq(mfs_double_array_build(keys, 256 + 16, &t, &twice), 0);
	for (int i = 0; i < 256 + 16; i++)
		ck_assert(has_key(&t, keys[i].text, keys[i].len, keys[i].value));
	ck_assert(!mfs_double_array_step(&t, &node, 0) || node);
	mfs_double_array_release(&t);
	keys[5] = keys[6];
	ck_assert_int_eq(mfs_double_array_build(keys, 256, &t, &twice), -EEXIST);
	mfs_double_array_release(&t);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("token_models");
	TCase *c = unit_case(s, "files", ids_and_texts_are_those_of_their_programs);

	tcase_add_test(c, lists_of_ranks_have_megatrons_ids);
	tcase_add_test(c, pieces_have_roles);
	tcase_add_test(c, an_expression_that_is_not_known_is_asked_for);
	tcase_add_test(c, long_ranks_are_refused);
	tcase_add_test(c, qwen_looks_for_special_tokens_in_nfc);
	tcase_add_test(c, decoding_knows_its_ids);
	unit_case(s, "tries", tries_find_what_was_put_in);
	return s;
}
