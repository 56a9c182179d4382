#define _GNU_SOURCE
#include "formats/remote/server.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/net/uri.h"
#include "formats/remote/credentials.h"

/* ---- URLs ---- */

/* Taken from b, which is empty afterwards; NULL: no memory. */
static char *text_of(struct mfs_buf *b)
{
	char *text = b->data;

	if (b->failed || !text) {
		mfs_buf_release(b);
		return b->failed ? NULL : strdup("");
	}
	*b = (struct mfs_buf){0};
	return text;
}

static char *with_slash(const char *text)
{
	const size_t len = strlen(text);
	char *ret = NULL;

	if (asprintf(&ret, "%s%s", text, len && text[len - 1] != '/' ? "/" : "") < 0)
		return NULL;
	return ret;
}

/* The last part, as the name of a directory. */
static char *name_of(const char *url, bool s3)
{
	const char *end = url + strcspn(url, s3 ? "" : "?#"), *start;
	struct mfs_buf b = {0};

	while (end > url && end[-1] == '/')
		end--;
	start = end;
	while (start > url && start[-1] != '/')
		start--;
	if (s3)
		mfs_buf_add(&b, start, (size_t)(end - start));
	else if (mfs_uri_decode(&b, start, (size_t)(end - start), false))
		b.len = 0;
	if (!mfs_listing_name_ok(b.data ? b.data : "", b.len) || memchr(b.data, '/', b.len)) {
		mfs_buf_release(&b);
		return strdup("root");
	}
	return text_of(&b);
}

/* Names with dots have no certificate of their own below the host of S3. */
static bool is_host_name(const char *bucket)
{
	return !bucket[strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-")];
}

static const char *endpoint(void)
{
	const char *given = getenv("AWS_ENDPOINT_URL_S3");

	if (!given || !*given)
		given = getenv("AWS_ENDPOINT_URL");
	return given && *given ? given : NULL;
}

static int open_s3(const char *url, struct mfs_server *s, struct mfs_error *err)
{
	const char *bucket = url + strlen("s3://"), *own = endpoint();
	const int len = (int)strcspn(bucket, "/");
	const char *prefix = bucket + len + (bucket[len] == '/');
	struct mfs_buf base = {0};
	char *name = strndup(bucket, (size_t)len);
	int n;

	if (!name)
		return mfs_fail_nomem(err);
	if (!len || len > 255 ||
	    name[strspn(name,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")]) {
		free(name);
		return mfs_fail(err, -EINVAL, "'%s': expected s3://BUCKET/PREFIX", url);
	}
	mfs_credentials_region(s->region, sizeof(s->region));
	if (own)
		n = asprintf(&s->bucket, "%.*s/%s",
			     (int)(strlen(own) - (own[strlen(own) - 1] == '/')), own, name);
	else if (is_host_name(name))
		n = asprintf(&s->bucket, "https://%s.s3.%s.amazonaws.com", name, s->region);
	else
		n = asprintf(&s->bucket, "https://s3.%s.amazonaws.com/%s", s->region, name);
	free(name);
	if (n < 0) {
		s->bucket = NULL;
		return mfs_fail_nomem(err);
	}
	s->prefix = with_slash(prefix);
	if (s->prefix) {
		mfs_buf_printf(&base, "%s/", s->bucket);
		mfs_uri_encode(&base, s->prefix, strlen(s->prefix), true);
		s->base = text_of(&base);
	}
	if (!s->prefix || !s->base)
		return mfs_fail_nomem(err);
	return mfs_credentials_new(&s->credentials, err);
}

/* "user:password@" in front of the host. What is mounted is shown to all users of the machine, and
 * messages of a gateway go to its clients. */
static bool has_user(const char *url)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	return memchr(host, '@', strcspn(host, "/?#"));
}

int mfs_server_open(const char *url, unsigned timeout, bool private_redirects,
		    struct mfs_server *ret, struct mfs_error *err)
{
	int rc = 0;

	*ret = (struct mfs_server){.s3 = !strncmp(url, "s3://", 5)};
	if (has_user(url))
		return mfs_fail(err, -EINVAL,
				"a URL with a user or a password: all users of this machine would "
				"see it; write them to ~/.netrc");
	if (strpbrk(url, ret->s3 ? "\t\r\n" : " \t\r\n"))
		return mfs_fail(err, -EINVAL, "'%s': a URL has no white space (write %%20)", url);
	if (!ret->s3 && strpbrk(url, "?#"))
		return mfs_fail(err, -EINVAL,
				"'%s': names are appended to the URL, so it can have no query",
				url);
	ret->name = name_of(url, ret->s3);
	if (ret->s3)
		rc = open_s3(url, ret, err);
	else if (!(ret->base = with_slash(url)))
		rc = mfs_fail_nomem(err);
	if (!rc && !ret->name)
		rc = mfs_fail_nomem(err);
	if (rc) {
		mfs_server_release(ret);
		return rc;
	}
	ret->http = (struct mfs_curl_options){.timeout = timeout,
					      .private_redirects = private_redirects,
					      .credentials = ret->credentials,
					      .region = ret->region,
					      .token = ret->s3 ? NULL : getenv("MCOREFS_TOKEN")};
	if (ret->http.token && !*ret->http.token)
		ret->http.token = NULL;
	return 0;
}

void mfs_server_release(struct mfs_server *s)
{
	mfs_credentials_free(s->credentials);
	free(s->base);
	free(s->bucket);
	free(s->prefix);
	free(s->name);
	*s = (struct mfs_server){0};
}

char *mfs_server_url(const struct mfs_server *s, const char *name)
{
	struct mfs_buf b = {0};

	mfs_buf_adds(&b, s->base);
	mfs_uri_encode(&b, name, strlen(name), true);
	return text_of(&b);
}
