/*
 * The raw view of a checkpoint: its model's global tensors under Megatron's names (ckpt/ckpt.h), as
 * safetensors. It needs no family: what a checkpoint has is shown as it is, padding of the
 * vocabulary included. Each layer and each expert has a tensor of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/target.h"
#include "fs/view/build.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"
#include "fs/view/weights.h"

struct raw_view {
	struct mfs_view public;
	struct mfs_whole_target *targets;
};

/* What stands outside of the layers comes first, then each layer, then those of MTP. */
static uint32_t unit_of(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	const int64_t layers = mfs_ckpt_args(ckpt)->num_layers;

	if (t->layer < 0)
		return 0;
	return 1 + (uint32_t)t->layer +
	       (strncmp(t->name, "mtp.", 4) || layers < 0 ? 0 : (uint32_t)layers);
}

/* safetensors has no names for complex numbers. */
static int check_type(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
		      struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	if (strcmp(mfs_dtype_name(t->dtype), "?"))
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' is of %s, which safetensors does not have",
			mfs_ckpt_dir(ckpt), mfs_global_tensor_name(t, name, sizeof(name)),
			mfs_dtype_torch(t->dtype));
}

static int possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_ckpt_count(s->ckpt) && !rc; i++)
		rc = check_type(s->ckpt, mfs_ckpt_at(s->ckpt, i), err);
	return rc;
}

static int by_unit(const void *a, const void *b)
{
	const struct mfs_hf_weight *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return (x->target > y->target) - (x->target < y->target); /* neighbours in one array */
}

static int list_weights(struct raw_view *v, struct mfs_ckpt *ckpt, struct mfs_hf_weights *w,
			struct mfs_error *err)
{
	const uint32_t count = mfs_ckpt_count(ckpt);
	int rc = 0;

	v->targets = calloc(count + 1u, sizeof(*v->targets));
	if (!v->targets)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);
		struct mfs_whole_target *target = (struct mfs_whole_target *)v->targets + i;

		mfs_whole_target_init_saved(target, ckpt, t);
		rc = mfs_hf_weights_add(w, &target->base, unit_of(ckpt, t), err);
	}
	if (!rc && count)
		qsort(w->items, count, sizeof(*w->items), by_unit);
	return rc;
}

static int build(struct raw_view *v, const struct mfs_view_origin *s, struct mfs_error *err)
{
	struct mfs_hf_weights w = {0};
	int rc = possible(s, err);

	if (!rc)
		rc = list_weights(v, s->ckpt, &w, err);
	if (!rc)
		rc = mfs_view_add_weights(&v->public, &w, &mfs_hf_safetensors, s->options, err);
	mfs_hf_weights_release(&w);
	if (rc)
		return rc;
	mfs_view_note_ckpt(&v->public, s->ckpt);
	return mfs_view_finish(&v->public, err);
}

static void release(struct mfs_view *view)
{
	struct raw_view *v = (struct raw_view *)view;

	free(v->targets);
	free(v);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct raw_view *v = calloc(1, sizeof(*v));
	int rc;

	(void)spec;
	if (!v)
		return mfs_fail_nomem(err);
	v->public.release = release;
	v->public.ckpt = s->ckpt;
	rc = build(v, s, err);
	if (rc) {
		mfs_view_free(&v->public);
		return rc;
	}
	*ret = &v->public;
	return 0;
}

const struct mfs_view_kind mfs_view_kind_raw = {
	.name = "raw",
	.help = "all tensors under Megatron's names, as safetensors; of any model",
	.of = MFS_VIEW_OF_MODEL,
	.possible = possible,
	.open = open_view,
};
