#include "formats/ckpt/extra_states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/search.h"
#include "formats/ckpt/ckpt_build.h"

/* ---- notes ---- */

int mfs_ckpt_note_extra(struct mfs_ckpt *ckpt, const struct mfs_ckpt_extra *extra,
			struct mfs_error *err)
{
	if (mfs_grow(&ckpt->extras, ckpt->extra_count))
		return mfs_fail_nomem(err);
	ckpt->extras[ckpt->extra_count++] = *extra;
	return 0;
}

static int by_module(const void *a, const void *b)
{
	const struct mfs_ckpt_extra *x = a, *y = b;
	const int order = strcmp(x->name, y->name);

	if (order)
		return order;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	return (x->expert > y->expert) - (x->expert < y->expert);
}

void mfs_ckpt_sort_extras(struct mfs_ckpt *ckpt)
{
	if (ckpt->extra_count)
		qsort(ckpt->extras, ckpt->extra_count, sizeof(*ckpt->extras), by_module);
}

/* The note that the weight's module is in. NULL: there is none. */
static const struct mfs_ckpt_extra *find(const struct mfs_ckpt *ckpt,
					 const struct mfs_global_tensor *t)
{
	const struct mfs_ckpt_extra wanted = {
		.name = t->name, .layer = t->layer, .expert = t->expert};
	const struct mfs_ckpt_extra *e;

	if (!ckpt->extra_count || by_module(&ckpt->extras[0], &wanted) > 0)
		return NULL;
	e = &ckpt->extras[mfs_last_while(i, ckpt->extra_count,
					 by_module(&ckpt->extras[i], &wanted) <= 0)];
	if (strcmp(e->name, t->name) || e->layer != t->layer)
		return NULL;
	return (uint32_t)(t->expert - e->expert) < e->experts ? e : NULL;
}

/* False where, by its arguments, the run has no 8 bits. */
static bool may_have(const struct mfs_ckpt *ckpt)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(ckpt);
	const struct mfs_pickle *doc;
	mfs_value args, names;

	if (!ckpt->extra_count || !state)
		return ckpt->extra_count != 0;
	doc = state->archive.doc;
	args = mfs_value_get(doc, state->root, "args");
	names = mfs_value_state(doc, args);
	return !mfs_value_has(doc, names, "fp8") ||
	       !mfs_value_is_none(doc, mfs_value_get(doc, names, "fp8"));
}

/* ---- reading ---- */

/* A byte item of torch_dist is a list of one object. */
static int read_item(const struct mfs_source *src, struct mfs_arena *arena,
		     struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct mfs_torch_file f;
	mfs_value v;
	int rc = mfs_torch_file_open(src, &f, err);

	if (rc)
		return rc;
	v = mfs_pickle_root(f.doc);
	if (mfs_value_type(f.doc, v) == MFS_V_LIST)
		v = mfs_value_at(f.doc, v, 0);
	rc = mfs_extra_state_value(&f, v, arena, ret, err);
	mfs_torch_file_release(&f);
	return rc;
}

static int read_range(const struct mfs_source *src, struct mfs_arena *arena,
		      struct mfs_extra_state *ret, struct mfs_error *err)
{
	void *bytes;
	int rc = mfs_source_slurp(src, 0, src->size, &bytes, err);

	if (rc)
		return rc;
	rc = mfs_extra_state_read(bytes, src->size, src->name, arena, ret, err);
	free(bytes);
	return rc;
}

static int read_noted(struct mfs_ckpt *ckpt, const struct mfs_ckpt_extra *e,
		      struct mfs_arena *arena, struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct mfs_source file, src;

	if (e->malformed)
		return mfs_fail(err, -ENOTSUP, "expected None, a tensor of bytes or a BytesIO");
	if (e->bytes)
		return mfs_extra_state_read(e->bytes, e->length, "a BytesIO", arena, ret, err);
	file = mfs_source_file(ckpt->files, e->file);
	src = mfs_source_range(&file, e->at, e->length);
	return e->item ? read_item(&src, arena, ret, err) : read_range(&src, arena, ret, err);
}

/* Of several experts the one that is asked for. */
static int read_module(struct mfs_ckpt *ckpt, const struct mfs_ckpt_extra *e, uint32_t expert,
		       struct mfs_arena *arena, struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct mfs_extra_state all;
	int rc = read_noted(ckpt, e, arena, &all, err);

	*ret = (struct mfs_extra_state){0};
	if (rc || !all.products)
		return rc;
	if (all.products != e->experts)
		return mfs_fail(err, -EINVAL, "state of %u products, expected %u", all.products,
				e->experts);
	return mfs_extra_state_split(&all, expert, arena, ret, err);
}

int mfs_ckpt_extra_state(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *weight,
			 struct mfs_arena *arena, struct mfs_extra_state *ret,
			 struct mfs_error *err)
{
	const struct mfs_ckpt_extra *e = may_have(ckpt) ? find(ckpt, weight) : NULL;
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	*ret = (struct mfs_extra_state){0};
	if (!e)
		return 0;
	rc = read_module(ckpt, e, (uint32_t)(weight->expert - e->expert), arena, ret, err);
	return rc ? mfs_fail_in(err, "%s: _extra_state of the module of '%s'", ckpt->dir,
				mfs_global_tensor_name(weight, name, sizeof(name)))
		  : 0;
}

uint64_t mfs_ckpt_extra_size(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *weight)
{
	const struct mfs_ckpt_extra *e = may_have(ckpt) ? find(ckpt, weight) : NULL;

	return e ? e->length : 0;
}
