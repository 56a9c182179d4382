#include "formats/indexed/token_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/indexed/token_text_i.h"

static const char *const format_names[] = {"auto", "jsonl", "ids", "lines"};

const char *mfs_token_format_name(enum mfs_token_format format)
{
	return format_names[format];
}

int mfs_token_format_parse(const char *name, enum mfs_token_format *ret)
{
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(format_names); i++)
		if (!strcmp(name, format_names[i])) {
			*ret = (enum mfs_token_format)i;
			return 0;
		}
	return -EINVAL;
}

/* ---- faults ---- */

int mfs_text_fail(const struct mfs_token_text *t, uint64_t offset, int code, struct mfs_error *err,
		  const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return mfs_fail(err, code, "%s, line %llu, column %llu: %s", t->config.name,
			(unsigned long long)t->line,
			(unsigned long long)(offset - t->line_start + 1), text);
}

int mfs_text_unexpected(const struct mfs_token_text *t, const char *what, struct mfs_error *err)
{
	const uint8_t c = *t->p;
	char found[32];

	if (c == '\n')
		snprintf(found, sizeof(found), "the end of the line");
	else if (c > ' ' && c < 127)
		snprintf(found, sizeof(found), "'%c'", c);
	else
		snprintf(found, sizeof(found), "byte 0x%02x", c);
	return mfs_text_fail(t, mfs_text_offset(t), -EINVAL, err, "expected %s, found %s", what,
			     found);
}

/* ---- documents ---- */

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

bool mfs_text_skip_blanks(struct mfs_token_text *t)
{
	while (t->p < t->end && is_blank(*t->p))
		t->p++;
	return t->p < t->end;
}

static void take_newline(struct mfs_token_text *t)
{
	t->p++;
	t->line++;
	t->line_start = mfs_text_offset(t);
}

static int flush(struct mfs_token_text *t, struct mfs_error *err)
{
	const size_t count = t->count;

	t->count = 0;
	return count ? t->hooks.tokens(t->hooks.arg, t->ids, count, err) : 0;
}

static int end_sequence(struct mfs_token_text *t, struct mfs_error *err)
{
	int rc = flush(t, err);

	return rc ? rc : t->hooks.end_sequence(t->hooks.arg, err);
}

/* Before the byte at hand. */
static int end_document(struct mfs_token_text *t, struct mfs_error *err)
{
	int rc = t->hooks.end_document(t->hooks.arg, err);

	if (rc)
		return rc;
	t->ended.format = t->format;
	t->ended.offset = mfs_text_offset(t);
	t->ended.line = t->line;
	t->ended.column = t->ended.offset - t->line_start + 1;
	return 0;
}

/* ---- numbers ---- */

static void begin_number(struct mfs_token_text *t, enum mfs_text_state state)
{
	t->number_at = mfs_text_offset(t);
	t->negative = *t->p == '-';
	t->p += t->negative;
	t->value = 0;
	t->digits = 0;
	t->too_large = false;
	t->state = state;
}

static void take_digit(struct mfs_token_text *t)
{
	const unsigned digit = *t->p++ - '0';

	t->too_large |= t->value > (UINT64_MAX - digit) / 10;
	t->value = t->value * 10 + digit;
	t->digits++;
}

static int add_number(struct mfs_token_text *t, struct mfs_error *err)
{
	const struct mfs_token_text_config *c = &t->config;
	const int64_t value = (int64_t)(t->negative ? -t->value : t->value);

	if (!t->digits)
		return mfs_text_unexpected(t, "a digit", err);
	if (t->too_large || t->value > (uint64_t)INT64_MAX + t->negative)
		return mfs_text_fail(t, t->number_at, -ERANGE, err, "a token %s, outside of %s",
				     t->negative ? "below -2^63" : "above 2^63 - 1", c->limits);
	if (value < c->low || value > c->high)
		return mfs_text_fail(t, t->number_at, -ERANGE, err, "token %lld is outside of %s",
				     (long long)value, c->limits);
	if (t->count == MFS_TEXT_IDS) {
		int rc = flush(t, err);

		if (rc)
			return rc;
	}
	t->ids[t->count++] = value;
	return 0;
}

#define EACH(byte) (0x0101010101010101u * (byte))

/* Marks with 0x80 the bytes of x that are above 9. */
static uint64_t above_nine(uint64_t x)
{
	return (((x & EACH(0x7f)) + EACH(0x7f - 9)) | x) & EACH(0x80);
}

