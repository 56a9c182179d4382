/* Where parameters, gradients and states lie. */
#include "trainer/params/params.h"

/* ---- flat buffers ---- */

uint64_t mfs_params_weight_elements(const struct mfs_params *p)
{
	return p->sharding >= MFS_SHARD_WEIGHTS ? p->owned_elements : p->elements;
}

uint64_t mfs_params_grad_elements(const struct mfs_params *p)
{
	return p->sharding >= MFS_SHARD_GRADS ? p->owned_elements : p->elements;
}

/* The number of an element in a buffer of owned ones, or of all. */
static uint64_t number_of(const struct mfs_params *p, bool owned, uint64_t element)
{
	return owned ? mfs_params_owned_before(p, element) : element;
}

static void *at(void *buffer, enum mfs_dtype type, uint64_t number)
{
	return buffer ? (unsigned char *)buffer + number * mfs_dtype_size(type) : NULL;
}

static uint64_t weight_number(const struct mfs_params *p, uint64_t element)
{
	return number_of(p, p->sharding >= MFS_SHARD_WEIGHTS, element);
}

struct mfs_flat mfs_params_flat(const struct mfs_params *p, enum mfs_state state, uint64_t first)
{
	const bool on_host = first < p->offloaded;
	struct mfs_flat flat = {.on_host = on_host};

	switch (state) {
	case MFS_STATE_MAIN:
		flat.at = on_host ? p->host.main : p->main;
		flat.type = p->main_type;
		break;
	case MFS_STATE_EXP_AVG:
	case MFS_STATE_MOMENTUM:
		if (p->sgd != (state == MFS_STATE_MOMENTUM))
			return flat;
		flat.at = on_host ? p->host.exp_avg : p->exp_avg;
		flat.type = p->m_type;
		break;
	case MFS_STATE_EXP_AVG_SQ:
		flat.at = on_host ? p->host.exp_avg_sq : p->exp_avg_sq;
		flat.type = p->v_type;
		break;
	default:
		return (struct mfs_flat){
			.at = at(p->weights, p->weight_type, weight_number(p, first)),
			.type = p->weight_type};
	}
	first = mfs_params_owned_before(p, first) - (on_host ? 0 : p->offloaded_owned);
	flat.at = at(flat.at, flat.type, first);
	return flat;
}

void *mfs_params_grads_at(const struct mfs_params *p, uint64_t first)
{
	return at(p->grads, p->grad_type, number_of(p, p->sharding >= MFS_SHARD_GRADS, first));
}

/* ---- for a pass ---- */

bool mfs_bucket_weights_part(const struct mfs_params *p, const struct mfs_bucket *b)
{
	return p->sharding >= MFS_SHARD_WEIGHTS && b->parts > 1;
}

bool mfs_bucket_grads_part(const struct mfs_params *p, const struct mfs_bucket *b)
{
	return p->sharding >= MFS_SHARD_GRADS && b->parts > 1;
}

void *mfs_param_weights(const struct mfs_params *p, const struct mfs_param *q)
{
	const struct mfs_bucket *b = &p->buckets[q->bucket];

	if (mfs_bucket_weights_part(p, b))
		return at(b->weights, p->weight_type, q->start - b->first);
	return mfs_params_flat(p, MFS_STATE_MODEL, q->start).at;
}

void *mfs_param_grads(const struct mfs_params *p, const struct mfs_param *q)
{
	const struct mfs_bucket *b = &p->buckets[q->bucket];

	if (mfs_bucket_grads_part(p, b))
		return at(b->grads, p->grad_type, q->start - b->first);
	return mfs_params_grads_at(p, q->start);
}
