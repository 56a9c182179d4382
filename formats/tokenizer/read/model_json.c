#include "formats/tokenizer/read/model_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/tokenizer/models/bpe_model.h"
#include "formats/tokenizer/models/unigram_model.h"
#include "formats/tokenizer/models/word_list_models.h"

/* The members of the model, as text. at NULL: it is not there, or null. */
struct members {
	struct mfs_scan type, vocab, merges, unk_token, unk_id, dropout, prefix, suffix, fuse_unk,
		byte_fallback, ignore_merges, max_characters;
};

struct reader {
	struct mfs_tokenizer *tok;
	struct mfs_text_pipeline *pipeline;
	struct members m;
	uint32_t merge; /* the number of the entry of merges that is read */
	struct mfs_error *err;
};

static int find_members(struct reader *r, struct mfs_scan object)
{
	struct members *m = &r->m;
	const struct {
		const char *name;
		struct mfs_scan *ret;
	} wanted[] = {
		{"type", &m->type},
		{"vocab", &m->vocab},
		{"merges", &m->merges},
		{"unk_token", &m->unk_token},
		{"unk_id", &m->unk_id},
		{"dropout", &m->dropout},
		{"continuing_subword_prefix", &m->prefix},
		{"end_of_word_suffix", &m->suffix},
		{"fuse_unk", &m->fuse_unk},
		{"byte_fallback", &m->byte_fallback},
		{"ignore_merges", &m->ignore_merges},
		{"max_input_chars_per_word", &m->max_characters},
	};
	bool first = true, broken;
	struct mfs_scan key, value;

	if (!mfs_scan_accept(&object, '{'))
		return mfs_fail(r->err, -EINVAL, "model is no object");
	while (mfs_scan_member(&object, &first, &key, &broken)) {
		if (!mfs_scan_value(&object, &value)) {
			broken = true;
			break;
		}
		for (size_t i = 0; i < MFS_ARRAY_SIZE(wanted); i++)
			if (mfs_scan_is(&key, wanted[i].name) && !mfs_scan_is(&value, "null"))
				*wanted[i].ret = value;
	}
	return broken ? mfs_fail(r->err, -EINVAL, "model is not valid JSON") : 0;
}

/* ---- values ---- */

/* A string's text, in the tokenizer's arena or in the file's own bytes, which the arena has too. */
static int decode(struct reader *r, const struct mfs_scan *string, const char **ret,
		  size_t *ret_len)
{
	const size_t room = (size_t)(string->end - string->at);
	char *text = mfs_arena_alloc(&r->tok->arena, room + 1);

	if (!text)
		return mfs_fail_nomem(r->err);
	*ret_len = mfs_scan_decode_any(string, text);
	*ret = text;
	if (*ret_len == SIZE_MAX)
		return mfs_fail(r->err, -EINVAL, "model has a string that is not valid");
	text[*ret_len] = '\0';
	return 0;
}

/* An optional text; *ret stays if it is absent. */
static int text_of(struct reader *r, struct mfs_scan value, const char *name, const char **ret,
		   size_t *ret_len)
{
	struct mfs_scan string;

	if (!value.at)
		return 0;
	if (!mfs_scan_string(&value, &string))
		return mfs_fail(r->err, -EINVAL, "model.%s is no text", name);
	return decode(r, &string, ret, ret_len);
}

/* A text without a NUL that is NULL where it is empty. */
static int mark_of(struct reader *r, struct mfs_scan value, const char *name, const char **ret)
{
	size_t len = 0;
	int rc = text_of(r, value, name, ret, &len);

	if (!rc && *ret && strlen(*ret) != len)
		return mfs_fail(r->err, -ENOTSUP, "model.%s has a NUL", name);
	if (!rc && !len)
		*ret = NULL;
	return rc;
}

static bool is_true(const struct mfs_scan *value)
{
	return value->at && mfs_scan_is(value, "true");
}

/* ---- vocabularies ---- */

/* {"token": id, ...} */
static int read_table(struct reader *r)
{
	struct mfs_scan vocab = r->m.vocab, key, value;
	bool first = true, broken;
	const char *text;
	size_t len;
	int64_t id;
	int rc = 0;

	if (!vocab.at || !mfs_scan_accept(&vocab, '{'))
		return mfs_fail(r->err, -EINVAL, "model.vocab is no table");
	while (!rc && mfs_scan_member(&vocab, &first, &key, &broken)) {
		if (!mfs_scan_value(&vocab, &value) || !mfs_scan_id(&value, &id))
			return mfs_fail(r->err, -EINVAL, "model.vocab has a value that is no id");
		rc = decode(r, &key, &text, &len);
		if (!rc)
			rc = mfs_token_table_set(&r->tok->tokens, (uint64_t)id, text, len, r->err);
	}
	if (!rc && broken)
		rc = mfs_fail(r->err, -EINVAL, "model.vocab is not valid JSON");
	return rc ? rc : mfs_token_table_index(&r->tok->tokens, r->err);
}

