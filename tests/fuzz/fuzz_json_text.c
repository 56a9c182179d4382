/*
 * Input: a line of JSON. What the reader takes jansson takes, with the same strings under the key,
 * and the other way round; but for what the two call JSON that the other does not.
 */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "formats/text/json_text.h"

/* Words and numbers of Python's that jansson refuses or loses; halves of pairs, which it refuses
 * too; a CR, which ends a line for Python and is a blank for jansson. */
static bool differs(const char *line, size_t len)
{
	return memchr(line, 0, len) || memchr(line, '\r', len) || memmem(line, len, "NaN", 3) ||
	       memmem(line, len, "Infinity", 8) || memmem(line, len, "\\u", 2);
}

static bool jansson_gave_up(const json_error_t *why)
{
	switch (json_error_code(why)) {
	case json_error_numeric_overflow:
	case json_error_stack_overflow:
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return true;
	default:
		return false;
	}
}

static void check_string(const struct mfs_json_value *v, const json_t *want)
{
	struct mfs_buf text = {0};

	fuzz_require(!mfs_json_text_decode(v, false, &text));
	if (json_is_string(want))
		fuzz_require(
			text.len == json_string_length(want) &&
			!memcmp(text.data ? text.data : "", json_string_value(want), text.len));
	mfs_buf_release(&text);
}

static void check_value(const struct mfs_json_value *v, const json_t *want)
{
	struct mfs_json_value item = {.kind = MFS_JSON_ABSENT};
	size_t count = 0;

	fuzz_require((v->kind != MFS_JSON_ABSENT) == (want != NULL));
	fuzz_require((v->kind == MFS_JSON_STRING) == json_is_string(want));
	fuzz_require((v->kind == MFS_JSON_LIST) == json_is_array(want));
	if (v->kind == MFS_JSON_STRING)
		check_string(v, want);
	if (v->kind != MFS_JSON_LIST)
		return;
	for (; mfs_json_text_next(v, &item); count++)
		if (item.kind == MFS_JSON_STRING)
			check_string(&item, json_array_get(want, count));
	fuzz_require(count == json_array_size(want));
}

/* Whatever is read, none of it may lie outside of the line. */
static void walk(const struct mfs_json_value *v)
{
	struct mfs_json_value item = {.kind = MFS_JSON_ABSENT};
	struct mfs_buf text = {0};

	if (v->kind == MFS_JSON_STRING)
		fuzz_require(!mfs_json_text_decode(v, true, &text));
	while (v->kind == MFS_JSON_LIST && mfs_json_text_next(v, &item))
		if (item.kind == MFS_JSON_STRING)
			fuzz_require(!mfs_json_text_decode(&item, true, &text));
	mfs_buf_release(&text);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const char *const keys[] = {"text", "a"};
	const struct mfs_text_line place = {"input", 1};
	struct mfs_json_value found[2];
	char *line = malloc(len ? len : 1);
	json_error_t why;
	json_t *root;
	int rc;

	memcpy(line, bytes, len);
	rc = mfs_json_text_find(&place, line, len, keys, 2, found, err);
	for (int i = 0; i < 2 && !rc; i++)
		walk(&found[i]);
	root = differs(line, len) ? NULL : json_loadb(line, len, 0, &why);
	if (!differs(line, len) && (root || !jansson_gave_up(&why))) {
		fuzz_require(rc == -ENOTSUP || !rc == json_is_object(root));
		for (int i = 0; i < 2 && !rc; i++)
			check_value(&found[i], json_object_get(root, keys[i]));
	}
	json_decref(root);
	free(line);
	return rc;
}

FUZZ_TARGET
