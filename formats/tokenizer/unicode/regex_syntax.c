/* Rewrites regular expressions of Oniguruma (doc/RE of it) and of Rust for PCRE2. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/tokenizer/unicode/token_regex.h"
#include "formats/tokenizer/unicode/utf8.h"

/* White_Space: PCRE2's \s has U+180E as well. */
#define SPACES                                                                                     \
	"\\t-\\r \\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"       \
	"\\x{3000}"
/* \w. Oniguruma takes ISO 8859-1's numbers for words, but not in sets; Rust takes what joins
 * characters. */
#define SET_WORDS  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORDS	   SET_WORDS "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define RUST_WORDS SET_WORDS "\\x{200c}\\x{200d}"

/* \b and \B: between a word and what is none, and elsewhere. */
#define EDGE(w)	   "(?:(?<=[" w "])(?![" w "])|(?<![" w "])(?=[" w "]))"
#define NO_EDGE(w) "(?:(?<=[" w "])(?=[" w "])|(?<![" w "])(?![" w "]))"
#define HEX	   "0-9a-fA-F"

#define WRAPS_MAX 200 /* each moves what has been made of the atom */

struct rewriter {
	const char *at, *end;
	enum mfs_regex_style style;
	struct mfs_buf *out;
	struct mfs_error *err;
	size_t atom;	   /* in out: where the last atom begins */
	unsigned wraps;	   /* quantifiers of the last atom that have been put around it */
	bool has_atom;	   /* a quantifier may follow */
	size_t groups[64]; /* in out: where open groups begin */
	unsigned depth;
	const char *pattern;
	size_t pattern_len;
};

static int refuse(struct rewriter *r, const char *what)
{
	return mfs_fail(r->err, -ENOTSUP, "regular expression \"%.*s\": %s cannot be translated",
			(int)(r->pattern_len < 300 ? r->pattern_len : 300), r->pattern, what);
}

static int broken(struct rewriter *r, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "regular expression \"%.*s\": %s",
			(int)(r->pattern_len < 300 ? r->pattern_len : 300), r->pattern, what);
}

static bool next_is(const struct rewriter *r, const char *what)
{
	const size_t len = strlen(what);

	return (size_t)(r->end - r->at) >= len && !memcmp(r->at, what, len);
}

static bool accept(struct rewriter *r, const char *what)
{
	if (!next_is(r, what))
		return false;
	r->at += strlen(what);
	return true;
}

/* strchr() finds a NUL, too. */
static bool is_one_of(char c, const char *list)
{
	return c && strchr(list, c);
}

static void begin_atom(struct rewriter *r)
{
	r->atom = r->out->len;
	r->has_atom = true;
	r->wraps = 0;
}

/* ---- properties ---- */

/* Names of properties, without case, '_', '-' and ' '. PCRE2 takes scripts by their extensions
 * unless they are asked for by sc. */
static const struct {
	const char *name, *pcre;
} properties[] = {
	{"letter", "L"},
	{"mark", "M"},
	{"number", "N"},
	{"punctuation", "P"},
	{"symbol", "S"},
	{"separator", "Z"},
	{"other", "C"},
	{"uppercaseletter", "Lu"},
	{"lowercaseletter", "Ll"},
	{"titlecaseletter", "Lt"},
	{"modifierletter", "Lm"},
	{"otherletter", "Lo"},
	{"decimalnumber", "Nd"},
	{"nonspacingmark", "Mn"},
	{"alpha", "Alphabetic"},
	{"alphabetic", "Alphabetic"},
	{"digit", "Nd"},
	{"lower", "Lowercase"},
	{"upper", "Uppercase"},
	{"lowercase", "Lowercase"},
	{"uppercase", "Uppercase"},
	{"space", "White_Space"},
	{"whitespace", "White_Space"},
	{"emoji", "Emoji"},
};

static const char *const categories[] = {
	"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
	"Mc", "Me", "Mn", "N",	"Nd", "Nl", "No", "P",	"Pc", "Pd", "Pe", "Pf", "Pi",
	"Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",	"Zl", "Zp", "Zs",
};

