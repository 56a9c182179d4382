#include "formats/dataset/index/python_json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/python_float.h"

#define INDENT 4

/* ---- strings ---- */

/* The character at p, of len > 0 bytes that follow, and in *ret how many it has; a byte that begins
 * none is U+DC00 + byte. */
static uint32_t decode(const uint8_t *p, size_t len, size_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const size_t size = *p < 0x80	? 1
			    : *p < 0xc2 ? 0
			    : *p < 0xe0 ? 2
			    : *p < 0xf0 ? 3
			    : *p < 0xf5 ? 4
					: 0;
	uint32_t c = size == 1 ? *p : *p & (0x7f >> size);

	for (size_t i = 1; i < size; i++) {
		if (i >= len || (p[i] & 0xc0) != 0x80)
			goto invalid;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (!size || c < least[size] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		goto invalid;
	*ret = size;
	return c;
invalid:
	*ret = 1;
	return 0xdc00u + *p;
}

/* Text that grows up to MFS_PYTHON_JSON_MAX. Indentation can make the text of a deep value very
 * much longer than the value. */
struct text {
	struct mfs_buf buf;
	bool full;
};

static void add(struct text *t, const void *bytes, size_t len)
{
	t->full |= len > MFS_PYTHON_JSON_MAX - t->buf.len;
	if (!t->full)
		mfs_buf_add(&t->buf, bytes, len);
}

static void adds(struct text *t, const char *s)
{
	add(t, s, strlen(s));
}

static void add_escape(struct text *t, uint32_t c)
{
	static const char named[] = "\"\"\\\\\nn\rr\tt\ff\bb";
	char escape[16];

	for (const char *p = named; *p; p += 2)
		if ((uint32_t)(uint8_t)*p == c) {
			add(t, (const char[]){'\\', p[1]}, 2);
			return;
		}
	if (c >= 0x10000)
		snprintf(escape, sizeof(escape), "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
			 0xdc00 + ((c - 0x10000) & 0x3ff));
	else
		snprintf(escape, sizeof(escape), "\\u%04x", c);
	adds(t, escape);
}

static void add_string(struct text *t, const char *text, size_t len)
{
	const uint8_t *p = (const uint8_t *)text;

	adds(t, "\"");
	for (size_t n; len; p += n, len -= n) {
		const uint32_t c = decode(p, len, &n);

		if (c >= ' ' && c <= '~' && c != '"' && c != '\\')
			add(t, p, 1);
		else
			add_escape(t, c);
	}
	adds(t, "\"");
}

/* ---- values ---- */

static void add_line(struct text *t, unsigned depth)
{
	static const char spaces[] = "                                ";

	adds(t, "\n");
	for (size_t n, left = (size_t)depth * INDENT; left && !t->full; left -= n) {
		n = left < sizeof(spaces) - 1 ? left : sizeof(spaces) - 1;
		add(t, spaces, n);
	}
}

static void add_value(struct text *t, json_t *value, unsigned depth);

static void add_object(struct text *t, json_t *object, unsigned depth)
{
	void *at = json_object_iter(object);

	if (!at) {
		adds(t, "{}");
		return;
	}
	adds(t, "{");
	while (at && !t->full) {
		const char *key = json_object_iter_key(at);

		add_line(t, depth + 1);
		add_string(t, key, strlen(key));
		adds(t, ": ");
		add_value(t, json_object_iter_value(at), depth + 1);
		at = json_object_iter_next(object, at);
		if (at)
			adds(t, ",");
	}
	add_line(t, depth);
	adds(t, "}");
}

static void add_array(struct text *t, const json_t *array, unsigned depth)
{
	const size_t count = json_array_size(array);

	if (!count) {
		adds(t, "[]");
		return;
	}
	for (size_t i = 0; i < count && !t->full; i++) {
		adds(t, i ? "," : "[");
		add_line(t, depth + 1);
		add_value(t, json_array_get(array, i), depth + 1);
	}
	add_line(t, depth);
	adds(t, "]");
}

/* The recursion is as deep as the value; jansson limits the depth of what it reads. */
static void add_value(struct text *t, json_t *value, unsigned depth)
{
	char number[MFS_PYTHON_REPR_SIZE];

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		add_object(t, value, depth);
		break;
	case JSON_ARRAY:
		add_array(t, value, depth);
		break;
	case JSON_STRING:
		add_string(t, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
		adds(t, number);
		break;
	case JSON_REAL:
		mfs_python_repr(json_real_value(value), number);
		adds(t, number);
		break;
	case JSON_TRUE:
		adds(t, "true");
		break;
	case JSON_FALSE:
		adds(t, "false");
		break;
	case JSON_NULL:
		adds(t, "null");
		break;
	}
}

int mfs_python_json(json_t *value, char **ret, size_t *ret_len, struct mfs_error *err)
{
	struct text t = {0};
	int rc = 0;

	add_value(&t, value, 0);
	if (t.full)
		rc = mfs_fail(err, -ENOTSUP, "the JSON text is longer than %u bytes",
			      MFS_PYTHON_JSON_MAX);
	else if (t.buf.failed)
		rc = mfs_fail_nomem(err);
	if (rc) {
		mfs_buf_release(&t.buf);
		return rc;
	}
	*ret = t.buf.data;
	*ret_len = t.buf.len;
	return 0;
}
