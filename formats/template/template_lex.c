/*
 * Text and tags. Source: jinja2/lexer.py, with trim_blocks and lstrip_blocks, and without
 * keep_trailing_newline.
 */
#include "formats/template/template_i.h"

#include <ctype.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"

struct lexer {
	struct mfs_arena *arena;
	const char *begin, *at, *end;
	uint32_t line;
	bool line_starts; /* what came last ended a line */
	struct mfs_tpl_token *tokens;
	size_t count;
	struct mfs_error *err;
};

static int emit(struct lexer *l, enum mfs_tpl_token_kind kind, const char *text, size_t len)
{
	if (mfs_grow(&l->tokens, l->count))
		return mfs_fail_nomem(l->err);
	l->tokens[l->count++] = (struct mfs_tpl_token){kind, l->line, text, len};
	return 0;
}

static void move_to(struct lexer *l, const char *to)
{
	for (; l->at < to; l->at++)
		l->line += *l->at == '\n';
}

static bool begins(const struct lexer *l, const char *at, const char *what)
{
	const size_t len = strlen(what);

	return (size_t)(l->end - at) >= len && !memcmp(at, what, len);
}

static const char *skip_spaces(const char *at, const char *end)
{
	const char *next = at;

	while (at < end && mfs_tpl_is_space(mfs_tpl_next_char(&next, end)))
		at = next;
	return at;
}

static size_t strip_right(const char *text, size_t len)
{
	size_t kept = 0;

	for (const char *at = text, *end = text + len; at < end;)
		if (!mfs_tpl_is_space(mfs_tpl_next_char(&at, end)))
			kept = (size_t)(at - text);
	return kept;
}

/* ---- text ---- */