static const char *const scripts[] = {
	"Adlam",     "Arabic",	 "Armenian", "Bengali",	   "Bopomofo", "Braille",  "Cherokee",
	"Common",    "Coptic",	 "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",
	"Gujarati",  "Gurmukhi", "Han",	     "Hangul",	   "Hebrew",   "Hiragana", "Inherited",
	"Javanese",  "Kannada",	 "Katakana", "Khmer",	   "Lao",      "Latin",	   "Malayalam",
	"Mongolian", "Myanmar",	 "Oriya",    "Sinhala",	   "Syriac",   "Tamil",	   "Telugu",
	"Thaana",    "Thai",	 "Tibetan",  "Tifinagh",   "Yi",
};

/* The name of a property in lower case. */
static bool fold_name(const char *name, size_t len, char text[32])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		const char c = name[i];

		if (c == '_' || c == '-' || c == ' ')
			continue;
		if (n == 31)
			return false;
		text[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
	}
	text[n] = '\0';
	return true;
}

/* Appends \p{...}. */
static bool add_property(struct rewriter *r, const char *name, size_t len, bool negative)
{
	const char *p = negative ? "\\P{" : "\\p{";
	char folded[32], known[32];

	if (!fold_name(name, len, folded))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(categories); i++)
		if (fold_name(categories[i], strlen(categories[i]), known) &&
		    !strcmp(known, folded)) {
			mfs_buf_printf(r->out, "%s%s}", p, categories[i]);
			return true;
		}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(properties); i++)
		if (!strcmp(properties[i].name, folded)) {
			mfs_buf_printf(r->out, "%s%s}", p, properties[i].pcre);
			return true;
		}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(scripts); i++)
		if (fold_name(scripts[i], strlen(scripts[i]), known) && !strcmp(known, folded)) {
			mfs_buf_printf(r->out, "%ssc:%s}", p, scripts[i]);
			return true;
		}
	return false;
}

/* After "\p" or "\P". */
static int rewrite_property(struct rewriter *r, bool negative)
{
	const char *name, *end;

	if (r->at < r->end && *r->at != '{') {
		name = r->at++;
		if (r->style == MFS_REGEX_ONIGURUMA || !add_property(r, name, 1, negative))
			return broken(r, "\\p without {");
		return 0;
	}
	if (!accept(r, "{"))
		return broken(r, "\\p without {");
	negative ^= accept(r, "^");
	name = r->at;
	end = memchr(name, '}', (size_t)(r->end - name));
	if (!end)
		return broken(r, "\\p{ without }");
	r->at = end + 1;
	return add_property(r, name, (size_t)(end - name), negative)
		       ? 0
		       : refuse(r, "a property of \\p");
}

/* ---- escapes ---- */

static int digits_of(struct rewriter *r, unsigned most, uint32_t *ret)
{
	unsigned n = 0;

	*ret = 0;
	for (; n < most && r->at < r->end && mfs_str_digit(*r->at) >= 0; n++)
		*ret = *ret << 4 | (uint32_t)mfs_str_digit(*r->at++);
	return n ? 0 : broken(r, "a number without digits");
}

