/* The ranks that held the flat buffers of a torch_dist save: its model-parallel ranks, and those of
 * experts. */
#include <errno.h>

#include "formats/optim/read/optim_i.h"

struct holders {
	struct mfs_optim_holder h; /* template */
	struct mfs_layout layout;
	enum mfs_layer_spec spec;
	int (*read)(struct mfs_optim_holder *h, void *arg);
	void *arg;
};

int mfs_optim_holder_build(struct mfs_optim_holder *h, bool aligned)
{
	mfs_optim_free(h->o);
	h->o = NULL;
	h->rules.aligned = aligned;
	return mfs_optim_new(h->list, &h->rules, h->dp, h->expert_dp, &h->o, h->r->err);
}

/* The buffers of one optimizer of one rank. */
static int read_rank(struct holders *s, const struct mfs_rank *rank, uint32_t optimizer,
		     uint32_t group, uint32_t *ret_optimizers)
{
	struct mfs_optim_holder h = s->h;
	struct mfs_rank_list *list;
	int rc = mfs_rank_list_new(h.r->ckpt, &s->layout, rank, s->spec, 0, &list, h.r->err);

	if (rc)
		return rc;
	h.list = list;
	h.optimizer = optimizer;
	h.group = group;
	rc = s->read(&h, s->arg);
	if (!rc)
		*ret_optimizers = h.o->chain.count;
	mfs_optim_free(h.o);
	mfs_rank_list_free(list);
	return rc;
}

/* Of Muon's layer-wise optimizer the others alone have buffers, and they are dense. */
static int read_ranks(struct holders *s)
{
	const struct mfs_layout *p = &s->layout;
	const bool layer_wise = s->h.rules.layer_wise;
	uint32_t optimizers = 1;
	struct mfs_rank r;
	int rc = 0;

	for (r = (struct mfs_rank){0}; r.pp < p->pp && !rc; r.pp++)
		for (r.tp = 0; r.tp < p->tp && !rc; r.tp++)
			rc = read_rank(s, &r, layer_wise, r.pp * p->tp + r.tp, &optimizers);
	if (rc || optimizers == 1 || layer_wise)
		return rc;
	for (r = (struct mfs_rank){0}; r.pp < p->pp && !rc; r.pp++)
		for (r.ep = 0; r.ep < p->ep && !rc; r.ep++)
			for (r.tp = 0; r.tp < p->etp && !rc; r.tp++)
				rc = read_rank(s, &r, 1, (r.pp * p->ep + r.ep) * p->etp + r.tp,
					       &optimizers);
	return rc;
}

static int prepare(struct holders *s)
{
	struct mfs_ckpt *ckpt = s->h.r->ckpt;
	const struct mfs_megatron_args *a = &ckpt->args;
	const uint64_t world = a->world_size > 0 ? (uint64_t)a->world_size : 0;
	const struct mfs_layout *p = &s->layout;

	mfs_optim_rules_of(ckpt, &s->h.rules);
	s->h.rules.layer_wise = mfs_optim_has_named(&s->h.r->dcp);
	s->spec = mfs_layer_spec_of(ckpt);
	if (!mfs_layout_of(ckpt, &s->layout))
		return mfs_fail(
			s->h.r->err, -ENOTSUP,
			"%s: the optimizer's flat buffers can be read if only the first and the "
			"last stage differ",
			ckpt->dir);
	if (a->moe_grouped_gemm && s->spec == MFS_LAYER_SPEC_LOCAL)
		return mfs_fail(s->h.r->err, -ENOTSUP,
				"%s: the optimizer's flat buffers of fused experts (GroupedMLP) "
				"cannot be read",
				ckpt->dir);
	/* A layout was checked: its products are small. */
	s->h.dp = (uint32_t)(world / ((uint64_t)p->tp * p->pp));
	s->h.expert_dp = (uint32_t)(world / ((uint64_t)p->etp * p->ep * p->pp));
	return 0;
}

int mfs_optim_each_holder(struct mfs_dist_reader *r,
			  int (*read)(struct mfs_optim_holder *h, void *arg), void *arg)
{
	struct holders s = {.h = {.r = r}, .read = read, .arg = arg};
	int rc = prepare(&s);

	return rc ? rc : read_ranks(&s);
}
