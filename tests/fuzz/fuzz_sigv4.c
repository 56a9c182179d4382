/* Input: a header Authorization, or '?' and the query of a presigned address; then the target of
 * its request and its x-amz-date, each after a newline. What is accepted is checked; no input has
 * the signature of a secret that it is not made with. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/net/sigv4_verify.h"

static const char *get(const void *arg, const char *name)
{
	return !strcmp(name, "x-amz-date") ? arg : "x";
}

static char *next_line(char **text)
{
	char *line = *text, *end = line + strcspn(line, "\n");

	*text = *end ? end + 1 : end;
	*end = '\0';
	return line;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	char *copy = malloc(len + 1), *at = copy, *authorization, *target;
	struct mfs_sigv4_claim c;
	struct mfs_error why;
	int rc;

	memcpy(copy, bytes, len);
	copy[len] = '\0';
	authorization = next_line(&at);
	target = next_line(&at);
	if (*authorization == '?') {
		target = authorization; /* no path: the query decides */
		rc = mfs_sigv4_claim_parse_query(authorization + 1, &c, err);
	} else {
		rc = mfs_sigv4_claim_parse(authorization, &c, err);
	}
	if (!rc) {
		const struct mfs_sigv4_arrived r = {"GET", target, get, next_line(&at)};

		fuzz_require(*c.access && strlen(c.day) == 8 && *c.region && *c.service);
		fuzz_require(strlen(c.signature) == MFS_SIGV4_SIGNATURE - 1);
		fuzz_require(!c.presigned || (c.expires && c.expires <= MFS_SIGV4_EXPIRES));
		fuzz_require(!c.presigned || mfs_sigv4_is_presigned(authorization + 1));
		fuzz_require(c.header_count && c.header_count <= MFS_SIGV4_HEADERS);
		fuzz_require(mfs_sigv4_verify(&c, &r, "a secret", 1369353600, &why));
		mfs_sigv4_claim_release(&c);
	}
	free(copy);
	return rc;
}

FUZZ_TARGET