/* After "\x" or "\u". */
static int rewrite_number(struct rewriter *r, bool four)
{
	const bool braces = accept(r, "{");
	uint32_t c;
	int rc = digits_of(r, braces ? 8 : four ? 4 : 2, &c);

	if (!rc && braces && !accept(r, "}"))
		rc = broken(r, "a number without }");
	if (!rc && !braces && !four && c > 0x7f && r->style == MFS_REGEX_ONIGURUMA)
		rc = refuse(r, "a byte");
	if (!rc && (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
		rc = broken(r, "a number that is no character");
	if (!rc)
		mfs_buf_printf(r->out, "\\x{%x}", c);
	return rc;
}

struct shorthand {
	char letter;
	const char *in_set;  /* NULL: only outside of sets */
	const char *outside; /* NULL: only in sets */
};

/* Classes and anchors that are the same or have another name. */
static const struct shorthand shorthands[] = {
	{'s', SPACES, "[" SPACES "]"},
	{'S', "\\P{White_Space}", "[^" SPACES "]"},
	{'d', "\\p{Nd}", "\\p{Nd}"},
	{'D', "\\P{Nd}", "\\P{Nd}"},
	{'n', "\\n", "\\n"},
	{'r', "\\r", "\\r"},
	{'t', "\\t", "\\t"},
	{'f', "\\f", "\\f"},
	{'a', "\\a", "\\a"},
	{'e', "\\e", "\\e"},
	{'v', "\\x0b", "\\x0b"},
	{'A', NULL, "\\A"},
	{'z', NULL, "\\z"},
};

/* Those that Oniguruma alone has, or has otherwise. */
static const struct shorthand onigurumas[] = {
	{'w', SET_WORDS, "[" WORDS "]"},
	{'W', NULL, "[^" WORDS "]"},
	{'b', NULL, EDGE(WORDS)},
	{'B', NULL, NO_EDGE(WORDS)},
	{'h', HEX, "[" HEX "]"},
	{'H', NULL, "[^" HEX "]"},
	{'Z', NULL, "\\Z"},
	{'G', NULL, "\\G"},
};

static const struct shorthand rusts[] = {
	{'w', RUST_WORDS, "[" RUST_WORDS "]"},
	{'W', NULL, "[^" RUST_WORDS "]"},
	{'b', NULL, EDGE(RUST_WORDS)},
	{'B', NULL, NO_EDGE(RUST_WORDS)},
};

static const struct shorthand *look_up(const struct shorthand *list, size_t count, char c)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].letter == c)
			return &list[i];
	return NULL;
}

static const struct shorthand *shorthand_of(const struct rewriter *r, char c)
{
	const struct shorthand *s = look_up(shorthands, MFS_ARRAY_SIZE(shorthands), c);

	if (s)
		return s;
	return r->style == MFS_REGEX_ONIGURUMA ? look_up(onigurumas, MFS_ARRAY_SIZE(onigurumas), c)
					       : look_up(rusts, MFS_ARRAY_SIZE(rusts), c);
}

static bool is_alphanumeric(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One character, as a literal. */
static void add_literal(struct rewriter *r)
{
	const size_t size = mfs_utf8_size(*r->at);

	if (size == 1 && !is_alphanumeric(*r->at))
		mfs_buf_printf(r->out, "\\x{%x}", (unsigned)*r->at);
	else
		mfs_buf_add(r->out, r->at, size);
	r->at += size;
}

/* After a backslash. */
static int rewrite_escape(struct rewriter *r, bool in_set)
{
	const struct shorthand *s;
	const char c = r->at < r->end ? *r->at : '\0';

	if (r->at == r->end)
		return broken(r, "it ends in a backslash");
	if (!is_alphanumeric(c)) {
		add_literal(r);
		return 0;
	}
	r->at++;
	if (c == 'p' || c == 'P')
		return rewrite_property(r, c == 'P');
	if (c == 'x' || c == 'u')
		return rewrite_number(r, c == 'u');
	s = shorthand_of(r, c);
	if (!s || !(in_set ? s->in_set : s->outside))
		return refuse(r, "an escape");
	mfs_buf_adds(r->out, in_set ? s->in_set : s->outside);
	return 0;
}

/* ---- sets ---- */

static const struct {
	const char *name, *pcre;
} posix[] = {
	{"[:alpha:]", "\\p{Alphabetic}"},
	{"[:digit:]", "\\p{Nd}"},
	{"[:space:]", SPACES},
	{"[:upper:]", "\\p{Uppercase}"},
	{"[:lower:]", "\\p{Lowercase}"},
	{"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
	{"[:xdigit:]", HEX},
	{"[:word:]", SET_WORDS},
};

static bool rewrite_posix(struct rewriter *r)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(posix); i++)
		if (accept(r, posix[i].name)) {
			mfs_buf_adds(r->out, posix[i].pcre);
			return true;
		}
	return false;
}

/* A range, where a character stands before and after it; else it is the character itself. */
static void rewrite_dash(struct rewriter *r, bool *is_character)
{
	const bool is_range =
		*is_character && r->at + 1 < r->end && r->at[1] != ']' && r->at[1] != '[';

	mfs_buf_adds(r->out, is_range ? "-" : "\\-");
	*is_character = !is_range;
	r->at++;
}

static int rewrite_set_members(struct rewriter *r, unsigned depth);

