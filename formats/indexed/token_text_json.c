/* JSON that is skipped: an object with the ids under one of its keys, and the values of all other
 * keys (RFC 8259). */
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/indexed/token_text_i.h"

/* ---- levels ---- */

static bool in_object(const struct mfs_token_text *t)
{
	const unsigned level = t->depth - 1;

	return t->objects[level / 64] >> level % 64 & 1;
}

static int push(struct mfs_token_text *t, bool object, struct mfs_error *err)
{
	const unsigned level = t->depth;
	const uint64_t bit = 1ull << level % 64;

	if (level == MFS_TEXT_DEPTH)
		return mfs_text_fail(t, mfs_text_offset(t), -EINVAL, err,
				     "values are nested more than %d levels deep", MFS_TEXT_DEPTH);
	t->p++;
	t->depth++;
	t->objects[level / 64] =
		object ? t->objects[level / 64] | bit : t->objects[level / 64] & ~bit;
	t->state = object ? TEXT_KEY_FIRST : TEXT_ITEM_FIRST;
	return 0;
}

static int pop(struct mfs_token_text *t, struct mfs_error *err)
{
	if (t->depth == 1 && !t->key.found)
		return mfs_text_fail(t, mfs_text_offset(t), -EINVAL, err,
				     "the object has no key '%s'", t->config.key);
	t->p++;
	t->state = --t->depth ? TEXT_AFTER : TEXT_TAIL;
	return 0;
}

int mfs_text_begin_object(struct mfs_token_text *t, struct mfs_error *err)
{
	t->key.found = t->key.wanted = false;
	return push(t, true, err);
}

/* ---- keys ---- */

static void begin_string(struct mfs_token_text *t, bool key)
{
	t->p++;
	t->key.reading = key && t->depth == 1;
	t->key.same = true;
	t->key.len = 0;
	t->key.surrogate = 0;
	t->key.wanted = false;
	t->state = TEXT_STRING;
}

static void compare_byte(struct mfs_text_key *k, const char *wanted, unsigned c)
{
	/* Its NUL ends the wanted one; no byte that is compared is a NUL. */
	k->same = k->same && c && (uint8_t)wanted[k->len] == c;
	k->len += k->same;
}

static void compare_code(struct mfs_text_key *k, const char *wanted, unsigned c)
{
	if (c < 0x80) {
		compare_byte(k, wanted, c);
		return;
	}
	if (c < 0x800) {
		compare_byte(k, wanted, 0xc0 | c >> 6);
	} else if (c < 0x10000) {
		compare_byte(k, wanted, 0xe0 | c >> 12);
		compare_byte(k, wanted, 0x80 | (c >> 6 & 0x3f));
	} else {
		compare_byte(k, wanted, 0xf0 | c >> 18);
		compare_byte(k, wanted, 0x80 | (c >> 12 & 0x3f));
		compare_byte(k, wanted, 0x80 | (c >> 6 & 0x3f));
	}
	compare_byte(k, wanted, 0x80 | (c & 0x3f));
}

/* One character of a key, or half of a pair of surrogates. */
static void compare(struct mfs_token_text *t, unsigned c)
{
	struct mfs_text_key *k = &t->key;

	if (k->surrogate && c >= 0xdc00 && c < 0xe000)
		c = 0x10000 + ((k->surrogate - 0xd800) << 10) + (c - 0xdc00);
	else if (k->surrogate || (c >= 0xdc00 && c < 0xe000))
		k->same = false; /* half a pair, which no UTF-8 is */
	k->surrogate = 0;
	if (c >= 0xd800 && c < 0xdc00)
		k->surrogate = c;
	else
		compare_code(k, t->config.key, c);
}

static int end_key(struct mfs_token_text *t, struct mfs_error *err)
{
	struct mfs_text_key *k = &t->key;

	k->wanted = k->reading && k->same && !k->surrogate && !t->config.key[k->len];
	k->reading = t->in_key = false;
	if (k->wanted && k->found)
		return mfs_text_fail(t, mfs_text_offset(t), -EINVAL, err,
				     "the object has a second key '%s'", t->config.key);
	k->found |= k->wanted;
	t->state = TEXT_COLON;
	return 0;
}

