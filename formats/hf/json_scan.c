#include "formats/hf/json_scan.h"

#include <string.h>

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct mfs_scan *s)
{
	while (s->at < s->end && is_space(*s->at))
		s->at++;
}

char mfs_scan_peek(struct mfs_scan *s)
{
	skip_space(s);
	return s->at < s->end ? *s->at : '\0';
}

bool mfs_scan_accept(struct mfs_scan *s, char c)
{
	if (mfs_scan_peek(s) != c)
		return false;
	s->at++;
	return true;
}

bool mfs_scan_string(struct mfs_scan *s, struct mfs_scan *ret)
{
	if (!mfs_scan_accept(s, '"'))
		return false;
	ret->at = s->at;
	for (; s->at < s->end && *s->at != '"'; s->at++)
		if (*s->at == '\\' && ++s->at == s->end)
			return false;
	if (s->at >= s->end)
		return false;
	ret->end = s->at++;
	return true;
}

/* One token: a string, a bracket, a number or a word. False where there is none. */
static bool scan_token(struct mfs_scan *s, size_t *depth)
{
	struct mfs_scan text;

	switch (mfs_scan_peek(s)) {
	case '\0':
		return false;
	case '"':
		return mfs_scan_string(s, &text);
	case '{':
	case '[':
		++*depth;
		break;
	case '}':
	case ']':
		if (!(*depth)--)
			return false;
		break;
	case ',':
	case ':':
		if (!*depth)
			return false;
		break;
	default:
		while (s->at < s->end && !is_space(*s->at) && !strchr("\"{}[],:", *s->at))
			s->at++;
		return true;
	}
	s->at++;
	return true;
}

bool mfs_scan_value(struct mfs_scan *s, struct mfs_scan *ret)
{
	size_t depth = 0;

	skip_space(s);
	ret->at = s->at;
	do {
		if (!scan_token(s, &depth))
			return false;
	} while (depth);
	ret->end = s->at;
	return true;
}

bool mfs_scan_member(struct mfs_scan *s, bool *first, struct mfs_scan *key, bool *broken)
{
	*broken = false;
	if (mfs_scan_accept(s, '}'))
		return false;
	*broken = (!*first && !mfs_scan_accept(s, ',')) || !mfs_scan_string(s, key) ||
		  !mfs_scan_accept(s, ':');
	*first = false;
	return !*broken;
}

bool mfs_scan_is(const struct mfs_scan *text, const char *what)
{
	const size_t len = (size_t)(text->end - text->at);

	return len == strlen(what) && !memcmp(text->at, what, len);
}

bool mfs_scan_find(struct mfs_scan object, const char *name, struct mfs_scan *ret)
{
	bool first = true, broken;
	struct mfs_scan key;

	if (!mfs_scan_accept(&object, '{'))
		return false;
	while (mfs_scan_member(&object, &first, &key, &broken)) {
		if (!mfs_scan_value(&object, ret))
			return false;
		if (mfs_scan_is(&key, name))
			return true;
	}
	return false;
}

bool mfs_scan_is_whole(struct mfs_scan text)
{
	struct mfs_scan object;

	return mfs_scan_peek(&text) == '{' && mfs_scan_value(&text, &object) &&
	       !mfs_scan_peek(&text);
}

bool mfs_scan_id(const struct mfs_scan *value, int64_t *ret)
{
	int64_t id = 0;
	const char *p;

	for (p = value->at; p < value->end && *p >= '0' && *p <= '9'; p++) {
		id = id * 10 + (*p - '0');
		if (id >= MFS_SCAN_MAX_ID)
			return false;
	}
	*ret = id;
	return p == value->end && p > value->at;
}

/* ---- the characters of a string ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads the four digits after "\u". */
static bool unit(struct mfs_scan *s, uint32_t *ret)
{
	if (s->end - s->at < 4)
		return false;
	*ret = 0;
	for (int i = 0; i < 4; i++) {
		const int digit = hex_digit(*s->at++);

		if (digit < 0)
			return false;
		*ret = *ret << 4 | (uint32_t)digit;
	}
	return true;
}

/* The character of "\uXXXX", or of two such that are a surrogate pair. */
static bool escaped_unicode(struct mfs_scan *s, uint32_t *ret)
{
	uint32_t low;

	if (!unit(s, ret) || (*ret >= 0xdc00 && *ret < 0xe000))
		return false;
	if (*ret < 0xd800 || *ret >= 0xe000)
		return true;
	if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
		return false;
	s->at += 2;
	if (!unit(s, &low) || low < 0xdc00 || low >= 0xe000)
		return false;
	*ret = 0x10000 + ((*ret - 0xd800) << 10 | (low - 0xdc00));
	return true;
}

static bool escaped(struct mfs_scan *s, uint32_t *ret)
{
	static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	const char *letter;

	if (s->at == s->end || !*s->at)
		return false;
	if (*s->at == 'u') {
		s->at++;
		return escaped_unicode(s, ret);
	}
	letter = strchr(letters, *s->at++);
	if (letter)
		*ret = (uint32_t)means[letter - letters];
	return letter != NULL;
}

/* A character of UTF-8 (RFC 3629): none in more bytes than it needs, no surrogates. */
static bool utf8(struct mfs_scan *s, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
	const uint8_t lead = (uint8_t)*s->at++;
	const int more = lead < 0x80		       ? 0
			 : lead >= 0xc0 && lead < 0xe0 ? 1
			 : lead >= 0xe0 && lead < 0xf0 ? 2
			 : lead >= 0xf0 && lead < 0xf8 ? 3
						       : -1;

	if (more < 0 || s->end - s->at < more)
		return false;
	*ret = more ? lead & (0x3fu >> more) : lead;
	for (int i = 0; i < more; i++) {
		const uint8_t next = (uint8_t)*s->at++;

		if ((next & 0xc0) != 0x80)
			return false;
		*ret = *ret << 6 | (next & 0x3fu);
	}
	return *ret >= least[more] && *ret < 0x110000 && (*ret < 0xd800 || *ret >= 0xe000);
}

static size_t put_utf8(uint32_t c, char *out)
{
	const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};

	out[0] = (char)(leads[more] | c >> 6 * more);
	for (int i = 1; i <= more; i++)
		out[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
	return (size_t)more + 1;
}

size_t mfs_scan_decode_any(const struct mfs_scan *string, char *out)
{
	struct mfs_scan s = *string;
	size_t len = 0;
	uint32_t c;

	while (s.at < s.end) {
		const bool escape = *s.at == '\\';

		s.at += escape;
		if (!(escape ? escaped(&s, &c) : utf8(&s, &c)))
			return SIZE_MAX;
		len += put_utf8(c, out + len);
	}
	return len;
}

size_t mfs_scan_decode(const struct mfs_scan *string, char *out)
{
	const size_t len = mfs_scan_decode_any(string, out);

	return len != SIZE_MAX && memchr(out, 0, len) ? SIZE_MAX : len;
}
