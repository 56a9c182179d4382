/*
 * Keys in the order of their bytes. Nothing is opened that a page does not show: names are passed
 * over that lie wholly before the page, outside the prefix, or below the delimiter.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/net/uri.h"
#include "formats/plan/vfile.h"
#include "fs/gateway/s3/s3_i.h"
#include "fs/view/view.h"

#define PAGE 1000 /* keys at once, as in S3 */

/* ---- a page ---- */

struct page {
	struct mfs_call *call;
	const char *bucket, *prefix, *delimiter, *start;
	struct mfs_buf after; /* keys up to this one are of earlier pages */
	bool again;	      /* after is where a page has ended */
	bool coded;	      /* keys are percent-encoded */
	unsigned most, count;
	bool truncated;
	char *last; /* key, or common prefix */
	struct mfs_buf entries;
	int rc;
	struct mfs_error err;
};

static void add_coded(const struct page *p, struct mfs_buf *b, const char *text)
{
	if (p->coded)
		mfs_uri_encode(b, text, strlen(text), true);
	else
		mfs_s3_text(b, text);
}

/* Whether there is room for one more; then it is the last. */
static bool takes(struct page *p, const char *key, size_t len)
{
	char *copy;

	if (p->count == p->most) {
		p->truncated = p->most;
		return false;
	}
	copy = strndup(key, len);
	if (!copy) {
		p->rc = mfs_fail_nomem(&p->err);
		return false;
	}
	free(p->last);
	p->last = copy;
	p->count++;
	return true;
}

static bool is_before(const struct page *p, const char *key)
{
	const char *after = p->after.data;

	if (!after || !*after)
		return false;
	if (strcmp(key, after) <= 0)
		return true;
	return p->again && *p->delimiter && mfs_str_ends(after, p->delimiter) &&
	       !strncmp(key, after, strlen(after));
}

/* The length of the common prefix that stands for a key; 0: it stands for itself. */
static size_t common_len(const struct page *p, const char *key)
{
	const size_t skip = strlen(p->prefix);
	const char *at = *p->delimiter ? strstr(key + skip, p->delimiter) : NULL;

	return at ? (size_t)(at - key) + strlen(p->delimiter) : 0;
}

/* False: the page ends. */
static bool add_common(struct page *p, const char *key, size_t len)
{
	if (p->last && strlen(p->last) == len && !strncmp(p->last, key, len))
		return true;
	if (!takes(p, key, len))
		return false;
	mfs_buf_adds(&p->entries, "<CommonPrefixes><Prefix>");
	add_coded(p, &p->entries, p->last);
	mfs_buf_adds(&p->entries, "</Prefix></CommonPrefixes>");
	return true;
}

static bool add_key(struct page *p, const char *key, const struct mfs_revision *r, uint32_t file)
{
	const struct mfs_view_file *f = &r->view->files[file];
	struct mfs_buf *b = &p->entries;
	char etag[MFS_COMMIT_SIZE];
	size_t len;

	if (strncmp(key, p->prefix, strlen(p->prefix)) != 0 || is_before(p, key))
		return true;
	len = common_len(p, key);
	if (len)
		return add_common(p, key, len);
	if (!takes(p, key, strlen(key)))
		return false;
	mfs_revision_etag(r, f->name, etag);
	mfs_buf_adds(b, "<Contents><Key>");
	add_coded(p, b, key);
	mfs_buf_adds(b, "</Key><LastModified>");
	mfs_s3_time(b, r->view->mtime_ns);
	mfs_buf_printf(b,
		       "</LastModified><ETag>&quot;%s&quot;</ETag><Size>%llu</Size>"
		       "<StorageClass>STANDARD</StorageClass></Contents>",
		       etag, (unsigned long long)mfs_vfile_size(f->data));
	return true;
}

enum below { NOT_HERE, WITHIN, FULL };

/* Whether keys below a directory, which ends with a slash, must be looked at. */
static enum below look_below(struct page *p, const char *dir)
{
	const size_t len = strlen(dir), prefix = strlen(p->prefix);
	size_t common;