/* The next "{{", "{%" or "{#", or the end. */
static const char *find_tag(const struct lexer *l)
{
	for (const char *at = l->at; at + 1 < l->end; at++)
		if (*at == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#'))
			return at;
	return l->end;
}

/* What stays of a text before a tag (tokeniter: strip_sign). */
static size_t trimmed(const struct lexer *l, const char *text, const char *tag)
{
	const size_t len = (size_t)(tag - text);
	size_t last = len; /* where the last line begins */

	if (tag == l->end)
		return len;
	if (tag + 2 < l->end && tag[2] == '-')
		return strip_right(text, len);
	if (tag[1] == '{' || (tag + 2 < l->end && tag[2] == '+'))
		return len;
	while (last && text[last - 1] != '\n')
		last--;
	if ((last || l->line_starts) && skip_spaces(text + last, tag) == tag)
		return last;
	return len;
}

/* Steps over the end of a tag, `close`, and what is trimmed after it. `-` before it trims all white
 * space; a newline is trimmed after blocks and comments, unless `+` is before it. */
static void close_tag(struct lexer *l, const char *close, bool trims_line)
{
	const bool all = *l->at == '-', none = *l->at == '+';
	const char *to = l->at + (all || none) + strlen(close);

	if (all)
		to = skip_spaces(to, l->end);
	else if (trims_line && !none && to < l->end && *to == '\n')
		to++;
	move_to(l, to);
	l->line_starts = to[-1] == '\n';
}

static bool at_close(const struct lexer *l, const char *close, bool plus)
{
	return begins(l, l->at, close) ||
	       (l->at < l->end && (*l->at == '-' || (plus && *l->at == '+')) &&
		begins(l, l->at + 1, close));
}

static int skip_comment(struct lexer *l)
{
	const uint32_t line = l->line;

	move_to(l, l->at + 2);
	for (; l->at < l->end; move_to(l, l->at + 1))
		if (at_close(l, "#}", true)) {
			close_tag(l, "#}", true);
			return 0;
		}
	return mfs_fail(l->err, -EINVAL, "line %u: a comment has no end", line);
}

/* ---- tags ---- */

static int bad_character(const struct lexer *l)
{
	if ((unsigned char)*l->at >= 0x80)
		return mfs_fail(l->err, -ENOTSUP, "line %u: a name that is not ASCII", l->line);
	return mfs_fail(l->err, -EINVAL, "line %u: '%c' has no meaning in a tag", l->line, *l->at);
}

static void put_utf8(char **out, uint32_t c)
{
	char *o = *out;

	if (c < 0x80) {
		*o++ = (char)c;
	} else if (c < 0x800) {
		*o++ = (char)(0xc0 | c >> 6);
		*o++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*o++ = (char)(0xe0 | c >> 12);
		*o++ = (char)(0x80 | (c >> 6 & 63));
		*o++ = (char)(0x80 | (c & 63));
	} else {
		*o++ = (char)(0xf0 | c >> 18);
		*o++ = (char)(0x80 | (c >> 12 & 63));
		*o++ = (char)(0x80 | (c >> 6 & 63));
		*o++ = (char)(0x80 | (c & 63));
	}
	*out = o;
}

/* \xhh, \uhhhh or \Uhhhhhhhh; *at is after the letter. */
static bool hex_escape(const char **at, const char *end, int digits, uint32_t *ret)
{
	*ret = 0;
	for (int i = 0; i < digits; i++, (*at)++) {
		const int digit = *at < end ? mfs_str_digit(**at) : -1;

		if (digit < 0)
			return false;
		*ret = *ret << 4 | (uint32_t)digit;
	}
	return *ret && *ret < 0x110000 && (*ret < 0xd800 || *ret > 0xdfff);
}

static bool octal_escape(const char **at, const char *end, uint32_t *ret)
{
	*ret = 0;
	for (int i = 0; i < 3 && *at < end && **at >= '0' && **at <= '7'; i++)
		*ret = *ret << 3 | (uint32_t)(*(*at)++ - '0');
	return *ret;
}

/* An escape of Python's "unicode-escape"; *at is after the backslash. */
static bool escape(const char **at, const char *end, char **out)
{
	static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
	const char c = **at, *found = strchr(letters, c);
	uint32_t code;

	if (c >= '0' && c <= '7') {
		if (!octal_escape(at, end, &code))
			return false;
		put_utf8(out, code);
		return true;
	}
	(*at)++;
	if (found && c) {
		*(*out)++ = meant[found - letters];
	} else if (c == 'x' || c == 'u' || c == 'U') {
		if (!hex_escape(at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, &code))
			return false;
		put_utf8(out, code);
	} else if (c == 'N') {
		return false;
	} else if (c != '\n') {
		*(*out)++ = '\\';
		*(*out)++ = c;
	}
	return true;
}

static int lex_string(struct lexer *l)
{
	const char quote = *l->at, *at = l->at + 1, *end = at;
	char *text, *out;

	while (end < l->end && *end != quote)
		end += *end == '\\' ? 2 : 1;
	if (end >= l->end)
		return mfs_fail(l->err, -EINVAL, "line %u: a text has no end", l->line);
	/* An escape is never longer than what it stands for. */
	text = out = mfs_arena_alloc(l->arena, (size_t)(end - at) + 1);
	if (!text)
		return mfs_fail_nomem(l->err);
	while (at < end)
		if (*at != '\\')
			*out++ = *at++;
		else if (at++, !escape(&at, end, &out))
			return mfs_fail(l->err, -ENOTSUP,
					"line %u: an escape in a text is not known", l->line);
	move_to(l, end + 1);
	return emit(l, MFS_TPL_STRING, text, (size_t)(out - text));
}

static int lex_number(struct lexer *l)
{
	const char *at = l->at;
	enum mfs_tpl_token_kind kind = MFS_TPL_INTEGER;

	while (at < l->end && isdigit((unsigned char)*at))
		at++;
	if (at + 1 < l->end && *at == '.' && isdigit((unsigned char)at[1]) &&
	    !(l->count && l->tokens[l->count - 1].kind == MFS_TPL_OPERATOR &&
	      *l->tokens[l->count - 1].text == '.')) {
		kind = MFS_TPL_FLOAT;
		for (at++; at < l->end && isdigit((unsigned char)*at);)
			at++;
	}
	if (at < l->end && (isalnum((unsigned char)*at) || *at == '_'))
		return mfs_fail(l->err, -ENOTSUP, "line %u: a number that is not decimal", l->line);
	if (kind == MFS_TPL_INTEGER && *l->at == '0' && at - l->at > 1)
		return mfs_fail(l->err, -EINVAL, "line %u: a number begins with 0", l->line);
	if (at - l->at > 18)
		return mfs_fail(l->err, -ENOTSUP, "line %u: a number of more than 18 digits",
				l->line);
	kind = emit(l, kind, l->at, (size_t)(at - l->at)) ? MFS_TPL_END : kind;
	move_to(l, at);
	return kind == MFS_TPL_END ? -ENOMEM : 0;
}

static int lex_name(struct lexer *l)
{
	const char *at = l->at;
	int rc;

	while (at < l->end && (isalnum((unsigned char)*at) || *at == '_'))
		at++;
	rc = emit(l, MFS_TPL_NAME, l->at, (size_t)(at - l->at));
	move_to(l, at);
	return rc;
}

static int lex_operator(struct lexer *l, char *open, size_t *depth)
{
	static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
	size_t len = 1;
	int rc;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(two); i++)
		if (begins(l, l->at, two[i]))
			len = 2;
	if (len == 1 && !strchr("+-*/%~[](){}<>=.:|,", *l->at))
		return bad_character(l);
	if (len == 1 && strchr("([{", *l->at)) {
		if (*depth == MFS_TPL_NESTED)
			return mfs_fail(l->err, -ENOTSUP, "line %u: more than %d brackets", l->line,
					MFS_TPL_NESTED);
		open[(*depth)++] = *l->at == '(' ? ')' : *l->at == '[' ? ']' : '}';
	} else if (len == 1 && strchr(")]}", *l->at)) {
		if (!*depth || open[--*depth] != *l->at)
			return mfs_fail(l->err, -EINVAL, "line %u: '%c' closes nothing", l->line,
					*l->at);
	}
	rc = emit(l, MFS_TPL_OPERATOR, l->at, len);
	move_to(l, l->at + len);
	return rc;
}

