/*
 * The HuggingFace Hub's routes that its clients use, for models and, with datasets/ before the
 * name, for datasets:
 *
 *   GET, HEAD /REPO/resolve/REVISION/PATH
 *   GET  /api/models/REPO[/revision/REVISION]
 *   GET  /api/models/REPO/tree/REVISION[/PATH]?recursive=&limit=&cursor=
 *   POST /api/models/REPO/paths-info/REVISION     paths=A&paths=B, or JSON
 *   GET  /api/models/REPO/refs
 *   GET  /api/models/REPO/commits/REVISION?limit=&cursor=
 *   GET  /api/models/REPO/xet-read-token/REVISION
 *   GET  /api/models/REPO/auth-check
 *   GET  /api/models?author=&search=&limit=&cursor=
 *   GET  /api/whoami-v2
 *
 * Clients know the reason of a refusal by X-Error-Code alone, and keep in mind that a file is not
 * there only if X-Repo-Commit comes with it.
 */
#include "fs/gateway/hub/hub.h"

#include <stdlib.h>
#include <string.h>

#include "fs/gateway/hub/hub_i.h"

void mfs_hub_put(struct mfs_reply *a, json_t *o, const char *key, json_t *value)
{
	if (json_object_set_new(o, key, value))
		a->failed = true;
}

void mfs_hub_append(struct mfs_reply *a, json_t *list, json_t *value)
{
	if (json_array_append_new(list, value))
		a->failed = true;
}

void mfs_hub_error(struct mfs_reply *a, unsigned status, const char *code, const char *sentence)
{
	json_t *o = json_object();

	mfs_hub_put(a, o, "error", mfs_json_string(sentence));
	mfs_reply_error(a, status, "%s", sentence);
	mfs_hub_json(a, status, o);
	mfs_reply_header(a, "X-Error-Code", "%s", code);
	mfs_reply_header(a, "X-Error-Message", "%s", sentence);
}

static int add_text(const char *text, size_t len, void *buf)
{
	mfs_buf_add(buf, text, len);
	return 0;
}

/* json_dumps() leaves out a key that it has no memory for (jansson 2.14); a buffer remembers. */
void mfs_hub_json(struct mfs_reply *a, unsigned status, json_t *o)
{
	mfs_buf_release(&a->text);
	a->text = (struct mfs_buf){0};
	if (!o || json_dump_callback(o, add_text, &a->text, JSON_COMPACT))
		a->failed = true;
	json_decref(o);
	a->status = status;
	a->type = "application/json; charset=utf-8";
}

/* ---- paths ---- */

/* Where a request goes. */
struct route {
	enum mfs_repo_kind kind;
	bool api;
	unsigned first; /* the part where the name begins */
	char name[MFS_REPO_NAME];
	const char *verb;     /* "resolve", "tree", ...; NULL: the repository itself */
	const char *revision; /* NULL: none is named */
	const char *rest;     /* after the revision; "": nothing */
};

static bool is_part(const struct mfs_request *q, unsigned i, const char *text)
{
	return i < q->url.count && !strcmp(q->url.parts[i], text);
}

static bool find_route(const struct mfs_request *q, struct route *r)
{
	const struct mfs_url *url = &q->url;
	int len;

	*r = (struct route){.kind = MFS_REPO_MODEL, .rest = ""};
	r->api = is_part(q, 0, "api");
	r->first = r->api;
	if (is_part(q, r->first, "datasets")) {
		r->kind = MFS_REPO_DATASET;
		r->first++;
	} else if (r->api) {
		if (!is_part(q, 1, "models"))
			return false;
		r->first++;
	}
	if (r->first + 1 >= url->count)
		return r->first == url->count && r->api; /* all repositories */
	len = snprintf(r->name, sizeof(r->name), "%s/%s", url->parts[r->first],
		       url->parts[r->first + 1]);
	if (len >= (int)sizeof(r->name))
		return false;
	if (r->first + 2 < url->count)
		r->verb = url->parts[r->first + 2];
	if (r->first + 3 < url->count)
		r->revision = url->parts[r->first + 3];
	r->rest = mfs_url_rest(url, r->first + 4);
	return true;
}

static bool is_whoami(const struct mfs_request *q)
{
	return q->url.count == 2 && is_part(q, 0, "api") && is_part(q, 1, "whoami-v2") &&
	       q->method != MFS_METHOD_POST;
}

static bool claims(const struct mfs_request *q)
{
	(void)q;
	return true;
}

/* ---- refusals ---- */

static void refuse_repo(struct mfs_call *c, const char *name)
{
	char text[MFS_REPO_NAME + 128];

	if (!c->grant->known)
		snprintf(text, sizeof(text),
			 c->grant->sent ? "%s: the token is not known here"
					: "%s: there is no such repository without a token",
			 name);
	else
		snprintf(text, sizeof(text), "there is no repository %s", name);
	mfs_hub_error(c->reply, c->grant->known ? 404 : 401, "RepoNotFound", text);
}

/* The answer when a revision cannot be held. */
static void refuse_revision(struct mfs_call *c, int rc, enum mfs_absent_kind what,
			    struct mfs_error *err)
{
	if (rc != -ENOENT || what == MFS_ABSENT_NONE) {
		mfs_reply_failure(c->reply, rc, err);
		return;
	}
	mfs_hide_directories(err->msg);
	mfs_hub_error(c->reply, 404, what == MFS_ABSENT_REPO ? "RepoNotFound" : "RevisionNotFound",
		      err->msg);
}

