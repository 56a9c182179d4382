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

/* Owned elements before one that a slot does not have. */
static uint64_t skipped(const struct mfs_params *p, unsigned slot, uint64_t element)
{
	uint32_t low = 0, high = p->count;

	if (p->slot[slot].elements == p->owned_elements)
		return 0;
	while (high - low > 1) {
		const uint32_t middle = (low + high) / 2;

		if (p->list[middle].start <= element)
			low = middle;
		else
			high = middle;
	}
	return p->list[low].skipped[slot];
}

struct mfs_flat mfs_params_slot(const struct mfs_params *p, unsigned slot, uint64_t first)
{
	const struct mfs_slot *s = &p->slot[slot];
	const bool on_host = first < p->offloaded;

	first = mfs_params_owned_before(p, first) - skipped(p, slot, first) -
		(on_host ? 0 : p->offloaded_owned);
	return (struct mfs_flat){.at = at(on_host ? s->host : s->device, s->type, first),
				 .type = s->type,
				 .on_host = on_host};
}

struct mfs_flat mfs_params_flat(const struct mfs_params *p, enum mfs_state state, uint64_t first)
{
	unsigned slot;

	if (state == MFS_STATE_MODEL)
		return (struct mfs_flat){
			.at = at(p->weights, p->weight_type, weight_number(p, first)),
			.type = p->weight_type};
	slot = mfs_optimizer_slot(p->optimizer, state);
	return slot < MFS_SLOTS ? mfs_params_slot(p, slot, first)
				: (struct mfs_flat){.on_host = first < p->offloaded};
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

/* ---- in a plan of memory ---- */

static uint64_t plan(struct mfs_memory *memory, enum mfs_memory_kind kind, enum mfs_dtype type,
		     uint64_t elements)
{
	return mfs_memory_add(memory, kind, elements * mfs_dtype_size(type));
}

void mfs_params_plan(const struct mfs_params *p, struct mfs_memory *memory,
		     struct mfs_flat_places *ret)
{
	ret->weights =
		plan(memory, MFS_MEMORY_WEIGHTS, p->weight_type, mfs_params_weight_elements(p));
	ret->grads = plan(memory, MFS_MEMORY_GRADIENTS, p->grad_type, mfs_params_grad_elements(p));
	for (unsigned i = 0; i < MFS_SLOTS; i++)
		ret->slot[i] =
			plan(memory, i == MFS_SLOT_MAIN ? MFS_MEMORY_MAIN : MFS_MEMORY_MOMENTS,
			     p->slot[i].type, p->slot[i].elements - p->offloaded_owned);
	ret->buffers = plan(memory, MFS_MEMORY_WEIGHTS, MFS_F32, p->buffer_elements);
}

void mfs_params_place(struct mfs_params *p, const struct mfs_flat_places *places,
		      const struct mfs_memory *memory)
{
	p->weights = mfs_memory_at(memory, places->weights);
	p->grads = mfs_memory_at(memory, places->grads);
	for (unsigned i = 0; i < MFS_SLOTS; i++)
		if (p->slot[i].type != MFS_DTYPE_NONE)
			p->slot[i].device = mfs_memory_at(memory, places->slot[i]);
	p->buffers = mfs_memory_at(memory, places->buffers);
}
