/* Tells what runs in parallel with the passes of the units that they use, and zeroes gradients
 * where a pass is going to add to them. */
#include "trainer/model/net_i.h"

/* ---- gradients ---- */

static void zero(const struct mft_net *net, struct mfk_ctx *ctx, char *grads, uint64_t first,
		 uint64_t end)
{
	const size_t size = mfk_dtype_size(net->grad);

	if (end > first)
		net->backend->device->zero(ctx, grads + first * size, (end - first) * size);
}

/* What is not replaced, and what lies between parameters. grads: where the bucket's lie. */
static void clear_bucket(const struct mft_net *net, struct mfk_ctx *ctx, uint32_t number,
			 char *grads)
{
	const struct mft_params *p = net->params;
	const struct mft_bucket *b = &p->buckets[number];
	uint64_t at = 0;

	for (uint32_t i = b->first_param; i < b->first_param + b->params; i++) {
		const uint64_t first = p->list[i].start - b->first;

		if (!net->replaced[i])
			continue;
		zero(net, ctx, grads, at, first);
		at = first + p->list[i].elements;
	}
	zero(net, ctx, grads, at, b->count);
}

void mft_net_clear_grads(struct mft_net *net, struct mfk_ctx *ctx)
{
	const struct mft_params *p = net->params;

	for (uint32_t i = 0; i < p->bucket_count; i++)
		if (!mft_bucket_grads_part(p, &p->buckets[i]))
			clear_bucket(net, ctx, i, mft_params_grads_at(p, p->buckets[i].first));
}

static void clear_unit(const struct mft_net *net, struct mfk_ctx *ctx, int32_t unit)
{
	const struct mft_params *p = net->params;

	for (uint32_t i = 0; i < p->bucket_count; i++)
		if (p->buckets[i].unit == unit && mft_bucket_grads_part(p, &p->buckets[i]))
			clear_bucket(net, ctx, i, p->buckets[i].grads);
}

/* ---- visits ---- */

void mft_visit_begins(const struct mft_net *net, const struct mft_pass *pass,
		      struct mft_net_visit v)
{
	v.last = pass->info->last;
	if (net->chain->hooks.begins)
		net->chain->hooks.begins(net->chain->hooks.arg, pass->ctx, &v);
	if (v.writes && !v.again)
		clear_unit(net, pass->ctx, v.unit);
}

void mft_visit_ends(const struct mft_net *net, const struct mft_pass *pass, struct mft_net_visit v)
{
	v.last = pass->info->last;
	if (net->chain->hooks.ends)
		net->chain->hooks.ends(net->chain->hooks.arg, pass->ctx, &v);
}

int32_t mft_layer_unit(const struct mft_layer *l)
{
	return (int32_t)l->attention.part.layer;
}

int32_t mft_first_unit(const struct mft_net_chunk *chunk)
{
	return chunk->count ? mft_layer_unit(chunk->layers) : MFT_UNIT_NONE;
}

static int32_t last_unit(const struct mft_net_chunk *chunk)
{
	return chunk->count ? mft_layer_unit(&chunk->layers[chunk->count - 1]) : MFT_UNIT_NONE;
}

/* ---- the head ---- */

/* The units that the head uses. A tied head is the embedding, which MTP layers use as well. Where
 * the chunk embeds, embed_backward() adds to the embedding's gradient. Returns how many units there
 * are. */
static unsigned head_visits(const struct mft_net *net, bool backward, struct mft_net_visit ret[2])
{
	const struct mft_net_chunk *chunk = &net->chain->chunks[net->chain->chunk_count - 1];
	const struct mft_net_visit v = {.unit = MFT_UNIT_HEAD,
					.next = backward ? last_unit(chunk) : MFT_UNIT_NONE,
					.reads = true,
					.writes = backward};

	ret[0] = ret[1] = v;
	ret[1].unit = MFT_UNIT_EMBEDDING;
	ret[1].later = backward && chunk->embeds;
	return net->args->tied || (backward && net->chain->mtp.count) ? 2 : 1;
}

void mft_head_begins(const struct mft_net *net, const struct mft_pass *pass, bool backward)
{
	struct mft_net_visit v[2];
	const unsigned count = head_visits(net, backward, v);

	for (unsigned i = 0; i < count; i++)
		mft_visit_begins(net, pass, v[i]);
}

void mft_head_ends(const struct mft_net *net, const struct mft_pass *pass, bool backward)
{
	struct mft_net_visit v[2];
	const unsigned count = head_visits(net, backward, v);

	for (unsigned i = 0; i < count; i++)
		mft_visit_ends(net, pass, v[i]);
}