static int key_or(struct mfs_token_text *t, bool may_end, const char *what, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p == '}' && may_end)
		return pop(t, err);
	if (*t->p != '"')
		return mfs_text_unexpected(t, what, err);
	begin_string(t, true);
	t->in_key = true;
	return 0;
}

int mfs_text_key_first(struct mfs_token_text *t, struct mfs_error *err)
{
	return key_or(t, true, "a key or '}'", err);
}

int mfs_text_key_next(struct mfs_token_text *t, struct mfs_error *err)
{
	return key_or(t, false, "a key", err);
}

int mfs_text_colon(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p != ':')
		return mfs_text_unexpected(t, "':'", err);
	t->p++;
	t->state = TEXT_VALUE;
	return 0;
}

/* ---- strings ---- */

/* Marks with 0x80 the bytes below 0x20, '"' and '\\'. The high bits are kept out of the sums, so
 * that each stays within its byte. */
static uint64_t special(uint64_t x)
{
	const uint64_t ones = 0x0101010101010101, high = 0x80 * ones, low = x & ~high;
	const uint64_t control = ~(low + (0x80 - 0x20) * ones);
	const uint64_t quote = ~((low ^ '"' * ones) + 0x7f * ones);
	const uint64_t slash = ~((low ^ '\\' * ones) + 0x7f * ones);

	return (control | quote | slash) & ~x & high;
}

static void skip_plain(struct mfs_token_text *t)
{
	const uint8_t *p = t->p, *end = t->end;

	while (end - p >= 8 && !special(mfs_le64(p)))
		p += 8;
	while (p < end && *p >= ' ' && *p != '"' && *p != '\\')
		p++;
	t->p = p;
}

static void compare_plain(struct mfs_token_text *t)
{
	for (; t->p < t->end && *t->p >= ' ' && *t->p != '"' && *t->p != '\\'; t->p++) {
		t->key.same &= !t->key.surrogate;
		compare_byte(&t->key, t->config.key, *t->p);
	}
}

int mfs_text_string(struct mfs_token_text *t, struct mfs_error *err)
{
	int rc = 0;

	if (t->key.reading)
		compare_plain(t);
	else
		skip_plain(t);
	if (t->p == t->end)
		return 0;
	if (*t->p < ' ')
		return mfs_text_unexpected(t, "'\"'", err);
	if (*t->p == '\\')
		t->state = TEXT_ESCAPE;
	else if (t->in_key)
		rc = end_key(t, err);
	else
		t->state = TEXT_AFTER;
	t->p += !rc;
	return rc;
}

int mfs_text_escape(struct mfs_token_text *t, struct mfs_error *err)
{
	static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	const char *letter = *t->p ? strchr(letters, *t->p) : NULL;

	t->state = TEXT_STRING;
	if (*t->p == 'u') {
		t->state = TEXT_HEX;
		t->hex = t->hex_digits = 0;
	} else if (!letter) {
		return mfs_text_unexpected(t, "an escape", err);
	} else if (t->key.reading) {
		compare(t, (uint8_t)means[letter - letters]);
	}
	t->p++;
	return 0;
}

int mfs_text_hex(struct mfs_token_text *t, struct mfs_error *err)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t c = *t->p, lower = c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c;
	const char *digit = c ? strchr(digits, lower) : NULL;

	if (!digit)
		return mfs_text_unexpected(t, "four hexadecimal digits", err);
	t->p++;
	t->hex = t->hex << 4 | (unsigned)(digit - digits);
	if (++t->hex_digits < 4)
		return 0;
	t->state = TEXT_STRING;
	if (t->key.reading)
		compare(t, t->hex);
	return 0;
}

/* ---- values ---- */

static int begin_word(struct mfs_token_text *t, const char *word)
{
	t->p++;
	t->word = word + 1;
	t->state = TEXT_WORD;
	return 0;
}

