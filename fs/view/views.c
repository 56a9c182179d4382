#include "fs/view/views.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "fs/view/build.h"

struct open_view {
	struct mfs_view *view;
	struct mfs_held *origin; /* NULL: it needs no holding */
};

/* ---- what there is ---- */

/* A failure that may pass, such as a lack of memory, does not make a view impossible. Opening the
 * view tries again. */
static int look_for(struct mfs_views *v, unsigned i, const struct mfs_view_origin *s)
{
	const struct mfs_view_kind *k = v->table->kinds[i];
	const char *before = i ? v->why_not[i - 1] : NULL;
	struct mfs_error why;

	if (!(k->of & v->of) || !k->possible || !mfs_keeper_lasts(k->possible(s, &why)))
		return 0;
	v->why_not[i] = before && !strcmp(before, why.msg)
				? before
				: mfs_arena_strndup(&v->arena, why.msg, strlen(why.msg));
	return v->why_not[i] ? 0 : -ENOMEM;
}

int mfs_views_look(struct mfs_views *v, const struct mfs_view_origin *s,
		   const struct mfs_access_fold *access, int64_t mtime_ns)
{
	int rc = 0;

	v->mtime_ns = mtime_ns;
	v->access = *access;
	for (unsigned i = 0; i < v->table->count && !rc; i++)
		rc = look_for(v, i, s);
	return rc;
}

bool mfs_views_entry(const struct mfs_views *v, unsigned from, struct mfs_views_entry *ret)
{
	const char *name;
	size_t len;

	while (from < v->table->count && !(v->table->kinds[from]->of & v->of))
		from++;
	if (from == v->table->count)
		return false;
	name = v->table->kinds[from]->name;
	len = strcspn(name, "/");
	*ret = (struct mfs_views_entry){
		.first = from, .end = from + 1, .is_group = name[len], .why_not = v->why_not[from]};
	snprintf(ret->name, sizeof(ret->name), "%.*s", (int)len, name);
	for (; ret->is_group && ret->end < v->table->count; ret->end++) {
		const struct mfs_view_kind *next = v->table->kinds[ret->end];

		if (!(next->of & v->of) || strncmp(next->name, name, len + 1))
			break;
		if (!v->why_not[ret->end])
			ret->why_not = NULL;
	}
	return true;
}

bool mfs_views_lacks(const struct mfs_views *v)
{
	for (unsigned i = 0; i < v->table->count; i++)
		if (v->why_not[i] && !v->table->kinds[i]->is_extra)
			return true;
	return false;
}

/* Adds a line for each view that lacks in a directory with others, and that most models have. */
static void add_lacks_within(const struct mfs_views *v, const struct mfs_views_entry *e,
			     struct mfs_buf *ret)
{
	for (unsigned i = e->first; i < e->end; i++)
		if (v->why_not[i] && !v->table->kinds[i]->is_extra)
			mfs_buf_printf(ret, "%s: %s\n", v->table->kinds[i]->name, v->why_not[i]);
}

/* Adds a line for each reason, after the names of all entries that lack for it. */
static void add_lacks(const struct mfs_views *v, struct mfs_buf *ret)
{
	struct mfs_views_entry e, next;

	for (unsigned i = 0; mfs_views_entry(v, i, &e); i = e.end) {
		if (!e.why_not) {
			add_lacks_within(v, &e, ret);
			continue;
		}
		mfs_buf_adds(ret, e.name);
		if (mfs_views_entry(v, e.end, &next) && next.why_not == e.why_not)
			mfs_buf_adds(ret, ", ");
		else
			mfs_buf_printf(ret, ": %s\n", e.why_not);
	}
}

int mfs_views_new_why_not(const struct mfs_views *v, struct mfs_view **ret, struct mfs_error *err)
{
	struct mfs_view *view = calloc(1, sizeof(*view));
	struct mfs_buf text = {0};
	int rc;

	add_lacks(v, &text);
	if (!view || text.failed) {
		mfs_buf_release(&text);
		free(view);
		return mfs_fail_nomem(err);
	}
	mfs_view_note_read(view, &v->access);
	view->mtime_ns = v->mtime_ns;
	rc = mfs_view_add_bytes(view, MFS_WHY_NOT_FILE, text.data, text.len, err);
	if (!rc)
		rc = mfs_view_finish(view, err);
	if (rc) {
		mfs_view_free(view);
		return rc;
	}
	*ret = view;
	return 0;
}

/* ---- names ---- */

static int no_such_view(const struct mfs_views *v, const char *name, struct mfs_error *err)
{
	struct mfs_buf names = {0};
	int rc;

	mfs_view_kind_names(v->table, v->of, &names);
	rc = mfs_fail(err, -ENOENT, "there is no view '%s': name %s", name,
		      names.failed ? "another" : names.data);
	mfs_buf_release(&names);
	return rc;
}

/* A directory of specs is no view. */
static int find(const struct mfs_views *v, const char *name, const struct mfs_view_kind **ret,
		const char **ret_spec, struct mfs_error *err)
{
	*ret = mfs_view_kind_find(v->table, v->of, name, ret_spec);
	return *ret && !(*ret)->spec == !**ret_spec ? 0 : no_such_view(v, name, err);
}