/* *is_character: a range may begin with what was before; and with this one. */
static int rewrite_member(struct rewriter *r, unsigned depth, bool *is_character)
{
	if (*r->at == '-' && !(r->style == MFS_REGEX_RUST && next_is(r, "--"))) {
		rewrite_dash(r, is_character);
		return 0;
	}
	*is_character = false;
	if (next_is(r, "&&") || next_is(r, "[^") || next_is(r, "[:^"))
		return refuse(r, "an intersection or a negative set in a set");
	if (r->style == MFS_REGEX_RUST && (next_is(r, "--") || next_is(r, "~~")))
		return refuse(r, "a difference of sets");
	if (next_is(r, "[:"))
		return rewrite_posix(r) ? 0 : refuse(r, "a POSIX bracket");
	if (accept(r, "["))
		return rewrite_set_members(r, depth + 1);
	if (accept(r, "\\")) {
		*is_character = r->at < r->end && !is_one_of(*r->at, "sSdDwWhHpP");
		return rewrite_escape(r, true);
	}
	*is_character = true;
	add_literal(r);
	return 0;
}

/* What stands in a set, to its ']'. A set in a set is a union, whose members may stand in the
 * outer. */
static int rewrite_set_members(struct rewriter *r, unsigned depth)
{
	bool is_character = false;
	int rc = 0;

	if (depth > 8)
		return refuse(r, "a set in a set");
	if (next_is(r, "]"))
		return refuse(r, "an empty set");
	while (!rc && r->at < r->end) {
		if (accept(r, "]"))
			return 0;
		rc = rewrite_member(r, depth, &is_character);
	}
	return rc ? rc : broken(r, "[ without ]");
}

static int rewrite_set(struct rewriter *r)
{
	int rc;

	begin_atom(r);
	mfs_buf_adds(r->out, accept(r, "^") ? "[^" : "[");
	rc = rewrite_set_members(r, 0);
	mfs_buf_adds(r->out, "]");
	return rc;
}

/* ---- groups ---- */

/* After "(?": flags, and ':' or ')'. Oniguruma's m is s elsewhere, and it has no s. */
static int rewrite_flags(struct rewriter *r)
{
	const bool first = r->out->len == 1;

	mfs_buf_adds(r->out, "?");
	for (; r->at < r->end && *r->at != ':' && *r->at != ')'; r->at++) {
		const char c = *r->at;

		if (c == 'i' || c == '-')
			mfs_buf_add(r->out, &c, 1);
		else if (c == (r->style == MFS_REGEX_ONIGURUMA ? 'm' : 's'))
			mfs_buf_adds(r->out, "s");
		else
			return refuse(r, "a flag of a group");
	}
	if (accept(r, ":")) {
		mfs_buf_adds(r->out, ":");
		return 0;
	}
	if (!accept(r, ")"))
		return broken(r, "( without )");
	/* Where they stand within a branch, they end elsewhere. */
	if (!first)
		return refuse(r, "flags within an expression");
	mfs_buf_adds(r->out, ")");
	r->depth--;
	r->has_atom = false;
	return 0;
}

static int rewrite_group(struct rewriter *r)
{
	static const char *const heads[] = {"?:", "?=", "?!", "?<=", "?<!", "?>"};

	if (r->depth == MFS_ARRAY_SIZE(r->groups))
		return refuse(r, "a group in so many groups");
	r->groups[r->depth++] = r->out->len;
	mfs_buf_adds(r->out, "(");
	r->has_atom = false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(heads); i++)
		if (accept(r, heads[i])) {
			mfs_buf_adds(r->out, heads[i]);
			return 0;
		}
	if (accept(r, "?"))
		return rewrite_flags(r);
	if (next_is(r, "*"))
		return refuse(r, "a verb");
	mfs_buf_adds(r->out, "?:"); /* nobody asks what a group has matched */
	return 0;
}

static int end_group(struct rewriter *r)
{
	if (!r->depth)
		return broken(r, ") without (");
	r->atom = r->groups[--r->depth];
	r->has_atom = true;
	r->wraps = 0;
	mfs_buf_adds(r->out, ")");
	return 0;
}

/* ---- quantifiers ---- */