int mfs_text_word(struct mfs_token_text *t, struct mfs_error *err)
{
	if (*t->p != (uint8_t)*t->word)
		return mfs_text_unexpected(t, "true, false or null", err);
	t->p++;
	if (!*++t->word)
		t->state = TEXT_AFTER;
	return 0;
}

static int begin_value(struct mfs_token_text *t, struct mfs_error *err)
{
	const uint8_t c = *t->p;

	switch (c) {
	case '"':
		begin_string(t, false);
		return 0;
	case '{':
	case '[':
		return push(t, c == '{', err);
	case 't':
		return begin_word(t, "true");
	case 'f':
		return begin_word(t, "false");
	case 'n':
		return begin_word(t, "null");
	default:
		if (c != '-' && (c < '0' || c > '9'))
			return mfs_text_unexpected(t, "a value", err);
		t->p++;
		t->state = c == '-' ? TEXT_MINUS : c == '0' ? TEXT_ZERO : TEXT_INTEGER;
		return 0;
	}
}

int mfs_text_value(struct mfs_token_text *t, struct mfs_error *err)
{
	const bool ids = t->key.wanted;

	if (!mfs_text_skip_blanks(t))
		return 0;
	t->key.wanted = false;
	if (ids)
		return *t->p == '[' ? mfs_text_begin_list(t, true)
				    : mfs_text_unexpected(t, "a list of token ids", err);
	return begin_value(t, err);
}

int mfs_text_item_first(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	return *t->p == ']' ? pop(t, err) : begin_value(t, err);
}

int mfs_text_after(struct mfs_token_text *t, struct mfs_error *err)
{
	const bool object = in_object(t);

	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p == (object ? '}' : ']'))
		return pop(t, err);
	if (*t->p != ',')
		return mfs_text_unexpected(t, object ? "',' or '}'" : "',' or ']'", err);
	t->p++;
	t->state = object ? TEXT_KEY : TEXT_VALUE;
	return 0;
}

/* ---- numbers ---- */

/* What may follow in each state: digits, and the state that a sign, a point, an "e" leads to (0:
 * none). */
static const struct {
	enum mfs_text_state digit, point, e, sign;
	bool may_end;
} numbers[] = {
	[TEXT_MINUS - TEXT_MINUS] = {.digit = TEXT_INTEGER},
	[TEXT_ZERO - TEXT_MINUS] = {.point = TEXT_POINT, .e = TEXT_E, .may_end = true},
	[TEXT_INTEGER - TEXT_MINUS] = {TEXT_INTEGER, TEXT_POINT, TEXT_E, 0, true},
	[TEXT_POINT - TEXT_MINUS] = {.digit = TEXT_FRACTION},
	[TEXT_FRACTION - TEXT_MINUS] = {.digit = TEXT_FRACTION, .e = TEXT_E, .may_end = true},
	[TEXT_E - TEXT_MINUS] = {.digit = TEXT_EXPONENT, .sign = TEXT_SIGN},
	[TEXT_SIGN - TEXT_MINUS] = {.digit = TEXT_EXPONENT},
	[TEXT_EXPONENT - TEXT_MINUS] = {.digit = TEXT_EXPONENT, .may_end = true},
};

static enum mfs_text_state number_state(enum mfs_text_state state, uint8_t c)
{
	const unsigned i = state - TEXT_MINUS;

	if (c >= '0' && c <= '9')
		return state == TEXT_MINUS && c == '0' ? TEXT_ZERO : numbers[i].digit;
	if (c == '.')
		return numbers[i].point;
	if (c == 'e' || c == 'E')
		return numbers[i].e;
	return c == '+' || c == '-' ? numbers[i].sign : 0;
}

int mfs_text_number(struct mfs_token_text *t, struct mfs_error *err)
{
	for (; t->p < t->end; t->p++) {
		const enum mfs_text_state next = number_state(t->state, *t->p);

		if (!next) {
			if (!numbers[t->state - TEXT_MINUS].may_end)
				return mfs_text_unexpected(t, "a digit", err);
			t->state = TEXT_AFTER;
			return 0;
		}
		t->state = next;
	}
	return 0;
}
