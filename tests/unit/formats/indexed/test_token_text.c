/* Token ids as text: formats/indexed/token_text.h. Every input is fed in pieces of every length. */
#include "tests/unit/unit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/indexed/token_text.h"

static struct mfs_error err;

/* What was read, as text: "1 2|3;" is a document of two sequences. */
static int take_tokens(void *arg, const int64_t *ids, size_t count, struct mfs_error *e)
{
	(void)e;
	for (size_t i = 0; i < count; i++)
		mfs_buf_printf(arg, "%" PRId64 " ", ids[i]);
	return 0;
}

static int take_sequence(void *arg, struct mfs_error *e)
{
	(void)e;
	mfs_buf_adds(arg, "|");
	return 0;
}

static int take_document(void *arg, struct mfs_error *e)
{
	(void)e;
	mfs_buf_adds(arg, ";");
	return 0;
}

static struct mfs_token_text_config config(enum mfs_token_format format)
{
	return (struct mfs_token_text_config){
		.name = "input",
		.key = "input_ids",
		.low = INT32_MIN,
		.high = INT32_MAX,
		.limits = "int32",
		.start = {.format = format},
	};
}

/* Feeds bytes in pieces; 0 or the first error. */
static int read_pieces(const struct mfs_token_text_config *c, const char *bytes, size_t len,
		       size_t piece, struct mfs_buf *out, struct mfs_token_position *ended)
{
	const struct mfs_token_hooks hooks = {out, take_tokens, take_sequence, take_document};
	struct mfs_token_text *t;
	int rc = 0;

	unit_ok(mfs_token_text_new(c, &hooks, &t, &err), &err);
	for (size_t at = 0; at < len && !rc; at += piece) {
		const size_t n = len - at < piece ? len - at : piece;
		/* A copy, so that ASan sees a read past the piece. */
		char *copy = malloc(n);

		memcpy(copy, bytes + at, n);
		rc = mfs_token_text_feed(t, copy, n, &err);
		free(copy);
	}
	if (!rc)
		rc = mfs_token_text_end(t, &err);
	*ended = *mfs_token_text_ended(t);
	mfs_token_text_free(t);
	return rc;
}

struct example {
	enum mfs_token_format format;
	const char *text;
	size_t len; /* 0: strlen */
	const char *want;
};

#define TEXT(s) s, sizeof(s) - 1

