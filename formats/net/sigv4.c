#include "formats/net/sigv4.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/net/uri.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

/* ---- the query ---- */

struct pair {
	char *name, *value; /* encoded anew, so that one spelling is signed */
};

static int pair_order(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	const int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->value, y->value);
}

/* A part of the query, decoded and encoded again. '+' is a space, as it is for who answers: else
 * one signature would be of two meanings. NULL with *rc: it cannot be. */
static char *respell(const char *text, size_t len, int *rc)
{
	struct mfs_buf plain = {0}, coded = {0};

	mfs_buf_adds(&coded, "");
	*rc = mfs_uri_decode(&plain, text, len, true);
	if (!*rc && plain.len)
		mfs_uri_encode(&coded, plain.data, plain.len, false);
	mfs_buf_release(&plain);
	if (!*rc && !coded.failed)
		return coded.data ? coded.data : calloc(1, 1);
	mfs_buf_release(&coded);
	*rc = *rc ? *rc : -ENOMEM;
	return NULL;
}

static int read_pair(const char *text, size_t len, struct pair *ret)
{
	const char *equals = memchr(text, '=', len);
	const size_t name = equals ? (size_t)(equals - text) : len;
	int rc;

	ret->value = NULL;
	ret->name = respell(text, name, &rc);
	if (ret->name)
		ret->value = respell(equals ? equals + 1 : "", equals ? len - name - 1 : 0, &rc);
	return ret->value ? 0 : rc ? rc : -ENOMEM;
}

static void add_pairs(struct mfs_buf *b, const struct pair *pairs, size_t count, bool presigned)
{
	const char *between = "";

	for (size_t i = 0; i < count; i++) {
		if (presigned && !strcmp(pairs[i].name, "X-Amz-Signature"))
			continue;
		mfs_buf_printf(b, "%s%s=%s", between, pairs[i].name, pairs[i].value);
		between = "&";
	}
}

static int add_query(struct mfs_buf *b, const char *query, bool presigned)
{
	size_t count = 0, most = 1;
	struct pair *pairs;
	int rc = 0;

	for (const char *p = query; *p; p++)
		most += *p == '&';
	pairs = calloc(most, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	for (const char *p = query; *p && !rc;) {
		const size_t len = strcspn(p, "&");

		if (len)
			rc = read_pair(p, len, &pairs[count++]);
		p += len + (p[len] == '&');
	}
	if (!rc && count) {
		qsort(pairs, count, sizeof(*pairs), pair_order);
		add_pairs(b, pairs, count, presigned);
	}
	for (size_t i = 0; i < count; i++) {
		free(pairs[i].name);
		free(pairs[i].value);
	}
	free(pairs);
	return rc;
}

/* ---- headers ---- */

struct place {
	char *name; /* lower case */
	const char *value;
	size_t at; /* headers of one name stay in their order */
};

static int place_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	const int order = strcmp(x->name, y->name);

	return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

static void free_places(struct place *list, size_t count)
{
	for (size_t i = 0; list && i < count; i++)
		free(list[i].name);
	free(list);
}

static struct place *sorted(const struct mfs_sigv4_request *r)
{
	struct place *list = calloc(r->header_count + 1, sizeof(*list));

	for (size_t i = 0; list && i < r->header_count; i++) {
		list[i] = (struct place){strdup(r->headers[i].name), r->headers[i].value, i};
		if (!list[i].name) {
			free_places(list, i);
			return NULL;
		}
		for (char *p = list[i].name; *p; p++)
			*p = (char)tolower((unsigned char)*p);
	}
	if (list)
		qsort(list, r->header_count, sizeof(*list), place_order);
	return list;
}

/* Without white space at its ends, and one space for several. */
static void add_value(struct mfs_buf *b, const char *value)
{
	const char *word = value + strspn(value, " \t\r\n"), *between = "";

	while (*word) {
		const size_t len = strcspn(word, " \t\r\n");

		mfs_buf_adds(b, between);
		mfs_buf_add(b, word, len);
		word += len;
		word += strspn(word, " \t\r\n");
		between = " ";
	}
}

static void add_headers(struct mfs_buf *b, const struct place *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const bool more = i && !strcmp(list[i].name, list[i - 1].name);

		if (!more)
			mfs_buf_printf(b, "%s%s:", i ? "\n" : "", list[i].name);
		else
			mfs_buf_adds(b, ",");
		add_value(b, list[i].value);
	}
	mfs_buf_adds(b, count ? "\n" : "");
}

static void add_names(struct mfs_buf *b, const struct place *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!i || strcmp(list[i].name, list[i - 1].name))
			mfs_buf_printf(b, "%s%s", i ? ";" : "", list[i].name);
}

/* ---- the request ---- */

