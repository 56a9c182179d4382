/* A torch_dist view's items of states of modules: those of the source, split by experts. */
#include <errno.h>

#include "formats/base/arena.h"
#include "formats/ckpt/extra_states.h"
#include "formats/megatron/write/dist_view_i.h"
#include "formats/megatron/write/extra_items.h"

/* Appends the item, if the module has a state. Its attention and a head next to it have none: these
 * do not compute in 8 bits. */
static int write_item(const struct mfs_megatron_dist *d, const struct mfs_dist_extra *e, uint32_t i,
		      struct mfs_buf *out, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mfs_extra_state s;
	int rc = 0;

	if (e->core_attention || e->head)
		return 0;
	rc = mfs_ckpt_extra_state(d->options.ckpt, &e->owner->first[i], &arena, &s, err);
	if (!rc && s.products)
		rc = mfs_extra_item_write(&s, out, err);
	mfs_arena_release(&arena);
	return rc;
}

int mfs_dist_extra_item(const struct mfs_megatron_dist *d, const struct mfs_dist_extra *e,
			uint32_t i, struct mfs_buf *out, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc = write_item(d, e, i, out, err);

	if (rc || out->len == (e->stateful ? e->length : 0))
		return rc;
	return mfs_fail(err, -EINVAL,
			"%s: the module of '%s' has another _extra_state than those of other "
			"layers",
			mfs_ckpt_dir(d->options.ckpt),
			mfs_global_tensor_name(&e->owner->first[i], name, sizeof(name)));
}

/* Reading all states would be a read for each expert of each layer. Those that have the size of the
 * first are not read. */
static int check_others(const struct mfs_megatron_dist *d, const struct mfs_dist_extra *e,
			struct mfs_error *err)
{
	const struct mfs_ckpt *ckpt = d->options.ckpt;
	const struct mfs_dist_tensor *t = e->owner;
	const uint32_t count = mfs_dist_each(t->layers) * mfs_dist_each(t->experts);
	const uint64_t size = mfs_ckpt_extra_size(ckpt, t->first);
	int rc = 0;

	for (uint32_t i = 1; i < count && !rc; i++) {
		struct mfs_buf item = {0};

		if (mfs_ckpt_extra_size(ckpt, &t->first[i]) != size)
			rc = mfs_dist_extra_item(d, e, i, &item, err);
		mfs_buf_release(&item);
	}
	return rc;
}

/* The first of each kind is read: all modules of a run have one recipe. */
int mfs_dist_measure_extras(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < d->extra_count && !rc; i++) {
		struct mfs_dist_extra *e = &d->extras[i];
		struct mfs_buf item = {0};

		rc = write_item(d, e, 0, &item, err);
		e->stateful = item.len != 0;
		e->length = e->stateful ? item.len : d->none.len;
		mfs_buf_release(&item);
		if (!rc && !e->core_attention && !e->head)
			rc = check_others(d, e, err);
	}
	return rc;
}
