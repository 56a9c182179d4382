/* What a server has: by pages of S3's listing, by index pages, or by names that are tried. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "formats/base/threads.h"
#include "formats/net/uri.h"
#include "formats/remote/server.h"

#define PAGE_MAX     (64u << 20) /* bytes of one answer */
#define DEEPEST	     8		 /* directories below one another */
#define LOOK_THREADS 16
#define EMPTY_PAGES  100 /* of S3, in a row: each may have only keys that are passed over */

/* ---- S3 ---- */

static char *page_url(const struct mfs_server *s, const char *token)
{
	struct mfs_buf b = {0};

	mfs_buf_printf(&b, "%s/?list-type=2", s->bucket);
	if (token) {
		mfs_buf_adds(&b, "&continuation-token=");
		mfs_uri_encode(&b, token, strlen(token), false);
	}
	mfs_buf_adds(&b, "&prefix=");
	mfs_uri_encode(&b, s->prefix, strlen(s->prefix), false);
	if (!b.failed)
		return b.data;
	mfs_buf_release(&b);
	return NULL;
}

/* One page; *token becomes the next one's, or NULL. */
static int add_page(const struct mfs_server *s, struct mfs_curl *h, struct mfs_listing *l,
		    char **token, struct mfs_error *err)
{
	char *url = page_url(s, *token), *next = NULL, *text;
	size_t len;
	int rc = url ? mfs_curl_get(h, url, PAGE_MAX, &text, &len, NULL, err) : mfs_fail_nomem(err);

	free(url);
	if (rc)
		return rc;
	rc = mfs_listing_read_s3(l, text, len, s->prefix, &next, err);
	free(text);
	if (rc)
		return mfs_fail_in(err, "%s", s->bucket);
	if (next && *token && !strcmp(next, *token)) {
		free(next);
		return mfs_fail(err, -EIO, "%s: a page of the listing leads to itself", s->bucket);
	}
	free(*token);
	*token = next;
	return 0;
}

static int list_s3(const struct mfs_server *s, struct mfs_curl *h, struct mfs_listing *l,
		   struct mfs_error *err)
{
	unsigned empty = 0, pages = 0;
	char *token = NULL;
	int rc;

	do {
		const size_t before = l->count;

		if (++pages > MFS_LIST_PAGES) {
			rc = mfs_fail(err, -E2BIG, "%s: the listing has more than %d pages",
				      s->bucket, MFS_LIST_PAGES);
			break;
		}

		rc = add_page(s, h, l, &token, err);
		empty = l->count > before ? 0 : empty + 1;
		if (!rc && empty > EMPTY_PAGES)
			rc = mfs_fail(err, -EIO, "%s: %u pages of the listing have no names",
				      s->bucket, empty);
	} while (!rc && token);
	free(token);
	return rc;
}

/* ---- index pages ---- */

static bool has(const struct mfs_listing *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++)
		if (!strcmp(l->items[i].name, name))
			return true;
	return false;
}

static bool has_end(const struct mfs_listing *l, const char *end)
{
	for (size_t i = 0; i < l->count; i++)
		if (mfs_str_ends(l->items[i].name, end))
			return true;
	return false;
}

static int add_guess(struct mfs_listing *l, const char *name, struct mfs_error *err)
{
	struct mfs_listed *item;
	int rc = mfs_listing_add(l, name, strlen(name), &item, err);

	if (!rc)
		item->guessed = true;
	return rc;
}

/* nginx does not show names that begin with a dot. */
static int add_hidden(struct mfs_listing *l, struct mfs_error *err)
{
	if (has(l, ".metadata") || !has_end(l, ".distcp"))
		return 0;
	return add_guess(l, ".metadata", err);
}

/* One directory. -ENODATA: what comes is no index. */
static int read_index(struct mfs_curl *h, const char *url, struct mfs_listing *ret,
		      struct mfs_error *err)
{
	struct mfs_headers headers;
	char *text;
	size_t len;
	int rc = mfs_curl_get(h, url, PAGE_MAX, &text, &len, &headers, err);

	if (rc)
		return rc;
	if (!strcmp(headers.type, "application/json"))
		rc = mfs_listing_read_json(ret, text, len, err);
	else if (!strcmp(headers.type, "text/html"))
		rc = mfs_listing_read_html(ret, text, len, err);
	else
		rc = mfs_fail(err, -EINVAL, "what comes is '%s'", headers.type);
	free(text);
	if (rc == -EINVAL)
		return mfs_fail(err, -ENODATA, "%s: not an index of a directory", url);
	return rc ? rc : add_hidden(ret, err);
}

