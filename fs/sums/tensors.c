#include "fs/sums/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt.h"
#include "fs/source/root.h"
#include "fs/view/view.h"

static int describe(struct mfs_tensors *l, const struct mfs_global_tensor *t, struct mfs_sum *s,
		    struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	mfs_global_tensor_name(t, name, sizeof(name));
	if (!mfs_sums_name_ok(name))
		return mfs_fail(err, -EINVAL, "%s: the name of a tensor has control characters",
				mfs_ckpt_dir(l->ckpt));
	*s = (struct mfs_sum){.dtype = t->dtype, .ndim = t->ndim};
	s->name = mfs_arena_strndup(&l->arena, name, strlen(name));
	if (!s->name)
		return mfs_fail_nomem(err);
	memcpy(s->shape, t->shape, t->ndim * sizeof(*t->shape));
	/* Rows of padding are a matter of the layout. */
	if (mfs_global_tensor_is_vocabulary(t) && l->vocabulary && l->vocabulary < s->shape[0])
		s->shape[0] = l->vocabulary;
	return 0;
}

/* A tensor and its job, while they are sorted. */
struct entry {
	struct mfs_sum sum;
	struct mfs_hash_job job;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->sum.name, ((const struct entry *)b)->sum.name);
}

static int list_entries(struct mfs_tensors *l, struct entry *entries, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->count && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(l->ckpt, i);

		rc = describe(l, t, &entries[i].sum, err);
		entries[i].job = (struct mfs_hash_job){
			.t = t,
			/* Norms count as the model uses them, whatever a run stores. */
			.add_one = mfs_global_tensor_is_shifted(mfs_ckpt_args(l->ckpt), t),
			.rows = entries[i].sum.shape[0]};
	}
	return rc;
}

static int list(struct mfs_tensors *l, struct mfs_error *err)
{
	struct entry *entries = calloc((size_t)l->count + 1, sizeof(*entries));
	int rc;

	l->sums = calloc((size_t)l->count + 1, sizeof(*l->sums));
	l->jobs = calloc((size_t)l->count + 1, sizeof(*l->jobs));
	rc = entries && l->sums && l->jobs ? list_entries(l, entries, err) : mfs_fail_nomem(err);
	if (!rc) {
		qsort(entries, l->count, sizeof(*entries), by_name);
		for (uint32_t i = 0; i < l->count; i++) {
			l->sums[i] = entries[i].sum;
			l->jobs[i] = entries[i].job;
		}
	}
	free(entries);
	return rc;
}

int mfs_tensors_list(struct mfs_iteration *it, const struct mfs_view_options *opt, bool optim,
		     struct mfs_tensors *ret, struct mfs_error *err)
{
	struct mfs_tensors l = {0};
	int rc = optim ? mfs_iteration_full_ckpt(it, &l.ckpt, err)
		       : mfs_iteration_ckpt(it, &l.ckpt, err);

	if (rc)
		return rc;
	if (optim && mfs_ckpt_count_all(l.ckpt) == mfs_ckpt_count(l.ckpt))
		return mfs_fail(err, -ENODATA, "%s has no optimizer", mfs_ckpt_dir(l.ckpt));
	l.count = optim ? mfs_ckpt_count_all(l.ckpt) : mfs_ckpt_count(l.ckpt);
	rc = mfs_view_true_vocab(l.ckpt, opt, &l.vocabulary, err);
	if (!rc)
		rc = list(&l, err);
	if (rc)
		mfs_tensors_release(&l);
	else
		*ret = l;
	return rc;
}

void mfs_tensors_release(struct mfs_tensors *l)
{
	for (uint32_t i = 0; l->jobs && i < l->count; i++)
		free(l->jobs[i].why);
	free(l->jobs);
	free(l->sums);
	mfs_arena_release(&l->arena);
	*l = (struct mfs_tensors){0};
}
