#define _GNU_SOURCE
#include "formats/net/sigv4_verify.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "formats/net/uri.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

bool mfs_sigv4_is(const char *authorization)
{
	return authorization && !strncmp(authorization, ALGORITHM, strlen(ALGORITHM));
}

/* ---- the header ---- */

/* Cuts the last part off at a slash. NULL: there is none. */
static const char *cut_last(char *text)
{
	char *slash = strrchr(text, '/');

	if (!slash)
		return NULL;
	*slash = '\0';
	return slash + 1;
}

/* ACCESS/DAY/REGION/SERVICE/aws4_request */
static bool cut_credential(struct mfs_sigv4_claim *c, char *text)
{
	const char *end = cut_last(text);

	c->service = cut_last(text);
	c->region = cut_last(text);
	c->day = cut_last(text);
	c->access = text;
	return end && !strcmp(end, "aws4_request") && c->service && *c->service && c->region &&
	       *c->region && c->day && strlen(c->day) == 8 && *text;
}

/* Names in lower case, sorted, none twice: as it must be signed. */
static bool cut_headers(struct mfs_sigv4_claim *c, char *text)
{
	bool host = false;

	for (char *name; (name = strsep(&text, ";"));) {
		if (!*name || c->header_count == MFS_SIGV4_HEADERS)
			return false;
		for (const char *at = name; *at; at++)
			if (*at <= ' ' || (*at >= 'A' && *at <= 'Z') || *at > '~')
				return false;
		if (c->header_count && strcmp(c->headers[c->header_count - 1], name) >= 0)
			return false;
		c->headers[c->header_count++] = name;
		host = host || !strcmp(name, "host");
	}
	return host;
}

static bool is_signature(const char *text)
{
	return strspn(text, "0123456789abcdef") == MFS_SIGV4_SIGNATURE - 1 &&
	       !text[MFS_SIGV4_SIGNATURE - 1];
}

static bool cut_part(struct mfs_sigv4_claim *c, char *part)
{
	char *value = strchr(part, '=');

	if (!value)
		return false;
	*value++ = '\0';
	if (!strcmp(part, "Credential") && !c->access)
		return cut_credential(c, value);
	if (!strcmp(part, "SignedHeaders") && !c->header_count)
		return cut_headers(c, value);
	if (!strcmp(part, "Signature") && !c->signature) {
		c->signature = value;
		return is_signature(value);
	}
	return false;
}

static bool cut(struct mfs_sigv4_claim *c, char *text)
{
	for (char *part; (part = strsep(&text, ","));) {
		part += strspn(part, " \t");
		part[strcspn(part, " \t")] = '\0';
		if (!cut_part(c, part))
			return false;
	}
	return c->access && c->header_count && c->signature;
}

int mfs_sigv4_claim_parse(const char *authorization, struct mfs_sigv4_claim *ret,
			  struct mfs_error *err)
{
	const char *rest = mfs_sigv4_is(authorization) ? authorization + strlen(ALGORITHM) : "";

	*ret = (struct mfs_sigv4_claim){0};
	if ((*rest != ' ' && *rest != '\t') || strlen(rest) > MFS_SIGV4_BYTES)
		return mfs_fail(err, -EINVAL,
				"Authorization is no " ALGORITHM " of at most %d bytes",
				MFS_SIGV4_BYTES);
	ret->memory = strdup(rest);
	if (!ret->memory)
		return mfs_fail_nomem(err);
	if (cut(ret, ret->memory))
		return 0;
	mfs_sigv4_claim_release(ret);
	return mfs_fail(err, -EINVAL,
			"Authorization: expected Credential=KEY/DAY/REGION/SERVICE/aws4_request, "
			"SignedHeaders=...host..., Signature=DIGITS");
}

void mfs_sigv4_claim_release(struct mfs_sigv4_claim *c)
{
	free(c->memory);
	*c = (struct mfs_sigv4_claim){0};
}

/* ---- the query of a presigned URL ---- */

