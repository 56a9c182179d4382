/* ListObjectsV2 (docs.aws.amazon.com, API_ListObjectsV2): ListBucketResult/Contents with Key, Size,
 * ETag and LastModified; IsTruncated; NextContinuationToken. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <expat.h>

#include "formats/base/buf.h"
#include "formats/remote/listing.h"

#define DEEPEST 16

struct reader {
	XML_Parser parser;
	struct mfs_listing *list;
	const char *prefix;
	unsigned depth;
	bool in_contents;
	struct mfs_buf text; /* of the element that is being read */
	struct mfs_buf key, etag, modified, token;
	uint64_t size;
	bool has_size, truncated;
	int rc;
	struct mfs_error *err;
};

static void fail(struct reader *r, int rc)
{
	r->rc = rc;
	XML_StopParser(r->parser, XML_FALSE);
}

/* Without the prefix of a namespace. */
static const char *local(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon ? colon + 1 : name;
}

static void clear(struct mfs_buf *b)
{
	b->len = 0;
	mfs_buf_adds(b, "");
}

static void on_start(void *arg, const char *name, const char **attributes)
{
	struct reader *r = arg;

	(void)attributes;
	name = local(name);
	clear(&r->text);
	if (++r->depth > DEEPEST)
		fail(r, mfs_fail(r->err, -EINVAL, "the listing is nested too deeply"));
	else if (r->depth == 1 && strcmp(name, "ListBucketResult"))
		fail(r, mfs_fail(r->err, -EINVAL,
				 "expected ListBucketResult, found '%.60s': is this S3?", name));
	if (r->depth != 2 || strcmp(name, "Contents"))
		return;
	r->in_contents = true;
	r->has_size = false;
	clear(&r->key);
	clear(&r->etag);
	clear(&r->modified);
}

static void on_text(void *arg, const char *text, int len)
{
	struct reader *r = arg;

	mfs_buf_add(&r->text, text, (size_t)len);
}

static void on_doctype(void *arg, const char *name, const char *sysid, const char *pubid, int has)
{
	struct reader *r = arg;

	(void)name, (void)sysid, (void)pubid, (void)has;
	fail(r, mfs_fail(r->err, -EINVAL, "the listing has a document type"));
}

static void keep(struct mfs_buf *to, const struct mfs_buf *text)
{
	clear(to);
	mfs_buf_add(to, text->data, text->len);
}

static int64_t time_of(const char *text)
{
	struct tm tm = {0};

	return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

/* What a server sends in an ETag, as headers.c takes it there: a listing's is compared with it. */
static bool etag_ok(const char *etag)
{
	const size_t len = strlen(etag);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)etag[i] <= ' ' || etag[i] == 0x7f ||
		    (etag[i] == '"' && i && i + 1 < len))
			return false;
	return len > 2 && len < 256 && etag[0] == '"' && etag[len - 1] == '"';
}

static int add_object(struct reader *r)
{
	const size_t skip = strlen(r->prefix);
	struct mfs_listed *item;
	char modified[64];
	struct tm tm;
	int rc;

	if (r->key.failed || r->etag.failed || r->modified.failed)
		return mfs_fail_nomem(r->err);
	if (!r->has_size || r->key.len < skip || memcmp(r->key.data, r->prefix, skip) ||
	    strlen(r->key.data) != r->key.len)
		return mfs_fail(r->err, -EINVAL, "an object has no size, or not the prefix '%s'",
				r->prefix);
	if (r->key.len == skip || r->key.data[r->key.len - 1] == '/' ||
	    !mfs_listing_name_ok(r->key.data + skip, r->key.len - skip))
		return 0;
	rc = mfs_listing_add(r->list, r->key.data + skip, r->key.len - skip, &item, r->err);
	if (rc)
		return rc;
	item->size = r->size;
	item->mtime = time_of(r->modified.data);
	strftime(modified, sizeof(modified), "%a, %d %b %Y %H:%M:%S GMT",
		 gmtime_r(&(time_t){item->mtime}, &tm));
	if (etag_ok(r->etag.data) && !(item->etag = strdup(r->etag.data)))
		return mfs_fail_nomem(r->err);
	if (item->mtime && !(item->last_modified = strdup(modified)))
		return mfs_fail_nomem(r->err);
	return 0;
}

static void end_in_contents(struct reader *r, const char *name)
{
	char *end;

	if (!strcmp(name, "Key")) {
		keep(&r->key, &r->text);
	} else if (!strcmp(name, "ETag")) {
		keep(&r->etag, &r->text);
	} else if (!strcmp(name, "LastModified")) {
		keep(&r->modified, &r->text);
	} else if (!strcmp(name, "Size")) {
		r->size = strtoull(r->text.data, &end, 10);
		r->has_size = r->text.len && r->text.len < 20 && !*end &&
			      strspn(r->text.data, "0123456789") == r->text.len;
	}
}

static void on_end(void *arg, const char *name)
{
	struct reader *r = arg;
	int rc;

	name = local(name);
	if (r->text.failed) {
		fail(r, mfs_fail_nomem(r->err));
	} else if (r->depth == 3 && r->in_contents) {
		end_in_contents(r, name);
	} else if (r->depth == 2 && r->in_contents) {
		r->in_contents = false;
		rc = add_object(r);
		if (rc)
			fail(r, rc);
	} else if (r->depth == 2 && !strcmp(name, "IsTruncated")) {
		r->truncated = !strcmp(r->text.data, "true");
	} else if (r->depth == 2 && !strcmp(name, "NextContinuationToken")) {
		keep(&r->token, &r->text);
	}
	r->depth--;
	clear(&r->text);
}

static int parse(struct reader *r, const char *xml, size_t len)
{
	r->parser = XML_ParserCreate(NULL);
	if (!r->parser)
		return mfs_fail_nomem(r->err);
	XML_SetUserData(r->parser, r);
	XML_SetElementHandler(r->parser, on_start, on_end);
	XML_SetCharacterDataHandler(r->parser, on_text);
	XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
	if (len > INT32_MAX)
		r->rc = mfs_fail(r->err, -EINVAL, "the listing is too long");
	else if (XML_Parse(r->parser, xml, (int)len, 1) == XML_STATUS_ERROR && !r->rc)
		r->rc = mfs_fail(r->err, -EINVAL, "the listing is not XML: %s",
				 XML_ErrorString(XML_GetErrorCode(r->parser)));
	XML_ParserFree(r->parser);
	return r->rc;
}

int mfs_listing_read_s3(struct mfs_listing *l, const char *xml, size_t len, const char *prefix,
			char **ret_next, struct mfs_error *err)
{
	struct reader r = {.list = l, .prefix = prefix, .err = err};
	int rc = parse(&r, xml, len);

	*ret_next = NULL;
	if (!rc && r.truncated && (!r.token.len || r.token.failed))
		rc = mfs_fail(err, -EINVAL, "the listing goes on, and has no token");
	if (!rc && r.truncated && !(*ret_next = strdup(r.token.data)))
		rc = mfs_fail_nomem(err);
	mfs_buf_release(&r.text);
	mfs_buf_release(&r.key);
	mfs_buf_release(&r.etag);
	mfs_buf_release(&r.modified);
	mfs_buf_release(&r.token);
	return rc;
}
