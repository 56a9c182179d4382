#define _GNU_SOURCE
#include "formats/remote/listing.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "formats/base/buf.h"
#include "formats/base/grow.h"
#include "formats/net/uri.h"

/* ---- names ---- */

static bool part_ok(const char *part, size_t len)
{
	return len && len <= NAME_MAX && !(len == 1 && *part == '.') &&
	       !(len == 2 && !memcmp(part, "..", 2));
}

bool mfs_listing_name_ok(const char *name, size_t len)
{
	size_t at = 0;

	if (len >= PATH_MAX / 2 || memchr(name, '\0', len) || memchr(name, '\n', len))
		return false;
	while (at <= len) {
		const char *slash = memchr(name + at, '/', len - at);
		const size_t part = slash ? (size_t)(slash - name) - at : len - at;

		if (!part_ok(name + at, part))
			return false;
		at += part + 1;
	}
	return true;
}

int mfs_listing_add(struct mfs_listing *l, const char *name, size_t len, struct mfs_listed **ret,
		    struct mfs_error *err)
{
	const size_t bare = len && name[len - 1] == '/' ? len - 1 : len;
	struct mfs_listed item = {0};

	if (!mfs_listing_name_ok(name, bare))
		return mfs_fail(err, -EINVAL, "'%.*s' cannot be the name of a file",
				(int)(len > 200 ? 200 : len), name);
	if (l->count >= MFS_LISTING_MOST)
		return mfs_fail(err, -E2BIG, "more than %d names", MFS_LISTING_MOST);
	if (mfs_grow(&l->items, l->count))
		return mfs_fail_nomem(err);
	item.name = strndup(name, len);
	if (!item.name)
		return mfs_fail_nomem(err);
	l->items[l->count++] = item;
	if (ret)
		*ret = &l->items[l->count - 1];
	return 0;
}

static void free_item(struct mfs_listed *item)
{
	free(item->name);
	free(item->etag);
	free(item->last_modified);
}

static int by_name(const void *a, const void *b)
{
	const struct mfs_listed *x = a, *y = b;

	return strcmp(x->name, y->name);
}

void mfs_listing_sort(struct mfs_listing *l, size_t first)
{
	size_t n = first;

	if (l->count > first)
		qsort(l->items + first, l->count - first, sizeof(*l->items), by_name);
	for (size_t i = first; i < l->count; i++) {
		if (n > first && !strcmp(l->items[i].name, l->items[n - 1].name))
			free_item(&l->items[i]);
		else
			l->items[n++] = l->items[i];
	}
	l->count = n;
}

void mfs_listing_keep(struct mfs_listing *l, bool (*keep)(const struct mfs_listed *item))
{
	size_t n = 0;

	for (size_t i = 0; i < l->count; i++) {
		if (keep(&l->items[i]))
			l->items[n++] = l->items[i];
		else
			free_item(&l->items[i]);
	}
	l->count = n;
}

void mfs_listing_release(struct mfs_listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free_item(&l->items[i]);
	free(l->items);
	*l = (struct mfs_listing){0};
}

/* ---- JSON ---- */

static json_t *load(const char *text, size_t len, const char *what, struct mfs_error *err)
{
	json_error_t why;
	json_t *root = json_loadb(text, len, 0, &why);

	if (!root)
		mfs_fail(err, -EINVAL, "%s is not JSON: %s", what, why.text);
	return root;
}

static int add_entry(struct mfs_listing *l, json_t *entry, struct mfs_error *err)
{
	const char *name = json_string_value(json_object_get(entry, "name"));
	const char *type = json_string_value(json_object_get(entry, "type"));
	struct mfs_buf b = {0};
	int rc = 0;

	if (!name || !type)
		return mfs_fail(err, -EINVAL, "an index entry has no name or no type");
	if (!mfs_listing_name_ok(name, strlen(name)) || strchr(name, '/'))
		return 0;
	mfs_buf_printf(&b, "%s%s", name, !strcmp(type, "directory") ? "/" : "");
	if (b.failed)
		rc = mfs_fail_nomem(err);
	else if (!strcmp(type, "directory") || !strcmp(type, "file"))
		rc = mfs_listing_add(l, b.data, b.len, NULL, err);
	mfs_buf_release(&b);
	return rc;
}