static const struct example good[] = {
	{MFS_TOKENS_JSONL, TEXT("[1, 2, 3]\n[4,5]\n"), "1 2 3 |;4 5 |;"},
	{MFS_TOKENS_JSONL, TEXT("[1]\n[2]"), "1 |;2 |;"},
	{MFS_TOKENS_JSONL, TEXT("\n[]\n \t\r\n[ ]\r\n"), ";;;;"},
	{MFS_TOKENS_JSONL, TEXT("  "), ""},
	{MFS_TOKENS_JSONL, TEXT(""), ""},
	{MFS_TOKENS_JSONL, TEXT("[1]\n  "), "1 |;"},
	{MFS_TOKENS_JSONL, TEXT("[[1,2],[],[ 3 ]]\n[[]]\n[ [ 7 ] , [8,\t9] ]\n"),
	 "1 2 ||3 |;|;7 |8 9 |;"},
	{MFS_TOKENS_JSONL, TEXT(" [ 0 , -1,10 ,-0, 2147483647,\t-2147483648 ] \r\n"),
	 "0 -1 10 0 2147483647 -2147483648 |;"},
	{MFS_TOKENS_JSONL, TEXT("[1234567, 12345678, 123456789,1, 99999999,  9999999 ,7]\n"),
	 "1234567 12345678 123456789 1 99999999 9999999 7 |;"},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\": [5, 6]}\n"), "5 6 |;"},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\":[]}\n{\"input_ids\":[[1],[2]]}\n"), ";1 |2 |;"},
	{MFS_TOKENS_JSONL,
	 TEXT("{\"text\": \"a \\\"b\\\" [1] \\\\\", \"n\": -1.5e+10, \"input_ids\" : [1] , \"x\": "
	      "{\"input_ids\": 2, \"y\": [[], {}, [{\"z\": null}]]}, \"t\": true, \"f\":false, "
	      "\"zero\":0, \"e\": 0E0, \"big\": 123456789012345678901234567890.5}\n"),
	 "1 |;"},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"input_ids\",\"b\":[\"input_ids\",7],\"input_ids\":[9]}"),
	 "9 |;"},
	{MFS_TOKENS_JSONL,
	 TEXT("{\"input\\u005fids\": [3]}\n{\"\\u0069nput_\\u0069d\\u0073\":[4]}"), "3 |;4 |;"},
	{MFS_TOKENS_JSONL,
	 TEXT("{\"input_idss\":1,\"input_id\":2,\"\":3,\"input_ids\\u0000\":4,\"INPUT_IDS\":5,"
	      "\"input_ids\":[6]}"),
	 "6 |;"},
	{MFS_TOKENS_JSONL,
	 TEXT("{\"t\":\"\xe6\x97\xa5\xff \\ud83d\\ude00 \\ud83d\",\"input_ids\":[1]}"), "1 |;"},
	{MFS_TOKENS_NUL, TEXT("1 2 3\0004,5\0"), "1 2 3 |;4 5 |;"},
	{MFS_TOKENS_NUL, TEXT("1\n2\r\n 3 ,, 4\n\000\0\n5"), "1 2 3 4 |;;5 |;"},
	{MFS_TOKENS_NUL, TEXT("\0"), ";"},
	{MFS_TOKENS_NUL, TEXT(""), ""},
	{MFS_TOKENS_NUL, TEXT(" \n"), ""},
	{MFS_TOKENS_NUL, TEXT("007 -5 0000000000000000000000012 12345678"), "7 -5 12 12345678 |;"},
	{MFS_TOKENS_LINES, TEXT("1 2\n\n3,4, 5\n  \n6"), "1 2 |;;3 4 5 |;;6 |;"},
	{MFS_TOKENS_LINES,
	 TEXT("1234567 1234567 1234567 12 34 56 78 90 12 34\n1 2 3 4 5 6 7 8 9\n"),
	 "1234567 1234567 1234567 12 34 56 78 90 12 34 |;1 2 3 4 5 6 7 8 9 |;"},
	{MFS_TOKENS_DETECT, TEXT("\n \n[1]\n"), ";;1 |;"},
	{MFS_TOKENS_DETECT, TEXT("{\"input_ids\":[1]}"), "1 |;"},
	{MFS_TOKENS_DETECT, TEXT("\n\n"), ";;"},
	{MFS_TOKENS_DETECT, TEXT(""), ""},
	{MFS_TOKENS_DETECT, TEXT("1 2\0003\n4\0005"), "1 2 |;3 4 |;5 |;"},
	{MFS_TOKENS_DETECT, TEXT("\0001\0"), ";1 |;"},
	{MFS_TOKENS_DETECT, TEXT("\n1 2 3\n \0004\n5\0"), "1 2 3 |;4 5 |;"},
	{MFS_TOKENS_DETECT, TEXT("1 2 3\n"), "1 2 3 |;"},
};

START_TEST(each_form_is_read_in_pieces_of_any_size)
{
	const struct example *e = &good[_i];
	const struct mfs_token_text_config c = config(e->format);

	for (size_t piece = 1; piece <= e->len + 1; piece++) {
		struct mfs_buf out = {0};
		struct mfs_token_position ended;

		unit_ok(read_pieces(&c, e->text, e->len, piece, &out, &ended), &err);
		ck_assert_str_eq(out.len ? out.data : "", e->want);
		mfs_buf_release(&out);
	}
}
END_TEST

