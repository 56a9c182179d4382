/* What the Hub lists: repositories, the refs and commits of one, and who asks. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fs/gateway/hub/hub_i.h"

#define COMMITS 50 /* of a part, as the Hub has it: each is of an iteration that may not be open */

/* ---- repositories ---- */

struct names {
	const struct mfs_call *call;
	enum mfs_repo_kind kind;
	json_t *list;
	struct mfs_hub_page page;
};

/* Whether a name is what the query looks for. Other filters of the Hub are of what no repository
 * here has. */
static bool is_wanted(const struct mfs_url *url, const char *name)
{
	const size_t org = strcspn(name, "/");

	for (unsigned i = 0; i < url->query_count; i++) {
		const char *key = url->query[i].name, *value = url->query[i].value;

		if (!strcmp(key, "author") &&
		    (strlen(value) != org || strncasecmp(value, name, org)))
			return false;
		if (!strcmp(key, "search") && !strcasestr(name, value))
			return false;
	}
	return true;
}

static int add_repo(void *arg, const char *name)
{
	struct names *n = arg;
	json_t *o;

	if (!mfs_call_allows(n->call, n->kind, name) || !is_wanted(&n->call->request->url, name))
		return 0;
	if (!mfs_hub_page_takes(&n->page))
		return mfs_hub_page_is_full(&n->page);
	o = json_object();
	mfs_hub_put(n->call->reply, o, "_id", mfs_json_string(name));
	mfs_hub_name(n->call->reply, o, name);
	mfs_hub_append(n->call->reply, n->list, o);
	return 0;
}

void mfs_hub_list(struct mfs_call *c, enum mfs_repo_kind kind)
{
	struct names n = {.call = c, .kind = kind};
	int rc;

	if (!mfs_hub_page_begin(c, 0, &n.page))
		return;
	n.list = json_array();
	rc = mfs_repos_each(c->gateway->repos, kind, add_repo, &n);
	if (rc < 0) {
		json_decref(n.list);
		mfs_reply_unlisted(c->reply, rc);
		return;
	}
	mfs_hub_json(c->reply, 200, n.list);
	mfs_hub_page_end(c, &n.page, NULL);
}

/* ---- refs and commits ---- */

struct commits {
	struct mfs_reply *reply;
	json_t *list;
	struct mfs_hub_page page;
	bool formatted;
};

static bool wants_all(void *arg)
{
	(void)arg;
	return true;
}

static void add_ref(struct mfs_reply *a, json_t *list, const char *kind, const char *name,
		    const char *commit)
{
	json_t *o = json_object();
	char ref[300];

	snprintf(ref, sizeof(ref), "refs/%s/%s", kind, name);
	mfs_hub_put(a, o, "name", mfs_json_string(name));
	mfs_hub_put(a, o, "ref", mfs_json_string(ref));
	mfs_hub_put(a, o, "targetCommit", json_string(commit));
	mfs_hub_append(a, list, o);
}

static void add_tag(void *arg, const char *iteration, const char *commit, int64_t mtime_ns)
{
	struct commits *tags = arg;

	(void)mtime_ns;
	if (iteration)
		add_ref(tags->reply, tags->list, "tags", iteration, commit);
}

/* Iterations are tags. */
void mfs_hub_refs(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest)
{
	struct commits tags = {.reply = c->reply, .list = json_array()};
	const struct mfs_commits_hooks asked = {wants_all, add_tag, &tags};
	struct mfs_error err;
	const int rc = mfs_revision_each_commit(r, true, &asked, &err);
	json_t *o, *branches;

	(void)name, (void)rest;
	if (rc) {
		json_decref(tags.list);
		mfs_reply_failure(c->reply, rc, &err);
		return;
	}
	o = json_object();
	branches = json_array();
	add_ref(c->reply, branches, "heads", "main", r->commit);
	mfs_hub_put(c->reply, o, "branches", branches);
	mfs_hub_put(c->reply, o, "converts", json_array());
	mfs_hub_put(c->reply, o, "pullRequests", json_array());
	mfs_hub_put(c->reply, o, "tags", tags.list);
	mfs_hub_json(c->reply, 200, o);
}

static bool wants_commit(void *arg)
{
	struct commits *l = arg;

	return mfs_hub_page_takes(&l->page);
}

static void add_commit(void *arg, const char *iteration, const char *commit, int64_t mtime_ns)
{
	const struct commits *l = arg;
	json_t *o = json_object(), *formatted;

	mfs_hub_put(l->reply, o, "id", json_string(commit));
	mfs_hub_put(l->reply, o, "title", mfs_json_string(iteration ? iteration : ""));
	mfs_hub_put(l->reply, o, "message", json_string(""));
	mfs_hub_put(l->reply, o, "authors", json_array());
	mfs_hub_put(l->reply, o, "date", mfs_hub_date(mtime_ns));
	if (l->formatted) {
		formatted = json_object();
		mfs_hub_put(l->reply, formatted, "title",
			    mfs_json_string(iteration ? iteration : ""));
		mfs_hub_put(l->reply, formatted, "message", json_string(""));
		mfs_hub_put(l->reply, o, "formatted", formatted);
	}
	mfs_hub_append(l->reply, l->list, o);
}

void mfs_hub_commits(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		     const char *rest)
{
	const char *expand = mfs_url_query(&c->request->url, "expand[]");
	struct commits l = {.reply = c->reply, .formatted = mfs_str_is(expand, "formatted")};
	const struct mfs_commits_hooks asked = {wants_commit, add_commit, &l};
	struct mfs_error err;
	int rc;

	(void)name, (void)rest;
	if (!mfs_hub_page_begin(c, COMMITS, &l.page))
		return;
	l.list = json_array();
	rc = mfs_revision_each_commit(r, false, &asked, &err);
	if (rc) {
		json_decref(l.list);
		mfs_reply_failure(c->reply, rc, &err);
		return;
	}
	mfs_hub_json(c->reply, 200, l.list);
	mfs_hub_page_end(c, &l.page, r->commit);
}

/* ---- who asks ---- */

/* The name of a token, as the file of tokens has it. */
void mfs_hub_whoami(struct mfs_call *c)
{
	struct mfs_reply *a = c->reply;
	json_t *o, *auth, *token;

	if (!c->grant->known) {
		mfs_hub_error(a, 401, "Unauthorized", "the token is not known here");
		mfs_reply_header(a, "WWW-Authenticate", "Bearer");
		return;
	}
	token = json_object();
	mfs_hub_put(a, token, "displayName", mfs_json_string(a->who));
	mfs_hub_put(a, token, "role", json_string("read"));
	auth = json_object();
	mfs_hub_put(a, auth, "type", json_string("access_token"));
	mfs_hub_put(a, auth, "accessToken", token);
	o = json_object();
	mfs_hub_put(a, o, "type", json_string("user"));
	mfs_hub_put(a, o, "id", mfs_json_string(a->who));
	mfs_hub_put(a, o, "name", mfs_json_string(a->who));
	mfs_hub_put(a, o, "fullname", mfs_json_string(a->who));
	mfs_hub_put(a, o, "isPro", json_false());
	mfs_hub_put(a, o, "orgs", json_array());
	mfs_hub_put(a, o, "auth", auth);
	mfs_hub_json(a, 200, o);
}