	if (strncmp(dir, p->prefix, len < prefix ? len : prefix) != 0)
		return NOT_HERE;
	if (p->after.data && strncmp(p->after.data, dir, len) != 0 && is_before(p, dir))
		return NOT_HERE;
	common = len > prefix ? common_len(p, dir) : 0;
	if (!common)
		return WITHIN;
	if (p->again && p->after.data && !strncmp(p->after.data, dir, common) && is_before(p, dir))
		return NOT_HERE;
	if (!p->again && p->after.data && !strncmp(p->after.data, dir, common))
		return WITHIN; /* some of its keys are after the start */
	return add_common(p, dir, common) ? NOT_HERE : FULL;
}

/* ---- what there is ---- */

static bool walk_revision(struct page *p, enum mfs_repo_kind kind, const char *name,
			  const char *revision, const char *dir)
{
	struct mfs_revision r;
	enum mfs_absent_kind what;
	bool goes_on = true;

	p->rc = mfs_repos_hold(p->call->gateway->repos, kind, name, revision, &r, &what, &p->err);
	if (p->rc == -ENOENT && what != MFS_ABSENT_NONE) {
		p->rc = 0; /* it has gone meanwhile, or the prefix names what there is not */
		return true;
	}
	if (p->rc)
		return false;
	for (uint32_t i = 0; goes_on && i < r.view->count; i++) {
		char *key;

		if (asprintf(&key, "%s%s", dir, r.view->files[i].name) < 0) {
			p->rc = mfs_fail_nomem(&p->err);
			break;
		}
		goes_on = add_key(p, key, &r, i);
		free(key);
	}
	mfs_revision_drop(&r);
	return goes_on && !p->rc;
}

static int note_iteration(void *arg, const char *iteration)
{
	mfs_s3_names_add(arg, iteration);
	return 0;
}

static bool walk_repo(struct page *p, enum mfs_repo_kind kind, const char *name, const char *dir)
{
	const char *rest = strlen(p->prefix) > strlen(dir) ? p->prefix + strlen(dir) : "";
	struct mfs_s3_names revisions = {0};
	bool goes_on = true;

	mfs_s3_names_add(&revisions, "main");
	p->rc = mfs_repos_each_iteration(p->call->gateway->repos, kind, name, note_iteration,
					 &revisions, &p->err);
	if (p->rc == -ENOENT) { /* the prefix names what there is not, or it has gone meanwhile */
		mfs_s3_names_release(&revisions);
		p->rc = 0;
		return true;
	}
	if (strchr(rest, '/'))
		mfs_s3_names_add_once(&revisions, rest, strcspn(rest, "/"));
	mfs_s3_names_sort(&revisions);
	for (unsigned i = 0; i < revisions.count && goes_on && !p->rc; i++) {
		char *below;

		if (asprintf(&below, "%s%s/", dir, revisions.list[i]) < 0) {
			p->rc = mfs_fail_nomem(&p->err);
			break;
		}
		switch (look_below(p, below)) {
		case WITHIN:
			goes_on = walk_revision(p, kind, name, revisions.list[i], below);
			break;
		case FULL:
			goes_on = false;
			break;
		case NOT_HERE:
			break;
		}
		free(below);
	}
	if (revisions.failed)
		p->rc = mfs_fail_nomem(&p->err);
	mfs_s3_names_release(&revisions);
	return goes_on && !p->rc;
}

/* text: [datasets/]ORG/NAME. */
static bool walk_name(struct page *p, const char *text)
{
	const bool data = !strcmp(p->bucket, "datasets");
	const enum mfs_repo_kind kind = data ? MFS_REPO_DATASET : MFS_REPO_MODEL;
	const char *name = data ? text + strlen("datasets/") : text;
	char dir[MFS_REPO_NAME + 16];
	enum below below;

	snprintf(dir, sizeof(dir), "%s/", text + strlen(p->bucket) + 1);
	if (!mfs_call_allows(p->call, kind, name))
		return true;
	below = look_below(p, dir);
	return below == WITHIN ? walk_repo(p, kind, name, dir) : below == NOT_HERE;
}

