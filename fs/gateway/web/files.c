/*
 * Plain files by range, for curl, wget and fsspec:
 *
 *   /files/                                     repositories
 *   /files/ORG/, /files/datasets/               those of one organisation, datasets
 *   /files/REPO/REVISION/PATH                   a file, or a directory that ends with '/'
 *   /files/datasets/REPO/REVISION/PATH
 *
 * A directory is an HTML page of links, which fsspec's HTTPFileSystem takes for a listing: links of
 * entries are relative, and no other link leads below the page's own address.
 */
#include <stdio.h>
#include <string.h>

#include "formats/net/uri.h"
#include "formats/plan/vfile.h"
#include "fs/cli/text.h"
#include "fs/gateway/call/place.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"
#include "fs/view/view.h"

static bool claims(const struct mfs_request *q)
{
	return q->url.count && !strcmp(q->url.parts[0], "files");
}

/* The query, which may have a user's signature or a page's own parameters, is not carried on. */
static void redirect_to_slash(struct mfs_call *c)
{
	struct mfs_buf to = {0};

	mfs_uri_encode(&to, c->request->url.path, strlen(c->request->url.path), true);
	mfs_buf_adds(&to, "/");
	mfs_reply_error(c->reply, 301, "a directory ends with '/'");
	mfs_reply_header(c->reply, "Location", "%s", to.failed ? "/" : to.data);
	mfs_buf_release(&to);
}

/* ---- the page ---- */

/* The places above, from the parts of the path; hrefs: room for their addresses. */
static unsigned find_crumbs(const struct mfs_url *url, struct mfs_buf *hrefs,
			    struct mfs_crumb crumbs[MFS_CRUMBS])
{
	unsigned count = 0;
	size_t at[MFS_URL_PARTS];

	crumbs[count++] = (struct mfs_crumb){"/#models", "mcorefs"};
	for (unsigned i = 0; i + 1 < url->count && i < MFS_CRUMBS - 1; i++) {
		at[i] = hrefs->len;
		for (unsigned k = 0; k <= i; k++) {
			mfs_buf_adds(hrefs, "/");
			mfs_uri_encode(hrefs, url->parts[k], strlen(url->parts[k]), false);
		}
		mfs_buf_add(hrefs, "/", 2);
	}
	for (unsigned i = 0; !hrefs->failed && i + 1 < url->count && i < MFS_CRUMBS - 1; i++)
		crumbs[count++] = (struct mfs_crumb){hrefs->data + at[i], url->parts[i]};
	return count;
}

/* Whether the listing of a directory is wanted, which every request for one begins with. */
static bool begin_listing(struct mfs_call *c)
{
	const struct mfs_url *url = &c->request->url;
	struct mfs_crumb crumbs[MFS_CRUMBS];
	struct mfs_buf hrefs = {0};
	unsigned count;

	if (!url->slash) {
		redirect_to_slash(c);
		return false;
	}
	count = find_crumbs(url, &hrefs, crumbs);
	mfs_page_begin(c, url->parts[url->count - 1], crumbs, count);
	mfs_buf_release(&hrefs);
	mfs_buf_adds(&c->reply->text, "<div class=scroll><table class=list>\n<thead><tr><th>Name"
				      "<th class=n>Size<th>Changed (UTC)</thead>\n");
	return true;
}

/* Relative to the page, as web servers write them: who takes a page for an index follows no others
 * (formats/remote/listing.h). size: NULL: a directory. */
static void add_entry(struct mfs_call *c, const char *name, size_t len, const uint64_t *size,
		      int64_t mtime_ns)
{
	struct mfs_buf *b = &c->reply->text;
	const char *end = size ? "" : "/";
	char human[MFS_HUMAN];

	mfs_buf_adds(b, "<tr><td class=name><a href=\"");
	mfs_uri_encode(b, name, len, true);
	mfs_buf_printf(b, "%s\"><bdi>", end);
	mfs_html_text_part(b, name, len);
	mfs_buf_printf(b, "%s</bdi></a><td class=n>%s<td class=t>", end,
		       size ? mfs_human_bytes(*size, human) : "");
	mfs_page_add_time(b, mtime_ns);
	mfs_buf_adds(b, "\n");
}

static void end_listing(struct mfs_call *c)
{
	mfs_buf_adds(&c->reply->text, "</table></div>\n");
}

/* ---- directories of a view ---- */

static bool list_view(struct mfs_call *c, const struct mfs_view *view, const char *dir)
{
	const size_t len = strlen(dir), skip = len ? len + 1 : 0;
	const char *before = NULL;

	for (uint32_t i = 0; i < view->count; i++) {
		const char *name = view->files[i].name, *slash;
		const uint64_t size = mfs_vfile_size(view->files[i].data);
		size_t below;

		if (len && (strncmp(name, dir, len) || name[len] != '/'))
			continue;
		if (!before && !begin_listing(c))
			return true;
		slash = strchr(name + skip, '/');
		below = slash ? (size_t)(slash - name) : strlen(name);
		if (!slash || !before || strncmp(before, name, below + 1))
			add_entry(c, name + skip, below - skip, slash ? NULL : &size,
				  view->mtime_ns);
		before = name;
	}
	if (!before)
		return false;
	end_listing(c);
	mfs_page_end(c);
	return true;
}

/* A browser takes a file for what its type says, and a cache between keeps what a token or a cookie
 * has opened for nobody else. */
static void add_file_headers(struct mfs_call *c)
{
	mfs_reply_header(c->reply, "X-Content-Type-Options", "nosniff");
	if (c->grant->rules)
		mfs_reply_header(c->reply, "Cache-Control", "private");
}