int mfs_listing_read_json(struct mfs_listing *l, const char *text, size_t len,
			  struct mfs_error *err)
{
	json_t *root = load(text, len, "the index", err), *entry;
	size_t i;
	int rc = 0;

	if (!root)
		return -EINVAL;
	if (!json_is_array(root))
		rc = mfs_fail(err, -EINVAL, "the index is not a list");
	else
		json_array_foreach(root, i, entry) if ((rc = add_entry(l, entry, err))) break;
	json_decref(root);
	return rc;
}

int mfs_listing_read_weights(struct mfs_listing *l, const char *text, size_t len,
			     struct mfs_error *err)
{
	json_t *root = load(text, len, "the index of weights", err), *file;
	const size_t before = l->count;
	const char *tensor, *last = "";
	int rc = 0;

	if (!root)
		return -EINVAL;
	json_object_foreach(json_object_get(root, "weight_map"), tensor, file)
	{
		const char *name = json_string_value(file);

		if (!name || !strcmp(name, last))
			continue;
		last = name;
		rc = mfs_listing_add(l, name, strlen(name), NULL, err);
		if (rc)
			break;
	}
	json_decref(root);
	mfs_listing_sort(l, before);
	return rc;
}

/* ---- pages of links ---- */

/* "&amp;" in an attribute: the one that names of files bring along. */
static void unescape(struct mfs_buf *b, const char *text, size_t len)
{
	while (len) {
		const char *amp = memchr(text, '&', len);
		const size_t n = amp ? (size_t)(amp - text) : len;

		mfs_buf_add(b, text, n);
		text += n;
		len -= n;
		if (!len)
			break;
		mfs_buf_adds(b, "&");
		if (len >= 5 && !memcmp(text, "&amp;", 5)) {
			text += 5;
			len -= 5;
		} else {
			text++;
			len--;
		}
	}
}

/* A link to a name in this directory: without a scheme, a host or a query, and not upwards. */
static int add_link(struct mfs_listing *l, const char *href, size_t len, struct mfs_error *err)
{
	struct mfs_buf plain = {0}, name = {0};
	size_t bare;
	int rc = 0;

	if (len > 2 && !memcmp(href, "./", 2)) {
		href += 2;
		len -= 2;
	}
	if (!len || memchr("/?#", *href, 3))
		return 0;
	unescape(&plain, href, len);
	if (plain.failed)
		return mfs_fail_nomem(err);
	mfs_buf_adds(&name, "");
	if (!memchr(plain.data, ':', plain.len) && !memchr(plain.data, '?', plain.len) &&
	    !memchr(plain.data, '#', plain.len) &&
	    !mfs_uri_decode(&name, plain.data, plain.len, false) && name.len) {
		bare = name.len - (name.data[name.len - 1] == '/');
		if (mfs_listing_name_ok(name.data, bare) && !memchr(name.data, '/', bare))
			rc = mfs_listing_add(l, name.data, name.len, NULL, err);
	}
	if (name.failed)
		rc = mfs_fail_nomem(err);
	mfs_buf_release(&plain);
	mfs_buf_release(&name);
	return rc;
}

static const char *find(const char *text, size_t len, const char *what)
{
	return memmem(text, len, what, strlen(what));
}

int mfs_listing_read_html(struct mfs_listing *l, const char *text, size_t len,
			  struct mfs_error *err)
{
	const char *end = text + len, *p = text;
	bool any = false;
	int rc = 0;

	while (!rc && (p = find(p, (size_t)(end - p), "href="))) {
		const char *quote = p + 5, *close;

		p = quote;
		if (quote >= end || (*quote != '"' && *quote != '\''))
			continue;
		close = memchr(quote + 1, *quote, (size_t)(end - quote - 1));
		if (!close)
			break;
		any = true;
		rc = add_link(l, quote + 1, (size_t)(close - quote - 1), err);
		p = close + 1;
	}
	if (!rc && !any)
		return mfs_fail(err, -EINVAL, "the page has no links");
	return rc;
}