int mfs_sigv4_canonical(const struct mfs_sigv4_request *r, char **ret, struct mfs_error *err)
{
	struct place *list = sorted(r);
	struct mfs_buf b = {0};
	int rc;

	if (!list)
		return mfs_fail_nomem(err);
	mfs_buf_printf(&b, "%s\n%s\n", r->method, r->path && *r->path ? r->path : "/");
	rc = add_query(&b, r->query ? r->query : "", r->presigned);
	mfs_buf_adds(&b, "\n");
	add_headers(&b, list, r->header_count);
	mfs_buf_adds(&b, "\n");
	add_names(&b, list, r->header_count);
	mfs_buf_printf(&b, "\n%s", r->payload);
	free_places(list, r->header_count);
	if (!rc && !b.failed) {
		*ret = b.data;
		return 0;
	}
	mfs_buf_release(&b);
	if (rc == -EINVAL)
		return mfs_fail(err, rc, "the query '%s' has a broken percent code", r->query);
	return mfs_fail_nomem(err);
}

static bool is_time(const char *t)
{
	for (int i = 0; i < 16; i++)
		if (i == 8 ? t[i] != 'T' : i == 15 ? t[i] != 'Z' : !isdigit((unsigned char)t[i]))
			return false;
	return !t[16];
}

/* key becomes HMAC(key, text). */
static bool derive(uint8_t key[SHA256_DIGEST_LENGTH], size_t len, const char *secret,
		   const char *text)
{
	uint8_t out[SHA256_DIGEST_LENGTH];
	unsigned got = 0;

	if (!HMAC(EVP_sha256(), secret ? (const void *)secret : key, (int)len,
		  (const uint8_t *)text, strlen(text), out, &got))
		return false;
	memcpy(key, out, sizeof(out));
	return true;
}

static int sign(const struct mfs_sigv4_key *key, const struct mfs_sigv4_request *r,
		const char *canonical, char ret[MFS_SIGV4_SIGNATURE], struct mfs_error *err)
{
	uint8_t k[SHA256_DIGEST_LENGTH];
	struct mfs_buf secret = {0}, text = {0};
	char day[9], hash[MFS_SIGV4_SIGNATURE];
	bool ok;

	memcpy(day, r->time, 8);
	day[8] = '\0';
	SHA256((const uint8_t *)canonical, strlen(canonical), k);
	mfs_str_hex(k, sizeof(k), hash);
	mfs_buf_printf(&secret, "AWS4%s", key->secret);
	mfs_buf_printf(&text, ALGORITHM "\n%s\n%s/%s/%s/aws4_request\n%s", r->time, day,
		       key->region, key->service, hash);
	ok = !secret.failed && !text.failed && derive(k, secret.len, secret.data, day) &&
	     derive(k, sizeof(k), NULL, key->region) && derive(k, sizeof(k), NULL, key->service) &&
	     derive(k, sizeof(k), NULL, "aws4_request") && derive(k, sizeof(k), NULL, text.data);
	if (ok)
		mfs_str_hex(k, sizeof(k), ret);
	OPENSSL_cleanse(k, sizeof(k));
	if (secret.data)
		OPENSSL_cleanse(secret.data, secret.len);
	mfs_buf_release(&secret);
	mfs_buf_release(&text);
	return ok ? 0 : mfs_fail_nomem(err);
}

int mfs_sigv4_sign(const struct mfs_sigv4_key *key, const struct mfs_sigv4_request *r,
		   char ret[MFS_SIGV4_SIGNATURE], struct mfs_error *err)
{
	char *canonical;
	int rc;

	if (!is_time(r->time))
		return mfs_fail(err, -EINVAL, "time '%s': expected the form 20130524T000000Z",
				r->time);
	rc = mfs_sigv4_canonical(r, &canonical, err);
	if (rc)
		return rc;
	rc = sign(key, r, canonical, ret, err);
	free(canonical);
	return rc;
}

int mfs_sigv4_authorization(const struct mfs_sigv4_key *key, const struct mfs_sigv4_request *r,
			    char **ret, struct mfs_error *err)
{
	char signature[MFS_SIGV4_SIGNATURE];
	struct mfs_buf b = {0};
	struct place *list;
	int rc = mfs_sigv4_sign(key, r, signature, err);

	if (rc)
		return rc;
	list = sorted(r);
	if (!list)
		return mfs_fail_nomem(err);
	mfs_buf_printf(&b, ALGORITHM " Credential=%s/%.8s/%s/%s/aws4_request,SignedHeaders=",
		       key->access, r->time, key->region, key->service);
	add_names(&b, list, r->header_count);
	mfs_buf_printf(&b, ",Signature=%s", signature);
	free_places(list, r->header_count);
	if (b.failed) {
		mfs_buf_release(&b);
		return mfs_fail_nomem(err);
	}
	*ret = b.data;
	return 0;
}

bool mfs_sigv4_same(const char *a, const char *b)
{
	const size_t len = strlen(a);

	return len == strlen(b) && !CRYPTO_memcmp(a, b, len);
}