/* Eight digits, 0 to 9, the first in the lowest byte: neighbours are joined three times. */
static uint64_t eight_digits(uint64_t x)
{
	x = x * (10 * 0x100 + 1) >> 8;
	x = (x & 0x00ff00ff00ff00ff) * (100 * 0x10000 + 1) >> 16;
	return (x & 0x0000ffff0000ffff) * (10000 * 0x100000000 + 1) >> 32;
}

/*
 * Takes ids of at most seven digits while each is followed by a separator and perhaps a space:
 * nearly all of a large input looks so. It stops before anything else, which the states then read
 * byte by byte. It also stops after an id that `last` follows, and then returns true.
 */
static bool scan_ids(struct mfs_token_text *t, uint8_t separator, uint8_t separator2, uint8_t last)
{
	const uint64_t low = (uint64_t)t->config.low, span = (uint64_t)t->config.high - low;
	const uint8_t *p = t->p, *const end = t->end;
	size_t n = t->count;
	bool at_last = false;

	while (end - p >= 8 && n < MFS_TEXT_IDS) {
		const uint64_t x = mfs_le64(p) ^ EACH('0'), stop = above_nine(x);
		const unsigned bits = stop ? (unsigned)__builtin_ctzll(stop) & 56 : 0;
		const uint64_t rest = x >> bits, value = eight_digits(x << 1 << (63 - bits));
		const uint8_t following = (uint8_t)rest ^ '0', next = (uint8_t)(rest >> 8) ^ '0';
		/* Joined by arithmetic: one branch, which is predicted. */
		const bool odd = !bits | (value - low > span) | ((bits > 8) & (*p == '0'));

		if (odd | ((following != separator) & (following != separator2))) {
			at_last = !odd && following == last;
			if (at_last) {
				t->ids[n++] = (int64_t)value;
				p += bits / 8;
			}
			break;
		}
		t->ids[n++] = (int64_t)value;
		p += bits / 8 + 1 + (next == ' ');
	}
	t->p = p;
	t->count = n;
	return at_last;
}

/* ---- lists of JSON lines ---- */

int mfs_text_begin_list(struct mfs_token_text *t, bool in_object)
{
	t->p++;
	t->level = 1;
	t->kind = LIST_EMPTY;
	t->in_object = in_object;
	t->state = TEXT_LIST_FIRST;
	return 0;
}

static int end_list(struct mfs_token_text *t, struct mfs_error *err)
{
	const bool sequence = t->level == 2 || t->kind == LIST_FLAT;

	t->p++;
	if (--t->level)
		t->state = TEXT_LIST_AFTER;
	else
		t->state = t->in_object ? TEXT_AFTER : TEXT_TAIL;
	return sequence ? end_sequence(t, err) : 0;
}

/* Takes the ids that are easily read, if they are next; true if there were any. */
static bool take_ids(struct mfs_token_text *t)
{
	const uint8_t *before = t->p;
	const bool at_end = scan_ids(t, ',', ',', ']');

	if (t->p == before)
		return false;
	t->state = at_end ? TEXT_LIST_AFTER : TEXT_LIST_NEXT;
	if (t->level == 1)
		t->kind = LIST_FLAT;
	return true;
}

static int list_element(struct mfs_token_text *t, bool first, struct mfs_error *err)
{
	const bool ids = t->level == 2 || t->kind != LIST_NESTED;
	const bool lists = t->level == 1 && t->kind != LIST_FLAT;

	if (t->count == MFS_TEXT_IDS) {
		int rc = flush(t, err);

		if (rc)
			return rc;
	}
	if ((ids && take_ids(t)) || !mfs_text_skip_blanks(t))
		return 0;
	if (*t->p == ']' && first)
		return end_list(t, err);
	if (*t->p == '[' && lists) {
		t->p++;
		t->level = 2;
		t->kind = LIST_NESTED;
		t->state = TEXT_LIST_FIRST;
		return 0;
	}
	if (ids && (is_digit(*t->p) || *t->p == '-')) {
		if (t->level == 1)
			t->kind = LIST_FLAT;
		begin_number(t, TEXT_LIST_ID);
		return 0;
	}
	return mfs_text_unexpected(t, ids ? "a token id" : "a list of token ids", err);
}

static int step_list_first(struct mfs_token_text *t, struct mfs_error *err)
{
	return list_element(t, true, err);
}

static int step_list_next(struct mfs_token_text *t, struct mfs_error *err)
{
	return list_element(t, false, err);
}