struct fault {
	enum mfs_token_format format;
	const char *text;
	size_t len;
	const char *want;  /* of the sentence, after "input, " */
	const char *taken; /* documents before */
	int code;
};

static const struct fault faults[] = {
	{MFS_TOKENS_JSONL, TEXT("[1]\n[2,]\n"), "line 2, column 4: expected a token id, found ']'",
	 "1 |;", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1 2]"), "line 1, column 4: expected ',' or ']', found '2'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[,1]"), "column 2: expected a token id, found ','", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1.0]"), "column 3: expected ',' or ']', found '.'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1e3]"), "found 'e'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[01]"), "column 3: expected ',' or ']' after a 0, found '1'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[00001, 2, 3, 4, 5, 6]"), "column 3: expected ',' or ']' after",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[-]"), "column 3: expected a digit, found ']'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[+1]"), "found '+'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[true]"), "found 't'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1, [2]]"), "column 5: expected a token id, found '['", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[[1], 2]"), "column 7: expected a list of token ids, found '2'",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[[[1]]]"), "column 3: expected a token id, found '['", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1,\n2]"), "line 1, column 4: expected a token id, found the end",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1]\n\n[1] x"), "line 3, column 5: expected the end of the line",
	 "1 |;;", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1][2]"), "column 4: expected the end of the line, found '['", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("1, 2"), "expected a list or an object, found '1'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("\xef\xbb\xbf[1]"), "found byte 0xef", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1]\0"), "found byte 0x00", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1]\n[2, 3"),
	 "line 2, column 6: the input ends inside of a document", "1 |;", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("[1, 2147483648]"),
	 "column 5: token 2147483648 is outside of int32", "", -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("[1]\n[-2147483649, 1]"),
	 "line 2, column 2: token -2147483649 is outside", "1 |;", -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("[18446744073709551616]"), "above 2^63", "", -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("[18446744073709551615]"), "above 2^63", "", -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("[9223372036854775808]"), "above 2^63", "", -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("[-9223372036854775808]"), "-9223372036854775808 is outside", "",
	 -ERANGE},
	{MFS_TOKENS_JSONL, TEXT("{}"), "column 2: the object has no key 'input_ids'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"text\": \"x\"}\n"), "has no key", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\": 1}"), "expected a list of token ids, found '1'",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\": null}"), "list of token ids, found 'n'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\":[1],\"input_ids\":[2]}"), "has a second key", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\":[1]"), "ends inside", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\":[1],}"), "expected a key, found '}'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"input_ids\" [1]}"), "expected ':'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{'input_ids':[1]}"), "expected a key or '}'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":1 \"input_ids\":[1]}"), "expected ',' or '}'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":[1},\"input_ids\":[1]}"), "expected ',' or ']', found '}'",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":[1,],\"input_ids\":[1]}"), "expected a value, found ']'",
	 "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":{\"b\":}}"), "expected a value, found '}'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"x\n\"}"), "expected '\"', found the end of the line", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"0123456789abcdef\x1f\"}"),
	 "column 23: expected '\"', found byte 0x1f", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"\\x\"}"), "column 8: expected an escape, found 'x'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"\\\0\"}"), "expected an escape, found byte 0x00", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":\"\\u12g4\"}"), "hexadecimal digits, found 'g'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":tru}"), "expected true, false or null, found '}'", "",
	 -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":truex}"), "expected ',' or '}', found 'x'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":NaN}"), "expected a value, found 'N'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":01}"), "expected ',' or '}', found '1'", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":-}"), "expected a digit", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":1.}"), "expected a digit", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":.5}"), "expected a value", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":1e}"), "expected a digit", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":1e+}"), "expected a digit", "", -EINVAL},
	{MFS_TOKENS_JSONL, TEXT("{\"a\":1.5.5}"), "found '.'", "", -EINVAL},
	{MFS_TOKENS_NUL, TEXT("1 2\0003 x"), "line 1, column 7: expected a token id, found 'x'",
	 "1 2 |;", -EINVAL},
	{MFS_TOKENS_NUL, TEXT("1\n2\n3x"), "line 3, column 2: expected a blank or ','", "",
	 -EINVAL},
	{MFS_TOKENS_NUL, TEXT("12-5"), "column 3: expected a blank", "", -EINVAL},
	{MFS_TOKENS_NUL, TEXT("1 -"), "ends inside of a number", "", -EINVAL},
	{MFS_TOKENS_NUL, TEXT("- 1"), "expected a digit", "", -EINVAL},
	{MFS_TOKENS_NUL, TEXT("1 2147483648"), "column 3: token 2147483648 is outside of int32", "",
	 -ERANGE},
	{MFS_TOKENS_LINES, TEXT("1\n2\0003"), "line 2, column 2: expected a token id, found byte 0",
	 "1 |;", -EINVAL},
	{MFS_TOKENS_DETECT, TEXT("1 2\n3 4\n"), "line 2, column 1: several lines and no NUL", "",
	 -EINVAL},
	{MFS_TOKENS_DETECT, TEXT("hello"), "expected a list, an object or a token id, found 'h'",
	 "", -EINVAL},
};

