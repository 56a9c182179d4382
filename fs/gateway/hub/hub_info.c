/* What the Hub says of a repository and its files. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "formats/plan/vfile.h"
#include "fs/gateway/hub/asked.h"
#include "fs/gateway/hub/hub_i.h"
#include "fs/view/view.h"

#define XET_SECONDS 86400 /* that a token holds */

json_t *mfs_hub_date(int64_t ns)
{
	const time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[64];

	if (!gmtime_r(&seconds, &tm) ||
	    !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.000Z", &tm))
		return json_null();
	return json_string(text);
}

void mfs_hub_name(struct mfs_reply *a, json_t *o, const char *name)
{
	char org[MFS_REPO_NAME];

	snprintf(org, sizeof(org), "%.*s", (int)strcspn(name, "/"), name);
	mfs_hub_put(a, o, "id", mfs_json_string(name));
	mfs_hub_put(a, o, "modelId", mfs_json_string(name));
	mfs_hub_put(a, o, "author", mfs_json_string(org));
	/* What clients of before 1.0 take as given, whatever it is. */
	mfs_hub_put(a, o, "private", json_false());
	mfs_hub_put(a, o, "gated", json_false());
	mfs_hub_put(a, o, "disabled", json_false());
	mfs_hub_put(a, o, "downloads", json_integer(0));
	mfs_hub_put(a, o, "likes", json_integer(0));
	mfs_hub_put(a, o, "tags", json_array());
}

static void add_file_fields(struct mfs_reply *a, json_t *o, const struct mfs_revision *r,
			    uint32_t file)
{
	const struct mfs_view_file *f = &r->view->files[file];
	char etag[MFS_COMMIT_SIZE];

	mfs_revision_etag(r, f->name, etag);
	mfs_hub_put(a, o, "size", mfs_json_number(mfs_vfile_size(f->data)));
	mfs_hub_put(a, o, "oid", json_string(etag));
}

void mfs_hub_info(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest)
{
	const bool blobs = mfs_url_truth(&c->request->url, "blobs");
	json_t *o = json_object(), *files = json_array();

	(void)rest;
	mfs_hub_put(c->reply, o, "_id", json_string(r->commit));
	mfs_hub_name(c->reply, o, name);
	mfs_hub_put(c->reply, o, "sha", json_string(r->commit));
	mfs_hub_put(c->reply, o, "lastModified", mfs_hub_date(r->view->mtime_ns));
	for (uint32_t i = 0; i < r->view->count; i++) {
		json_t *file = json_object();

		mfs_hub_put(c->reply, file, "rfilename", mfs_json_string(r->view->files[i].name));
		if (blobs) {
			add_file_fields(c->reply, file, r, i);
			mfs_hub_put(c->reply, file, "blobId",
				    json_incref(json_object_get(file, "oid")));
			json_object_del(file, "oid");
		}
		mfs_hub_append(c->reply, files, file);
	}
	mfs_hub_put(c->reply, o, "siblings", files);
	mfs_hub_json(c->reply, 200, o);
}

/* ---- trees ---- */

struct tree {
	struct mfs_reply *reply;
	const struct mfs_revision *r;
	bool expand;
	json_t *list;
	struct mfs_hub_page *page; /* NULL: all entries are wanted */
};

static bool is_wanted(const struct tree *t)
{
	return !t->page || mfs_hub_page_takes(t->page);
}

static void add_commit(const struct tree *t, json_t *entry)
{
	json_t *commit;

	if (!t->expand)
		return;
	commit = json_object();
	mfs_hub_put(t->reply, commit, "id", json_string(t->r->commit));
	mfs_hub_put(t->reply, commit, "title",
		    mfs_json_string(t->r->iteration ? t->r->iteration : ""));
	mfs_hub_put(t->reply, commit, "date", mfs_hub_date(t->r->view->mtime_ns));
	mfs_hub_put(t->reply, entry, "lastCommit", commit);
}

static void add_file(const struct tree *t, uint32_t i)
{
	json_t *o;

	if (!is_wanted(t))
		return;
	o = json_object();
	mfs_hub_put(t->reply, o, "type", json_string("file"));
	add_file_fields(t->reply, o, t->r, i);
	mfs_hub_put(t->reply, o, "path", mfs_json_string(t->r->view->files[i].name));
	add_commit(t, o);
	mfs_hub_append(t->reply, t->list, o);
}

static void add_directory(const struct tree *t, const char *path, size_t len)
{
	char name[4096], etag[MFS_COMMIT_SIZE];
	json_t *o;

	if (!is_wanted(t))
		return;
	o = json_object();
	snprintf(name, sizeof(name), "%.*s/", (int)len, path);
	mfs_revision_etag(t->r, name, etag);
	name[strlen(name) - 1] = '\0';
	mfs_hub_put(t->reply, o, "type", json_string("directory"));
	mfs_hub_put(t->reply, o, "oid", json_string(etag));
	mfs_hub_put(t->reply, o, "size", json_integer(0));
	mfs_hub_put(t->reply, o, "path", mfs_json_string(name));
	add_commit(t, o);
	mfs_hub_append(t->reply, t->list, o);
}

/* Whether name lies in the directory dir of len bytes; "" is the root. */
static bool lies_in(const char *name, const char *dir, size_t len)
{
	return !len || (!strncmp(name, dir, len) && name[len] == '/');
}

/* Directories of name below dir that the file before it has not told of. */
static void add_directories(const struct tree *t, const char *before, const char *name, size_t skip,
			    bool recursive)
{
	for (const char *slash = strchr(name + skip, '/'); slash; slash = strchr(slash + 1, '/')) {
		const size_t len = (size_t)(slash - name);

		if (!before || strncmp(before, name, len + 1))
			add_directory(t, name, len);
		if (!recursive)
			return;
	}
}

/* Files are sorted, so those of a directory are neighbours. False: there is no such directory. */
static bool fill_tree(const struct tree *t, const char *dir, bool recursive)
{
	const size_t len = strlen(dir), skip = len ? len + 1 : 0;
	const char *before = NULL;

	for (uint32_t i = 0; i < t->r->view->count; i++) {
		const char *name = t->r->view->files[i].name;

		if (!lies_in(name, dir, len))
			continue;
		add_directories(t, before, name, skip, recursive);
		if (recursive || !strchr(name + skip, '/'))
			add_file(t, i);
		before = name;
	}
	return before || !len;
}

static bool wants_commits(const struct mfs_call *c)
{
	return mfs_url_truth(&c->request->url, "expand");
}

void mfs_hub_tree(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		  const char *rest)
{
	struct mfs_hub_page page;
	struct tree t = {.reply = c->reply, .r = r, .expand = wants_commits(c), .page = &page};
	char text[512];

	if (!mfs_hub_page_begin(c, 0, &page))
		return;
	t.list = json_array();
	if (fill_tree(&t, rest, mfs_url_truth(&c->request->url, "recursive"))) {
		mfs_hub_json(c->reply, 200, t.list);
		mfs_hub_page_end(c, &page, r->commit);
		return;
	}
	json_decref(t.list);
	snprintf(text, sizeof(text), "%s has no directory '%.200s'", name, rest);
	mfs_hub_error(c->reply, 404, "EntryNotFound", text);
}

/* ---- paths-info ---- */

static void add_path(void *arg, const char *path)
{
	struct tree *t = arg;
	const size_t len = strlen(path);
	const int64_t file = mfs_view_find(t->r->view, path);

	if (file >= 0) {
		add_file(t, (uint32_t)file);
		return;
	}
	for (uint32_t i = 0; i < t->r->view->count; i++) {
		if (!len || !lies_in(t->r->view->files[i].name, path, len))
			continue;
		add_directory(t, path, len);
		return;
	}
}

void mfs_hub_paths(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		   const char *rest)
{
	const char *type = mfs_request_header(c->request, "Content-Type");
	struct tree t = {.reply = c->reply, .r = r, .list = json_array()};
	struct mfs_error err;
	int rc = mfs_asked_paths(type, &c->request->body, &t.expand, add_path, &t, &err);

	(void)name, (void)rest;
	if (!rc) {
		mfs_hub_json(c->reply, 200, t.list);
		return;
	}
	json_decref(t.list);
	mfs_hub_error(c->reply, rc == -ENOMEM ? 500 : 400, "BadRequest", err.msg);
}

/* ---- Xet ---- */

/* hf-mount asks for a token before it mounts anything, and ends without one. A file is stored there
 * only if it has an X-Xet-Hash, which no file has here. So nobody uses the token, nor the address,
 * which nobody can own (RFC 6761). */
void mfs_hub_xet_token(struct mfs_call *c, const struct mfs_revision *r, const char *name,
		       const char *rest)
{
	json_t *o = json_object();

	(void)r, (void)name, (void)rest;
	mfs_hub_put(c->reply, o, "casUrl", json_string("https://xet.invalid"));
	mfs_hub_put(c->reply, o, "accessToken", json_string("none"));
	mfs_hub_put(c->reply, o, "exp", json_integer(time(NULL) + XET_SECONDS));
	mfs_hub_json(c->reply, 200, o);
}
