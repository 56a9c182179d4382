/* Tokenizers: formats/tokenizer. What is expected comes from HuggingFace tokenizers
 * (tests/fixtures/tokenizers/make_tokenizers.py). */
#include "tests/unit/token_cases.h"

#include <pthread.h>

#include "formats/base/array.h"
#include "formats/tokenizer/models/bpe_model.h"
#include "formats/tokenizer/unicode/charsmap.h"
#include "formats/tokenizer/unicode/compose.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/pipeline/text_pipeline.h"

static const char *const names[] = {
	"byte_level", "sentencepiece_bpe", "unigram", "wordpiece", "wordlevel", "end_of_word",
};

static struct mfs_tokenizer *opened(const char *name)
{
	struct mfs_tokenizer *tok;
	char path[128];

	snprintf(path, sizeof(path), "tests/fixtures/tokenizers/%s.json", name);
	unit_ok(mfs_tokenizer_open(path, &tok, &err), &err);
	return tok;
}

START_TEST(ids_and_texts_are_those_of_tokenizers)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		struct mfs_tokenizer *tok = opened(names[i]);

		check_cases(tok, names[i]);
		mfs_tokenizer_free(tok);
	}
}
END_TEST

static void *check_in_thread(void *tok)
{
	check_cases(tok, "byte_level");
	return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
	struct mfs_tokenizer *tok = opened("byte_level");
	pthread_t threads[4];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, check_in_thread, tok), 0);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	mfs_tokenizer_free(tok);
}
END_TEST

START_TEST(tokens_are_found_by_id_and_by_text)
{
	struct mfs_tokenizer *tok = opened("byte_level");
	const int64_t mask = mfs_tokenizer_id(tok, "<mask>", 6);
	const char *text;
	size_t len;

	ck_assert_int_eq(mfs_tokenizer_id(tok, "<s>", 3), 0);
	ck_assert_int_eq(mfs_tokenizer_id(tok, "nowhere", 7), MFS_ABSENT);
	ck_assert(mfs_tokenizer_is_special(tok, 0) && !mfs_tokenizer_is_special(tok, 5));
	ck_assert_int_ge(mask, 2);
	text = mfs_tokenizer_token(tok, (uint32_t)mask, &len);
	ck_assert(len == 6 && !memcmp(text, "<mask>", 6));
	ck_assert_ptr_null(mfs_tokenizer_token(tok, mfs_tokenizer_size(tok), &len));
	mfs_tokenizer_free(tok);
}
END_TEST

START_TEST(special_tokens_are_left_out_on_request)
{
	static const uint32_t ids[] = {0, 1, 99999};
	struct mfs_tokenizer *tok = opened("byte_level");
	struct mfs_decoder *dec;
	struct mfs_buf back = {0};

	unit_ok(mfs_decoder_new(tok, true, &dec, &err), &err);
	unit_ok(mfs_decode(dec, ids, 3, &back, &err), &err);
	unit_ok(mfs_decode_end(dec, &back, &err), &err);
	ck_assert_uint_eq(back.len, 0);
	mfs_decoder_free(dec);
	mfs_buf_release(&back);
	mfs_tokenizer_free(tok);
}
END_TEST

/* ---- directories ---- */

#define SMALL(more)                                                                                \
	"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"b\": 1, \"u\": 2}, "        \
	"\"unk_token\": \"u\"}" more "}"

#define ADDED(text)                                                                                \
	"{\"id\": 5, \"content\": \"" text "\", \"single_word\": false, \"lstrip\": false, "       \
	"\"rstrip\": false, \"normalized\": true, \"special\": false}"

static int open_text(const char *text, struct mfs_tokenizer **ret)
{
	const char *dir = unit_tmpdir();

	unit_write(dir, "tokenizer.json", text, strlen(text));
	return mfs_tokenizer_open(dir, ret, &err);
}

START_TEST(roles_stand_in_files_next_to_it)
{
	static const char config[] = "{\"bos_token\": \"a\", \"unk_token\": {\"content\": \"u\"}}";
	const char *dir = unit_tmpdir();
	struct mfs_tokenizer *tok;

	unit_write(dir, "tokenizer.json", SMALL(""), strlen(SMALL("")));
	unit_write(dir, "tokenizer_config.json", config, strlen(config));
	unit_ok(mfs_tokenizer_open(dir, &tok, &err), &err);
	ck_assert_int_eq(mfs_tokenizer_roles(tok)->bos, 0);
	ck_assert_int_eq(mfs_tokenizer_roles(tok)->unk, 2);
	ck_assert_int_eq(mfs_tokenizer_roles(tok)->eos, MFS_ABSENT);
	ck_assert_int_eq(mfs_tokenizer_roles(tok)->cls, MFS_ABSENT);
	mfs_tokenizer_free(tok);
}
END_TEST

