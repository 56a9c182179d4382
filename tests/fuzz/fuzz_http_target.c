/* Input: the target of a request, then a Range, an If-Match and an If-Range header, each after a
 * newline. What is accepted stays below its directory. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/array.h"
#include "fs/http/range.h"
#include "fs/http/url.h"

static void check_part(const char *part)
{
	for (;;) {
		const size_t len = strcspn(part, "/");

		fuzz_require(len && strncmp(part, ".", len) && (len != 2 || memcmp(part, "..", 2)));
		if (!part[len])
			return;
		part += len + 1;
	}
}

static void check_url(const struct mfs_url *u)
{
	size_t length = 0;

	for (unsigned i = 0; i < u->count; i++) {
		check_part(u->parts[i]);
		length += 1 + strlen(u->parts[i]);
		for (const char *c = u->parts[i]; *c; c++)
			fuzz_require((unsigned char)*c >= 0x20 && *c != 0x7f);
	}
	fuzz_require(strlen(u->path) == (u->count ? length : 1) && *u->path == '/');
	for (unsigned i = 0; i < u->count; i++)
		fuzz_require(!strncmp(mfs_url_rest(u, i), u->parts[i], strlen(u->parts[i])));
	for (unsigned i = 0; i < u->query_count; i++)
		fuzz_require(mfs_url_query(u, u->query[i].name));
}

static void check_headers(const struct mfs_conditions *c, uint64_t size)
{
	const struct mfs_wanted w = mfs_conditions_judge(c, "0123abc", size);

	fuzz_require(w.off <= size && w.len <= size - w.off);
	if (w.status == 206)
		fuzz_require(w.len);
	else if (w.status == 200)
		fuzz_require(!w.off && w.len == size);
	else
		fuzz_require((w.status == 304 || w.status == 412 || w.status == 416) && !w.len);
}

static char *next_line(char **text)
{
	char *line = *text;

	if (!line)
		return NULL;
	*text = strchr(line, '\n');
	if (*text)
		*(*text)++ = '\0';
	return line;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const uint64_t sizes[] = {0, 1, 10, 1ull << 40, UINT64_MAX};
	char *copy = malloc(len + 1), *at = copy, *target;
	struct mfs_conditions c = {0};
	struct mfs_url u;
	int rc;

	memcpy(copy, bytes, len);
	copy[len] = '\0';
	target = next_line(&at);
	c.range = next_line(&at);
	c.match = next_line(&at);
	c.if_range = next_line(&at);
	c.none_match = next_line(&at);
	c.modified_since = next_line(&at);
	c.modified = "Wed, 21 Oct 2026 07:28:00 GMT";
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes); i++)
		check_headers(&c, sizes[i]);
	rc = mfs_url_parse(target, &u, err);
	if (!rc) {
		check_url(&u);
		mfs_url_release(&u);
	}
	free(copy);
	return rc;
}

FUZZ_TARGET
