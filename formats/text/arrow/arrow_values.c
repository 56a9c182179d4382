/* Which buffers the values of a column are in, batch by batch. */
#include "formats/text/arrow/arrow_text_i.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"

/* What the batches of a type have: a validity, unless a type has no buffers, and then these. */
struct layout {
	bool any; /* it is read only where any type is wanted */
	bool validity, offsets, data, views;
};

static const struct layout layouts[MFS_ARROW_TYPES] = {
	[MFS_ARROW_UTF8] = {false, true, true, true, false},
	[MFS_ARROW_LARGE_UTF8] = {false, true, true, true, false},
	[MFS_ARROW_UTF8_VIEW] = {false, true, true, false, true},
	[MFS_ARROW_NULL] = {true, false, false, false, false},
	[MFS_ARROW_INT] = {true, true, false, true, false},
	[MFS_ARROW_BOOL] = {true, true, false, true, false},
	[MFS_ARROW_LIST] = {true, true, true, false, false},
	[MFS_ARROW_LARGE_LIST] = {true, true, true, false, false},
	[MFS_ARROW_FIXED_SIZE_LIST] = {true, true, false, false, false},
	[MFS_ARROW_STRUCT] = {true, true, false, false, false},
};

static const struct layout numbers = {false, true, false, true, false};

static bool is_known(enum mfs_arrow_type type)
{
	return layouts[type].any || layouts[type].validity;
}

int mfs_arrow_damaged(const struct mfs_arrow_table *t, const char *what, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: record batch %llu, column '%s': %s", t->src.name,
			(unsigned long long)t->batch.number, t->column ? t->column : "", what);
}

/* ---- which columns can be read ---- */

static int refuse(const struct mfs_arrow_table *t, const struct mfs_arrow_column *c, bool any,
		  struct mfs_error *err)
{
	char text[64];

	return mfs_fail(err, -ENOTSUP, "%s: its column '%s' is of %s: expected %s", t->src.name,
			c->name, mfs_arrow_type_text(c, text, sizeof(text)),
			any ? "strings, integers, booleans, lists or structs" : "strings");
}

static int find_dictionary(struct mfs_arrow_table *t, const struct mfs_arrow_column *c,
			   struct mfs_arrow_dictionary **ret, struct mfs_error *err)
{
	struct mfs_arrow_dictionary *d;

	for (uint32_t i = 0; i < t->dictionary_count; i++) {
		d = t->dictionaries[i];
		if (d->id != c->dictionary_id)
			continue;
		if (d->words.type != c->type)
			return mfs_fail(err, -EINVAL,
					"%s: its column '%s' shares a dictionary of another type",
					t->src.name, c->name);
		*ret = d;
		return 0;
	}
	d = calloc(1, sizeof(*d));
	if (!d || mfs_grow(&t->dictionaries, t->dictionary_count)) {
		free(d);
		return mfs_fail_nomem(err);
	}
	d->id = c->dictionary_id;
	d->words = (struct mfs_arrow_column){.name = c->name, .type = c->type};
	t->dictionaries[t->dictionary_count++] = d;
	*ret = d;
	return 0;
}

int mfs_arrow_values_init(struct mfs_arrow_values *v, struct mfs_arrow_table *t,
			  const struct mfs_arrow_column *c, bool any, struct mfs_error *err)
{
	int rc = 0;

	*v = (struct mfs_arrow_values){.column = c};
	if (!is_known(c->type) || (!any && layouts[c->type].any) ||
	    (c->index && layouts[c->type].any) || (c->type == MFS_ARROW_INT && !c->dtype))
		return refuse(t, c, any, err);
	if (c->index)
		return find_dictionary(t, c, &v->dictionary, err);
	if (!c->child_count)
		return 0;
	v->children = calloc(c->child_count, sizeof(*v->children));
	if (!v->children)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < c->child_count && !rc; i++)
		rc = mfs_arrow_values_init(&v->children[i], t, &c->children[i], any, err);
	return rc;
}

/* ---- buffers ---- */

static void release_views(struct mfs_arrow_values *v)
{
	for (uint32_t i = 0; i < v->view_count; i++)
		mfs_arrow_bytes_release(&v->views[i]);
	free(v->views);
	v->views = NULL;
	v->view_count = 0;
}