START_TEST(what_is_not_known_is_refused_by_name)
{
	static const struct {
		const char *text;
		int rc;
		const char *part;
	} cases[] = {
		{SMALL(", \"normalizer\": {\"type\": \"Shout\"}"), -ENOTSUP, "\"Shout\""},
		{SMALL(", \"pre_tokenizer\": {\"type\": \"Cut\"}"), -ENOTSUP, "\"Cut\""},
		{SMALL(", \"decoder\": {\"type\": \"Paste\"}"), -ENOTSUP, "\"Paste\""},
		{SMALL(", \"post_processor\": {\"type\": \"Wrap\"}"), -ENOTSUP, "\"Wrap\""},
		{SMALL(", \"version\": \"2.0\""), -ENOTSUP, "version"},
		{"{\"model\": {\"type\": \"Oracle\", \"vocab\": {}}}", -ENOTSUP, "Oracle"},
		{"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}}}", -ENOTSUP,
		 "dropout"},
		{"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
		 -EINVAL, "merges: entry 0 is no pair of tokens: \"a b\""},
		{SMALL(", \"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": \"\"}"), -ENOTSUP,
		 "suffix is empty"},
		{SMALL(", \"decoder\": {\"type\": \"CTC\", \"pad_token\": \"a\", "
		       "\"cleanup\": true, \"word_delimiter_token\": \"\"}"),
		 -ENOTSUP, "word_delimiter_token is empty"},
		{SMALL(", \"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [" ADDED(
			 "X") ", " ADDED("x") "]"),
		 -ENOTSUP, "\"X\" and \"x\" are normalized to one text"},
		{"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"b\": 0}}}", -EINVAL,
		 "two tokens"},
		{"{\"model\": {", -EINVAL, "cut short"},
	};
	struct mfs_tokenizer *tok;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		unit_fails(open_text(cases[i].text, &tok), &err, cases[i].rc, cases[i].part);
	unit_fails(mfs_tokenizer_open("tests/unit", &tok, &err), &err, -ENOENT, "no file");
}
END_TEST

/* Each byte of a text is a step of a walk, and each length of a word one hash. */
START_TEST(long_tokens_are_refused)
{
	static const char json[] = SMALL(", \"added_tokens\": [" ADDED("%s") "]");
	static char long_one[4098], text[sizeof(json) + sizeof(long_one)];
	struct mfs_tokenizer *tok;

	memset(long_one, 'x', sizeof(long_one) - 1);
	snprintf(text, sizeof(text), json, long_one);
	unit_fails(open_text(text, &tok), &err, -ENOTSUP, "4097 bytes; expected at most 4096");
}
END_TEST

/* ---- models ---- */

static int encode_model(const char *model, const char *text, struct mfs_token_ids *ids)
{
	struct mfs_tokenizer *tok;
	struct mfs_encoder *enc;
	char json[1024];
	int rc;

	snprintf(json, sizeof(json), "{\"model\": {%s}}", model);
	ids->count = 0;
	rc = open_text(json, &tok);
	if (rc)
		return rc;
	unit_ok(mfs_encoder_new(tok, &enc, &err), &err);
	rc = mfs_encode(enc, text, strlen(text), false, ids, &err);
	mfs_encoder_free(enc);
	mfs_tokenizer_free(tok);
	return rc;
}

#define UNIGRAM(score)                                                                             \
	"\"type\": \"Unigram\", \"unk_id\": null, \"vocab\": [[\"a\", -1], [\"ab\", " score "]]"

START_TEST(models_do_as_tokenizers_with_what_is_unknown)
{
	struct mfs_token_ids ids = {0};

	/* "b" is none, but "a" and an unknown "b" would not win */
	unit_ok(encode_model(UNIGRAM("-2"), "ab", &ids), &err);
	ck_assert(ids.count == 1 && ids.at[0] == 1);
	unit_fails(encode_model(UNIGRAM("-2"), "ba", &ids), &err, -ENODATA, "\"b\"");
	unit_fails(encode_model("\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {\"a\": 0}, "
				"\"merges\": []",
				"abc", &ids),
		   &err, -ENODATA, "\"b\", and its unk_token is not in the vocabulary");
	free(ids.at);
}
END_TEST

START_TEST(scores_are_numbers_of_json)
{
	static const char *const numbers[] = {"-2", "0e400", "-0.25E+1", "1e-99999999999999999999"};
	static const char *const others[] = {
		"-", ".", "1e", "1.", ".5", "01", "1e400", "1e99999999999999999999", "-e1",
	};
	struct mfs_token_ids ids = {0};
	char model[256];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(numbers); i++) {
		snprintf(model, sizeof(model), UNIGRAM("%s"), numbers[i]);
		unit_ok(encode_model(model, "a", &ids), &err);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++) {
		snprintf(model, sizeof(model), UNIGRAM("%s"), others[i]);
		unit_fails(encode_model(model, "a", &ids), &err, -EINVAL, "token 1 is no pair");
	}
	free(ids.at);
}
END_TEST

