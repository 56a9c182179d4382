/* Checks that an optimizer was read completely. */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/optim/read/optim_i.h"
#include "formats/optim/rules/optimizers.h"

/* The number of elements in a tensor's chunks, which must not overlap. */
static uint64_t chunk_elements(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	const struct mfs_chunk *c = mfs_ckpt_chunks(ckpt, t);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->chunk_count; i++) {
		uint64_t n;

		if (!mfs_shape_count(c[i].size, t->ndim, &n) || mfs_add_overflows(sum, n, &sum))
			return UINT64_MAX;
	}
	return sum;
}

static int check_state(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *model,
		       enum mfs_state state, struct mfs_error *err)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find_state(ckpt, state, model->name, model->layer, model->expert);
	char name[MFS_CKPT_NAME_SIZE], want[96], have[96];
	uint64_t elements;

	if (!t)
		return mfs_fail(err, -ENODATA, "%s: optimizer: no %s of '%s'", mfs_ckpt_dir(ckpt),
				mfs_state_name(state),
				mfs_global_tensor_name(model, name, sizeof(name)));
	if (t->ndim != model->ndim || memcmp(t->shape, model->shape, t->ndim * sizeof(*t->shape)) ||
	    !mfs_shape_count(t->shape, t->ndim, &elements))
		return mfs_fail(err, -EINVAL, "%s: '%s': expected %s, found %s", mfs_ckpt_dir(ckpt),
				mfs_global_tensor_name(t, name, sizeof(name)),
				mfs_shape_text(model->shape, model->ndim, want, sizeof(want)),
				mfs_shape_text(t->shape, t->ndim, have, sizeof(have)));
	if (chunk_elements(ckpt, t) == elements)
		return 0;
	return mfs_fail(err, -EINVAL, "%s: '%s': expected %llu elements, found %llu",
			mfs_ckpt_dir(ckpt), mfs_global_tensor_name(t, name, sizeof(name)),
			(unsigned long long)elements, (unsigned long long)chunk_elements(ckpt, t));
}

static bool has_main(const struct mfs_ckpt *ckpt)
{
	const uint32_t first = mfs_ckpt_count(ckpt);

	return mfs_ckpt_count_all(ckpt) > first &&
	       mfs_ckpt_at(ckpt, first)->state == MFS_STATE_MAIN;
}

static int check_states(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *model,
			unsigned kept, struct mfs_error *err)
{
	int rc = 0;

	for (unsigned s = MFS_STATE_MAIN; s < MFS_STATE_COUNT && !rc; s++)
		if (kept >> s & 1)
			rc = check_state(ckpt, model, s, err);
	return rc;
}

int mfs_optim_check_whole(const struct mfs_ckpt *ckpt, bool *ret_main, struct mfs_error *err)
{
	struct mfs_optim_rules rules;
	int rc = 0;

	mfs_optim_rules_of(ckpt, &rules);
	*ret_main = has_main(ckpt);
	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt) && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		if (mfs_name_is_parameter(t->name, t->dtype))
			rc = check_states(ckpt, t,
					  mfs_optim_kept(&rules, t->name, t->ndim) |
						  (*ret_main ? MFS_OPTIM_STATE(MAIN) : 0),
					  err);
	}
	return rc;
}
