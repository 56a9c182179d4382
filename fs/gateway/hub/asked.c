#include "fs/gateway/hub/asked.h"

#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "fs/http/url.h"

struct asked {
	bool *expand;
	void (*each)(void *arg, const char *path);
	void *arg;
	unsigned count;
};

static int add(struct asked *a, const char *path)
{
	if (a->count++ == MFS_ASKED_PATHS)
		return -E2BIG;
	a->each(a->arg, path);
	return 0;
}

/* ---- a form ---- */

static int take_expand(void *arg, const char *name, const char *value)
{
	struct asked *a = arg;

	if (!strcmp(name, "expand"))
		*a->expand = !strcasecmp(value, "true");
	return 0;
}

static int take_path(void *arg, const char *name, const char *value)
{
	return strcmp(name, "paths") ? 0 : add(arg, value);
}

/* Passes over the form twice, since "expand" stands after the paths that it is about. */
static int take_form(struct asked *a, const struct mfs_buf *body, struct mfs_error *err)
{
	int (*const passes[])(void *, const char *, const char *) = {take_expand, take_path};
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct mfs_buf copy = {0};

		mfs_buf_add(&copy, body->data ? body->data : "", body->len);
		mfs_buf_add(&copy, "", 1);
		if (!copy.failed && strlen(copy.data) != body->len)
			rc = mfs_fail(err, -EINVAL, "the form has a NUL");
		else
			rc = copy.failed ? mfs_fail_nomem(err)
					 : mfs_form_each(copy.data, passes[i], a, err);
		mfs_buf_release(&copy);
	}
	return rc;
}

/* ---- JSON ---- */

static int take_list(struct asked *a, const json_t *paths, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < json_array_size(paths) && !rc; i++) {
		const json_t *path = json_array_get(paths, i);

		rc = json_is_string(path)
			     ? add(a, json_string_value(path))
			     : mfs_fail(err, -EINVAL, "'paths' has something that is no text");
	}
	return rc;
}

static int take_object(struct asked *a, const json_t *o, struct mfs_error *err)
{
	const json_t *paths = json_object_get(o, "paths");

	if (!json_is_object(o))
		return mfs_fail(err, -EINVAL, "the body is no object of JSON");
	*a->expand = json_is_true(json_object_get(o, "expand"));
	if (json_is_string(paths))
		return add(a, json_string_value(paths));
	if (paths && !json_is_array(paths))
		return mfs_fail(err, -EINVAL, "'paths' is neither a text nor a list of these");
	return take_list(a, paths, err);
}

static int take_json(struct asked *a, const struct mfs_buf *body, struct mfs_error *err)
{
	json_t *o =
		json_loadb(body->data ? body->data : "", body->len, JSON_REJECT_DUPLICATES, NULL);
	int rc = o ? take_object(a, o, err) : mfs_fail(err, -EINVAL, "the body is no JSON");

	json_decref(o);
	return rc;
}

int mfs_asked_paths(const char *type, const struct mfs_buf *body, bool *ret_expand,
		    void (*each)(void *arg, const char *path), void *arg, struct mfs_error *err)
{
	struct asked a = {ret_expand, each, arg, 0};
	int rc;

	*ret_expand = false;
	if (type && !strncasecmp(type, "application/json", 16))
		rc = take_json(&a, body, err);
	else
		rc = take_form(&a, body, err);
	return rc == -E2BIG ? mfs_fail(err, rc, "more than %d paths are asked for", MFS_ASKED_PATHS)
			    : rc;
}
