#include "formats/model/hf_fused.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"

struct fused {
	struct mfs_ckpt *ckpt;
	struct mfs_hf_tensors *set;
	const struct mfs_fused *row;
	const struct mfs_hf_tensor *t;
	const uint64_t *each; /* [rows, columns] of a part */
	bool transposed;
	int prefix; /* bytes of its name that all parts have */
	struct mfs_error *err;
};

const struct mfs_fused *mfs_hf_fused(const struct mfs_family *f, const char *rest)
{
	for (const struct mfs_fused *row = f->fused; row && row->from; row++)
		if (!strcmp(row->from, rest))
			return row;
	return NULL;
}

static int check_kind(const struct fused *f)
{
	const int64_t experts = f->ckpt->args.num_experts;

	if (f->t->scales || !mfs_dtype_is_float(f->t->dtype))
		return mfs_fail(f->err, -ENOTSUP,
				"%s: tensor '%s' of all experts is of %s, expected floats of 16 "
				"bits or more",
				f->ckpt->dir, f->t->name, mfs_dtype_torch(f->t->dtype));
	return experts <= MFS_FUSED_EXPERTS
		       ? 0
		       : mfs_fail(f->err, -ENOTSUP,
				  "%s: tensor '%s' is of %" PRId64 " experts, expected at most %d",
				  f->ckpt->dir, f->t->name, experts, MFS_FUSED_EXPERTS);
}

static bool is_shape(const struct mfs_hf_tensor *t, uint64_t experts, uint64_t a, uint64_t b)
{
	return t->ndim == 3 && t->shape[0] == experts && t->shape[1] == a && t->shape[2] == b;
}

/* Programs store such tensors in one way or the other, and transformers looks at their shape. */
static int find_order(struct fused *f)
{
	const uint64_t experts = (uint64_t)f->ckpt->args.num_experts;
	const uint64_t all[] = {experts, f->each[0] * f->row->count, f->each[1]};
	char want[96], have[128];

	f->transposed = f->row->transposed && is_shape(f->t, experts, all[2], all[1]);
	if (f->transposed && all[1] == all[2])
		return mfs_fail(f->err, -ENOTSUP,
				"%s: tensor '%s' is %s: its shape does not tell whether it is "
				"transposed",
				f->ckpt->dir, f->t->name,
				mfs_shape_text(f->t->shape, f->t->ndim, have, sizeof(have)));
	if (f->transposed || is_shape(f->t, experts, all[1], all[2]))
		return 0;
	return mfs_fail(f->err, -EINVAL,
			"%s: tensor '%s' is %s, but by config.json it should be %s%s", f->ckpt->dir,
			f->t->name, mfs_shape_text(f->t->shape, f->t->ndim, have, sizeof(have)),
			mfs_shape_text(all, 3, want, sizeof(want)),
			f->row->transposed ? ", or that transposed" : "");
}

/* Part of one expert: rows of its matrix. */
static int add_part(const struct fused *f, uint32_t expert, uint32_t part)
{
	const struct mfs_hf_tensor *t = f->t;
	const unsigned rows = f->transposed ? 2 : 1, columns = 3 - rows;
	const char *pattern = f->row->to[part], *hole = strstr(pattern, "{e}");
	struct mfs_hf_tensor one = *t;
	char name[MFS_CKPT_NAME_SIZE];

	if ((size_t)snprintf(name, sizeof(name), "%.*s%.*s%" PRIu32 "%s", f->prefix, t->name,
			     (int)(hole - pattern), pattern, expert, hole + 3) >= sizeof(name))
		return mfs_fail(f->err, -ENOTSUP, "%s: tensor '%s': its name is too long",
				f->ckpt->dir, t->name);
	one.name = name;
	one.used = false;
	one.ndim = 2;
	one.shape[0] = f->each[0];
	one.shape[1] = f->each[1];
	one.stride[0] = t->stride[rows];
	one.stride[1] = t->stride[columns];
	one.origin = t->origin + expert * t->stride[0] + part * f->each[0] * t->stride[rows];
	return mfs_hf_tensors_add(f->ckpt, f->set, &one, f->err);
}

int mfs_hf_unfuse(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *set, const struct mfs_fused *row,
		  struct mfs_hf_tensor *t, const char *rest, const uint64_t *each,
		  struct mfs_error *err)
{
	struct fused f = {.ckpt = ckpt,
			  .set = set,
			  .row = row,
			  .t = t,
			  .each = each,
			  .prefix = (int)(rest - t->name),
			  .err = err};
	int rc = check_kind(&f);

	if (!rc)
		rc = find_order(&f);
	for (uint32_t e = 0; !rc && e < t->shape[0]; e++)
		for (uint32_t i = 0; i < row->count && !rc; i++)
			rc = add_part(&f, e, i);
	t->used = true;
	return rc;
}