static void answer_view(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			const char *revision, const char *path)
{
	enum mfs_absent_kind what;
	struct mfs_revision r;
	struct mfs_error err;
	int64_t file;
	int rc = mfs_repos_hold(c->gateway->repos, kind, name, revision, &r, &what, &err);

	if (rc == -ENOENT && what != MFS_ABSENT_NONE) {
		mfs_hide_directories(err.msg);
		mfs_reply_error(c->reply, 404, "%s", err.msg);
		return;
	}
	if (rc) {
		mfs_reply_failure(c->reply, rc, &err);
		return;
	}
	file = c->request->url.slash ? -1 : mfs_view_find(r.view, path);
	if (file >= 0) {
		add_file_headers(c);
		mfs_reply_file(c, &r, (uint32_t)file);
		return;
	}
	if (!list_view(c, r.view, path))
		mfs_reply_error(c->reply, 404, "%s has no file '%.200s'", name, path);
	mfs_revision_drop(&r);
}

/* ---- directories above ---- */

struct listing {
	struct mfs_call *call;
	enum mfs_repo_kind kind;
	const char *org;    /* NULL: all */
	const char *prefix; /* of the links */
	bool begun;	    /* the page */
};

static int add_repo(void *arg, const char *name)
{
	struct listing *l = arg;
	const size_t org = l->org ? strlen(l->org) : 0;
	char text[MFS_REPO_NAME + 16];
	int len;

	if (!mfs_call_allows(l->call, l->kind, name) ||
	    (l->org && (strncmp(name, l->org, org) || name[org] != '/')))
		return 0;
	if (!l->begun && !begin_listing(l->call))
		return 1;
	l->begun = true;
	len = snprintf(text, sizeof(text), "%s%s", l->prefix, l->org ? name + org + 1 : name);
	add_entry(l->call, text, (size_t)len, NULL, 0);
	return 0;
}

/* Repositories below "/files/", "/files/ORG/", "/files/datasets/", "/files/datasets/ORG/". An
 * organisation without one that the client may read is not there. */
static void list_repos(struct mfs_call *c)
{
	const struct mfs_url *url = &c->request->url;
	const bool data = url->count > 1 && !strcmp(url->parts[1], "datasets");
	const char *org = url->count > 1U + data ? url->parts[1 + data] : NULL;
	struct listing l = {.call = c, .kind = MFS_REPO_MODEL, .org = org, .prefix = ""};
	int rc = 0;

	if (!org && !begin_listing(c))
		return;
	l.begun = !org;
	if (!data)
		rc = mfs_repos_each(c->gateway->repos, l.kind, add_repo, &l);
	l.kind = MFS_REPO_DATASET;
	l.prefix = url->count == 1 ? "datasets/" : "";
	if (rc >= 0 && (data || !org))
		rc = mfs_repos_each(c->gateway->repos, l.kind, add_repo, &l);
	if (rc < 0) {
		mfs_reply_unlisted(c->reply, rc);
	} else if (l.begun) {
		end_listing(c);
		mfs_page_end(c);
	} else if (!rc) {
		mfs_reply_error(c->reply, c->grant->known || !c->grant->rules ? 404 : 401,
				"there is nothing here%s",
				c->grant->known || !c->grant->rules ? "" : " without a token");
	}
}

static int add_iteration(void *arg, const char *iteration)
{
	add_entry(arg, iteration, strlen(iteration), NULL, 0);
	return 0;
}

/* The page of the repository says more of them. */
static void add_repo_link(struct mfs_call *c, enum mfs_repo_kind kind, const char *name)
{
	struct mfs_buf href = {0};

	mfs_page_add_repo(&href, kind, name);
	mfs_buf_adds(&c->reply->text, "<p>What it is, and its other views: ");
	mfs_html_link(&c->reply->text, href.failed ? "/" : href.data, name);
	mfs_buf_adds(&c->reply->text, "\n");
	mfs_buf_release(&href);
}

static void list_revisions(struct mfs_call *c, enum mfs_repo_kind kind, const char *name)
{
	struct mfs_error err;
	int rc;

	if (!begin_listing(c))
		return;
	add_entry(c, "main", 4, NULL, 0);
	rc = mfs_repos_each_iteration(c->gateway->repos, kind, name, add_iteration, c, &err);
	if (rc == -ENOENT) {
		mfs_reply_error(c->reply, 404, "there is no repository %s", name);
	} else if (rc) {
		mfs_reply_failure(c->reply, rc, &err);
	} else {
		end_listing(c);
		add_repo_link(c, kind, name);
		mfs_page_end(c);
	}
}

static void refuse(struct mfs_call *c, const char *name)
{
	if (!c->grant->known)
		mfs_reply_error(c->reply, 401, "%s: a token is needed", name);
	else
		mfs_reply_error(c->reply, 404, "there is no repository %s", name);
}

static void answer(struct mfs_call *c)
{
	struct mfs_call_place place;

	if (c->request->method == MFS_METHOD_POST) {
		mfs_reply_error(c->reply, 405, "files are read by GET and HEAD");
		mfs_reply_header(c->reply, "Allow", "GET, HEAD");
		return;
	}
	if (!mfs_place_find(&c->request->url, 1, &place))
		list_repos(c);
	else if (!mfs_call_allows(c, place.kind, place.name))
		refuse(c, place.name);
	else if (!place.revision)
		list_revisions(c, place.kind, place.name);
	else
		answer_view(c, place.kind, place.name, place.revision, place.file);
}

const struct mfs_protocol mfs_protocol_files = {
	.route = MFS_ROUTE_FILES, .claims = claims, .answer = answer, .is_web = true};
