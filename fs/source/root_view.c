/* Finds what a VIEW argument names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/megatron/tracker.h"
#include "fs/data/data.h"
#include "fs/data/data_kinds.h"
#include "fs/source/iteration.h"
#include "fs/source/root.h"

#define DATA "data"

/* Fails with a message that lists all possible names. */
static int fail_with(struct mfs_buf *text, struct mfs_error *err)
{
	int rc = mfs_fail(err, -ENOENT, "%s", text->failed ? "out of memory" : text->data);

	mfs_buf_release(text);
	return rc;
}

static int no_such_dataset(const struct mfs_root *root, const char *name, struct mfs_error *err)
{
	const struct mfs_data *data = mfs_root_data(root);
	struct mfs_buf text = {0};

	mfs_buf_printf(&text, "'%s' has no view '%s': name " DATA "/NAME/VIEW, VIEW of: ",
		       mfs_root_source(root), name);
	mfs_view_kind_names(&mfs_data_views, MFS_VIEW_OF_DATA, &text);
	mfs_buf_adds(&text, "; NAME of: ");
	if (!data)
		mfs_buf_adds(&text, "no dataset (-o data=PATH)");
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		mfs_buf_printf(&text, "%s%s", i ? ", " : "",
			       mfs_dataset_name(mfs_data_at(data, i)));
	return fail_with(&text, err);
}

/* "there is iter_0000040", "there are 3, from iter_0000010 to iter_0000040". */
static void name_iterations(const struct mfs_root_snapshot *s, struct mfs_buf *text)
{
	if (!s->count)
		mfs_buf_adds(text, "there is none");
	else if (s->count == 1)
		mfs_buf_printf(text, "there is %s", s->iterations[0]->name);
	else
		mfs_buf_printf(text, "there are %u, from %s to %s", (unsigned)s->count,
			       s->iterations[0]->name, s->iterations[s->count - 1]->name);
}

/* True if the name begins with that of an iteration, whether it is there or not. */
static bool names_iteration(const char *name)
{
	char first[MFS_PLACE_NAME];
	int64_t number;

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(name, "/"), name);
	return mfs_iteration_number_of_any(first, &number);
}

static int no_such_iteration(const struct mfs_root *root, const char *name, struct mfs_error *err)
{
	struct mfs_buf text = {0};

	mfs_buf_printf(&text, "'%s' has no iteration %.*s: ", mfs_root_source(root),
		       (int)strcspn(name, "/"), name);
	name_iterations(mfs_root_snapshot((struct mfs_root *)root), &text);
	return fail_with(&text, err);
}

static int no_such_view(const struct mfs_root *root, const char *name, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot((struct mfs_root *)root);
	const char *example = s->count ? s->iterations[s->count - 1]->name : "iter_0000040";
	struct mfs_buf text = {0};

	if (!mfs_root_has_model(root))
		return no_such_dataset(root, name, err);
	mfs_buf_printf(&text, "'%s' has no view '%s': name ", mfs_root_source(root), name);
	mfs_view_kind_names(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, &text);
	if (mfs_root_has_iterations(root))
		mfs_buf_printf(&text,
			       "; of the latest iteration, or of another one as in latest/hf or "
			       "%s/hf",
			       example);
	return fail_with(&text, err);
}

/* True if it has the form of a view's name. A directory of views is no view. */
static bool is_view(const char *view)
{
	const char *spec;
	const struct mfs_view_kind *k =
		mfs_view_kind_find(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, view, &spec);

	return k && !k->spec == !*spec;
}

/* True for a view, or a directory of views. */
static bool is_place(const char *view)
{
	const char *spec;

	return mfs_view_kind_is_group(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, view) ||
	       mfs_view_kind_find(&mfs_ckpt_views, MFS_VIEW_OF_CKPT, view, &spec);
}

static void set_iteration(struct mfs_place *place, struct mfs_iteration *it)
{
	place->iteration = it;
	place->views = &it->views;
}

static void set_dataset(struct mfs_place *place, struct mfs_dataset *d)
{
	place->dataset = d;
	place->views = mfs_dataset_views(d);
}

static int latest(struct mfs_root *root, struct mfs_place *ret, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);

	if (!mfs_root_has_model(root))
		return mfs_fail(err, -ENODATA,
				"'%s' holds datasets and no model: name data/NAME/hf",
				mfs_root_source(root));
	if (!s->latest)
		return mfs_fail(err, -ENODATA, "'%s' %s: %s", mfs_root_source(root),
				mfs_root_has_iterations(root) ? "has no latest iteration"
							      : "cannot be shown",
				s->latest_reason);
	set_iteration(ret, s->latest);
	return 0;
}