struct walk {
	const struct mfs_server *server;
	struct mfs_curl *curl;
	struct mfs_listing *list;
	unsigned directories;
};

static int walk(struct walk *w, const char *dir, unsigned depth, struct mfs_error *err);

static int add_below(struct walk *w, const char *dir, const struct mfs_listed *found,
		     unsigned depth, struct mfs_error *err)
{
	char *path;
	int rc;

	if (asprintf(&path, "%s%s", dir, found->name) < 0)
		return mfs_fail_nomem(err);
	if (found->guessed)
		rc = add_guess(w->list, path, err);
	else if (!mfs_str_ends(found->name, "/"))
		rc = mfs_listing_add(w->list, path, strlen(path), NULL, err);
	else if (depth >= DEEPEST)
		rc = 0;
	else
		rc = walk(w, path, depth + 1, err);
	free(path);
	return rc;
}

/* dir: "" or with '/' at its end. */
static int walk(struct walk *w, const char *dir, unsigned depth, struct mfs_error *err)
{
	struct mfs_listing here = {0};
	char *url;
	int rc;

	if (w->directories++ == MFS_LIST_DIRECTORIES)
		return mfs_fail(err, -E2BIG,
				"%s: there are more than %d directories below it: name one of them",
				w->server->base, MFS_LIST_DIRECTORIES);
	url = mfs_server_url(w->server, dir);
	rc = url ? read_index(w->curl, url, &here, err) : mfs_fail_nomem(err);

	/* A directory that may not be entered, or has gone: the others are shown. */
	if (depth && (rc == -ENOENT || rc == -EACCES || rc == -ENODATA))
		rc = 0;
	mfs_listing_sort(&here, 0); /* a page may name a file twice */
	for (size_t i = 0; i < here.count && !rc; i++)
		rc = add_below(w, dir, &here.items[i], depth, err);
	mfs_listing_release(&here);
	free(url);
	return rc;
}

/* ---- names that are tried ---- */

/* A server without an index may have a HuggingFace model: its files are known by name, and those
 * of weights by the index of weights. */
static int add_known(const struct mfs_server *s, struct mfs_curl *h, struct mfs_listing *l,
		     struct mfs_error *err)
{
	static const char *const names[] = {
		"config.json",
		"generation_config.json",
		"model.safetensors",
		"model.safetensors.index.json",
		"tokenizer.json",
		"tokenizer_config.json",
		"special_tokens_map.json",
		"vocab.json",
		"merges.txt",
		"tokenizer.model",
		"added_tokens.json",
		"chat_template.jinja",
	};
	char *url = mfs_server_url(s, "model.safetensors.index.json"), *text;
	size_t len;
	int rc = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names) && !rc; i++)
		rc = add_guess(l, names[i], err);
	if (!url)
		rc = mfs_fail_nomem(err);
	if (!rc && !mfs_curl_get(h, url, PAGE_MAX, &text, &len, NULL, NULL)) {
		rc = mfs_listing_read_weights(l, text, len, err);
		free(text);
	}
	free(url);
	return rc;
}

/* ---- sizes and versions ---- */

struct looks {
	const struct mfs_server *server;
	struct mfs_listing *list;
	atomic_size_t next;
	pthread_mutex_t lock; /* what follows */
	int rc;
	struct mfs_error *err;
};

/* Servers that do not say who has what answer 403 for a file that is not there. */
static bool is_gone(const struct mfs_listed *item, int rc)
{
	return rc == -ENOENT || (rc == -EACCES && item->guessed);
}

/* Some do not answer HEAD, or not with a size: they are asked for the first byte. */
static int ask(struct mfs_curl *h, const char *url, struct mfs_headers *ret, struct mfs_error *err)
{
	struct mfs_curl_request head = {.method = "HEAD", .url = url};
	struct mfs_curl_request byte = {.url = url, .has_range = true, .most = 1 << 20};
	int rc = mfs_curl_do(h, &head, ret, err);

	if (rc == -ENOENT || (!rc && ret->has_length))
		return rc;
	rc = mfs_curl_do(h, &byte, ret, err);
	ret->length = ret->has_range ? ret->total : ret->length;
	return rc;
}