static bool hold(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
		 const char *revision, struct mfs_revision *ret)
{
	enum mfs_absent_kind what;
	struct mfs_error err;
	int rc = mfs_repos_hold(c->gateway->repos, kind, name, revision, ret, &what, &err);

	if (rc)
		refuse_revision(c, rc, what, &err);
	return !rc;
}

bool mfs_hub_hold(struct mfs_call *c, enum mfs_repo_kind kind, const char *name,
		  const char *revision, struct mfs_revision *ret)
{
	if (mfs_call_allows(c, kind, name))
		return hold(c, kind, name, revision ? revision : "main", ret);
	refuse_repo(c, name);
	return false;
}

/* ---- verbs ---- */

/* Holds the revision of a file. A signed address stands for a token. */
static bool hold_for_file(struct mfs_call *c, const struct route *r, struct mfs_revision *ret)
{
	if (!mfs_hub_is_signed(c))
		return mfs_hub_hold(c, r->kind, r->name, r->revision, ret);
	return mfs_hub_check_signed(c, r->kind, r->name, r->revision, r->rest) &&
	       hold(c, r->kind, r->name, r->revision, ret);
}

static void resolve(struct mfs_call *c, const struct route *r)
{
	struct mfs_revision revision;
	char text[512];
	int64_t file;

	if (!hold_for_file(c, r, &revision))
		return;
	file = mfs_view_find(revision.view, r->rest);
	if (file >= 0 && c->gateway->redirects.node && !mfs_hub_is_signed(c)) {
		mfs_reply_elsewhere(c, &revision, (uint32_t)file,
				    mfs_hub_signed(c, r->kind, r->name, revision.commit, r->rest));
		return;
	}
	if (file >= 0) {
		mfs_reply_file(c, &revision, (uint32_t)file);
		return;
	}
	snprintf(text, sizeof(text), "%s has no file '%.200s'", r->name, r->rest);
	mfs_hub_error(c->reply, 404, "EntryNotFound", text);
	mfs_reply_header(c->reply, "X-Repo-Commit", "%s", revision.commit);
	mfs_revision_drop(&revision);
}

/* Whether the client may read a repository: it is there, be any iteration of it complete or not.
 * Nobody may write. rest: "write" if that is asked. */
static void check_access(struct mfs_call *c, const struct route *r)
{
	struct mfs_revision revision;
	enum mfs_absent_kind what;
	struct mfs_error err;
	int rc;

	if (!mfs_call_allows(c, r->kind, r->name)) {
		refuse_repo(c, r->name);
		return;
	}
	rc = mfs_repos_hold(c->gateway->repos, r->kind, r->name, "main", &revision, &what, &err);
	if (!rc)
		mfs_revision_drop(&revision);
	if (rc && (rc != -ENOENT || what != MFS_ABSENT_REVISION))
		refuse_revision(c, rc, what, &err);
	else if (r->revision)
		mfs_hub_error(c->reply, 403, "Forbidden", "nobody may write to a gateway");
	else
		mfs_hub_json(c->reply, 200, json_object());
}

typedef void answer_fn(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		       const char *rest);

static void with_revision(struct mfs_call *c, const struct route *r, answer_fn *answer)
{
	struct mfs_revision revision;

	if (!mfs_hub_hold(c, r->kind, r->name, r->revision, &revision))
		return;
	answer(c, &revision, r->name, r->rest);
	mfs_reply_header(c->reply, "X-Repo-Commit", "%s", revision.commit);
	mfs_revision_drop(&revision);
}

static void answer_repo(struct mfs_call *c, const struct route *r)
{
	const bool post = c->request->method == MFS_METHOD_POST;

	if (!r->verb || (!strcmp(r->verb, "revision") && r->revision && !*r->rest))
		with_revision(c, r, mfs_hub_info);
	else if (!strcmp(r->verb, "tree") && r->revision)
		with_revision(c, r, mfs_hub_tree);
	else if (!strcmp(r->verb, "paths-info") && r->revision && post)
		with_revision(c, r, mfs_hub_paths);
	else if (!strcmp(r->verb, "refs"))
		with_revision(c, r, mfs_hub_refs);
	else if (!strcmp(r->verb, "commits") && r->revision && !*r->rest)
		with_revision(c, r, mfs_hub_commits);
	else if (!strcmp(r->verb, "auth-check") && !*r->rest &&
		 (!r->revision || !strcmp(r->revision, "write")))
		check_access(c, r);
	else if (!strcmp(r->verb, "xet-read-token") && r->revision)
		with_revision(c, r, mfs_hub_xet_token);
	else
		mfs_hub_error(c->reply, 404, "NotFound", "the gateway has no such route");
}

static void answer(struct mfs_call *c)
{
	const struct mfs_request *q = c->request;
	struct route r;

	if (is_whoami(q)) {
		mfs_hub_whoami(c);
	} else if (!find_route(q, &r)) {
		mfs_hub_error(c->reply, 404, "NotFound", "the gateway has no such route");
	} else if (q->method == MFS_METHOD_POST && !mfs_str_is(r.verb, "paths-info")) {
		mfs_reply_error(c->reply, 405, "a POST is taken by paths-info alone");
		mfs_reply_header(c->reply, "Allow", "GET, HEAD");
	} else if (!*r.name) {
		mfs_hub_list(c, r.kind);
	} else if (r.api) {
		answer_repo(c, &r);
	} else if (mfs_str_is(r.verb, "resolve") && r.revision && *r.rest) {
		resolve(c, &r);
	} else {
		mfs_hub_error(c->reply, 404, "NotFound", "the gateway has no such route");
	}
}

const struct mfs_protocol mfs_protocol_hub = {
	.route = MFS_ROUTE_HUB, .claims = claims, .answer = answer};