/* The id of unk_token. MFS_NO_ID: there is none. */
static int read_unk(struct reader *r, const char *otherwise, uint32_t *ret)
{
	const char *text = otherwise;
	size_t len = otherwise ? strlen(otherwise) : 0;
	int rc = text_of(r, r->m.unk_token, "unk_token", &text, &len);

	*ret = !rc && text ? mfs_token_table_find(&r->tok->tokens, text, len) : MFS_NO_ID;
	return rc;
}

/* ---- BPE ---- */

/* entry is what there is of it, as JSON. */
static int bad_merge(struct reader *r, const struct mfs_scan *entry)
{
	const size_t len = (size_t)(entry->end - entry->at);

	return mfs_fail(r->err, -EINVAL, "model.merges: entry %u is no pair of tokens: %.*s",
			r->merge, (int)(len < 60 ? len : 60), entry->at);
}

struct text {
	const char *at;
	size_t len;
};

static int add_merge(struct reader *r, struct text a, struct text b, const struct mfs_scan *entry)
{
	const uint32_t left = mfs_token_table_find(&r->tok->tokens, a.at, a.len);
	const uint32_t right = mfs_token_table_find(&r->tok->tokens, b.at, b.len);

	if (left == MFS_NO_ID || right == MFS_NO_ID)
		return bad_merge(r, entry);
	return mfs_bpe_model_merge(r->pipeline->model, left, right, r->err);
}

/* "a b". tokenizers drops what begins with the first line of a merges.txt. */
static int read_joined(struct reader *r, struct mfs_scan entry)
{
	static const char version[] = "#version";
	struct mfs_scan rest = entry, string;
	const char *blank;
	struct text a, b;
	int rc;

	if (!mfs_scan_string(&rest, &string))
		return bad_merge(r, &entry);
	rc = decode(r, &string, &a.at, &a.len);
	if (rc || (a.len >= sizeof(version) - 1 && !memcmp(a.at, version, sizeof(version) - 1)))
		return rc;
	blank = memchr(a.at, ' ', a.len);
	if (!blank)
		return bad_merge(r, &entry);
	b = (struct text){blank + 1, (size_t)(a.at + a.len - blank - 1)};
	a.len = (size_t)(blank - a.at);
	return memchr(b.at, ' ', b.len) ? bad_merge(r, &entry) : add_merge(r, a, b, &entry);
}

/* ["a", "b"] */
static int read_pair(struct reader *r, struct mfs_scan entry)
{
	struct mfs_scan pair = entry, first, second;
	struct text a, b;
	int rc;

	if (!mfs_scan_accept(&pair, '[') || !mfs_scan_string(&pair, &first) ||
	    !mfs_scan_accept(&pair, ',') || !mfs_scan_string(&pair, &second) ||
	    !mfs_scan_accept(&pair, ']'))
		return bad_merge(r, &entry);
	rc = decode(r, &first, &a.at, &a.len);
	if (!rc)
		rc = decode(r, &second, &b.at, &b.len);
	return rc ? rc : add_merge(r, a, b, &entry);
}

static int read_merges(struct reader *r)
{
	struct mfs_scan list = r->m.merges, value;
	int rc = 0;

	if (!list.at || !mfs_scan_accept(&list, '['))
		return mfs_fail(r->err, -EINVAL, "model.merges is no list");
	if (mfs_scan_accept(&list, ']'))
		return 0;
	do {
		if (!mfs_scan_value(&list, &value))
			return bad_merge(r, &list);
		rc = *value.at == '"' ? read_joined(r, value) : read_pair(r, value);
		r->merge++;
	} while (!rc && mfs_scan_accept(&list, ','));
	return rc || mfs_scan_accept(&list, ']') ? rc : bad_merge(r, &list);
}