/* As convert_merges_to_hashmap() of tokenizers does. */
START_TEST(merges_may_have_the_first_line_of_a_file)
{
	struct mfs_token_ids ids = {0};

	unit_ok(encode_model("\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
			     "\"merges\": [\"#version: 0.2\", \"a b\"]",
			     "ab", &ids),
		&err);
	ck_assert(ids.count == 1 && ids.at[0] == 2);
	free(ids.at);
}
END_TEST

#define LONG 100000

/* Time grows with a word's length, and not with its square. */
START_TEST(a_long_word_falls_into_parts)
{
	struct mfs_token_ids ids = {0};
	char *word = malloc(LONG + 1);

	memset(word, 'a', LONG);
	word[LONG] = '\0';
	unit_ok(encode_model(
			"\"type\": \"WordPiece\", \"vocab\": {\"a\": 0, \"##aa\": 1, \"##a\": 2}, "
			"\"max_input_chars_per_word\": 1000000",
			word, &ids),
		&err);
	ck_assert_uint_eq(ids.count, LONG / 2 + 1);
	free(ids.at);
	free(word);
}
END_TEST

/* ---- normal forms ---- */

START_TEST(many_marks_are_sorted)
{
	struct mfs_buf text = {0}, made = {0};

	mfs_buf_adds(&text, "a");
	for (size_t i = 0; i < LONG; i++)
		mfs_buf_adds(&text, "\xcc\x81"); /* U+0301, of class 230 */
	for (size_t i = 0; i < LONG; i++)
		mfs_buf_adds(&text, "\xcc\xa3"); /* U+0323, of class 220 */
	unit_ok(mfs_compose(text.data, text.len, MFS_NFD, &made, &err), &err);
	ck_assert_uint_eq(made.len, text.len);
	ck_assert_mem_eq(made.data, "a\xcc\xa3\xcc\xa3", 5);
	ck_assert_mem_eq(made.data + made.len - 2, "\xcc\x81", 2);
	made.len = 0;
	unit_ok(mfs_compose(text.data, text.len, MFS_NFKC, &made, &err), &err);
	ck_assert_uint_eq(made.len, text.len);
	ck_assert_mem_eq(made.data, "\xe1\xba\xa1\xcc\xa3", 5);
	mfs_buf_release(&text);
	mfs_buf_release(&made);
}
END_TEST

/* "x" becomes what begins with the second byte of U+00E9. */
START_TEST(a_charsmap_gives_whole_characters)
{
	static const uint8_t strings[] = {0xc3, 0xa9, 0};
	uint8_t bytes[4 + 122 * 4 + sizeof(strings)] = {122 * 4 & 0xff, 122 * 4 >> 8};
	struct mfs_charsmap map = {0};

	bytes[4 + 0x78 * 4] = 0x78;
	bytes[4 + 0x78 * 4 + 1] = 5;
	bytes[4 + 0x79 * 4] = 1;
	memcpy(bytes + sizeof(bytes) - sizeof(strings), strings, sizeof(strings));
	unit_ok(mfs_charsmap_init(&map, bytes, sizeof(bytes), &err), &err);
	ck_assert_ptr_null(mfs_charsmap_find(&map, "x", 1, false, NULL));
	mfs_charsmap_release(&map);
	bytes[4 + 0x79 * 4] = 0;
	unit_ok(mfs_charsmap_init(&map, bytes, sizeof(bytes), &err), &err);
	ck_assert_str_eq(mfs_charsmap_find(&map, "x", 1, false, NULL), "\xc3\xa9");
	mfs_charsmap_release(&map);
}
END_TEST

/* ---- regular expressions ---- */

START_TEST(expressions_are_rewritten_or_refused)
{
	static const struct {
		const char *from, *to; /* NULL: refused */
	} cases[] = {
		{"a{1,3}+", "(?:a{1,3})+"},
		{"a{2}?", "(?:a{2})?"},
		{"[a[bc]]", "[abc]"},
		{"\\h", "[0-9a-fA-F]"},
		{"(?m)a.b", "(?s)a.b"},
		{"(?i:'s)", "(?i:\\x{27}s)"},
		{"\\p{Han}+", "\\p{sc:Han}+"},
		{"[\\d-]", "[\\p{Nd}\\-]"},
		{"(a|b)", "(?:a|b)"},
		{"a(?i)b|c", NULL},
		{"[a&&b]", NULL},
		{"\\X", NULL},
		{"(a", NULL},
		{"*", NULL},
	};
	struct mfs_buf made = {0};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		int rc;

		made.len = 0;
		rc = mfs_regex_translate(cases[i].from, strlen(cases[i].from), MFS_REGEX_ONIGURUMA,
					 &made, &err);
		ck_assert_msg(!rc == !!cases[i].to, "%s: %d", cases[i].from, rc);
		if (cases[i].to)
			ck_assert_str_eq(made.data, cases[i].to);
	}
	made.len = 0;
	unit_ok(mfs_regex_translate("a\0[\\\0-\x7f]", 8, MFS_REGEX_ONIGURUMA, &made, &err), &err);
	ck_assert_str_eq(made.data, "a\\x{0}[\\x{0}-\\x{7f}]");
	mfs_buf_release(&made);
}
END_TEST