/* Puts "(?:" and ")" around the last atom. */
static int wrap_atom(struct rewriter *r)
{
	struct mfs_buf *b = r->out;

	if (++r->wraps > WRAPS_MAX)
		return refuse(r, "a quantifier of so many quantifiers");
	mfs_buf_adds(b, "(?:)");
	if (b->failed)
		return 0;
	memmove(b->data + r->atom + 3, b->data + r->atom, b->len - 4 - r->atom);
	memcpy(b->data + r->atom, "(?:", 3);
	b->data[b->len - 1] = ')';
	return 0;
}

/* {n}, {n,}, {n,m}, {,m}: the length of its text; 0: the brace is a literal. */
static size_t interval(const struct rewriter *r, bool *ret_exact)
{
	const char *p = r->at + 1;
	size_t digits = 0;

	*ret_exact = true;
	for (; p < r->end && ((*p >= '0' && *p <= '9') || *p == ','); p++) {
		digits += *p != ',';
		if (*p == ',' && !*ret_exact)
			return 0;
		*ret_exact &= *p != ',';
	}
	return p < r->end && *p == '}' && digits ? (size_t)(p + 1 - r->at) : 0;
}

/* Oniguruma takes a + after {n,m} for a quantifier of its own, and so a ? after {n}. */
static int rewrite_interval(struct rewriter *r)
{
	bool exact;
	const size_t len = interval(r, &exact);

	if (!len || !r->has_atom) {
		begin_atom(r);
		add_literal(r);
		return 0;
	}
	mfs_buf_adds(r->out, "{");
	if (r->at[1] == ',')
		mfs_buf_adds(r->out, "0");
	mfs_buf_add(r->out, r->at + 1, len - 1);
	r->at += len;
	/* the atom may be quantified again */
	if (r->style == MFS_REGEX_ONIGURUMA && (next_is(r, "+") || (exact && next_is(r, "?"))))
		return wrap_atom(r);
	if (accept(r, "?"))
		mfs_buf_adds(r->out, "?");
	else if (accept(r, "+"))
		mfs_buf_adds(r->out, "+");
	return wrap_atom(r);
}

static int rewrite_quantifier(struct rewriter *r)
{
	if (!r->has_atom)
		return broken(r, "a quantifier without what it repeats");
	mfs_buf_add(r->out, r->at++, 1);
	if (accept(r, "?"))
		mfs_buf_adds(r->out, "?");
	else if (accept(r, "+"))
		mfs_buf_adds(r->out, "+");
	/* another quantifier is one of the whole */
	if (next_is(r, "*") || next_is(r, "+") || next_is(r, "?") || next_is(r, "{"))
		return wrap_atom(r);
	return 0;
}

static int rewrite_one(struct rewriter *r)
{
	const char c = *r->at;

	if (is_one_of(c, "*+?"))
		return rewrite_quantifier(r);
	if (c == '{')
		return rewrite_interval(r);
	if (c == '(') {
		r->at++;
		return rewrite_group(r);
	}
	if (c == ')') {
		r->at++;
		return end_group(r);
	}
	if (c == '[') {
		r->at++;
		return rewrite_set(r);
	}
	if (c == '|') {
		r->at++;
		r->has_atom = false;
		mfs_buf_adds(r->out, "|");
		return 0;
	}
	begin_atom(r);
	if (c == '\\') {
		r->at++;
		return rewrite_escape(r, false);
	}
	if (c == '.' || c == '^' || c == '$') {
		r->at++;
		/* Rust has no lines unless it is asked for them. */
		mfs_buf_adds(r->out, c == '.' ? "."
				     : r->style == MFS_REGEX_ONIGURUMA
					     ? (c == '^' ? "^" : "$")
					     : (c == '^' ? "\\A" : "\\z"));
		return 0;
	}
	add_literal(r);
	return 0;
}

int mfs_regex_translate(const char *pattern, size_t len, enum mfs_regex_style style,
			struct mfs_buf *ret, struct mfs_error *err)
{
	struct rewriter r = {.at = pattern,
			     .end = pattern + len,
			     .style = style,
			     .out = ret,
			     .err = err,
			     .pattern = pattern,
			     .pattern_len = len};
	int rc = 0;

	while (!rc && r.at < r.end)
		rc = rewrite_one(&r);
	if (!rc && r.depth)
		rc = broken(&r, "( without )");
	return rc ? rc : ret->failed ? mfs_fail_nomem(err) : 0;
}