static int read_bpe(struct reader *r)
{
	struct mfs_bpe_options o = {.fuse_unk = is_true(&r->m.fuse_unk),
				    .byte_fallback = is_true(&r->m.byte_fallback),
				    .ignore_merges = is_true(&r->m.ignore_merges)};
	int rc;

	if (r->m.dropout.at && strtod(r->m.dropout.at, NULL) != 0)
		return mfs_fail(r->err, -ENOTSUP, "model.dropout draws random numbers");
	rc = read_table(r);
	if (!rc)
		rc = mark_of(r, r->m.prefix, "continuing_subword_prefix", &o.prefix);
	if (!rc)
		rc = mark_of(r, r->m.suffix, "end_of_word_suffix", &o.suffix);
	if (!rc)
		rc = read_unk(r, NULL, &o.unk);
	o.no_unk = r->m.unk_token.at && o.unk == MFS_NO_ID;
	if (!rc)
		rc = mfs_bpe_model_new(&r->tok->tokens, &o, &r->pipeline->model, r->err);
	return rc ? rc : read_merges(r);
}

/* ---- WordPiece, WordLevel ---- */

static int read_wordpiece(struct reader *r)
{
	struct mfs_wordpiece_options o = {.prefix = "##", .max_characters = 100};
	size_t len = 2;
	int64_t most;
	int rc = read_table(r);

	if (!rc && r->m.max_characters.at) {
		if (!mfs_scan_id(&r->m.max_characters, &most))
			return mfs_fail(r->err, -EINVAL,
					"model.max_input_chars_per_word is no number");
		o.max_characters = (size_t)most;
	}
	if (!rc)
		rc = text_of(r, r->m.prefix, "continuing_subword_prefix", &o.prefix, &len);
	if (!rc)
		rc = read_unk(r, "[UNK]", &o.unk);
	o.prefix_len = len;
	return rc ? rc : mfs_wordpiece_model_new(&r->tok->tokens, &o, &r->pipeline->model, r->err);
}

static int read_wordlevel(struct reader *r)
{
	uint32_t unk;
	int rc = read_table(r);

	if (!rc)
		rc = read_unk(r, "<unk>", &unk);
	return rc ? rc : mfs_wordlevel_model_new(&r->tok->tokens, unk, &r->pipeline->model, r->err);
}

/* ---- Unigram ---- */

/* 10 to the power of exponent, whose absolute value is at most 308, correctly rounded. */
static double power_of_ten(int exponent)
{
	char text[16];

	snprintf(text, sizeof(text), "1e%d", exponent);
	return strtod(text, NULL);
}

/* digits times 10 to the power of exponent. */
struct decimal {
	uint64_t digits;
	int64_t exponent;
	bool full; /* digits has no room for more */
};

/* False: there is none. */
static bool read_digits(const char **at, const char *end, bool fraction, struct decimal *d)
{
	const char *p = *at;

	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		const uint64_t digit = (uint64_t)(*p - '0');

		d->full |= d->digits > (UINT64_MAX - digit) / 10;
		if (!d->full)
			d->digits = d->digits * 10 + digit;
		d->exponent += d->full ? !fraction : -(int)fraction;
	}
	if (p == *at)
		return false;
	*at = p;
	return true;
}

/* After an e. A larger one counts as INT32_MAX. */
static bool read_exponent(const char **at, const char *end, struct decimal *d)
{
	const char *p = *at;
	const bool negative = p < end && *p == '-';
	int64_t value = 0;

	p += p < end && (*p == '-' || *p == '+');
	if (p == end || *p < '0' || *p > '9')
		return false;
	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		value = value * 10 + (*p - '0');
		if (value > INT32_MAX)
			value = INT32_MAX;
	}
	d->exponent += negative ? -value : value;
	*at = p;
	return true;
}

/* The value of a decimal; false: it is too large. serde_json: f64_from_parts. */
static bool value_of(struct decimal d, double *ret)
{
	double value = (double)d.digits;

	for (; d.exponent < -308 && value != 0; d.exponent += 308)
		value /= 1e308;
	if (value != 0 && d.exponent > 308)
		return false;
	if (value != 0)
		value = d.exponent < 0 ? value / power_of_ten((int)-d.exponent)
				       : value * power_of_ten((int)d.exponent);
	*ret = value;
	return !isinf(value);
}

/* A number as serde_json reads it, whose last bit may differ from strtod()'s: of two ways to cut a
 * word with equal sums it decides which is taken. */