/* Finds the iteration before the first slash. -ENOENT without a message: it is no iteration. */
static int named_iteration(struct mfs_root *root, const char *name, struct mfs_place *ret,
			   struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);
	size_t len = strcspn(name, "/");

	if (!mfs_root_has_iterations(root))
		return -ENOENT;
	if (len == strlen("latest") && !strncmp(name, "latest", len))
		return latest(root, ret, err);
	for (uint32_t i = 0; i < s->count; i++) {
		if (!strncmp(s->iterations[i]->name, name, len) && !s->iterations[i]->name[len]) {
			set_iteration(ret, s->iterations[i]);
			return 0;
		}
	}
	return -ENOENT;
}

const char *mfs_place_name(const struct mfs_root *root, const struct mfs_place *place,
			   char text[MFS_PLACE_NAME])
{
	const char *dir = "";

	if (place->dataset)
		dir = mfs_dataset_name(place->dataset);
	else if (place->iteration && mfs_root_has_iterations(root))
		dir = place->iteration->name;
	snprintf(text, MFS_PLACE_NAME, "%s%s%s%s", place->iteration ? "" : DATA "/", dir,
		 *dir && *place->view ? "/" : "", place->view);
	return text;
}

/* "data", "data/NAME", "data/NAME/VIEW". */
static int find_data(struct mfs_root *root, const char *name, struct mfs_place *ret,
		     struct mfs_error *err)
{
	const struct mfs_data *data = mfs_root_data(root);
	const char *rest = name + strlen(DATA);
	struct mfs_dataset *d;
	size_t len;

	*ret = (struct mfs_place){0};
	if (!data)
		return no_such_dataset(root, name, err);
	if (!*rest)
		return 0;
	len = strcspn(++rest, "/");
	d = mfs_data_find(data, rest, len);
	if (!d)
		return no_such_dataset(root, name, err);
	set_dataset(ret, d);
	rest += len + (rest[len] == '/');
	snprintf(ret->view, sizeof(ret->view), "%s", rest);
	return 0;
}

static bool names_data(const char *name)
{
	size_t len = strlen(DATA);

	return !strncmp(name, DATA, len) && (!name[len] || name[len] == '/');
}

/* The place if nothing is named: the model, or the only dataset. */
static int find_default(struct mfs_root *root, struct mfs_place *ret, struct mfs_error *err)
{
	const struct mfs_data *data = mfs_root_data(root);

	*ret = (struct mfs_place){.view = MFS_VIEW_DEFAULT};
	if (mfs_root_has_model(root))
		return latest(root, ret, err);
	if (mfs_data_count(data) > 1)
		return no_such_dataset(root, "", err);
	set_dataset(ret, mfs_data_at(data, 0));
	return 0;
}

int mfs_root_find(struct mfs_root *root, const char *name, struct mfs_place *ret,
		  struct mfs_error *err)
{
	size_t len = name ? strlen(name) : 0;
	char *view = ret->view, *slash;
	int rc;

	if (!name)
		return find_default(root, ret, err);
	if (!len || len >= sizeof(ret->view) || *name == '/')
		return no_such_view(root, name, err);
	*ret = (struct mfs_place){0};
	snprintf(view, sizeof(ret->view), "%s", name);
	if (len > 1 && view[len - 1] == '/')
		view[len - 1] = '\0';
	if (names_data(view)) {
		char text[sizeof(ret->view)];

		memcpy(text, view, sizeof(text));
		return find_data(root, text, ret, err);
	}
	if (*view && is_place(view))
		return latest(root, ret, err);
	rc = named_iteration(root, view, ret, err);
	slash = strchr(view, '/');
	if (slash)
		memmove(view, slash + 1, strlen(slash));
	else
		*view = '\0';
	if (rc == -ENOENT && mfs_root_has_iterations(root) && names_iteration(name))
		return no_such_iteration(root, name, err);
	if (rc == -ENOENT || (!rc && (!is_place(view) || (slash && !*view))))
		return no_such_view(root, name, err);
	return rc;
}

/* Whether the place, which a name has led to, can be a view. */
static int find_view(struct mfs_root *root, const char *name, struct mfs_place *ret,
		     struct mfs_error *err)
{
	int rc = mfs_root_find(root, name, ret, err);

	if (!rc && (!ret->views || (ret->iteration && !is_view(ret->view))))
		rc = no_such_view(root, name, err);
	return rc;
}

int mfs_root_view(struct mfs_root *root, const char *name, struct mfs_view **ret,
		  struct mfs_place *ret_place, struct mfs_error *err)
{
	struct mfs_place place;
	int rc = find_view(root, name, &place, err);

	if (!rc)
		rc = mfs_views_open(place.views, place.view, ret, err);
	if (!rc && ret_place)
		*ret_place = place;
	return rc;
}

int mfs_root_hold_view(struct mfs_root *root, const char *name, struct mfs_held **ret,
		       struct mfs_view **ret_view, struct mfs_place *ret_place,
		       struct mfs_error *err)
{
	int rc = find_view(root, name, ret_place, err);

	return rc ? rc : mfs_views_hold(ret_place->views, ret_place->view, ret, ret_view, err);
}
