#include "formats/text/json_text.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/tokenizer/unicode/utf8.h"

#define DEPTH 512 /* of values in one another; Python gives up at about 1000 */

struct parser {
	const struct mfs_text_line *place;
	const char *line, *at, *end;
	struct mfs_error *err;
};

/* ---- faults ---- */

static int fault(struct parser *p, const char *expected)
{
	const uint8_t c = p->at < p->end ? (uint8_t)*p->at : 0;
	char found[32];

	if (p->at >= p->end)
		snprintf(found, sizeof(found), "the end of the line");
	else if (c >= ' ' && c < 0x7f)
		snprintf(found, sizeof(found), "'%c'", c);
	else if (c == '\r')
		snprintf(found, sizeof(found), "a CR without LF");
	else
		snprintf(found, sizeof(found), "the byte 0x%02x", c);
	return mfs_fail(p->err, -EINVAL, "%s, line %llu, column %llu: expected %s, found %s",
			p->place->name, (unsigned long long)p->place->line,
			(unsigned long long)(p->at - p->line) + 1, expected, found);
}

/* ---- scanning ---- */

/* A CR may end a line, with LF after it or at the end of the input. In Python's text files any CR
 * ends a line, so within one it is no blank. */
static bool is_blank(const struct parser *p)
{
	return *p->at == ' ' || *p->at == '\t' || *p->at == '\n' ||
	       (*p->at == '\r' && p->at + 1 == p->end);
}

static void skip_blanks(struct parser *p)
{
	while (p->at < p->end && is_blank(p))
		p->at++;
}

static bool accept(struct parser *p, char c)
{
	skip_blanks(p);
	if (p->at >= p->end || *p->at != c)
		return false;
	p->at++;
	return true;
}

#define ONES  0x0101010101010101u
#define HIGHS 0x8080808080808080u

/* In the high bit of each byte of a word: whether it is 0. Of bytes after the first such one it
 * may be wrong. */
static uint64_t zero_bytes(uint64_t word)
{
	return (word - ONES) & ~word & HIGHS;
}

/* Whether one of eight bytes ends a run of plain characters: a quote, a backslash, or a control
 * character. */
static bool has_stop(const char *bytes)
{
	const uint64_t word = mfs_le64(bytes);

	return zero_bytes(word ^ ONES * '"') | zero_bytes(word ^ ONES * '\\') |
	       ((word - ONES * ' ') & ~word & HIGHS);
}

static const char *plain_end(const char *at, const char *end)
{
	while (end - at >= 8 && !has_stop(at))
		at += 8;
	while (at < end && *at != '"' && *at != '\\' && (uint8_t)*at >= ' ')
		at++;
	return at;
}

/* Reads up to four digits. Returns how many there are. */
static int hex(const char *at, const char *end, uint32_t *ret)
{
	*ret = 0;
	for (int i = 0; i < 4; i++, at++) {
		if (at >= end)
			return i;
		if (*at >= '0' && *at <= '9')
			*ret = *ret << 4 | (uint32_t)(*at - '0');
		else if ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'f')
			*ret = *ret << 4 | (uint32_t)((*at | 0x20) - 'a' + 10);
		else
			return i;
	}
	return 4;
}

/* After a backslash. */
static int scan_escape(struct parser *p)
{
	uint32_t unit;
	int n;

	if (p->at >= p->end || !*p->at || !strchr("\"\\/bfnrtu", *p->at))
		return fault(p, "an escape of JSON");
	if (*p->at++ != 'u')
		return 0;
	n = hex(p->at, p->end, &unit);
	p->at += n;
	return n < 4 ? fault(p, "a hexadecimal digit") : 0;
}

/* At the first character of a string. */
static int scan_string(struct parser *p, struct mfs_json_value *ret)
{
	int rc = 0;

	ret->kind = MFS_JSON_STRING;
	ret->at = p->at;
	while (!rc) {
		p->at = plain_end(p->at, p->end);
		if (p->at >= p->end || (*p->at != '"' && *p->at != '\\'))
			return fault(p, "a character or the end of a string");
		if (*p->at == '"')
			break;
		p->at++;
		rc = scan_escape(p);
	}
	ret->end = p->at;
	if (!rc)
		p->at++;
	return rc;
}

