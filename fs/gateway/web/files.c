/*
 * Plain files by range, for curl, wget and fsspec:
 *
 *   /files/                                     repositories
 *   /files/REPO/REVISION/PATH                   a file, or a directory that ends with '/'
 *   /files/datasets/REPO/REVISION/PATH
 *
 * A directory is an HTML page of links, which fsspec's HTTPFileSystem takes for a listing.
 */
#include <stdio.h>
#include <string.h>

#include "formats/net/uri.h"
#include "formats/plan/vfile.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/web/html.h"
#include "fs/gateway/web/web.h"
#include "fs/gateway/call/place.h"
#include "fs/view/view.h"

static bool claims(const struct mfs_request *q)
{
	return q->url.count && !strcmp(q->url.parts[0], "files");
}

static void redirect_to_slash(struct mfs_call *c)
{
	struct mfs_buf to = {0};

	mfs_uri_encode(&to, c->request->url.path, strlen(c->request->url.path), true);
	mfs_buf_adds(&to, "/");
	mfs_reply_error(c->reply, 301, "a directory ends with '/'");
	mfs_reply_header(c->reply, "Location", "%s", to.failed ? "/" : to.data);
	mfs_buf_release(&to);
}

/* Whether the listing of a directory is wanted, which every request for one begins with. */
static bool begin_listing(struct mfs_call *c)
{
	if (!c->request->url.slash) {
		redirect_to_slash(c);
		return false;
	}
	mfs_html_begin(c->reply, c->request->url.path);
	mfs_buf_adds(&c->reply->text, "<ul>\n");
	return true;
}

/* Relative to the page, as web servers write them: who takes a page for an index follows no others
 * (formats/remote/listing.h). */
static void add_link(struct mfs_call *c, const char *name, size_t len, const char *end)
{
	struct mfs_buf *b = &c->reply->text;
	char text[4096];

	snprintf(text, sizeof(text), "%.*s%s", (int)len, name, end);
	mfs_buf_adds(b, "<li><a href=\"");
	mfs_uri_encode(b, text, strlen(text), true);
	mfs_buf_adds(b, "\">");
	mfs_html_text(b, text);
	mfs_buf_adds(b, "</a>\n");
}

static void end_listing(struct mfs_call *c)
{
	mfs_buf_adds(&c->reply->text, "</ul>\n");
	mfs_html_end(c->reply);
}

/* ---- directories of a view ---- */

static bool list_view(struct mfs_call *c, const struct mfs_view *view, const char *dir)
{
	const size_t len = strlen(dir), skip = len ? len + 1 : 0;
	const char *before = NULL;

	for (uint32_t i = 0; i < view->count; i++) {
		const char *name = view->files[i].name, *slash;
		size_t below;

		if (len && (strncmp(name, dir, len) || name[len] != '/'))
			continue;
		if (!before && !begin_listing(c))
			return true;
		slash = strchr(name + skip, '/');
		below = slash ? (size_t)(slash - name) : strlen(name);
		if (!slash || !before || strncmp(before, name, below + 1))
			add_link(c, name + skip, below - skip, slash ? "/" : "");
		before = name;
	}
	if (before)
		end_listing(c);
	return before;
}

static void answer_view(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
			const char *revision, const char *path)
{
	enum mfs_absent what;
	struct mfs_revision r;
	struct mfs_error err;
	int64_t file;
	int rc = mfs_repos_hold(c->gateway->repos, kind, name, revision, &r, &what, &err);

	if (rc == -ENOENT && what != MFS_ABSENT_NOTHING) {
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
};

static int add_repo(void *arg, const char *name)
{
	struct listing *l = arg;
	char text[MFS_REPO_NAME + 16];
	const int len = snprintf(text, sizeof(text), "%s%s",
				 l->kind == MFS_REPO_DATASET ? "datasets/" : "", name);

	if (mfs_call_allows(l->call, l->kind, name))
		add_link(l->call, text, (size_t)len, "/");
	return 0;
}

static void list_repos(struct mfs_call *c)
{
	struct listing models = {c, MFS_REPO_MODEL}, datasets = {c, MFS_REPO_DATASET};
	int rc;

	if (!begin_listing(c))
		return;
	rc = mfs_repos_each(c->gateway->repos, MFS_REPO_MODEL, add_repo, &models);
	if (!rc)
		rc = mfs_repos_each(c->gateway->repos, MFS_REPO_DATASET, add_repo, &datasets);
	if (rc)
		mfs_reply_unlisted(c->reply, rc);
	else
		end_listing(c);
}

static int add_iteration(void *arg, const char *iteration)
{
	add_link(arg, iteration, strlen(iteration), "/");
	return 0;
}

static void list_revisions(struct mfs_call *c, enum mfs_repo_kind kind, const char *name)
{
	struct mfs_error err;
	int rc;

	if (!begin_listing(c))
		return;
	add_link(c, "main", 4, "/");
	rc = mfs_repos_each_iteration(c->gateway->repos, kind, name, add_iteration, c, &err);
	if (rc == -ENOENT)
		mfs_reply_error(c->reply, 404, "there is no repository %s", name);
	else if (rc)
		mfs_reply_failure(c->reply, rc, &err);
	else
		end_listing(c);
}

static void refuse(struct mfs_call *c, const char *name)
{
	if (!c->grant->known) {
		mfs_reply_error(c->reply, 401, "%s: a token is needed", name);
		mfs_reply_header(c->reply, "WWW-Authenticate", "Bearer");
	} else {
		mfs_reply_error(c->reply, 404, "there is no repository %s", name);
	}
}

static void answer(struct mfs_call *c)
{
	struct mfs_place place;

	if (c->request->method == MFS_METHOD_POST) {
		mfs_reply_error(c->reply, 405, "files are read by GET and HEAD");
		mfs_reply_header(c->reply, "Allow", "GET, HEAD");
		return;
	}
	if (c->request->url.count == 1)
		list_repos(c);
	else if (!mfs_place_find(&c->request->url, 1, &place))
		mfs_reply_error(c->reply, 404, "there is nothing here");
	else if (!mfs_call_allows(c, place.kind, place.name))
		refuse(c, place.name);
	else if (!place.revision)
		list_revisions(c, place.kind, place.name);
	else
		answer_view(c, place.kind, place.name, place.revision, place.file);
}

const struct mfs_protocol mfs_protocol_files = {"files", claims, answer};