static bool read_number(const struct mfs_scan *text, double *ret)
{
	const char *p = text->at, *end = text->end;
	const bool negative = p < end && *p == '-';
	struct decimal d = {0};

	p += negative;
	if (end - p > 1 && p[0] == '0' && p[1] >= '0' && p[1] <= '9')
		return false;
	if (!read_digits(&p, end, false, &d))
		return false;
	if (p < end && *p == '.') {
		p++;
		if (!read_digits(&p, end, true, &d))
			return false;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (!read_exponent(&p, end, &d))
			return false;
	}
	if (p != end || !value_of(d, ret))
		return false;
	*ret = negative ? -*ret : *ret;
	return true;
}

/* ["token", score] */
static int read_scored(struct reader *r, struct mfs_scan pair, double *ret_score)
{
	struct mfs_scan string, number;
	const char *text;
	size_t len;
	int rc;

	if (!mfs_scan_accept(&pair, '[') || !mfs_scan_string(&pair, &string) ||
	    !mfs_scan_accept(&pair, ',') || !mfs_scan_value(&pair, &number) ||
	    !mfs_scan_accept(&pair, ']') || !read_number(&number, ret_score))
		return mfs_fail(r->err, -EINVAL,
				"model.vocab: token %u is no pair of a text and a number",
				r->tok->tokens.count);
	rc = decode(r, &string, &text, &len);
	return rc ? rc
		  : mfs_token_table_set(&r->tok->tokens, r->tok->tokens.count, text, len, r->err);
}

static int read_scores(struct reader *r, double **ret)
{
	struct mfs_scan list = r->m.vocab, pair;
	double *scores = NULL, *more, score;
	size_t room = 0;
	int rc = 0;

	if (!list.at || !mfs_scan_accept(&list, '['))
		return mfs_fail(r->err, -EINVAL, "model.vocab is no list");
	if (mfs_scan_accept(&list, ']'))
		return 0;
	do {
		const uint32_t id = r->tok->tokens.count;

		if (id == room) {
			room = room ? 2 * room : 256;
			more = realloc(scores, room * sizeof(*scores));
			rc = more ? 0 : mfs_fail_nomem(r->err);
			scores = more ? more : scores;
		}
		if (!rc && !mfs_scan_value(&list, &pair))
			rc = mfs_fail(r->err, -EINVAL, "model.vocab is not valid JSON");
		if (!rc)
			rc = read_scored(r, pair, &score);
		if (!rc)
			scores[id] = score;
	} while (!rc && mfs_scan_accept(&list, ','));
	if (!rc && !mfs_scan_accept(&list, ']'))
		rc = mfs_fail(r->err, -EINVAL, "model.vocab is not valid JSON");
	*ret = scores;
	return rc;
}

static int read_unigram(struct reader *r)
{
	struct mfs_unigram_options o = {.unk = MFS_NO_ID,
					.byte_fallback = is_true(&r->m.byte_fallback)};
	double *scores = NULL;
	int64_t unk;
	int rc = read_scores(r, &scores);

	if (!rc && r->m.unk_id.at) {
		if (!mfs_scan_id(&r->m.unk_id, &unk) || unk >= r->tok->tokens.count)
			rc = mfs_fail(r->err, -EINVAL, "model.unk_id is none of its tokens");
		else
			o.unk = (uint32_t)unk;
	}
	if (!rc)
		rc = mfs_token_table_index(&r->tok->tokens, r->err);
	o.scores = scores;
	if (!rc)
		rc = mfs_unigram_model_new(&r->tok->tokens, &o, &r->pipeline->model, r->err);
	free(scores);
	return rc;
}

/* ---- all of them ---- */

static const struct {
	const char *type; /* with its quotes */
	int (*read)(struct reader *r);
} models[] = {
	{"\"BPE\"", read_bpe},
	{"\"WordPiece\"", read_wordpiece},
	{"\"WordLevel\"", read_wordlevel},
	{"\"Unigram\"", read_unigram},
};

int mfs_model_json_read(struct mfs_tokenizer *tok, struct mfs_scan model, struct mfs_error *err)
{
	struct reader r = {.tok = tok, .pipeline = tok->impl, .err = err};
	int rc = find_members(&r, model);

	if (rc)
		return rc;
	/* Files of before 2020 name no type; only BPE has merges. */
	if (!r.m.type.at && r.m.merges.at)
		return read_bpe(&r);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(models); i++)
		if (r.m.type.at && mfs_scan_is(&r.m.type, models[i].type))
			return models[i].read(&r);
	return mfs_fail(err, -ENOTSUP, "model %.*s is not known",
			r.m.type.at ? (int)(r.m.type.end - r.m.type.at) : 14,
			r.m.type.at ? r.m.type.at : "without a type");
}