START_TEST(quantifiers_are_not_stacked_without_end)
{
	struct mfs_buf pattern = {0}, made = {0};

	mfs_buf_adds(&pattern, "a");
	for (size_t i = 0; i < 202; i++)
		mfs_buf_adds(&pattern, "{2}");
	unit_ok(mfs_regex_translate(pattern.data, 1 + 200 * 3, MFS_REGEX_RUST, &made, &err), &err);
	unit_fails(mfs_regex_translate(pattern.data, pattern.len, MFS_REGEX_RUST, &made, &err),
		   &err, -ENOTSUP, "so many quantifiers");
	mfs_buf_release(&pattern);
	mfs_buf_release(&made);
}
END_TEST

/* ---- a pipeline that no file describes: tokens are bytes ---- */

static int read_bytes(struct mfs_tokenizer *tok, const char *path, const char *text, size_t len,
		      struct mfs_error *e)
{
	static const char *const tokens[] = {"a", "b", "ab", " "};
	const struct mfs_bpe_options options = {.unk = MFS_NO_ID};
	struct mfs_text_pipeline *p = mfs_text_pipeline_begin(tok);
	struct mfs_regex *regex;

	(void)path;
	for (uint32_t i = 0; i < 4; i++)
		unit_ok(mfs_token_table_set(&tok->tokens, i, tokens[i], strlen(tokens[i]), e), e);
	unit_ok(mfs_token_table_index(&tok->tokens, e), e);
	unit_ok(mfs_bpe_model_new(&tok->tokens, &options, &p->model, e), e);
	unit_ok(mfs_bpe_model_merge(p->model, 0, 1, e), e);
	unit_ok(mfs_regex_new(text, len, MFS_REGEX_RUST, &regex, e), e);
	unit_ok(mfs_pre_tokenizers_add_split(&p->pre_tokenizers, regex, e), e);
	return mfs_token_decoders_add_bytes(&p->decoders, e);
}

START_TEST(readers_of_other_files_make_a_pipeline)
{
	static const struct mfs_tokenizer_kind kind = {"*.bytes", read_bytes};
	static const uint32_t wanted[] = {2, 3, 0};
	struct one_case c = {.ids = {(uint32_t *)wanted, 3, 3}};
	struct mfs_token_ids ids = {0};
	struct mfs_tokenizer *tok;
	struct mfs_encoder *enc;

	unit_ok(mfs_tokenizer_parse(&kind, "x.bytes", "\\p{L}+", 6, &tok, &err), &err);
	unit_ok(mfs_encoder_new(tok, &enc, &err), &err);
	unit_ok(mfs_encode(enc, "ab a", 4, false, &ids, &err), &err);
	same_ids(&ids, &c.ids);
	mfs_buf_adds(&c.back, "ab a");
	decodes(tok, &c, 1);
	mfs_buf_release(&c.back);
	free(ids.at);
	mfs_encoder_free(enc);
	mfs_tokenizer_free(tok);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *c = unit_case(s, "tokenizer.json", ids_and_texts_are_those_of_tokenizers);

	tcase_add_test(c, threads_share_a_tokenizer);
	tcase_add_test(c, tokens_are_found_by_id_and_by_text);
	tcase_add_test(c, special_tokens_are_left_out_on_request);
	tcase_add_test(c, roles_stand_in_files_next_to_it);
	tcase_add_test(c, what_is_not_known_is_refused_by_name);
	tcase_add_test(c, long_tokens_are_refused);
	c = unit_case(s, "models", models_do_as_tokenizers_with_what_is_unknown);
	tcase_add_test(c, scores_are_numbers_of_json);
	tcase_add_test(c, merges_may_have_the_first_line_of_a_file);
	tcase_add_test(c, a_long_word_falls_into_parts);
	c = unit_case(s, "normalizers", many_marks_are_sorted);
	tcase_add_test(c, a_charsmap_gives_whole_characters);
	c = unit_case(s, "expressions", expressions_are_rewritten_or_refused);
	tcase_add_test(c, quantifiers_are_not_stacked_without_end);
	unit_case(s, "pipelines", readers_of_other_files_make_a_pipeline);
	return s;
}