enum { ALGORITHM_PART, CREDENTIAL, DATE, EXPIRES, SIGNED_HEADERS, SIGNATURE, PARTS };

static const char *const part_names[PARTS] = {
	[ALGORITHM_PART] = "X-Amz-Algorithm",
	[CREDENTIAL] = "X-Amz-Credential",
	[DATE] = "X-Amz-Date",
	[EXPIRES] = "X-Amz-Expires",
	[SIGNED_HEADERS] = "X-Amz-SignedHeaders",
	[SIGNATURE] = "X-Amz-Signature",
};

/* Which part a pair of the query is; PARTS: none. Names are written as they are: nothing in them
 * needs a percent code. */
static int which_part(const char *pair)
{
	const size_t len = strcspn(pair, "=&");
	int i = 0;

	while (i < PARTS && (strlen(part_names[i]) != len || memcmp(part_names[i], pair, len) != 0))
		i++;
	return i;
}

static const char *next_pair(const char *pair)
{
	pair += strcspn(pair, "&");
	return *pair ? pair + 1 : NULL;
}

bool mfs_sigv4_is_presigned(const char *query)
{
	for (const char *p = query; p; p = next_pair(p)) {
		const int part = which_part(p);

		if (part == ALGORITHM_PART || part == SIGNATURE)
			return true;
	}
	return false;
}

/* Decodes the parts into one piece of memory, which *at walks through. */
static int take_parts(const char *query, char *at, char *values[PARTS])
{
	for (const char *p = query; p; p = next_pair(p)) {
		const int part = which_part(p);
		const size_t name = strcspn(p, "=&"), value = name + (p[name] == '=');
		const size_t len = strcspn(p + value, "&");

		if (part == PARTS)
			continue;
		if (values[part])
			return -EINVAL;
		values[part] = at;
		memcpy(at, p + value, len);
		at[len] = '\0';
		if (mfs_uri_decode_text(at, false))
			return -EINVAL;
		at += len + 1;
	}
	for (int i = 0; i < PARTS; i++)
		if (!values[i])
			return -EINVAL;
	return 0;
}

static bool read_expires(const char *text, unsigned *ret)
{
	const size_t len = strspn(text, "0123456789");

	if (!len || len > 6 || text[len])
		return false;
	*ret = (unsigned)atoi(text);
	return *ret >= 1 && *ret <= MFS_SIGV4_EXPIRES;
}

static int cut_query(struct mfs_sigv4_claim *c, const char *query, struct mfs_error *err)
{
	char *values[PARTS] = {0};

	if (take_parts(query, c->memory, values))
		return mfs_fail(err, -EINVAL,
				"a presigned address has each once: X-Amz-Algorithm, "
				"X-Amz-Credential, X-Amz-Date, X-Amz-Expires, "
				"X-Amz-SignedHeaders and X-Amz-Signature");
	if (strcmp(values[ALGORITHM_PART], ALGORITHM) != 0)
		return mfs_fail(err, -EINVAL, "X-Amz-Algorithm is not " ALGORITHM);
	if (!read_expires(values[EXPIRES], &c->expires))
		return mfs_fail(err, -EINVAL,
				"X-Amz-Expires: expected seconds, from 1 to %d (seven days)",
				MFS_SIGV4_EXPIRES);
	if (!cut_credential(c, values[CREDENTIAL]))
		return mfs_fail(err, -EINVAL,
				"X-Amz-Credential: expected KEY/DAY/REGION/SERVICE/aws4_request");
	if (!cut_headers(c, values[SIGNED_HEADERS]))
		return mfs_fail(err, -EINVAL,
				"X-Amz-SignedHeaders: expected sorted names with 'host'");
	if (!is_signature(values[SIGNATURE]))
		return mfs_fail(err, -EINVAL, "X-Amz-Signature: expected 64 hexadecimal digits");
	c->time = values[DATE];
	c->signature = values[SIGNATURE];
	c->presigned = true;
	return 0;
}

