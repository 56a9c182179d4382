#define _GNU_SOURCE
#include "formats/remote/ini.h"

#include <string.h>

struct span {
	const char *at;
	size_t len;
};

static struct span trimmed(struct span s)
{
	while (s.len && (*s.at == ' ' || *s.at == '\t')) {
		s.at++;
		s.len--;
	}
	while (s.len && memchr(" \t\r", s.at[s.len - 1], 3))
		s.len--;
	return s;
}

static bool is(struct span s, const char *word)
{
	return s.len == strlen(word) && !memcmp(s.at, word, s.len);
}

static bool is_section(struct span line, const char *name, bool *ret_inside)
{
	if (!line.len || *line.at != '[')
		return false;
	*ret_inside = line.at[line.len - 1] == ']' && line.len > 2 &&
		      is(trimmed((struct span){line.at + 1, line.len - 2}), name);
	return true;
}

/* It goes into a header of a request, which a line's end within it would divide. */
static bool has_controls(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.at[i] < ' ' || s.at[i] == 0x7f)
			return true;
	return false;
}

static bool take(struct span line, const char *key, char *ret, size_t size)
{
	const char *equals = memchr(line.at, '=', line.len);
	struct span value;

	if (!equals || !is(trimmed((struct span){line.at, (size_t)(equals - line.at)}), key))
		return false;
	value = trimmed((struct span){equals + 1, line.len - (size_t)(equals + 1 - line.at)});
	if (!value.len || value.len >= size || has_controls(value))
		return false;
	memcpy(ret, value.at, value.len);
	ret[value.len] = '\0';
	return true;
}

bool mfs_ini_find(const char *text, size_t len, const char *section, const char *key, char *ret,
		  size_t size)
{
	bool inside = false;

	while (len) {
		const char *end = memchr(text, '\n', len);
		const size_t n = end ? (size_t)(end - text) : len;
		const struct span line = trimmed((struct span){text, n});

		text += n + (end != NULL);
		len -= n + (end != NULL);
		if (!line.len || *line.at == '#' || *line.at == ';')
			continue;
		if (!is_section(line, section, &inside) && inside && take(line, key, ret, size))
			return true;
	}
	return false;
}