/* A view's bytes are in as many buffers as the batch says. */
static int set_views(struct mfs_arrow_values *v, const struct mfs_arrow_table *t,
		     const struct mfs_arrow_batch *batch, uint32_t buffer, struct mfs_error *err)
{
	uint64_t count;
	int rc = 0;

	release_views(v);
	if (v->column->view >= batch->views)
		return mfs_arrow_damaged(t, "how many buffers its views have is missing", err);
	count = mfs_le64(batch->view_bytes + 8 * (size_t)v->column->view);
	if (buffer > batch->buffers || count > batch->buffers - buffer)
		return mfs_arrow_damaged(t, "its views have more buffers than there are", err);
	v->views = calloc(count + 1, sizeof(*v->views));
	if (!v->views)
		return mfs_fail_nomem(err);
	v->view_count = (uint32_t)count;
	for (uint32_t i = 0; i < v->view_count && !rc; i++)
		rc = mfs_arrow_bytes_set(&v->views[i], t, batch, buffer + i, batch->is_dictionary,
					 err);
	return rc;
}

static int set_buffers(struct mfs_arrow_values *v, const struct mfs_arrow_table *t,
		       const struct mfs_arrow_batch *batch, struct mfs_error *err)
{
	const struct layout *layout = v->dictionary ? &numbers : &layouts[v->column->type];
	const bool whole = batch->is_dictionary;
	uint32_t buffer;
	int rc = mfs_arrow_first_buffer(t->arrow, batch, v->column, &buffer, err);

	if (!rc && layout->validity && v->nulls)
		rc = mfs_arrow_bytes_set(&v->validity, t, batch, buffer, whole, err);
	buffer += layout->validity;
	if (!rc && layout->offsets)
		rc = mfs_arrow_bytes_set(&v->offsets, t, batch, buffer, whole, err);
	buffer += layout->offsets;
	if (!rc && layout->data)
		rc = mfs_arrow_bytes_set(&v->data, t, batch, buffer, whole, err);
	return !rc && layout->views ? set_views(v, t, batch, buffer, err) : rc;
}

int mfs_arrow_values_set(struct mfs_arrow_values *v, const struct mfs_arrow_table *t,
			 const struct mfs_arrow_batch *batch, struct mfs_error *err)
{
	const struct mfs_arrow_column *c = v->column;
	int rc = mfs_arrow_node(t->arrow, batch, c->node, &v->rows, &v->nulls, err);

	if (!rc)
		rc = set_buffers(v, t, batch, err);
	if (v->dictionary)
		return rc;
	for (uint32_t i = 0; i < c->child_count && !rc; i++) {
		rc = mfs_arrow_values_set(&v->children[i], t, batch, err);
		if (!rc && c->type == MFS_ARROW_STRUCT && v->children[i].rows < v->rows)
			rc = mfs_arrow_damaged(t, "a member of a struct has fewer rows than it",
					       err);
	}
	return rc;
}

void mfs_arrow_values_release(struct mfs_arrow_values *v)
{
	mfs_arrow_bytes_release(&v->validity);
	mfs_arrow_bytes_release(&v->offsets);
	mfs_arrow_bytes_release(&v->data);
	release_views(v);
	for (uint32_t i = 0; v->children && i < v->column->child_count; i++)
		mfs_arrow_values_release(&v->children[i]);
	free(v->children);
	v->children = NULL;
}

/* ---- dictionaries ---- */

static void forget_words(struct mfs_arrow_dictionary *d)
{
	while (d->part_count)
		mfs_arrow_values_release(&d->parts[--d->part_count]);
	free(d->parts);
	free(d->firsts);
	d->parts = NULL;
	d->firsts = NULL;
}

/* A batch that is no delta replaces the words before it (Columnar.rst, "Dictionary Messages"). */
int mfs_arrow_dictionary_add(struct mfs_arrow_table *t, const struct mfs_arrow_batch *batch,
			     struct mfs_error *err)
{
	struct mfs_arrow_dictionary *d = NULL;
	struct mfs_arrow_values *part;
	int rc;

	for (uint32_t i = 0; i < t->dictionary_count; i++)
		if (t->dictionaries[i]->id == batch->dictionary)
			d = t->dictionaries[i];
	if (!d)
		return 0; /* of a column that is not wanted */
	t->column = d->words.name;
	if (!batch->is_delta)
		forget_words(d);
	if (mfs_grow(&d->parts, d->part_count) || mfs_grow(&d->firsts, d->part_count))
		return mfs_fail_nomem(err);
	part = d->part_count ? &d->parts[d->part_count - 1] : NULL;
	d->firsts[d->part_count] = part ? d->firsts[d->part_count - 1] + part->rows : 0;
	part = &d->parts[d->part_count++];
	rc = mfs_arrow_values_init(part, t, &d->words, false, err);
	return rc ? rc : mfs_arrow_values_set(part, t, batch, err);
}

void mfs_arrow_dictionary_free(struct mfs_arrow_dictionary *d)
{
	forget_words(d);
	free(d);
}