int mfs_sigv4_claim_parse_query(const char *query, struct mfs_sigv4_claim *ret,
				struct mfs_error *err)
{
	const size_t len = strlen(query);
	int rc;

	*ret = (struct mfs_sigv4_claim){0};
	if (len > MFS_SIGV4_BYTES)
		return mfs_fail(err, -EINVAL, "the query has more than %d bytes", MFS_SIGV4_BYTES);
	ret->memory = malloc(len + PARTS);
	if (!ret->memory)
		return mfs_fail_nomem(err);
	rc = cut_query(ret, query, err);
	if (rc)
		mfs_sigv4_claim_release(ret);
	return rc;
}

/* ---- the signature ---- */

/* Checks the request's time. A presigned request is valid for its own span of time after that. */
static int check_time(const struct mfs_sigv4_claim *c, const char *text, int64_t now,
		      struct mfs_error *err)
{
	const int64_t late = c->presigned ? (int64_t)c->expires : MFS_SIGV4_SKEW;
	struct tm tm = {0};
	const char *end = text ? strptime(text, "%Y%m%dT%H%M%SZ", &tm) : NULL;
	int64_t then;

	if (!end || *end || strlen(text) != 16)
		return mfs_fail(err, -EINVAL, "x-amz-date: expected the form 20130524T000000Z");
	if (strncmp(text, c->day, 8))
		return mfs_fail(err, -EINVAL, "the day of Credential is not that of x-amz-date");
	then = timegm(&tm);
	if (c->presigned && then < now - late)
		return mfs_fail(err, -EKEYEXPIRED, "the address has expired: it held for %u s",
				c->expires);
	if (then > now + MFS_SIGV4_SKEW || then < now - late)
		return mfs_fail(err, -ETIME, "%s is more than %d s from the time here", text,
				MFS_SIGV4_SKEW);
	return 0;
}

/* The query of a presigned request, X-Amz-Signature left out, is signed with the rest. */
static int compute(const struct mfs_sigv4_claim *c, const struct mfs_sigv4_arrived *r,
		   const char *secret, const char *path, const char *query, const char *time,
		   char ret[MFS_SIGV4_SIGNATURE], struct mfs_error *err)
{
	const char *payload =
		c->presigned ? MFS_SIGV4_UNSIGNED : r->header(r->arg, "x-amz-content-sha256");
	const struct mfs_sigv4_key key = {c->access, secret, c->region, c->service};
	struct mfs_sigv4_header headers[MFS_SIGV4_HEADERS];
	const struct mfs_sigv4_request request = {
		.method = r->method,
		.path = path,
		.query = query,
		.headers = headers,
		.header_count = c->header_count,
		.payload = payload ? payload : MFS_SIGV4_EMPTY,
		.time = time,
		.presigned = c->presigned,
	};

	for (size_t i = 0; i < c->header_count; i++) {
		headers[i].name = c->headers[i];
		headers[i].value = r->header(r->arg, c->headers[i]);
		if (!headers[i].value)
			return mfs_fail(err, -EINVAL, "'%.100s' is signed, but was not sent",
					c->headers[i]);
	}
	return mfs_sigv4_sign(&key, &request, ret, err);
}

int mfs_sigv4_verify(const struct mfs_sigv4_claim *c, const struct mfs_sigv4_arrived *r,
		     const char *secret, int64_t now, struct mfs_error *err)
{
	char expected[MFS_SIGV4_SIGNATURE], *path, *query;
	const char *time = c->presigned ? c->time : r->header(r->arg, "x-amz-date");
	int rc = check_time(c, time, now, err);

	if (rc)
		return rc;
	path = strdup(r->target);
	if (!path)
		return mfs_fail_nomem(err);
	query = strchr(path, '?');
	if (query)
		*query++ = '\0';
	rc = compute(c, r, secret, path, query, time, expected, err);
	free(path);
	if (!rc && !mfs_sigv4_same(c->signature, expected))
		rc = mfs_fail(err, -EKEYREJECTED, "the signature is not the one of this request");
	return rc;
}