static int scan_digits(struct parser *p)
{
	if (p->at >= p->end || *p->at < '0' || *p->at > '9')
		return fault(p, "a digit");
	while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
		p->at++;
	return 0;
}

/* At a digit; a sign has been read. */
static int scan_number(struct parser *p)
{
	int rc = 0;

	if (p->at < p->end && *p->at == '0')
		p->at++;
	else
		rc = scan_digits(p);
	if (!rc && p->at < p->end && *p->at == '.') {
		p->at++;
		rc = scan_digits(p);
	}
	if (!rc && p->at < p->end && (*p->at | 0x20) == 'e') {
		p->at++;
		if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
			p->at++;
		rc = scan_digits(p);
	}
	return rc;
}

static bool scan_word(struct parser *p, const char *word)
{
	const size_t len = strlen(word);

	if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0)
		return false;
	p->at += len;
	return true;
}

/* A string, a number or a word. */
static int scan_scalar(struct parser *p, struct mfs_json_value *ret)
{
	if (accept(p, '"'))
		return scan_string(p, ret);
	ret->kind = MFS_JSON_OTHER;
	if (scan_word(p, "true") || scan_word(p, "false") || scan_word(p, "null") ||
	    scan_word(p, "NaN") || scan_word(p, "Infinity") || scan_word(p, "-Infinity"))
		return 0;
	if (p->at < p->end && *p->at == '-')
		p->at++;
	else if (p->at >= p->end || *p->at < '0' || *p->at > '9')
		return fault(p, "a value");
	return scan_number(p);
}

static int scan_key(struct parser *p, struct mfs_json_value *key)
{
	int rc = accept(p, '"') ? scan_string(p, key) : fault(p, "a key in quotes");

	if (!rc && !accept(p, ':'))
		rc = fault(p, "':'");
	return rc;
}

/* ---- a value in whatever depth ---- */

/* Objects and lists that are open, as bits: 1 is an object. */
struct nest {
	uint64_t objects[DEPTH / 64];
	unsigned depth;
};

static bool in_object(const struct nest *n)
{
	const unsigned at = n->depth - 1;

	return n->objects[at / 64] >> at % 64 & 1;
}

static int open_nest(struct parser *p, struct nest *n, bool object)
{
	if (n->depth == DEPTH)
		return mfs_fail(p->err, -ENOTSUP,
				"%s, line %llu: values lie deeper in one another than %d",
				p->place->name, (unsigned long long)p->place->line, DEPTH);
	n->objects[n->depth / 64] &= ~(UINT64_C(1) << n->depth % 64);
	n->objects[n->depth / 64] |= (uint64_t)object << n->depth % 64;
	n->depth++;
	return 0;
}

/* After a value: closes what ends here, and goes to the next value. */
static int step_on(struct parser *p, struct nest *n)
{
	struct mfs_json_value key;

	while (n->depth) {
		if (accept(p, ','))
			return in_object(n) ? scan_key(p, &key) : 0;
		if (!accept(p, in_object(n) ? '}' : ']'))
			return fault(p, in_object(n) ? "',' or '}'" : "',' or ']'");
		n->depth--;
	}
	return 0;
}

/* Begins an object or a list. *ret_empty: it has ended, too. */
static int begin(struct parser *p, struct nest *n, bool object, bool *ret_empty)
{
	struct mfs_json_value key;
	int rc = open_nest(p, n, object);

	*ret_empty = !rc && accept(p, object ? '}' : ']');
	if (*ret_empty)
		n->depth--;
	return rc || *ret_empty || !object ? rc : scan_key(p, &key);
}

static int scan_value(struct parser *p, struct mfs_json_value *ret)
{
	struct nest n = {.depth = 0};
	struct mfs_json_value inner;
	int rc = 0;

	skip_blanks(p);
	*ret = (struct mfs_json_value){.kind = MFS_JSON_OTHER, .at = p->at};
	if (p->at < p->end && *p->at != '[' && *p->at != '{') {
		rc = scan_scalar(p, ret);
		if (ret->kind == MFS_JSON_OTHER)
			ret->end = p->at;
		return rc;
	}
	if (p->at < p->end && *p->at == '[')
		ret->kind = MFS_JSON_LIST;
	do {
		bool value = true;

		if (accept(p, '{'))
			rc = begin(p, &n, true, &value);
		else if (accept(p, '['))
			rc = begin(p, &n, false, &value);
		else
			rc = scan_scalar(p, &inner);
		if (!rc && value)
			rc = step_on(p, &n);
	} while (!rc && n.depth);
	ret->end = p->at;
	return rc;
}