static int step_list_after(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p == ']')
		return end_list(t, err);
	if (*t->p != ',')
		return mfs_text_unexpected(t, "',' or ']'", err);
	t->p++;
	t->state = TEXT_LIST_NEXT;
	return 0;
}

static int step_list_id(struct mfs_token_text *t, struct mfs_error *err)
{
	while (t->p < t->end && is_digit(*t->p)) {
		if (t->digits && !t->value)
			return mfs_text_unexpected(t, "',' or ']' after a 0", err);
		take_digit(t);
	}
	if (t->p == t->end)
		return 0;
	t->state = TEXT_LIST_AFTER;
	return add_number(t, err);
}

/* ---- lines ---- */

static int step_line(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	switch (*t->p) {
	case '\n':
		take_newline(t);
		return end_document(t, err);
	case '[':
		return mfs_text_begin_list(t, false);
	case '{':
		return mfs_text_begin_object(t, err);
	default:
		return mfs_text_unexpected(t, "a list or an object", err);
	}
}

static int step_tail(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p != '\n')
		return mfs_text_unexpected(t, "the end of the line", err);
	take_newline(t);
	t->state = TEXT_LINE;
	return end_document(t, err);
}

/* ---- id lists ---- */

static int end_ids(struct mfs_token_text *t, struct mfs_error *err)
{
	int rc = t->in_document ? end_sequence(t, err) : 0;

	t->in_document = t->broken = false;
	return rc ? rc : end_document(t, err);
}

static int ids_newline(struct mfs_token_text *t, struct mfs_error *err)
{
	take_newline(t);
	t->broken = t->in_document;
	return t->format == MFS_TOKENS_LINES ? end_ids(t, err) : 0;
}

static int begin_id(struct mfs_token_text *t, struct mfs_error *err)
{
	if (t->guessed && t->broken)
		return mfs_text_fail(
			t, mfs_text_offset(t), -EINVAL, err,
			"several lines and no NUL yet: say whether a newline ends a document "
			"(format lines) or a NUL (format ids)");
	t->in_document = true;
	begin_number(t, TEXT_IDS_ID);
	return 0;
}

static int step_ids(struct mfs_token_text *t, struct mfs_error *err)
{
	const uint8_t c = *t->p;

	if (c == '\n')
		return ids_newline(t, err);
	if (!c && t->format == MFS_TOKENS_NUL) {
		t->p++;
		t->guessed = false;
		return end_ids(t, err);
	}
	if (is_digit(c) || c == '-')
		return begin_id(t, err);
	if (!is_blank(c) && c != ',')
		return mfs_text_unexpected(t, "a token id", err);
	t->p++;
	return 0;
}

static int step_ids_id(struct mfs_token_text *t, struct mfs_error *err)
{
	while (t->p < t->end && is_digit(*t->p))
		take_digit(t);
	if (t->p == t->end)
		return 0;
	t->state = TEXT_IDS_AFTER;
	return add_number(t, err);
}

/* After an id there must be something that ends it. */
static int step_ids_after(struct mfs_token_text *t, struct mfs_error *err)
{
	const uint8_t c = *t->p;

	t->state = TEXT_IDS;
	if (c == '\n' || !c)
		return step_ids(t, err);
	if (!is_blank(c) && c != ',')
		return mfs_text_unexpected(t, "a blank or ','", err);
	t->p++;
	if (!(t->guessed && t->broken))
		scan_ids(t, ' ', ',', t->format == MFS_TOKENS_LINES ? '\n' : '\0');
	return 0;
}

/* ---- the beginning ---- */

static int detected_jsonl(struct mfs_token_text *t, struct mfs_error *err)
{
	t->format = MFS_TOKENS_JSONL;
	t->state = TEXT_LINE;
	for (int rc; t->blank_lines; t->blank_lines--) {
		rc = end_document(t, err);
		if (rc)
			return rc;
	}
	return 0;
}

static int step_detect(struct mfs_token_text *t, struct mfs_error *err)
{
	if (!mfs_text_skip_blanks(t))
		return 0;
	if (*t->p == '\n') {
		t->blank_lines++;
		take_newline(t);
		return 0;
	}
	if (*t->p == '[' || *t->p == '{')
		return detected_jsonl(t, err);
	if (*t->p && *t->p != ',' && *t->p != '-' && !is_digit(*t->p))
		return mfs_text_unexpected(t, "a list, an object or a token id", err);
	t->format = MFS_TOKENS_NUL;
	t->guessed = true;
	t->state = TEXT_IDS;
	return 0;
}