/* What stands in a tag, up to its end, which does not count within brackets. */
static int lex_inside(struct lexer *l, const char *close, bool block)
{
	char open[MFS_TPL_NESTED];
	size_t depth = 0;
	int rc = 0;

	while (!rc) {
		move_to(l, skip_spaces(l->at, l->end));
		if (l->at >= l->end)
			return mfs_fail(l->err, -EINVAL, "line %u: a tag has no '%s'", l->line,
					close);
		if (!depth && at_close(l, close, block))
			break;
		if (*l->at == '\'' || *l->at == '"')
			rc = lex_string(l);
		else if (isdigit((unsigned char)*l->at))
			rc = lex_number(l);
		else if (isalpha((unsigned char)*l->at) || *l->at == '_')
			rc = lex_name(l);
		else
			rc = lex_operator(l, open, &depth);
	}
	if (rc)
		return rc;
	close_tag(l, close, block);
	return emit(l, block ? MFS_TPL_BLOCK_CLOSE : MFS_TPL_PRINT_CLOSE, close, 2);
}

/* Whether a block's name comes next, and where it ends. */
static const char *named(const struct lexer *l, const char *at, const char *name)
{
	at += 2;
	if (at < l->end && (*at == '-' || *at == '+'))
		at++;
	at = skip_spaces(at, l->end);
	if (!begins(l, at, name))
		return NULL;
	at = skip_spaces(at + strlen(name), l->end);
	if (at < l->end && (*at == '-' || *at == '+') && begins(l, at + 1, "%}"))
		return at;
	return begins(l, at, "%}") ? at : NULL;
}

/* {% raw %}: text up to {% endraw %}. No newline is trimmed after the first tag. */
static int lex_raw(struct lexer *l, const char *close)
{
	const char *text, *tag, *after;
	int rc;

	move_to(l, close);
	close_tag(l, "%}", false);
	text = l->at;
	for (tag = text;; tag++) {
		if (tag >= l->end)
			return mfs_fail(l->err, -EINVAL, "line %u: 'raw' has no end", l->line);
		if (begins(l, tag, "{%") && (after = named(l, tag, "endraw")))
			break;
	}
	rc = emit(l, MFS_TPL_DATA, text, trimmed(l, text, tag));
	move_to(l, after);
	close_tag(l, "%}", true);
	return rc;
}

static int lex_tag(struct lexer *l)
{
	const bool block = l->at[1] == '%';
	const char *raw = block ? named(l, l->at, "raw") : NULL;
	int rc;

	if (l->at[1] == '#')
		return skip_comment(l);
	if (raw)
		return lex_raw(l, raw);
	rc = emit(l, block ? MFS_TPL_BLOCK_OPEN : MFS_TPL_PRINT_OPEN, l->at, 2);
	move_to(l, l->at + 2);
	if (l->at < l->end && (*l->at == '-' || (*l->at == '+' && block)))
		move_to(l, l->at + 1);
	return rc ? rc : lex_inside(l, block ? "%}" : "}}", block);
}

static int lex_all(struct lexer *l)
{
	int rc = 0;

	while (!rc && l->at < l->end) {
		const char *text = l->at, *tag = find_tag(l);
		const size_t len = trimmed(l, text, tag);

		if (len)
			rc = emit(l, MFS_TPL_DATA, text, len);
		move_to(l, tag);
		if (!rc && tag < l->end)
			rc = lex_tag(l);
	}
	return rc ? rc : emit(l, MFS_TPL_END, "", 0);
}

/* Lines end with "\n", and the last one does not. */
static size_t normalise(const char *text, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
			continue;
		out[n++] = text[i] == '\r' ? '\n' : text[i];
	}
	return n && out[n - 1] == '\n' ? n - 1 : n;
}

int mfs_tpl_lex(const char *text, size_t len, struct mfs_arena *arena, struct mfs_tpl_token **ret,
		struct mfs_error *err)
{
	struct lexer l = {.arena = arena, .line = 1, .line_starts = true, .err = err};
	char *copy = mfs_arena_alloc(arena, len + 1);
	int rc;

	if (!copy)
		return mfs_fail_nomem(err);
	l.begin = l.at = copy;
	l.end = copy + normalise(text, len, copy);
	rc = lex_all(&l);
	if (rc) {
		free(l.tokens);
		return rc;
	}
	*ret = l.tokens;
	return 0;
}