START_TEST(faults_name_their_lines)
{
	const struct fault *f = &faults[_i];
	const struct mfs_token_text_config c = config(f->format);

	for (size_t piece = 1; piece <= f->len + 1; piece++) {
		struct mfs_buf out = {0};
		struct mfs_token_position ended;
		const char *end;

		unit_fails(read_pieces(&c, f->text, f->len, piece, &out, &ended), &err, f->code,
			   f->want);
		ck_assert_int_eq(strncmp(err.msg, "input, line ", 12), 0);
		/* Documents that have ended before are not taken back. */
		end = out.len ? strrchr(out.data, ';') : NULL;
		ck_assert_uint_eq(end ? (size_t)(end + 1 - out.data) : 0, strlen(f->taken));
		ck_assert(!end || !strncmp(out.data, f->taken, strlen(f->taken)));
		mfs_buf_release(&out);
	}
}
END_TEST

/* Read up to any place that was an end of a document, and from there by another reader. */
START_TEST(goes_on)
{
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(good); i++) {
		const struct example *e = &good[i];
		struct mfs_token_text_config c = config(e->format);

		for (size_t cut = 0; cut <= e->len; cut++) {
			const struct mfs_token_hooks choices[2] = {
				{NULL, take_tokens, take_sequence, take_document},
				{NULL, take_tokens, take_sequence, take_document}};
			struct mfs_buf out = {0};
			struct mfs_token_hooks hooks = choices[0];
			struct mfs_token_position ended;
			struct mfs_token_text *t;
			char *kept;

			hooks.arg = &out;
			unit_ok(mfs_token_text_new(&c, &hooks, &t, &err), &err);
			unit_ok(mfs_token_text_feed(t, e->text, cut, &err), &err);
			ended = *mfs_token_text_ended(t);
			mfs_token_text_free(t);
			/* What was read after the last end is read again. */
			kept = out.len ? strrchr(out.data, ';') : NULL;
			out.len = kept ? (size_t)(kept + 1 - out.data) : 0;
			c.start = ended;
			unit_ok(read_pieces(&c, e->text + ended.offset, e->len - ended.offset, 1000,
					    &out, &ended),
				&err);
			ck_assert_str_eq(out.len ? out.data : "", e->want);
			mfs_buf_release(&out);
			c.start = (struct mfs_token_position){.format = e->format};
		}
	}
}
END_TEST