static mfs_text_step *const steps[TEXT_STATES] = {
	[TEXT_DETECT] = step_detect,
	[TEXT_LINE] = step_line,
	[TEXT_TAIL] = step_tail,
	[TEXT_LIST_FIRST] = step_list_first,
	[TEXT_LIST_NEXT] = step_list_next,
	[TEXT_LIST_AFTER] = step_list_after,
	[TEXT_LIST_ID] = step_list_id,
	[TEXT_IDS] = step_ids,
	[TEXT_IDS_ID] = step_ids_id,
	[TEXT_IDS_AFTER] = step_ids_after,
	[TEXT_KEY_FIRST] = mfs_text_key_first,
	[TEXT_KEY] = mfs_text_key_next,
	[TEXT_COLON] = mfs_text_colon,
	[TEXT_VALUE] = mfs_text_value,
	[TEXT_ITEM_FIRST] = mfs_text_item_first,
	[TEXT_AFTER] = mfs_text_after,
	[TEXT_STRING] = mfs_text_string,
	[TEXT_ESCAPE] = mfs_text_escape,
	[TEXT_HEX] = mfs_text_hex,
	[TEXT_WORD] = mfs_text_word,
	[TEXT_MINUS] = mfs_text_number,
	[TEXT_ZERO] = mfs_text_number,
	[TEXT_INTEGER] = mfs_text_number,
	[TEXT_POINT] = mfs_text_number,
	[TEXT_FRACTION] = mfs_text_number,
	[TEXT_E] = mfs_text_number,
	[TEXT_SIGN] = mfs_text_number,
	[TEXT_EXPONENT] = mfs_text_number,
};

int mfs_token_text_feed(struct mfs_token_text *t, const void *bytes, size_t len,
			struct mfs_error *err)
{
	int rc = 0;

	t->p = bytes;
	t->end = t->p + len;
	t->at += len;
	while (!rc && t->p < t->end)
		rc = steps[t->state](t, err);
	return rc;
}

static int end_last_document(struct mfs_token_text *t, int rc)
{
	t->ended.last = !rc;
	return rc;
}

/* The input ends with ids of a document that has no end of its own, perhaps within a number. */
static int end_last_ids(struct mfs_token_text *t, struct mfs_error *err)
{
	int rc = 0;

	if (t->state == TEXT_IDS_ID && !t->digits)
		return mfs_text_fail(t, t->at, -EINVAL, err, "the input ends inside of a number");
	if (t->state == TEXT_IDS_ID)
		rc = add_number(t, err);
	if (!rc && t->in_document)
		rc = end_last_document(t, end_ids(t, err));
	return rc;
}

int mfs_token_text_end(struct mfs_token_text *t, struct mfs_error *err)
{
	t->p = t->end = NULL;
	switch (t->state) {
	case TEXT_DETECT:
		return detected_jsonl(t, err);
	case TEXT_LINE:
		return 0;
	case TEXT_TAIL:
		t->state = TEXT_LINE;
		return end_last_document(t, end_document(t, err));
	case TEXT_IDS:
	case TEXT_IDS_ID:
	case TEXT_IDS_AFTER:
		return end_last_ids(t, err);
	default:
		return mfs_text_fail(t, t->at, -EINVAL, err, "the input ends inside of a document");
	}
}

const struct mfs_token_position *mfs_token_text_ended(const struct mfs_token_text *t)
{
	return &t->ended;
}

static enum mfs_text_state first_state(enum mfs_token_format format)
{
	switch (format) {
	case MFS_TOKENS_DETECT:
		return TEXT_DETECT;
	case MFS_TOKENS_JSONL:
		return TEXT_LINE;
	default:
		return TEXT_IDS;
	}
}

int mfs_token_text_new(const struct mfs_token_text_config *config,
		       const struct mfs_token_hooks *hooks, struct mfs_token_text **ret,
		       struct mfs_error *err)
{
	struct mfs_token_text *t = calloc(1, sizeof(*t));

	if (!t)
		return mfs_fail_nomem(err);
	t->config = *config;
	t->hooks = *hooks;
	t->ended = config->start;
	if (!t->ended.line)
		t->ended.line = t->ended.column = 1;
	t->format = t->ended.format;
	t->state = first_state(t->format);
	t->at = t->ended.offset;
	t->line = t->ended.line;
	t->line_start = t->at - (t->ended.column - 1);
	*ret = t;
	return 0;
}

void mfs_token_text_free(struct mfs_token_text *t)
{
	free(t);
}
