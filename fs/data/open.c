/* The views of a dataset, opened when somebody enters them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/data/data_i.h"
#include "fs/view/build.h"

static const struct {
	struct mfs_dataset_entry entry;
	int (*open)(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);
} views[] = {
	{{"hf", false}, mfs_data_view_hf},
	{{"jsonl", false}, mfs_data_view_jsonl},
	{{"megatron", false}, mfs_data_view_megatron},
	{{"npy", false}, mfs_data_view_npy},
	{{"parquet", false}, mfs_data_view_parquet},
};
#define VIEWS (sizeof(views) / sizeof(*views))

static const struct specs {
	struct mfs_dataset_entry entry;
	int (*open)(struct mfs_dataset *d, const char *spec, struct mfs_view **ret,
		    struct mfs_error *err);
	int (*check)(struct mfs_dataset *d, const char *spec, struct mfs_error *err);
	int (*list)(struct mfs_dataset *d, struct mfs_arena *arena, const char *const **ret,
		    uint32_t *ret_count, struct mfs_error *err);
} specs[] = {
	{{"samples", true}, mfs_data_view_samples, mfs_data_check_samples, mfs_data_list_samples},
	{{"cache", true}, mfs_data_view_cache, mfs_data_check_cache, mfs_data_list_cache},
};
#define SPECS (sizeof(specs) / sizeof(*specs))

int mfs_data_end_view(struct mfs_view *v, const struct mfs_rows *rows, int rc,
		      struct mfs_view **ret, struct mfs_error *err)
{
	for (size_t i = 0; rows && i < rows->set_count; i++)
		mfs_view_note_sources(v, rows->sets[i]);
	if (!rc)
		rc = mfs_view_finish(v, err);
	if (rc) {
		mfs_view_free(v);
		return rc;
	}
	*ret = v;
	return 0;
}

/* A blend has samples and what belongs to them alone. */
const struct mfs_dataset_entry *mfs_dataset_entry(const struct mfs_dataset *d, unsigned i)
{
	if (d->rows && i < VIEWS)
		return &views[i].entry;
	if (d->rows)
		i -= VIEWS;
	return i < SPECS ? &specs[i].entry : NULL;
}

static int no_such_view(const struct mfs_dataset *d, const char *name, struct mfs_error *err)
{
	return mfs_fail(err, -ENOENT, "data/%s has no view '%s'%s", d->name, name,
			d->rows ? "" : ": a blend has samples/SPEC and cache/SPEC");
}

/* The directory of specs that a name lies in, and the spec. */
static const struct specs *specs_of(const char *name, const char **ret_spec)
{
	for (size_t i = 0; i < SPECS; i++) {
		size_t len = strlen(specs[i].entry.name);

		if (!strncmp(name, specs[i].entry.name, len) && name[len] == '/' && name[len + 1] &&
		    !strchr(name + len + 1, '/')) {
			*ret_spec = name + len + 1;
			return &specs[i];
		}
	}
	return NULL;
}

static int build(struct mfs_dataset *d, const char *name, struct mfs_view **ret,
		 struct mfs_error *err)
{
	const struct specs *s;
	const char *spec;

	for (size_t i = 0; d->rows && i < VIEWS; i++)
		if (!strcmp(name, views[i].entry.name))
			return views[i].open(d, ret, err);
	s = specs_of(name, &spec);
	return s ? s->open(d, spec, ret, err) : no_such_view(d, name, err);
}

static int view_open(void *owner, const char *name, void **ret, struct mfs_error *err)
{
	struct mfs_view *view;
	int rc = mfs_dataset_check_view(owner, name, err);

	if (!rc)
		rc = build(owner, name, &view, err);
	if (!rc)
		*ret = view;
	return rc;
}

static void view_close(void *object)
{
	mfs_view_free(object);
}

const struct mfs_open_kind mfs_data_views = {view_open, view_close};

int mfs_dataset_hold_view(struct mfs_dataset *d, const char *name, struct mfs_held **ret,
			  struct mfs_view **ret_view, struct mfs_error *err)
{
	int rc = mfs_keeper_hold(&d->views, name, ret, err);

	if (!rc)
		*ret_view = mfs_held_object(*ret);
	return rc;
}

int mfs_dataset_view(struct mfs_dataset *d, const char *name, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct mfs_held *held;

	return mfs_dataset_hold_view(d, name, &held, ret, err);
}

int mfs_dataset_check_view(struct mfs_dataset *d, const char *name, struct mfs_error *err)
{
	const struct specs *s;
	const char *spec;

	for (size_t i = 0; d->rows && i < VIEWS; i++)
		if (!strcmp(name, views[i].entry.name))
			return 0;
	s = specs_of(name, &spec);
	return s ? s->check(d, spec, err) : no_such_view(d, name, err);
}

int mfs_dataset_list(struct mfs_dataset *d, const char *dir, const char *const **ret,
		     uint32_t *ret_count, struct mfs_error *err)
{
	struct mfs_dataset_listing *l = strcmp(dir, "samples") ? &d->cache : &d->samples;
	const struct specs *s = strcmp(dir, "samples") ? &specs[1] : &specs[0];
	int rc = 0;

	pthread_mutex_lock(&d->lock);
	if (!l->names)
		rc = s->list(d, &d->arena, &l->names, &l->count, err);
	pthread_mutex_unlock(&d->lock);
	if (!rc) {
		*ret = l->names;
		*ret_count = l->count;
	}
	return rc;
}