/* Many ids of every width, between blanks of every kind, against what they were printed from. */
START_TEST(ids_of_every_width_read_back)
{
	static const char *const separators[] = {",", ", ", " ,", " , ", ",  ", "\t,\r"};
	const struct mfs_token_text_config c = config(MFS_TOKENS_DETECT);
	struct mfs_buf text = {0}, want = {0};
	uint64_t state = 88172645463325252;

	for (int document = 0; document < 60; document++) {
		const int count = document * document * 4;

		mfs_buf_adds(&text, "[");
		for (int i = 0; i < count; i++) {
			int64_t id;

			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			id = (int64_t)(state >> 33) >> (state % 32);
			id = state >> 8 & 15 ? id : -id;
			mfs_buf_printf(&text, "%s%" PRId64,
				       i ? separators[state >> 16 & 7 ? i % 2 : i % 6] : "", id);
			mfs_buf_printf(&want, "%" PRId64 " ", id);
		}
		mfs_buf_adds(&text, "]\n");
		mfs_buf_adds(&want, count ? "|;" : ";");
	}
	for (size_t piece = 1; piece <= text.len; piece = piece * 3 + 1) {
		struct mfs_buf out = {0};
		struct mfs_token_position ended;

		unit_ok(read_pieces(&c, text.data, text.len, piece, &out, &ended), &err);
		ck_assert_str_eq(out.data, want.data);
		ck_assert_uint_eq(ended.offset, text.len);
		ck_assert_uint_eq(ended.line, 61);
		ck_assert_uint_eq(ended.column, 1);
		ck_assert_int_eq(ended.format, MFS_TOKENS_JSONL);
		mfs_buf_release(&out);
	}
	mfs_buf_release(&text);
	mfs_buf_release(&want);
}
END_TEST

/* What the input's end ends may have been meant to go on; what a newline or a NUL ends may not. */
START_TEST(only_the_inputs_end_may_be_cut_off)
{
	static const struct {
		enum mfs_token_format format;
		const char *text;
		size_t len;
		bool last;
	} ends[] = {
		{MFS_TOKENS_JSONL, TEXT("[1]\n[2]"), true},
		{MFS_TOKENS_JSONL, TEXT("[1]\n[2] "), true},
		{MFS_TOKENS_JSONL, TEXT("[1]\n[2]\n"), false},
		{MFS_TOKENS_JSONL, TEXT("[1]\n[2]\n "), false},
		{MFS_TOKENS_LINES, TEXT("1\n2"), true},
		{MFS_TOKENS_LINES, TEXT("1\n2\n"), false},
		{MFS_TOKENS_NUL,
		 TEXT("1\0"
		      "2\n"),
		 true},
		{MFS_TOKENS_NUL,
		 TEXT("1\0"
		      "2\0\n"),
		 false},
		{MFS_TOKENS_DETECT, TEXT("1 2"), true},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ends); i++) {
		const struct mfs_token_text_config c = config(ends[i].format);
		struct mfs_token_position ended;
		struct mfs_buf out = {0};

		unit_ok(read_pieces(&c, ends[i].text, ends[i].len, 100, &out, &ended), &err);
		ck_assert_int_eq(ended.last, ends[i].last);
		mfs_buf_release(&out);
	}
}
END_TEST

static void read_nested(int levels, const char *want)
{
	const struct mfs_token_text_config c = config(MFS_TOKENS_JSONL);
	struct mfs_token_position ended;
	struct mfs_buf text = {0}, out = {0};

	mfs_buf_adds(&text, "{\"a\":");
	for (int i = 1; i < levels; i++)
		mfs_buf_adds(&text, i % 3 ? "[" : "{\"b\":");
	mfs_buf_adds(&text, "1");
	for (int i = levels - 1; i; i--)
		mfs_buf_adds(&text, i % 3 ? "]" : "}");
	mfs_buf_adds(&text, ",\"input_ids\":[2]}");
	if (want)
		unit_fails(read_pieces(&c, text.data, text.len, 100, &out, &ended), &err, -EINVAL,
			   want);
	else
		unit_ok(read_pieces(&c, text.data, text.len, 100, &out, &ended), &err);
	mfs_buf_release(&text);
	mfs_buf_release(&out);
}