static void walk(struct page *p, const struct mfs_s3_names *all)
{
	const bool data = !strcmp(p->bucket, "datasets");
	size_t len = strcspn(p->prefix, "/");
	struct mfs_s3_names names = {0};
	char text[MFS_REPO_NAME + 16];

	for (unsigned i = 0; i < all->count; i++)
		if (mfs_s3_is_in(all->list[i], p->bucket))
			mfs_s3_names_add(&names, all->list[i]);
	if (data && p->prefix[len])
		len += 1 + strcspn(p->prefix + len + 1, "/");
	if (p->prefix[len] && (size_t)snprintf(text, sizeof(text), "%s/%.*s", p->bucket, (int)len,
					       p->prefix) < sizeof(text))
		mfs_s3_names_add_once(&names, text, strlen(text));
	mfs_s3_names_sort(&names);
	if (names.failed)
		p->rc = mfs_fail_nomem(&p->err);
	for (unsigned i = 0; i < names.count && !p->rc; i++)
		if (!walk_name(p, names.list[i]))
			break;
	mfs_s3_names_release(&names);
}

/* ---- the request and its answer ---- */

static const char *query(const struct mfs_call *c, const char *name)
{
	const char *value = mfs_url_query(&c->request->url, name);

	return value ? value : "";
}

static bool read_most(struct page *p, const char *text)
{
	char *end;
	unsigned long n = PAGE;

	if (*text) {
		n = strtoul(text, &end, 10);
		if (*end || *text < '0' || *text > '9')
			return false;
	}
	p->most = n < PAGE ? (unsigned)n : PAGE;
	return true;
}

/* A token is the last key of the page before, percent-encoded. False: the call is answered. */
static bool read_page(struct page *p)
{
	const char *coding = query(p->call, "encoding-type");
	const char *token = query(p->call, "continuation-token");
	int rc = 0;

	p->coded = !strcmp(coding, "url");
	p->again = *token;
	if (*token)
		rc = mfs_uri_decode(&p->after, token, strlen(token), false);
	else
		mfs_buf_adds(&p->after, p->start);
	if (!rc && read_most(p, query(p->call, "max-keys")) && (p->coded || !*coding))
		return true;
	mfs_s3_error(p->call, 400, "InvalidArgument",
		     "max-keys is a number, encoding-type is url, and continuation-token is one "
		     "that was sent from here");
	return false;
}

static void add_element(struct page *p, const char *name, const char *text)
{
	struct mfs_buf *b = &p->call->reply->text;

	mfs_buf_printf(b, "<%s>", name);
	add_coded(p, b, text);
	mfs_buf_printf(b, "</%s>", name);
}

static void send_page(struct page *p)
{
	struct mfs_buf *b = &p->call->reply->text;

	mfs_s3_begin(p->call->reply, "ListBucketResult");
	mfs_buf_printf(b, "<Name>%s</Name>", p->bucket);
	add_element(p, "Prefix", p->prefix);
	if (*p->delimiter)
		add_element(p, "Delimiter", p->delimiter);
	if (*p->start)
		add_element(p, "StartAfter", p->start);
	mfs_buf_printf(b,
		       "<MaxKeys>%u</MaxKeys><KeyCount>%u</KeyCount><IsTruncated>%s"
		       "</IsTruncated>%s",
		       p->most, p->count, p->truncated ? "true" : "false",
		       p->coded ? "<EncodingType>url</EncodingType>" : "");
	if (p->again) {
		mfs_buf_adds(b, "<ContinuationToken>");
		mfs_s3_text(b, query(p->call, "continuation-token"));
		mfs_buf_adds(b, "</ContinuationToken>");
	}
	if (p->truncated) {
		mfs_buf_adds(b, "<NextContinuationToken>");
		mfs_uri_encode(b, p->last, strlen(p->last), false);
		mfs_buf_adds(b, "</NextContinuationToken>");
	}
	mfs_buf_add(b, p->entries.data, p->entries.len);
	mfs_buf_adds(b, "</ListBucketResult>\n");
	b->failed = b->failed || p->entries.failed;
}

void mfs_s3_list(struct mfs_call *c, const struct mfs_s3_names *names, const char *bucket)
{
	struct page p = {.call = c,
			 .bucket = bucket,
			 .prefix = query(c, "prefix"),
			 .delimiter = query(c, "delimiter"),
			 .start = query(c, "start-after")};

	if (names->rc) {
		mfs_reply_unlisted(c->reply, names->rc);
	} else if (read_page(&p)) {
		walk(&p, names);
		if (p.rc)
			mfs_reply_failure(c->reply, p.rc, &p.err);
		else
			send_page(&p);
	}
	mfs_buf_release(&p.after);
	mfs_buf_release(&p.entries);
	free(p.last);
}
