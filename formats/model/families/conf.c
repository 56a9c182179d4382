#include "formats/model/families/conf.h"

#include <stdbool.h>
#include <string.h>

struct reader {
	const char *name;
	struct mfs_conf_line *lines;
	size_t count;
	const char *section;
	char *end; /* of the last value; NULL: no line can go on here */
	struct mfs_error *err;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends. */
static char *trim(char *from, char *end)
{
	while (from < end && is_blank(*from))
		from++;
	while (end > from && is_blank(end[-1]))
		end--;
	*end = '\0';
	return from;
}

static int check_text(struct reader *r, const char *line, const char *end, unsigned number)
{
	for (; line < end; line++)
		if ((unsigned char)*line < ' ' && !is_blank(*line))
			return mfs_fail(r->err, -EINVAL, "%s:%u: byte 0x%02x, expected text",
					r->name, number, (unsigned char)*line);
	return 0;
}

static int read_section(struct reader *r, char *text, unsigned number)
{
	char *end = text + strlen(text) - 1;

	if (*end != ']')
		return mfs_fail(r->err, -EINVAL, "%s:%u: '%.60s', expected [SECTION]", r->name,
				number, text);
	r->section = trim(text + 1, end);
	r->end = NULL;
	return 0;
}

static int read_pair(struct reader *r, char *text, unsigned number)
{
	char *equals = strchr(text, '='), *key, *value;

	if (equals == text || !equals)
		return mfs_fail(r->err, -EINVAL, "%s:%u: '%.60s', expected KEY = VALUE", r->name,
				number, text);
	value = trim(equals + 1, equals + 1 + strlen(equals + 1));
	key = trim(text, equals);
	r->end = value + strlen(value);
	r->lines[r->count++] = (struct mfs_conf_line){r->section, key, value, number};
	return 0;
}

/* The next line of a value: it is moved to the end of what there is. The texts before it were
 * trimmed, so there is room for a blank. */
static int go_on(struct reader *r, const char *text, unsigned number)
{
	const size_t len = strlen(text);

	if (!r->end)
		return mfs_fail(r->err, -EINVAL,
				"%s:%u: '%.60s' goes on with a value, but there is none before it",
				r->name, number, text);
	if (*r->lines[r->count - 1].value)
		*r->end++ = ' ';
	memmove(r->end, text, len + 1);
	r->end += len;
	return 0;
}

static int read_line(struct reader *r, char *line, char *end, unsigned number)
{
	const bool indented = is_blank(*line);
	int rc = check_text(r, line, end, number);
	char *text;

	if (rc)
		return rc;
	text = trim(line, end);
	if (!*text || *text == '#')
		return 0;
	if (indented)
		return go_on(r, text, number);
	return *text == '[' ? read_section(r, text, number) : read_pair(r, text, number);
}

int mfs_conf_parse(const char *name, const char *bytes, size_t len, struct mfs_arena *arena,
		   struct mfs_conf_line **ret, size_t *ret_count, struct mfs_error *err)
{
	struct reader r = {.name = name, .section = "", .err = err};
	char *at = mfs_arena_strndup(arena, bytes, len), *end;
	size_t most = 1;
	int rc = 0;

	for (size_t i = 0; i < len; i++)
		most += bytes[i] == '\n';
	r.lines = mfs_arena_array(arena, most, sizeof(*r.lines));
	if (!at || !r.lines)
		return mfs_fail_nomem(err);
	end = at + len;
	for (unsigned number = 1; at < end && !rc; number++) {
		char *next = memchr(at, '\n', (size_t)(end - at));

		next = next ? next : end;
		rc = read_line(&r, at, next, number);
		at = next + 1;
	}
	*ret = r.lines;
	*ret_count = r.count;
	return rc;
}
