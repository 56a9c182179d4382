/*
 * S3, read only, by paths (not by host names), on an address of its own:
 *
 *   GET  /                           ListBuckets
 *   HEAD /BUCKET                     HeadBucket
 *   GET  /BUCKET?list-type=2         ListObjectsV2
 *   GET  /BUCKET?location            GetBucketLocation
 *   GET, HEAD /BUCKET/KEY            GetObject, HeadObject
 *
 * A bucket is an organisation, or "datasets". /BUCKET/KEY is the path of a plain file
 * (fs/gateway/call/place.h).
 */
#include "fs/gateway/s3/s3.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/base/array.h"
#include "fs/gateway/call/place.h"
#include "fs/gateway/s3/s3_i.h"

/* ---- XML ---- */

/* The bytes of the character that begins here, in UTF-8 (RFC 3629); 0: XML 1.0 has none such (2.2:
 * no control characters but three, no surrogates, not U+FFFE and U+FFFF). */
static size_t character(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;
	const size_t len = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;
	uint32_t code = len < 2 ? *c : *c & (0x7fu >> len);

	for (size_t i = 1; i < len; i++) {
		if ((c[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (c[i] & 0x3f);
	}
	if (!len || code > 0x10ffff || (len == 3 && code < 0x800) || (len == 4 && code < 0x10000))
		return 0;
	if ((code < 0x20 && !strchr("\t\n\r", (int)code)) || (code >= 0xd800 && code < 0xe000) ||
	    code == 0xfffe || code == 0xffff)
		return 0;
	return len;
}

void mfs_s3_text(struct mfs_buf *b, const char *text)
{
	static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

	while (*text) {
		const size_t len = character(text);

		if (!len)
			mfs_buf_adds(b, replacement);
		else if (strchr("<>&\"'", *text) || (unsigned char)*text < 0x20 || *text == 0x7f)
			mfs_buf_printf(b, "&#%d;", *text);
		else
			mfs_buf_add(b, text, len);
		text += len ? len : 1;
	}
}

static void begin_xml(struct mfs_reply *a)
{
	mfs_buf_release(&a->text);
	a->text = (struct mfs_buf){0};
	a->type = "application/xml";
	mfs_buf_adds(&a->text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
}

void mfs_s3_begin(struct mfs_reply *a, const char *element)
{
	a->status = 200;
	begin_xml(a);
	mfs_buf_printf(&a->text, "<%s xmlns=\"" MFS_S3_XMLNS "\">", element);
}

static void add_error(struct mfs_call *c, const char *code)
{
	struct mfs_buf *b = &c->reply->text;

	begin_xml(c->reply);
	mfs_buf_printf(b, "<Error><Code>%s</Code><Message>", code);
	mfs_s3_text(b, c->reply->why);
	mfs_buf_adds(b, "</Message><Resource>");
	mfs_s3_text(b, c->request->url.path ? c->request->url.path : "/");
	mfs_buf_adds(b, "</Resource></Error>\n");
}

void mfs_s3_error(struct mfs_call *c, unsigned status, const char *code, const char *sentence)
{
	mfs_reply_error(c->reply, status, "%s", sentence);
	add_error(c, code);
}

void mfs_s3_dress(struct mfs_call *c)
{
	switch (c->reply->status) {
	case 412:
		add_error(c, "PreconditionFailed");
		break;
	case 416:
		add_error(c, "InvalidRange");
		break;
	case 500:
		add_error(c, "InternalError");
		break;
	case 503:
		add_error(c, "ServiceUnavailable");
		break;
	default:
		break;
	}
}

void mfs_s3_time(struct mfs_buf *b, int64_t ns)
{
	const time_t seconds = (time_t)(ns / 1000000000);
	char text[40] = "";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.000Z", &tm);
	mfs_buf_adds(b, text);
}

/* ---- the service and its buckets ---- */

static void list_buckets(struct mfs_call *c, const struct mfs_s3_names *names)
{
	struct mfs_buf *b = &c->reply->text;
	const char *before = "";

	if (names->rc) {
		mfs_reply_unlisted(c->reply, names->rc);
		return;
	}
	mfs_s3_begin(c->reply, "ListAllMyBucketsResult");
	mfs_buf_adds(b, "<Owner><ID>mcorefs</ID><DisplayName>mcorefs</DisplayName></Owner>"
			"<Buckets>");
	for (unsigned i = 0; i < names->count; i++) {
		const char *name = names->list[i];
		const size_t len = strcspn(name, "/");

		if (!strncmp(before, name, len + 1))
			continue;
		mfs_buf_printf(b, "<Bucket><Name>%.*s</Name><CreationDate>", (int)len, name);
		mfs_s3_time(b, 0); /* directories come and go; S3 wants a date */
		mfs_buf_adds(b, "</CreationDate></Bucket>");
		before = name;
	}
	mfs_buf_adds(b, "</Buckets></ListAllMyBucketsResult>\n");
}

static void answer_bucket(struct mfs_call *c, const struct mfs_s3_names *names)
{
	const struct mfs_url *url = &c->request->url;
	const char *type = mfs_url_query(url, "list-type");

	if (!mfs_s3_bucket_is(c, names, url->parts[0]))
		return;
	if (c->request->method == MFS_METHOD_HEAD) {
		c->reply->status = 200;
		c->reply->type = "application/xml";
	} else if (mfs_url_query(url, "location")) {
		mfs_s3_begin(c->reply, "LocationConstraint"); /* empty: us-east-1 */
		mfs_buf_adds(&c->reply->text, "</LocationConstraint>\n");
	} else if (type && !strcmp(type, "2")) {
		mfs_s3_list(c, names, url->parts[0]);
	} else {
		mfs_s3_error(c, 501, "NotImplemented", "of a bucket there is ListObjectsV2");
	}
}

/* ---- objects ---- */

/* What signs an address, and says nothing of the object. */
static bool is_signing(const char *name)
{
	static const char *const names[] = {"X-Amz-Algorithm", "X-Amz-Credential",
					    "X-Amz-Date",      "X-Amz-Expires",
					    "X-Amz-Signature", "X-Amz-SignedHeaders"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Queries that change what an object is are not known here, and must not be passed over. */
static bool takes_query(struct mfs_call *c)
{
	const struct mfs_url *url = &c->request->url;

	for (unsigned i = 0; i < url->query_count; i++) {
		const char *name = url->query[i].name, *value = url->query[i].value;

		if (strcmp(name, "x-id") != 0 && !is_signing(name) &&
		    (strcmp(name, "partNumber") != 0 || strcmp(value, "1") != 0)) {
			mfs_s3_error(c, 501, "NotImplemented",
				     "of an object there is GetObject and HeadObject");
			return false;
		}
	}
	return true;
}

/* Names are listed to tell a bucket that is not there from a key that is not. Each run is looked at
 * for it. */
static void absent(struct mfs_call *c)
{
	struct mfs_s3_names names;
	bool is;

	mfs_s3_names_find(c, &names);
	c->reply->failed |= names.failed;
	is = mfs_s3_bucket_is(c, &names, c->request->url.parts[0]);
	mfs_s3_names_release(&names);
	if (!is)
		return;
	if (c->grant->rules && !c->grant->known)
		mfs_s3_error(c, 403, "AccessDenied", "it is not for those who do not sign");
	else
		mfs_s3_error(c, 404, "NoSuchKey", "there is no such key");
}

static void send_object(struct mfs_call *c, const struct mfs_call_place *place)
{
	struct mfs_revision r;
	enum mfs_absent_kind what;
	struct mfs_error err;
	int64_t file;
	int rc = mfs_repos_hold(c->gateway->repos, place->kind, place->name, place->revision, &r,
				&what, &err);

	if (rc == -ENOENT && what != MFS_ABSENT_NONE) {
		absent(c);
		return;
	}
	if (rc) {
		mfs_reply_failure(c->reply, rc, &err);
		return;
	}
	file = c->request->url.slash ? -1 : mfs_view_find(r.view, place->file);
	if (file >= 0) {
		mfs_reply_file(c, &r, (uint32_t)file);
		return;
	}
	mfs_revision_drop(&r);
	absent(c);
}

static void answer_object(struct mfs_call *c)
{
	struct mfs_call_place place;

	if (!mfs_place_find(&c->request->url, 0, &place) || !place.revision ||
	    !mfs_call_allows(c, place.kind, place.name))
		absent(c);
	else if (takes_query(c))
		send_object(c, &place);
}

/* What is answered by the names that there are. */
static void answer_names(struct mfs_call *c)
{
	struct mfs_s3_names names;

	mfs_s3_names_find(c, &names);
	if (names.failed)
		c->reply->failed = true;
	else if (!c->request->url.count)
		list_buckets(c, &names);
	else
		answer_bucket(c, &names);
	mfs_s3_names_release(&names);
}

/* Of two values one would count, and the order in which they stand is not signed. */
static bool says_twice(const struct mfs_url *url)
{
	for (unsigned i = 0; i < url->query_count; i++)
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(url->query[i].name, url->query[k].name))
				return true;
	return false;
}

static void answer(struct mfs_call *c)
{
	const enum mfs_method method = c->request->method;

	if (method != MFS_METHOD_GET && method != MFS_METHOD_HEAD) {
		mfs_s3_error(c, 403, "AccessDenied", "the gateway is read only");
		return;
	}
	if (says_twice(&c->request->url))
		mfs_s3_error(c, 400, "InvalidArgument", "a parameter is given twice");
	else if (c->request->url.count < 2)
		answer_names(c);
	else
		answer_object(c);
}

static bool claims(const struct mfs_request *q)
{
	(void)q;
	return true;
}

const struct mfs_protocol mfs_protocol_s3 = {.route = MFS_ROUTE_S3,
					     .claims = claims,
					     .answer = answer,
					     .identify = mfs_s3_identify,
					     .dress = mfs_s3_dress};
