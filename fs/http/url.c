#include "fs/http/url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/net/uri.h"

/* Decodes in place. In a form '+' is a space. False: a bad escape, a NUL, or, outside of a form, a
 * control character. */
static bool decode(char *text, bool form)
{
	if (mfs_uri_decode_text(text, form))
		return false;
	for (const char *c = text; *c; c++)
		if (*c == 0x7f || ((unsigned char)*c < 0x20 && !form))
			return false;
	return true;
}

/* Whether names between slashes are such that no directory can be left. */
static bool is_safe(const char *part)
{
	for (;;) {
		const size_t len = strcspn(part, "/");

		if (!len || (len == 1 && part[0] == '.') ||
		    (len == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		if (!part[len])
			return true;
		part += len + 1;
	}
}

int mfs_form_each(char *text, int (*each)(void *arg, const char *name, const char *value),
		  void *arg, struct mfs_error *err)
{
	char *next;
	int rc = 0;

	for (; text && !rc; text = next) {
		char *value;

		next = strchr(text, '&');
		if (next)
			*next++ = '\0';
		if (!*text)
			continue;
		value = strchr(text, '=');
		if (value)
			*value++ = '\0';
		if (!decode(text, true) || (value && !decode(value, true)))
			return mfs_fail(err, -EINVAL, "a form has a bad percent escape or a NUL");
		rc = each(arg, text, value ? value : "");
	}
	return rc;
}

static int add_pair(void *arg, const char *name, const char *value)
{
	struct mfs_url *url = arg;

	if (url->query_count == MFS_URL_QUERY)
		return -E2BIG;
	url->query[url->query_count++] = (struct mfs_url_pair){name, value};
	return 0;
}

/* path begins after its first slash. */
static int cut_path(struct mfs_url *url, char *path, struct mfs_error *err)
{
	char *next;

	url->slash = true;
	for (; *path; path = next) {
		next = path + strcspn(path, "/");
		url->slash = *next;
		if (*next)
			*next++ = '\0';
		if (url->count == MFS_URL_PARTS)
			return mfs_fail(err, -E2BIG, "the path has more than %d parts",
					MFS_URL_PARTS);
		if (!decode(path, false) || !is_safe(path))
			return mfs_fail(err, -EINVAL,
					"the path has an empty name, '.', '..', a control "
					"character or a bad percent escape");
		url->parts[url->count++] = path;
	}
	return 0;
}

/* The decoded parts again as one text, which is no longer than what they were decoded from. */
static void join(struct mfs_url *url, char *to)
{
	url->path = to;
	if (!url->count)
		*to++ = '/';
	for (unsigned i = 0; i < url->count; i++) {
		const size_t len = strlen(url->parts[i]);

		*to++ = '/';
		memcpy(to, url->parts[i], len);
		to += len;
	}
	*to = '\0';
}

const char *mfs_url_without_authority(const char *target)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < 2; i++)
		if (!strncasecmp(target, schemes[i], strlen(schemes[i])))
			return target + strlen(schemes[i]) +
			       strcspn(target + strlen(schemes[i]), "/?#");
	return target;
}

int mfs_url_parse(const char *target, struct mfs_url *ret, struct mfs_error *err)
{
	const char *path = mfs_url_without_authority(target);
	const size_t len = strlen(path);
	char *query;
	int rc;

	*ret = (struct mfs_url){0};
	if (len > MFS_URL_BYTES)
		return mfs_fail(err, -E2BIG, "the target is longer than %d bytes", MFS_URL_BYTES);
	if (*path != '/' || memchr(path, '#', len))
		return mfs_fail(err, -EINVAL, "the target is no path that begins with '/'");
	ret->memory = malloc(2 * (len + 2));
	if (!ret->memory)
		return mfs_fail_nomem(err);
	memcpy(ret->memory, path, len + 1);
	query = strchr(ret->memory, '?');
	if (query)
		*query++ = '\0';
	rc = cut_path(ret, ret->memory + 1, err);
	if (!rc && query)
		rc = mfs_form_each(query, add_pair, ret, err);
	if (rc == -E2BIG && query)
		mfs_error_set(err, rc, "the query has more than %d pairs", MFS_URL_QUERY);
	if (rc) {
		mfs_url_release(ret);
		return rc;
	}
	join(ret, ret->memory + len + 2);
	return 0;
}

void mfs_url_release(struct mfs_url *url)
{
	free(url->memory);
	*url = (struct mfs_url){0};
}

const char *mfs_url_query(const struct mfs_url *url, const char *name)
{
	for (unsigned i = 0; i < url->query_count; i++)
		if (!strcmp(url->query[i].name, name))
			return url->query[i].value;
	return NULL;
}

bool mfs_url_truth(const struct mfs_url *url, const char *name)
{
	const char *value = mfs_url_query(url, name);

	return value && (!strcasecmp(value, "true") || !strcmp(value, "1"));
}

bool mfs_url_is_secret(const char *name, size_t len)
{
	static const char *const names[] = {
		"signature",
		"X-Amz-Signature",
		"X-Amz-Security-Token", /* known here */
		/* what other programs call theirs, and people try */
		"token",
		"access_token",
		"auth_token",
		"hf_token",
		"id_token",
		"api_key",
		"apikey",
		"key",
		"auth",
		"authorization",
		"password",
		"passwd",
		"secret",
		"sig",
		"code",
	};
	struct mfs_buf plain = {0};
	bool is = mfs_uri_decode(&plain, name, len, true) == -ENOMEM;

	mfs_buf_add(&plain, "", 1);
	for (size_t i = 0; !is && i < MFS_ARRAY_SIZE(names); i++)
		is = plain.failed || !strcasecmp(plain.data, names[i]);
	mfs_buf_release(&plain);
	return is;
}

const char *mfs_url_rest(const struct mfs_url *url, unsigned from)
{
	const char *at = url->path;

	if (from >= url->count)
		return "";
	for (unsigned i = 0; i < from; i++)
		at += 1 + strlen(url->parts[i]);
	return at + 1;
}
