/* What a VIEW argument names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/iteration.h"
#include "fs/root.h"

#define LAYOUTS "megatron/torch/"

static int no_such_view(const struct mfs_root *root, const char *name, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot((struct mfs_root *)root);
	const char *example = s->count ? s->iterations[s->count - 1]->name : "iter_0000040";

	if (!mfs_root_has_iterations(root))
		return mfs_fail(
			err, -ENOENT,
			"'%s' has no view '%s': name hf, megatron/torch/tp1-pp1 (or another "
			"layout) or megatron/torch_dist",
			mfs_root_source(root), name);
	return mfs_fail(
		err, -ENOENT,
		"'%s' has no view '%s': name hf, megatron/torch/tp1-pp1 (or another layout) or "
		"megatron/torch_dist, of the latest iteration, or of another one as in "
		"latest/hf or %s/hf",
		mfs_root_source(root), name, example);
}

/* A view by its form, or a directory above views. */
static bool is_place(const char *view)
{
	size_t len = strlen(LAYOUTS);

	return !*view || !strcmp(view, "hf") || !strcmp(view, "megatron") ||
	       !strcmp(view, "megatron/torch") || !strcmp(view, "megatron/torch_dist") ||
	       (!strncmp(view, LAYOUTS, len) && view[len] && !strchr(view + len, '/'));
}

static bool is_view(const char *view)
{
	return is_place(view) && *view && strcmp(view, "megatron") &&
	       strcmp(view, "megatron/torch");
}

static int latest(struct mfs_root *root, struct mfs_iteration **ret, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(root);

	if (!s->latest)
		return mfs_fail(err, -ENODATA, "'%s' %s: %s", mfs_root_source(root),
				mfs_root_has_iterations(root) ? "has no latest iteration"
							      : "cannot be shown",
				s->latest_reason);
	*ret = s->latest;
	return 0;
}

/* The iteration in front of the first slash; -ENOENT without a word: it is none. */
static int named_iteration(struct mfs_root *root, const char *name, struct mfs_iteration **ret,
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
			*ret = s->iterations[i];
			return 0;
		}
	}
	return -ENOENT;
}

const char *mfs_place_name(const struct mfs_root *root, const struct mfs_place *place,
			   char text[MFS_PLACE_NAME])
{
	bool below = mfs_root_has_iterations(root);

	snprintf(text, MFS_PLACE_NAME, "%s%s%s", below ? place->iteration->name : "",
		 below && *place->view ? "/" : "", place->view);
	return text;
}

int mfs_root_find(struct mfs_root *root, const char *name, struct mfs_place *ret,
		  struct mfs_error *err)
{
	size_t len = name ? strlen(name) : 0;
	char *view = ret->view, *slash;
	int rc;

	if (!name)
		name = "hf";
	else if (!len || len >= sizeof(ret->view) || *name == '/')
		return no_such_view(root, name, err);
	snprintf(view, sizeof(ret->view), "%s", name);
	if (len > 1 && view[len - 1] == '/')
		view[len - 1] = '\0';
	if (*view && is_place(view))
		return latest(root, &ret->iteration, err);
	rc = named_iteration(root, view, &ret->iteration, err);
	slash = strchr(view, '/');
	if (slash)
		memmove(view, slash + 1, strlen(slash));
	else
		*view = '\0';
	if (rc == -ENOENT || (!rc && (!is_place(view) || (slash && !*view))))
		return no_such_view(root, name, err);
	return rc;
}

int mfs_root_view(struct mfs_root *root, const char *name, struct mfs_view **ret,
		  struct mfs_place *ret_place, struct mfs_error *err)
{
	struct mfs_place place;
	int rc = mfs_root_find(root, name, &place, err);

	if (!rc && !is_view(place.view))
		rc = no_such_view(root, name, err);
	if (!rc)
		rc = mfs_iteration_view(place.iteration, place.view, ret, err);
	if (!rc && ret_place)
		*ret_place = place;
	return rc;
}
