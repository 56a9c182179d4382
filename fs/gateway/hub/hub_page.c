/* Lists in parts: "limit" and "cursor" of a query, and where the next part is (RFC 8288). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/net/uri.h"
#include "fs/gateway/call/gateway_address.h"
#include "fs/gateway/hub/hub_i.h"

#define MOST	 1000 /* entries of a part, as the Hub has it */
#define REVISION 5    /* its part in /api/models/ORG/NAME/tree/REVISION */

/* A number of the query; unless it is there, what it was stays. False: it is none. */
static bool take_number(const struct mfs_call *c, const char *name, uint64_t *number)
{
	const char *text = mfs_url_query(&c->request->url, name);

	if (!text)
		return true;
	if (!*text || strlen(text) > 9 || strspn(text, "0123456789") != strlen(text))
		return false;
	*number = strtoull(text, NULL, 10);
	return true;
}

bool mfs_hub_page_begin(struct mfs_call *c, uint64_t usual, struct mfs_hub_page *ret)
{
	*ret = (struct mfs_hub_page){.most = usual ? usual : UINT64_MAX / 2};
	if (!take_number(c, "limit", &ret->most) || !take_number(c, "cursor", &ret->first)) {
		mfs_hub_error(c->reply, 400, "BadRequest", "limit and cursor are numbers");
		return false;
	}
	if (ret->most > MOST && mfs_url_query(&c->request->url, "limit"))
		ret->most = MOST;
	return true;
}

bool mfs_hub_page_takes(struct mfs_hub_page *p)
{
	const uint64_t at = p->seen++;

	return at >= p->first && at - p->first < p->most;
}

bool mfs_hub_page_is_full(const struct mfs_hub_page *p)
{
	return p->seen > p->first && p->seen - p->first > p->most;
}

/* ---- the address of the next part ---- */

static void add_pair(struct mfs_buf *b, const char *before, const char *name, const char *value)
{
	mfs_buf_adds(b, before);
	mfs_uri_encode(b, name, strlen(name), false);
	mfs_buf_adds(b, "=");
	mfs_uri_encode(b, value, strlen(value), false);
}

static void add_target(const struct mfs_call *c, struct mfs_buf *b, const char *commit,
		       uint64_t cursor)
{
	const struct mfs_url *url = &c->request->url;
	char text[32];

	for (unsigned i = 0; i < url->count; i++) {
		const char *part = i == REVISION && commit ? commit : url->parts[i];

		mfs_buf_adds(b, "/");
		mfs_uri_encode(b, part, strlen(part), false);
	}
	snprintf(text, sizeof(text), "%llu", (unsigned long long)cursor);
	add_pair(b, "?", "cursor", text);
	for (unsigned i = 0; i < url->query_count; i++)
		if (strcmp(url->query[i].name, "cursor"))
			add_pair(b, "&", url->query[i].name, url->query[i].value);
}

void mfs_hub_page_end(struct mfs_call *c, const struct mfs_hub_page *p, const char *commit)
{
	struct mfs_buf b = {0};

	if (!p->most || !mfs_hub_page_is_full(p))
		return;
	mfs_call_add_address(c, &b); /* clients take whole addresses alone */
	add_target(c, &b, commit, p->first + p->most);
	mfs_buf_add(&b, "", 1);
	if (b.failed)
		c->reply->failed = true;
	else
		mfs_reply_header(c->reply, "Link", "<%s>; rel=\"next\"", b.data);
	mfs_buf_release(&b);
}
