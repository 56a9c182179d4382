#include "trainer/optim/sync.h"

#include "trainer/model/dtype.h"

/* The process's slice of a bucket of a flat buffer. */
static char *slice_of(const struct mfs_sync *s, const struct mfs_bucket *b, enum mfs_dtype type,
		      void *flat)
{
	const uint64_t own = s->parallel->group[b->group].rank;

	return (char *)flat + (b->first + own * (b->count / b->parts)) * mfs_dtype_size(type);
}

static char *bucket_at(const struct mfs_bucket *b, enum mfs_dtype type, void *flat)
{
	return (char *)flat + b->first * mfs_dtype_size(type);
}

/* Gradients of experts have those of other processes' tokens already. Theirs are divided as dense
 * ones are (distributed_data_parallel.py: expert_gradient_scaling_factor). */
static void reduce(const struct mfs_sync *s, const struct mfs_bucket *b, struct mfk_ctx *ctx)
{
	const enum mfs_dtype type = s->params->grad_type;
	char *grads = bucket_at(b, type, s->params->grads);

	if (b->parts > 1)
		mfs_parallel_reduce_scatter(s->parallel, b->group, ctx, mfs_mfk_dtype(type),
					    slice_of(s, b, type, s->params->grads), grads,
					    b->count / b->parts);
	else
		mfs_parallel_all_reduce(s->parallel, b->group, ctx, MFK_SUM, mfs_mfk_dtype(type),
					grads, b->count);
}

/* The first and the last stage have the embedding of a tied head, each with gradients of its own
 * (finalize_model_grads.py: _allreduce_word_embedding_grads). */
static void add_shared(const struct mfs_sync *s, struct mfk_ctx *ctx)
{
	const enum mfs_dtype type = s->params->grad_type;

	for (uint32_t i = 0; i < s->params->count; i++) {
		const struct mfs_param *p = &s->params->list[i];

		if (p->part.is_shared)
			mfs_parallel_all_reduce(
				s->parallel, MFS_GROUP_EMBEDDING, ctx, MFK_SUM, mfs_mfk_dtype(type),
				(char *)s->params->grads + p->start * mfs_dtype_size(type),
				p->elements);
	}
}

/* Buckets may cut the embedding: its two gradients are added up while they are whole. */
void mfs_sync_reduce(const struct mfs_sync *s, struct mfk_ctx *ctx)
{
	add_shared(s, ctx);
	for (uint32_t i = s->params->bucket_count; i-- > 0;)
		reduce(s, &s->params->buckets[i], ctx);
}

void mfs_sync_gather(const struct mfs_sync *s, struct mfk_ctx *ctx)
{
	const enum mfs_dtype type = s->params->weight_type;

	for (uint32_t i = 0; i < s->params->bucket_count; i++) {
		const struct mfs_bucket *b = &s->params->buckets[i];

		if (b->parts > 1)
			mfs_parallel_all_gather(s->parallel, b->group, ctx, mfs_mfk_dtype(type),
						bucket_at(b, type, s->params->weights),
						slice_of(s, b, type, s->params->weights),
						b->count / b->parts);
	}
}