/* *gone: it is not there (any more). */
static int look_at(struct mfs_curl *h, const char *url, struct mfs_listed *item, bool *gone,
		   struct mfs_error *err)
{
	struct mfs_headers found = {0};
	int rc = ask(h, url, &found, err);

	*gone = is_gone(item, rc);
	if (*gone)
		return 0;
	if (rc)
		return rc;
	item->size = found.length;
	item->mtime = found.mtime;
	free(item->last_modified); /* S3's listing had one, and no ETag */
	item->etag = strdup(found.etag);
	item->last_modified = strdup(found.last_modified);
	return item->etag && item->last_modified ? 0 : mfs_fail_nomem(err);
}

static void *look(void *arg)
{
	struct looks *l = arg;
	struct mfs_error err;
	struct mfs_curl *h = NULL;
	size_t i;
	int rc = mfs_curl_new(&l->server->http, &h, &err);

	while (!rc && (i = atomic_fetch_add(&l->next, 1)) < l->list->count) {
		struct mfs_listed *item = &l->list->items[i];
		char *url = item->etag ? NULL : mfs_server_url(l->server, item->name);
		bool gone = false;

		if (url)
			rc = look_at(h, url, item, &gone, &err);
		else if (!item->etag)
			rc = mfs_fail_nomem(&err);
		if (gone)
			item->name[0] = '\0';
		free(url);
	}
	mfs_curl_free(h);
	if (rc) {
		atomic_store(&l->next, l->list->count);
		pthread_mutex_lock(&l->lock);
		if (!l->rc && l->err)
			*l->err = err;
		l->rc = rc;
		pthread_mutex_unlock(&l->lock);
	}
	return NULL;
}

static bool is_there(const struct mfs_listed *item)
{
	return *item->name;
}

static int look_at_all(const struct mfs_server *s, struct mfs_listing *l, struct mfs_error *err)
{
	struct looks looks = {.server = s, .list = l, .err = err};
	const size_t few = l->count / 4 + 1;

	pthread_mutex_init(&looks.lock, NULL);
	mfs_threads_run(few < LOOK_THREADS ? (unsigned)few : LOOK_THREADS, look, &looks);
	pthread_mutex_destroy(&looks.lock);
	mfs_listing_keep(l, is_there);
	return looks.rc;
}

static int say_nothing(const struct mfs_server *s, bool known, bool denied, struct mfs_error *err)
{
	if (!known)
		return mfs_fail(err, -ENOENT, "%s: there is nothing below it", s->base);
	return mfs_fail(err, -ENODATA,
			"%s: the server shows no index of it%s, and it is no HuggingFace model: "
			"looked for config.json and model.safetensors*",
			s->base, denied ? " (access denied)" : "");
}

/* With a time at which requests end. */
static int list(const struct mfs_server *s, struct mfs_listing *ret, struct mfs_error *err)
{
	struct walk w = {.server = s, .list = ret};
	struct mfs_curl *h;
	int rc = mfs_curl_new(&s->http, &h, err);
	bool known = false, denied = false;

	if (rc)
		return rc;
	w.curl = h;
	rc = s->s3 ? list_s3(s, h, ret, err) : walk(&w, "", 0, err);
	if (!s->s3 && (rc == -ENOENT || rc == -EACCES || rc == -ENODATA)) {
		known = true;
		denied = rc == -EACCES;
		rc = add_known(s, h, ret, err);
	}
	if (!rc)
		rc = look_at_all(s, ret, err);
	if (!rc && !ret->count)
		rc = say_nothing(s, known, denied, err);
	mfs_curl_free(h);
	return rc;
}

int mfs_server_list(const struct mfs_server *s, unsigned seconds, struct mfs_listing *ret,
		    struct mfs_error *err)
{
	struct mfs_server timed = *s;
	int rc;

	seconds = seconds ? seconds : MFS_LIST_SECONDS;
	timed.http.until = mfs_now_ns() + seconds * 1000000000ll;
	*ret = (struct mfs_listing){0};
	rc = list(&timed, ret, err);
	if (rc && mfs_now_ns() > timed.http.until)
		rc = mfs_fail(err, -ETIMEDOUT,
			      "%s: it was not listed within %u s (-o open_timeout=SECONDS)",
			      s->base, seconds);
	if (rc)
		mfs_listing_release(ret);
	return rc;
}