/* An impossible spec is refused before an optimizer is opened. */
static int hold_model(struct mfs_views *v, const struct mfs_view_kind *k,
		      struct mfs_view_origin *ret, struct mfs_held **ret_held,
		      struct mfs_error *err)
{
	return v->ops->hold(v->owner, k->of == MFS_VIEW_OF_FULL ? MFS_VIEW_OF_MODEL : k->of, ret,
			    ret_held, err);
}

static int check_spec(struct mfs_views *v, const struct mfs_view_kind *k, const char *spec,
		      struct mfs_error *err)
{
	struct mfs_view_origin s;
	struct mfs_held *held;
	int rc;

	if (!k->spec)
		return 0;
	rc = hold_model(v, k, &s, &held, err);
	if (rc)
		return rc == -ENOENT ? -EIO : rc; /* it is of a file, not of the view */
	rc = k->check(&s, spec, err);
	mfs_keeper_drop(held);
	return rc;
}

int mfs_views_check(struct mfs_views *v, const char *name, struct mfs_error *err)
{
	const struct mfs_view_kind *k;
	const char *spec;
	int rc = find(v, name, &k, &spec, err);

	return rc ? rc : check_spec(v, k, spec, err);
}

/* Under the lock. */
static int list(struct mfs_views *v, const struct mfs_view_kind *k, struct mfs_views_listing *ret,
		struct mfs_error *err)
{
	struct mfs_view_origin s;
	struct mfs_held *held;
	int rc = hold_model(v, k, &s, &held, err);

	if (rc)
		return rc;
	rc = k->list(&s, &v->arena, &ret->names, &ret->count, err);
	mfs_keeper_drop(held);
	return rc;
}

int mfs_views_list(struct mfs_views *v, const struct mfs_view_kind *kind, const char *const **ret,
		   uint32_t *ret_count, struct mfs_error *err)
{
	struct mfs_views_listing *l = v->listings;
	int rc = 0;

	for (unsigned i = 0; v->table->kinds[i] != kind; i++)
		l++;
	pthread_mutex_lock(&v->lock);
	if (!l->names)
		rc = list(v, kind, l, err);
	if (!rc) {
		*ret = l->names;
		*ret_count = l->count;
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

/* ---- opening ---- */

int mfs_views_hold_origin(struct mfs_views *v, const struct mfs_view_kind *kind,
			  struct mfs_held **ret, struct mfs_error *err)
{
	struct mfs_view_origin s;

	return v->ops->hold(v->owner, kind->of, &s, ret, err);
}

static int build(struct mfs_views *v, const char *name, struct open_view *o, struct mfs_error *err)
{
	const struct mfs_view_kind *k;
	struct mfs_view_origin s;
	const char *spec;
	int rc;

	if (!strcmp(name, MFS_WHY_NOT_VIEW) && mfs_views_lacks(v))
		return mfs_views_new_why_not(v, &o->view, err);
	rc = find(v, name, &k, &spec, err);
	if (!rc)
		rc = check_spec(v, k, spec, err);
	if (!rc)
		rc = v->ops->hold(v->owner, k->of, &s, &o->origin, err);
	if (!rc)
		rc = k->open(&s, spec, &o->view, err);
	if (rc || !v->ops->recheck)
		return rc;
	rc = v->ops->recheck(v->owner, &s, err);
	if (rc)
		mfs_view_free(o->view);
	return rc;
}

static int view_open(void *owner, const char *name, void **ret, struct mfs_error *err)
{
	struct open_view *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return mfs_fail_nomem(err);
	rc = build(owner, name, o, err);
	if (rc) {
		mfs_keeper_drop(o->origin);
		free(o);
		return rc;
	}
	*ret = o;
	return 0;
}

static void view_close(void *object)
{
	struct open_view *o = object;

	mfs_view_free(o->view);
	mfs_keeper_drop(o->origin);
	free(o);
}

int mfs_views_hold(struct mfs_views *v, const char *name, struct mfs_held **ret,
		   struct mfs_view **ret_view, struct mfs_error *err)
{
	const struct open_view *o;
	int rc = mfs_keeper_hold(&v->open, name, ret, err);

	if (rc)
		return rc;
	o = mfs_held_object(*ret);
	*ret_view = o->view;
	return 0;
}

int mfs_views_open(struct mfs_views *v, const char *name, struct mfs_view **ret,
		   struct mfs_error *err)
{
	struct mfs_held *held;

	return mfs_views_hold(v, name, &held, ret, err);
}

/* ---- all of it ---- */

void mfs_views_init(struct mfs_views *v, const struct mfs_views_owner_ops *ops, void *owner,
		    const struct mfs_view_table *table, unsigned of, struct mfs_keeper *keeper)
{
	static const struct mfs_open_ops views = {view_open, view_close};

	*v = (struct mfs_views){.ops = ops, .owner = owner, .table = table, .of = of};
	mfs_open_set_init(&v->open, keeper, &views, v);
	pthread_mutex_init(&v->lock, NULL);
}

void mfs_views_release(struct mfs_views *v)
{
	mfs_open_set_release(&v->open);
	mfs_arena_release(&v->arena);
	pthread_mutex_destroy(&v->lock);
}
