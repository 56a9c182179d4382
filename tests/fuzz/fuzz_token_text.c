/*
 * Input: a byte that says the format and how long the pieces are, then the text. Cut into pieces it
 * must be read as when it is whole; JSON lines must be what jansson reads, line by line.
 */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/indexed/token_text.h"

struct result {
	int rc;
	struct mfs_error err;
	struct mfs_buf events; /* "1 2 |;" */
	struct mfs_token_position ended;
};

static int take_tokens(void *arg, const int64_t *ids, size_t count, struct mfs_error *err)
{
	(void)err;
	fuzz_require(count);
	for (size_t i = 0; i < count; i++)
		mfs_buf_printf(arg, "%" PRId64 " ", ids[i]);
	return 0;
}

static int take_sequence(void *arg, struct mfs_error *err)
{
	(void)err;
	mfs_buf_adds(arg, "|");
	return 0;
}

static int take_document(void *arg, struct mfs_error *err)
{
	(void)err;
	mfs_buf_adds(arg, ";");
	return 0;
}

static struct result read_text(enum mfs_token_format format, const uint8_t *text, size_t len,
			       size_t piece)
{
	const struct mfs_token_text_config c = {.name = "input",
						.key = "ids",
						.low = -1000,
						.high = 1 << 24,
						.limits = "limits",
						.start = {.format = format}};
	struct result r = {0};
	const struct mfs_token_hooks hooks = {&r.events, take_tokens, take_sequence, take_document};
	struct mfs_token_text *t;

	fuzz_require(!mfs_token_text_new(&c, &hooks, &t, &r.err));
	for (size_t at = 0; at < len && !r.rc; at += piece) {
		const size_t n = mfs_min_u64(piece, len - at);
		uint8_t *copy = malloc(n);

		memcpy(copy, text + at, n);
		r.rc = mfs_token_text_feed(t, copy, n, &r.err);
		free(copy);
	}
	if (!r.rc)
		r.rc = mfs_token_text_end(t, &r.err);
	r.ended = *mfs_token_text_ended(t);
	mfs_token_text_free(t);
	mfs_buf_add(&r.events, "", 1);
	return r;
}

static void check_same(const struct result *a, const struct result *b)
{
	fuzz_require(a->rc == b->rc && !strcmp(a->err.msg, b->err.msg));
	fuzz_require(a->ended.offset == b->ended.offset && a->ended.line == b->ended.line &&
		     a->ended.column == b->ended.column && a->ended.format == b->ended.format &&
		     a->ended.last == b->ended.last);
	/* Ids of a document that has no end may be handed over or not. */
	if (!a->rc)
		fuzz_require(!strcmp(a->events.data, b->events.data));
}

/* ---- jansson ---- */

enum oracle { READ, REFUSED, UNKNOWN };

/* A list of ids that are within the limits. */
static bool list_ids(const json_t *list, struct mfs_buf *out)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);
		const json_int_t value = json_integer_value(id);

		if (!json_is_integer(id) || value < -1000 || value > 1 << 24)
			return false;
		mfs_buf_printf(out, "%lld ", (long long)value);
	}
	return true;
}

static bool list_document(const json_t *v, struct mfs_buf *out)
{
	if (!json_is_array(v))
		return false;
	if (!json_is_array(json_array_get(v, 0))) {
		if (!list_ids(v, out))
			return false;
		mfs_buf_adds(out, json_array_size(v) ? "|" : "");
		return true;
	}
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (!json_is_array(json_array_get(v, i)) || !list_ids(json_array_get(v, i), out))
			return false;
		mfs_buf_adds(out, "|");
	}
	return true;
}

static enum oracle read_line(const char *line, size_t len, struct mfs_buf *out)
{
	json_error_t why;
	json_t *root;
	bool ok;

	if (strspn(line, " \t\r") >= len)
		return READ; /* an empty line */
	if (memchr(line, 0, len))
		return UNKNOWN; /* jansson loses a NUL after a number */
	root = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
	if (!root) {
		switch (json_error_code(&why)) {
		case json_error_duplicate_key: /* the reader looks at each, jansson at the last */
			return UNKNOWN;
		case json_error_invalid_utf8: /* what jansson refuses and RFC 8259's grammar has */
		case json_error_null_character:
		case json_error_null_byte_in_key:
		case json_error_numeric_overflow:
		case json_error_stack_overflow:
			return UNKNOWN;
		default:
			/* Half a pair of surrogates has the code of a syntax error. */
			return memmem(line, len, "\\u", 2) ? UNKNOWN : REFUSED;
		}
	}
	ok = list_document(json_is_object(root) ? json_object_get(root, "ids") : root, out);
	json_decref(root);
	return ok ? READ : REFUSED;
}

static void check_lines(const struct result *r, const uint8_t *text, size_t len)
{
	/* With a newline at its end, so that strspn() ends. */
	char *copy = malloc(len + 1);
	struct mfs_buf want = {0};
	enum oracle o = READ;
	size_t at = 0, documents = 0;

	memcpy(copy, text, len);
	copy[len] = '\n';
	for (; at < len && o == READ; documents += o == READ) {
		const size_t n =
			(size_t)((char *)memchr(copy + at, '\n', len + 1 - at) - copy) - at;

		if (at + n == len && strspn(copy + at, " \t\r") >= n)
			break;
		o = read_line(copy + at, n, &want);
		mfs_buf_adds(&want, ";");
		at += n + 1;
	}
	mfs_buf_add(&want, "", 1);
	if (o == READ && !strstr(r->err.msg, "a second key") && !strstr(r->err.msg, "512 levels")) {
		fuzz_require(!r->rc && !strcmp(r->events.data, want.data));
	} else if (o == REFUSED) {
		fuzz_require(r->rc);
		fuzz_require(r->ended.line <= documents + 1);
	}
	mfs_buf_release(&want);
	free(copy);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	enum mfs_token_format format;
	struct result whole, pieces;
	int rc;

	if (!len)
		return mfs_fail(err, -EINVAL, "no format");
	format = (enum mfs_token_format)(*bytes % 4);
	whole = read_text(format, bytes + 1, len - 1, len);
	pieces = read_text(format, bytes + 1, len - 1, 1 + *bytes / 4u % 16);
	check_same(&whole, &pieces);
	if (whole.ended.format == MFS_TOKENS_JSONL)
		check_lines(&whole, bytes + 1, len - 1);
	rc = whole.rc;
	*err = whole.err;
	mfs_buf_release(&whole.events);
	mfs_buf_release(&pieces.events);
	return rc;
}

FUZZ_TARGET
