/* Legacy files: finds the kind of a rank's optimizer, and calls the reader of this kind. */
#include <errno.h>

#include "formats/optim/read/legacy_i.h"
#include "formats/optim/read/optim_i.h"
#include "formats/optim/rules/state_dict.h"

/* With a distributed optimizer the state has only groups; the tensors are in another file. */
static bool is_distributed(const struct mfs_pickle *doc, mfs_value optimizer, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		mfs_value one = mfs_optim_state_at(doc, optimizer, i);

		if (mfs_value_has(doc, mfs_optim_state_torch(doc, one), "state"))
			return false;
	}
	return true;
}

/* The first rank says which kind the save has, and the others must agree. */
static int note_kind(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
		     const struct mfs_torch_rank *rank, enum mfs_optim_kind kind)
{
	if (rank == r->ranks)
		l->kind = kind;
	if (l->kind == kind)
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: the kind of its optimizer's state differs from that of %s",
			r->ckpt->dir, rank->name, r->ranks[0].name);
}

/* With the first rank the layout is known. */
static int prepare(struct mfs_legacy_optim *l, struct mfs_torch_reader *r)
{
	const size_t stages = r->pp;

	mfs_optim_rules_of(r->ckpt, &l->rules);
	l->rules.layer_wise = mfs_optim_run_is_layer_wise(r->ckpt);
	l->dense_done = mfs_arena_array(&r->ckpt->arena, stages * r->tp, sizeof(bool));
	l->expert_done = mfs_arena_array(&r->ckpt->arena, stages * r->ep * r->etp, sizeof(bool));
	return l->dense_done && l->expert_done ? 0 : mfs_fail_nomem(r->err);
}

static int read_rank(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		     const struct mfs_torch_source *a, void *arg)
{
	struct mfs_legacy_optim *l = arg;
	const struct mfs_pickle *doc = a->state->doc;
	mfs_value optimizer = mfs_value_get(doc, mfs_pickle_root(doc), "optimizer");
	const uint32_t count = mfs_optim_state_count(doc, optimizer);
	enum mfs_optim_kind kind = MFS_OPTIM_NONE;
	int rc = rank == r->ranks ? prepare(l, r) : 0;

	if (rc)
		return rc;
	if (count == 1 && r->ckpt->args.lion && !r->ckpt->args.muon)
		l->rules.kept = mfs_kept_by_lion;
	if (count > (l->rules.kept.matrices ? MFS_OPTIM_CHAIN : 2))
		return mfs_fail(r->err, -ENOTSUP,
				"%s/%s: a chain of %u optimizers is not supported", r->ckpt->dir,
				rank->name, count);
	if (optimizer && !count)
		return mfs_fail(r->err, -ENOTSUP, "%s/%s: optimizer: an unknown kind of state",
				r->ckpt->dir, rank->name);
	if (count && r->ckpt->args.before_core)
		return mfs_fail(
			r->err, -ENOTSUP,
			"%s/%s: optimizer: the state of Megatron-LM before core is not read",
			r->ckpt->dir, rank->name);
	if (count)
		kind = is_distributed(doc, optimizer, count) ? MFS_OPTIM_DISTRIBUTED
							     : MFS_OPTIM_FLOAT16;
	rc = note_kind(l, r, rank, kind);
	if (rc || !count)
		return rc;
	if (kind == MFS_OPTIM_DISTRIBUTED)
		return mfs_legacy_read_distrib(l, r, rank, count);
	if (l->rules.layer_wise) {
		rc = mfs_legacy_read_layer_wise(l, r, rank, a);
		if (rc != -ENOENT)
			return rc;
	}
	return mfs_legacy_read_float16(l, r,
				       &(struct mfs_legacy_source){.rank = rank,
								   .model = a,
								   .optim = a,
								   .optimizer = optimizer,
								   .count = count});
}

int mfs_optim_read_legacy(struct mfs_ckpt *ckpt, enum mfs_optim_kind *ret, struct mfs_error *err)
{
	struct mfs_legacy_optim l = {.kind = MFS_OPTIM_NONE};
	int rc = mfs_torch_read(ckpt, read_rank, &l, err);

	*ret = l.kind;
	return rc;
}
