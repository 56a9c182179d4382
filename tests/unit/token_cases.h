/* Tokenizers of tests/fixtures/tokenizers, and what other programs have made of texts with each:
 * lines of a text in hexadecimal, its ids, and the text of these. */
#ifndef MFS_TESTS_TOKEN_CASES_H
#define MFS_TESTS_TOKEN_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/tokenizer/tokenizer.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

struct one_case {
	struct mfs_buf text, back;
	struct mfs_token_ids ids;
};

static inline void from_hex(struct mfs_buf *b, const char *hex)
{
	b->len = 0;
	for (; *hex && *hex != '-'; hex += 2) {
		const char byte = (char)(mfs_str_digit(hex[0]) << 4 | mfs_str_digit(hex[1]));

		mfs_buf_add(b, &byte, 1);
	}
}

static inline void read_ids(struct mfs_token_ids *ids, char *list)
{
	ids->count = 0;
	if (*list == '-')
		return;
	for (char *end; *list; list = *end ? end + 1 : end) {
		ids->at = realloc(ids->at, (ids->count + 1) * sizeof(*ids->at));
		ids->at[ids->count++] = (uint32_t)strtoul(list, &end, 10);
		if (!*end)
			return;
	}
}

static inline bool next_case(FILE *file, struct one_case *c)
{
	static _Thread_local char line[1 << 16], text[1 << 14], list[1 << 14], back[1 << 14];

	if (!fgets(line, sizeof(line), file))
		return false;
	ck_assert_int_eq(sscanf(line, "%16000s %16000s %16000s", text, list, back), 3);
	from_hex(&c->text, text);
	read_ids(&c->ids, list);
	from_hex(&c->back, back);
	return true;
}

static inline void same_ids(const struct mfs_token_ids *got, const struct mfs_token_ids *wanted)
{
	ck_assert_uint_eq(got->count, wanted->count);
	for (size_t i = 0; i < got->count; i++)
		ck_assert_uint_eq(got->at[i], wanted->at[i]);
}

/* step: ids a call of mfs_decode(); 0: all. */
static inline void decodes(const struct mfs_tokenizer *tok, const struct one_case *c, size_t step)
{
	struct mfs_decoder *dec;
	struct mfs_buf back = {0};

	unit_ok(mfs_decoder_new(tok, false, &dec, &err), &err);
	for (size_t i = 0; i < c->ids.count; i += step ? step : c->ids.count)
		unit_ok(mfs_decode(dec, c->ids.at + i, step ? step : c->ids.count, &back, &err),
			&err);
	unit_ok(mfs_decode_end(dec, &back, &err), &err);
	ck_assert_uint_eq(back.len, c->back.len);
	ck_assert(!back.len || !memcmp(back.data, c->back.data, back.len));
	mfs_buf_release(&back);
	mfs_decoder_free(dec);
}

static inline void check_cases(const struct mfs_tokenizer *tok, const char *name)
{
	struct one_case c = {0};
	struct mfs_token_ids ids = {0};
	struct mfs_encoder *enc;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "tests/fixtures/tokenizers/%s.cases", name);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	unit_ok(mfs_encoder_new(tok, &enc, &err), &err);
	while (next_case(file, &c)) {
		ids.count = 0;
		unit_ok(mfs_encode(enc, c.text.len ? c.text.data : "", c.text.len, true, &ids,
				   &err),
			&err);
		same_ids(&ids, &c.ids);
		decodes(tok, &c, 0);
		decodes(tok, &c, 1);
	}
	fclose(file);
	mfs_encoder_free(enc);
	mfs_buf_release(&c.text);
	mfs_buf_release(&c.back);
	free(c.ids.at);
	free(ids.at);
}

#endif