START_TEST(nesting_ends_at_512_levels)
{
	read_nested(2, NULL);
	read_nested(130, NULL);
	read_nested(512, NULL);
	read_nested(513, "more than 512 levels");
}
END_TEST

static int refuse(void *arg, struct mfs_error *e)
{
	(void)arg;
	return mfs_fail(e, -ENOSPC, "no room");
}

static int refuse_tokens(void *arg, const int64_t *ids, size_t count, struct mfs_error *e)
{
	(void)ids, (void)count;
	return refuse(arg, e);
}

/* An error of the caller's ends the reading. */
START_TEST(sink_fails)
{
	const struct mfs_token_text_config c = config(MFS_TOKENS_DETECT);
	struct mfs_buf out = {0};
	const struct mfs_token_hooks whole = {&out, take_tokens, take_sequence, take_document};

	for (int i = 0; i < 3; i++) {
		struct mfs_token_hooks hooks = whole;
		struct mfs_token_text *t;

		if (i == 0)
			hooks.tokens = refuse_tokens;
		if (i == 1)
			hooks.end_sequence = refuse;
		if (i == 2)
			hooks.end_document = refuse;
		unit_ok(mfs_token_text_new(&c, &hooks, &t, &err), &err);
		unit_fails(mfs_token_text_feed(t, "[1]\n", 4, &err), &err, -ENOSPC, "no room");
		ck_assert_uint_eq(mfs_token_text_ended(t)->offset, 0);
		mfs_token_text_free(t);
	}
	mfs_buf_release(&out);
}
END_TEST

/* Another key, with characters that JSON may spell in several ways. */
START_TEST(keys_are_compared_by_their_characters)
{
	static const char text[] = "{\"\xc3\xa9\xf0\x9f\x98\x80\\\"\":[1]}\n"
				   "{\"\\u00e9\\uD83D\\uDE00\\u0022\":[2]}\n"
				   "{\"\\u00e9\\ud83d\":0,\"\xc3\":0,\"\\u00e9\\ud83dx\":0,"
				   "\"\\u00e9\\ude00\":0,\"\\u00e9\xf0\x9f\x98\x80\\\"\":[3]}\n";
	struct mfs_token_text_config c = config(MFS_TOKENS_DETECT);
	struct mfs_token_position ended;

	c.key = "\xc3\xa9\xf0\x9f\x98\x80\"";
	for (size_t piece = 1; piece < sizeof(text); piece++) {
		struct mfs_buf out = {0};

		unit_ok(read_pieces(&c, text, sizeof(text) - 1, piece, &out, &ended), &err);
		ck_assert_str_eq(out.data, "1 |;2 |;3 |;");
		mfs_buf_release(&out);
	}
}
END_TEST

START_TEST(formats_have_names)
{
	static const char *const names[] = {"auto", "jsonl", "ids", "lines"};
	enum mfs_token_format format;

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(mfs_token_format_parse(names[i], &format), 0);
		ck_assert_str_eq(mfs_token_format_name(format), names[i]);
	}
	ck_assert_int_eq(mfs_token_format_parse("json", &format), -EINVAL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("token_text");
	TCase *c = tcase_create("tables");

	tcase_add_loop_test(c, each_form_is_read_in_pieces_of_any_size, 0, MFS_ARRAY_SIZE(good));
	tcase_add_loop_test(c, faults_name_their_lines, 0, MFS_ARRAY_SIZE(faults));
	suite_add_tcase(s, c);
	unit_case(s, "goes on", goes_on);
	unit_case(s, "last", only_the_inputs_end_may_be_cut_off);
	unit_case(s, "many", ids_of_every_width_read_back);
	unit_case(s, "levels", nesting_ends_at_512_levels);
	unit_case(s, "sink fails", sink_fails);
	unit_case(s, "key", keys_are_compared_by_their_characters);
	unit_case(s, "names", formats_have_names);
	return s;
}
