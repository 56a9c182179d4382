#include "fs/http/range.h"

#include <string.h>
#include <strings.h>

#include "formats/base/str.h"

/* Reads digits. A number that does not fit is as large as one can be: it lies beyond any file. */
static bool take_number(const char **at, uint64_t *ret)
{
	bool over = false;
	uint64_t n = 0;

	if (**at < '0' || **at > '9')
		return false;
	for (; **at >= '0' && **at <= '9'; (*at)++)
		over |= __builtin_mul_overflow(n, 10, &n) ||
			__builtin_add_overflow(n, (uint64_t)(**at - '0'), &n);
	*ret = over ? UINT64_MAX : n;
	return true;
}

static void skip_spaces(const char **at)
{
	*at += strspn(*at, " \t");
}

static enum mfs_range_kind beyond(uint64_t *off, uint64_t *len)
{
	*off = *len = 0;
	return MFS_RANGE_BEYOND;
}

static enum mfs_range_kind suffix(uint64_t n, uint64_t size, uint64_t *off, uint64_t *len)
{
	if (!n || !size)
		return beyond(off, len);
	*len = n < size ? n : size;
	*off = size - *len;
	return MFS_RANGE_PART;
}

enum mfs_range_kind mfs_range_parse(const char *header, uint64_t size, uint64_t *off, uint64_t *len)
{
	uint64_t first = 0, last = UINT64_MAX;
	bool has_first;

	*off = 0;
	*len = size;
	if (!header || strncasecmp(header, "bytes", 5))
		return MFS_RANGE_WHOLE;
	header += 5;
	if (*header++ != '=')
		return MFS_RANGE_WHOLE;
	skip_spaces(&header);
	has_first = take_number(&header, &first);
	if (*header++ != '-')
		return MFS_RANGE_WHOLE;
	if (!take_number(&header, &last) && !has_first)
		return MFS_RANGE_WHOLE;
	skip_spaces(&header);
	if (*header)
		return MFS_RANGE_WHOLE;
	if (!has_first)
		return suffix(last, size, off, len);
	if (last < first)
		return MFS_RANGE_WHOLE;
	if (first >= size)
		return beyond(off, len);
	*off = first;
	*len = (last < size - 1 ? last : size - 1) - first + 1;
	return MFS_RANGE_PART;
}

struct tag {
	const char *text;
	size_t len;
	bool weak, quoted;
};

/* Takes one entity tag off a list: "x", W/"x", or a word without quotes, which some clients send.
 * False: there is no more. */
static bool next_tag(const char **at, struct tag *ret)
{
	const char *p = *at + strspn(*at, " \t,");

	ret->weak = p[0] == 'W' && p[1] == '/';
	if (ret->weak)
		p += 2;
	if (!*p)
		return false;
	ret->quoted = *p == '"';
	ret->text = p + ret->quoted;
	ret->len = strcspn(ret->text, ret->quoted ? "\"" : ", \t");
	*at = ret->text + ret->len;
	if (ret->quoted && **at)
		(*at)++;
	return true;
}

bool mfs_etag_listed(const char *header, const char *etag, bool weak)
{
	const size_t want = strlen(etag);
	struct tag t;

	while (next_tag(&header, &t)) {
		if (!t.quoted && t.len == 1 && *t.text == '*')
			return true;
		if (t.len == want && !memcmp(t.text, etag, want) && (weak || !t.weak))
			return true;
	}
	return false;
}

struct mfs_wanted mfs_conditions_judge(const struct mfs_conditions *c, const char *etag,
				       uint64_t size)
{
	struct mfs_wanted w = {.status = 200, .len = size};
	const char *range = c->range;

	if (c->match && !mfs_etag_listed(c->match, etag, false))
		return (struct mfs_wanted){.status = 412};
	if (c->none_match && mfs_etag_listed(c->none_match, etag, true))
		return (struct mfs_wanted){.status = 304};
	/* The very date: an earlier one is of other bytes, too, where a file was put back. */
	if (!c->none_match && c->modified && *c->modified &&
	    mfs_str_is(c->modified_since, c->modified))
		return (struct mfs_wanted){.status = 304};
	/* If-Range holds one strong tag, or a date, which is never ours. */
	if (c->if_range && (*c->if_range == '*' || !mfs_etag_listed(c->if_range, etag, false)))
		range = NULL;
	switch (mfs_range_parse(range, size, &w.off, &w.len)) {
	case MFS_RANGE_PART:
		w.status = 206;
		break;
	case MFS_RANGE_BEYOND:
		w.status = 416;
		break;
	case MFS_RANGE_WHOLE:
		break;
	}
	return w;
}
