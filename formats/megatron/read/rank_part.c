#include "formats/megatron/read/rank_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

/* ---- what is in it ---- */

static struct mfs_part_tensor *add(struct mfs_rank_part *p, const struct mfs_rank_tensor *t,
				   enum mfs_state state, uint64_t first, uint64_t count)
{
	struct mfs_part_tensor *part = &p->tensors[p->count++];

	*part = (struct mfs_part_tensor){
		.tensor = *t,
		.state = state,
		.first = first,
		.count = count,
		.bytes = count * mfs_dtype_size(t->base.dtype),
	};
	p->bytes += part->bytes;
	return part;
}

static void add_model(struct mfs_rank_part *p)
{
	for (uint32_t i = 0; i < p->list->count; i++) {
		const struct mfs_rank_tensor *t = &p->list->tensors[i];

		if (t->base.ops)
			add(p, t, MFS_STATE_MODEL, 0,
			    t->base.bytes / mfs_dtype_size(t->base.dtype));
	}
}

/* ---- slices ---- */

struct slicer {
	uint32_t rank, of; /* data-parallel */
};

static struct slicer slicer_of(const struct mfs_rank_part_options *o, bool of_experts)
{
	const struct slicer dense = {o->dp_rank, o->dp ? o->dp : 1};
	const struct slicer experts = {o->expert_dp_rank, o->expert_dp ? o->expert_dp : 1};

	return of_experts ? experts : dense;
}

/* Elements of the buckets before one, with padding. Each bucket is a multiple of the number of
 * slices. */
static uint64_t before(const struct mfs_optim_buffer *b, uint32_t bucket)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < bucket; i++)
		sum += b->bucket_padded[i];
	return sum;
}

/* The elements of a parameter that lie in the rank's slice of its bucket. False: there are none. */
static bool slice(const struct mfs_optim *o, const struct mfs_optim_param *p, struct slicer s,
		  uint64_t *ret_first, uint64_t *ret_count, uint64_t *ret_in_slices)
{
	const struct mfs_optim_buffer *b = &o->buffers[p->buffer];
	const uint64_t each = b->bucket_padded[p->bucket] / s.of;
	const uint64_t lo = each * s.rank, hi = lo + each;
	const uint64_t from = mfs_max_u64(lo, p->in_bucket);
	const uint64_t to = mfs_min_u64(hi, p->in_bucket + p->elements);

	if (from >= to)
		return false;
	*ret_first = from - p->in_bucket;
	*ret_count = to - from;
	*ret_in_slices = before(b, p->bucket) / s.of + from - lo;
	return true;
}

static int add_states(struct mfs_rank_part *p, const struct mfs_rank_part_options *options,
		      const struct mfs_optim_param *param, struct mfs_error *err)
{
	const struct slicer s =
		slicer_of(options, mfs_optim_link_is_expert(&p->optim->chain, param->optimizer));
	uint64_t first, count, in_slices;
	int rc = 0;

	if (!slice(p->optim, param, s, &first, &count, &in_slices))
		return 0;
	for (int state = MFS_STATE_MAIN; state < MFS_STATE_COUNT && !rc; state++) {
		struct mfs_rank_tensor t;
		struct mfs_part_tensor *part;

		if (state == MFS_STATE_MAIN ? !param->has_main
					    : !mfs_ckpt_has_state(p->ckpt, (enum mfs_state)state))
			continue;
		rc = mfs_rank_state(param->tensor, (enum mfs_state)state, &t, err);
		if (rc)
			break;
		part = add(p, &t, (enum mfs_state)state, first, count);
		part->buffer = param->buffer;
		part->in_slices = in_slices;
	}
	return rc;
}

static int add_optimizer(struct mfs_rank_part *p, const struct mfs_rank_part_options *o,
			 struct mfs_error *err)
{
	const uint32_t dp = slicer_of(o, false).of, expert_dp = slicer_of(o, true).of;
	int rc = mfs_optim_new(p->list, o->rules, dp, expert_dp, &p->optim, err);

	for (uint32_t i = 0; !rc && i < p->optim->count; i++)
		rc = add_states(p, o, &p->optim->params[i], err);
	return rc;
}

/* ---- life ---- */

static int check_rank(const struct mfs_rank_part_options *o, struct mfs_error *err)
{
	const struct mfs_layout *l = &o->layout;
	const struct {
		const char *what;
		uint32_t rank, of;
	} ranks[] = {
		{"tensor-parallel", o->rank.tp, l->tp},
		{"pipeline", o->rank.pp, l->pp},
		{"expert-parallel", o->rank.ep, l->ep},
		{"data-parallel", o->dp_rank, slicer_of(o, false).of},
		{"expert-data-parallel", o->expert_dp_rank, slicer_of(o, true).of},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ranks); i++)
		if (ranks[i].rank >= ranks[i].of)
			return mfs_fail(err, -EINVAL, "there is no %s rank %u of %u", ranks[i].what,
					ranks[i].rank, ranks[i].of);
	return 0;
}

int mfs_rank_part_open(struct mfs_ckpt *ckpt, const struct mfs_rank_part_options *o,
		       struct mfs_rank_part **ret, struct mfs_error *err)
{
	struct mfs_rank_part *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return mfs_fail_nomem(err);
	p->ckpt = ckpt;
	rc = mfs_layout_check(&o->layout, mfs_ckpt_args(ckpt), err);
	if (!rc)
		rc = check_rank(o, err);
	if (!rc)
		rc = mfs_rank_list_new(ckpt, &o->layout, &o->rank, o->spec, o->vocab, &p->list,
				       err);
	if (!rc) {
		p->tensors =
			calloc((size_t)p->list->count * MFS_STATE_COUNT + 1, sizeof(*p->tensors));
		rc = p->tensors ? 0 : mfs_fail_nomem(err);
	}
	if (!rc) {
		add_model(p);
		rc = o->optimizer ? add_optimizer(p, o, err) : 0;
	}
	if (rc) {
		mfs_rank_part_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void mfs_rank_part_free(struct mfs_rank_part *p)
{
	if (!p)
		return;
	mfs_optim_free(p->optim);
	mfs_rank_list_free(p->list);
	free(p->tensors);
	free(p);
}
