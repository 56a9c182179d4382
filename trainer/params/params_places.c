/* Where parameters, gradients and states lie. */
#include "trainer/params/params.h"

/* ---- flat buffers ---- */

uint64_t mft_params_weight_elements(const struct mft_params *p)
{
	return p->sharding >= MFT_SHARD_WEIGHTS ? p->owned_elements : p->elements;
}

uint64_t mft_params_grad_elements(const struct mft_params *p)
{
	return p->sharding >= MFT_SHARD_GRADS ? p->owned_elements : p->elements;
}

/* The number of an element in a buffer of owned ones, or of all. */
static uint64_t number_of(const struct mft_params *p, bool owned, uint64_t element)
{
	return owned ? mft_params_owned_before(p, element) : element;
}

static void *at(void *buffer, enum mfs_dtype type, uint64_t number)
{
	return buffer ? (unsigned char *)buffer + number * mfs_dtype_size(type) : NULL;
}

static uint64_t weight_number(const struct mft_params *p, uint64_t element)
{
	return number_of(p, p->sharding >= MFT_SHARD_WEIGHTS, element);
}

/* Owned elements before one that a slot does not have. */
static uint64_t skipped(const struct mft_params *p, unsigned slot, uint64_t element)
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

struct mft_flat mft_params_slot(const struct mft_params *p, unsigned slot, uint64_t first)
{
	const struct mft_slot *s = &p->slot[slot];
	const bool on_host = first < p->offloaded;

	first = mft_params_owned_before(p, first) - skipped(p, slot, first) -
		(on_host ? 0 : p->offloaded_owned);
	return (struct mft_flat){.at = at(on_host ? s->host : s->device, s->type, first),
				 .type = s->type,
				 .on_host = on_host};
}

struct mft_flat mft_params_flat(const struct mft_params *p, enum mfs_state state, uint64_t first)
{
	unsigned slot;

	if (state == MFS_STATE_MODEL)
		return (struct mft_flat){
			.at = at(p->weights, p->weight_type, weight_number(p, first)),
			.type = p->weight_type};
	slot = mft_optimizer_slot(p->optimizer, state);
	return slot < MFT_SLOTS ? mft_params_slot(p, slot, first)
				: (struct mft_flat){.on_host = first < p->offloaded};
}

void *mft_params_grads_at(const struct mft_params *p, uint64_t first)
{
	return at(p->grads, p->grad_type, number_of(p, p->sharding >= MFT_SHARD_GRADS, first));
}

/* ---- for a pass ---- */

bool mft_bucket_weights_part(const struct mft_params *p, const struct mft_bucket *b)
{
	return p->sharding >= MFT_SHARD_WEIGHTS && b->parts > 1;
}

bool mft_bucket_grads_part(const struct mft_params *p, const struct mft_bucket *b)
{
	return p->sharding >= MFT_SHARD_GRADS && b->parts > 1;
}

void *mft_param_weights(const struct mft_params *p, const struct mft_param *q)
{
	const struct mft_bucket *b = &p->buckets[q->bucket];

	if (mft_bucket_weights_part(p, b))
		return at(b->weights, p->weight_type, q->start - b->first);
	return mft_params_flat(p, MFS_STATE_MODEL, q->start).at;
}

void *mft_param_grads(const struct mft_params *p, const struct mft_param *q)
{
	const struct mft_bucket *b = &p->buckets[q->bucket];

	if (mft_bucket_grads_part(p, b))
		return at(b->grads, p->grad_type, q->start - b->first);
	return mft_params_grads_at(p, q->start);
}

/* ---- in a plan of memory ---- */

static uint64_t plan(struct mft_memory *memory, enum mft_memory_kind kind, enum mfs_dtype type,
		     uint64_t elements)
{
	return mft_memory_add(memory, kind, elements * mfs_dtype_size(type));
}

void mft_params_plan(const struct mft_params *p, struct mft_memory *memory,
		     struct mft_flat_places *ret)
{
	ret->weights =
		plan(memory, MFT_MEMORY_WEIGHTS, p->weight_type, mft_params_weight_elements(p));
	ret->grads = plan(memory, MFT_MEMORY_GRADIENTS, p->grad_type, mft_params_grad_elements(p));
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		ret->slot[i] =
			plan(memory, i == MFT_SLOT_MAIN ? MFT_MEMORY_MAIN : MFT_MEMORY_MOMENTS,
			     p->slot[i].type, p->slot[i].elements - p->offloaded_owned);
	ret->buffers = plan(memory, MFT_MEMORY_WEIGHTS, MFS_F32, p->buffer_elements);
}

void mft_params_plan_weights(struct mft_params *p, struct mft_memory *memory,
			     struct mft_flat_places *ret)
{
	*ret = (struct mft_flat_places){
		.weights = plan(memory, MFT_MEMORY_WEIGHTS, p->weight_type,
				mft_params_weight_elements(p)),
		.buffers = plan(memory, MFT_MEMORY_WEIGHTS, MFS_F32, p->buffer_elements),
	};
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		p->slot[i].type = MFS_DTYPE_NONE;
}

void mft_params_place(struct mft_params *p, const struct mft_flat_places *places,
		      const struct mft_memory *memory)
{
	p->weights = mft_memory_at(memory, places->weights);
	p->grads = mft_memory_at(memory, places->grads);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		if (p->slot[i].type != MFS_DTYPE_NONE)
			p->slot[i].device = mft_memory_at(memory, places->slot[i]);
	p->buffers = mft_memory_at(memory, places->buffers);
}