/* ---- an object ---- */

static bool is_key(const struct mfs_json_value *key, const char *name)
{
	const size_t len = (size_t)(key->end - key->at);
	struct mfs_buf text = {0};
	bool same;

	if (!memchr(key->at, '\\', len))
		return len == strlen(name) && !memcmp(key->at, name, len);
	same = !mfs_json_text_decode(key, true, &text) && text.len == strlen(name) &&
	       !memcmp(text.data, name, text.len);
	mfs_buf_release(&text);
	return same;
}

static int scan_member(struct parser *p, const char *const *keys, size_t count,
		       struct mfs_json_value *ret)
{
	struct mfs_json_value key, value;
	int rc = scan_key(p, &key);

	if (!rc)
		rc = scan_value(p, &value);
	for (size_t i = 0; i < count && !rc; i++)
		if (is_key(&key, keys[i]))
			ret[i] = value;
	return rc;
}

static int scan_object(struct parser *p, const char *const *keys, size_t count,
		       struct mfs_json_value *ret)
{
	int rc = 0;

	if (!accept(p, '{'))
		return fault(p, "an object");
	if (accept(p, '}'))
		return 0;
	do
		rc = scan_member(p, keys, count, ret);
	while (!rc && accept(p, ','));
	if (!rc && !accept(p, '}'))
		rc = fault(p, "',' or '}'");
	return rc;
}

int mfs_json_text_find(const struct mfs_text_line *place, const char *line, size_t len,
		       const char *const *keys, size_t count, struct mfs_json_value *ret,
		       struct mfs_error *err)
{
	struct parser p = {place, line, line, line + len, err};
	const size_t valid = mfs_utf8_valid(line, len);
	int rc;

	memset(ret, 0, count * sizeof(*ret));
	if (valid < len) {
		p.at += valid;
		return fault(&p, "UTF-8");
	}
	rc = scan_object(&p, keys, count, ret);
	if (rc)
		return rc;
	skip_blanks(&p);
	return p.at < p.end ? fault(&p, "the end of the line") : 0;
}

bool mfs_json_text_next(const struct mfs_json_value *list, struct mfs_json_value *ret)
{
	struct parser p = {.at = list->at + 1, .end = list->end - 1};

	if (ret->at)
		p.at = ret->kind == MFS_JSON_STRING ? ret->end + 1 : ret->end;
	p.line = p.at;
	accept(&p, ',');
	skip_blanks(&p);
	if (p.at >= p.end || scan_value(&p, ret))
		return false;
	if (ret->kind != MFS_JSON_STRING)
		ret->end = p.at;
	return true;
}

/* ---- characters ---- */

/* After "\u", whose digits have been checked. Of a pair both. *ret_half: of a pair only one half
 * is there. */
static uint32_t take_unicode(const char **at, const char *end, bool *ret_half)
{
	uint32_t c, low;

	hex(*at, end, &c);
	*at += 4;
	*ret_half = c >= 0xd800 && c < 0xe000;
	if (!*ret_half || c >= 0xdc00 || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
		return c;
	hex(*at + 2, end, &low);
	if (low < 0xdc00 || low >= 0xe000)
		return c;
	*at += 6;
	*ret_half = false;
	return 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
}

int mfs_json_text_decode(const struct mfs_json_value *string, bool replace, struct mfs_buf *ret)
{
	static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	const char *at = string->at, *end = string->end;

	while (at < end) {
		const char *escape = memchr(at, '\\', (size_t)(end - at));
		const char *plain = escape ? escape : end;
		bool half;
		uint32_t c;

		mfs_buf_add(ret, at, (size_t)(plain - at));
		if (!escape)
			break;
		at = escape + 2;
		if (escape[1] != 'u') {
			mfs_buf_add(ret, &means[strchr(letters, escape[1]) - letters], 1);
			continue;
		}
		c = take_unicode(&at, end, &half);
		if (half && !replace)
			return -EINVAL;
		mfs_utf8_add(ret, half ? 0xfffd : c);
	}
	return ret->failed ? -ENOMEM : 0;
}
