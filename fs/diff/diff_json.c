/* The result of a comparison as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/element.h"
#include "fs/diff/diff.h"
#include "fs/cli/json.h"

/* JSON has no infinity and no NaN. */
static json_t *real(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *side(const struct mfs_diff_side *s)
{
	json_t *o = json_object();
	char form[160];

	json_object_set_new(o, "path", mfs_json_string(s->path));
	json_object_set_new(o, "iteration",
			    s->is_hf ? json_null()
				     : mfs_json_string(mfs_iteration_name(s->iteration)));
	json_object_set_new(o, "form", mfs_json_string(mfs_diff_form(s, form, sizeof(form))));
	json_object_set_new(o, "optimizer", json_boolean(s->has_optimizer));
	return o;
}

static json_t *arguments(const struct mfs_diff *d)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < d->argument_count; i++) {
		json_t *o = json_object();

		json_object_set_new(o, "name", mfs_json_string(d->arguments[i].name));
		json_object_set_new(o, "a", mfs_json_string(d->arguments[i].a));
		json_object_set_new(o, "b", mfs_json_string(d->arguments[i].b));
		json_array_append_new(array, o);
	}
	return array;
}

static json_t *names(const struct mfs_diff *d, int which, uint64_t limit)
{
	json_t *array = json_array();
	char name[MFS_CKPT_NAME_SIZE];

	for (uint32_t i = 0; i < d->pair_count && json_array_size(array) < limit; i++) {
		const struct mfs_diff_pair *p = &d->pairs[i];

		if (which ? p->a != NULL : p->b != NULL)
			continue;
		json_array_append_new(array, mfs_json_string(mfs_global_tensor_name(
						     which ? p->b : p->a, name, sizeof(name))));
	}
	return array;
}

static json_t *kind(const struct mfs_global_tensor *t)
{
	json_t *o = json_object();

	json_object_set_new(o, "dtype", mfs_json_string(mfs_dtype_torch(t->dtype)));
	json_object_set_new(o, "shape", mfs_json_numbers(t->shape, t->ndim));
	return o;
}

static json_t *first(const struct mfs_diff *d, const struct mfs_diff_pair *p)
{
	uint64_t index[MFS_CKPT_DIMS];
	char at[96], place[160];
	json_t *o;

	if (!p->found.differing)
		return json_null();
	o = json_object();
	mfs_diff_index(p, index, at, sizeof(at));
	mfs_element_text(mfs_ckpt_args(d->sides[0].ckpt), p->a, index, place, sizeof(place));
	json_object_set_new(o, "index", mfs_json_numbers(index, p->a->ndim));
	json_object_set_new(o, "place", mfs_json_string(place));
	json_object_set_new(o, "a", real(p->found.a));
	json_object_set_new(o, "b", real(p->found.b));
	return o;
}

static json_t *different(const struct mfs_diff *d, uint64_t limit)
{
	json_t *array = json_array();
	char name[MFS_CKPT_NAME_SIZE];

	for (uint32_t i = 0; i < d->pair_count && json_array_size(array) < limit; i++) {
		const struct mfs_diff_pair *p = &d->pairs[i];
		json_t *o;

		if (!mfs_diff_pair_differs(p))
			continue;
		o = json_object();
		json_object_set_new(
			o, "name",
			mfs_json_string(mfs_global_tensor_name(p->a, name, sizeof(name))));
		json_object_set_new(o, "a", kind(p->a));
		json_object_set_new(o, "b", kind(p->b));
		json_object_set_new(o, "elements", mfs_json_number(p->found.elements));
		json_object_set_new(o, "differing", mfs_json_number(p->found.differing));
		json_object_set_new(o, "beyond_rounding",
				    mfs_json_number(p->found.beyond_rounding));
		json_object_set_new(o, "nan", mfs_json_number(p->found.nans));
		json_object_set_new(o, "largest", real(p->found.largest));
		json_object_set_new(o, "first", first(d, p));
		json_array_append_new(array, o);
	}
	return array;
}

int mfs_diff_print_json(const struct mfs_diff *d, uint64_t limit)
{
	json_t *o = json_object();

	json_object_set_new(o, "equal", json_boolean(!mfs_diff_any(d)));
	json_object_set_new(o, "a", side(&d->sides[0]));
	json_object_set_new(o, "b", side(&d->sides[1]));
	json_object_set_new(o, "optimizer_compared", json_boolean(d->optimizer));
	json_object_set_new(o, "arguments", arguments(d));
	json_object_set_new(o, "tensors_equal", mfs_json_number(d->equal));
	json_object_set_new(o, "tensors_different", mfs_json_number(d->different));
	json_object_set_new(o, "tensors_only_a", mfs_json_number(d->only_a));
	json_object_set_new(o, "tensors_only_b", mfs_json_number(d->only_b));
	json_object_set_new(o, "only_a", names(d, 0, limit));
	json_object_set_new(o, "only_b", names(d, 1, limit));
	json_object_set_new(o, "different", different(d, limit));
	json_object_set_new(o, "notes", mfs_json_texts(d->notes, d->note_count));
	return mfs_json_print(o);
}
