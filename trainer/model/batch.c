/*
 * Microbatches on the device: each is one copy of the loader's block.
 *
 * With a sliding window a token's first key is the window's start, or its document's where that is
 * later. Such keys are made here, in two buffers by turns, and are copied after the block.
 */
#include "trainer/model/attention/attention.h"
#include "formats/base/bytes.h"
#include "trainer/model/net_i.h"

static bool has_window(const struct mft_net *net)
{
	return net->args->window_size != MFS_ABSENT && net->args->window_size < net->context.whole;
}

static size_t keys_bytes(const struct mft_net *net)
{
	return (size_t)net->tokens * sizeof(int32_t);
}

/* The loader gives them to all stages. */
static uint64_t ahead_count(const struct mft_net *net)
{
	return net->args->mtp_num_layers > 0 ? (uint64_t)net->args->mtp_num_layers : 0;
}

int mft_batch_plan(struct mft_net *net, struct mfs_error *err)
{
	struct mft_batch_place *place = &net->chain->on_device;

	if (net->tokens > INT32_MAX)
		return mfs_fail(err, -EINVAL, "a microbatch has %lld tokens: expected at most %d",
				(long long)net->tokens, INT32_MAX);
	/* The loader may begin each array at a multiple of the alignment. */
	place->bytes =
		mfs_round_up((MFT_BATCH_ARRAY_COUNT + MFT_BATCH_AHEAD_COUNT * ahead_count(net) +
			      (net->config->perform_rl_step ? MFT_BATCH_POLICY_COUNT : 0)) *
				     (keys_bytes(net) + MFT_MEMORY_ALIGN),
			     MFT_MEMORY_ALIGN);
	place->key_bytes = has_window(net) ? mfs_round_up(keys_bytes(net), MFT_MEMORY_ALIGN) : 0;
	place->block =
		mft_memory_add(net->memory, MFT_MEMORY_BATCH, net->batch_count * place->bytes);
	place->first_key =
		mft_memory_add(net->memory, MFT_MEMORY_BATCH, net->batch_count * place->key_bytes);
	net->chain->taken =
		mfs_arena_array(&net->arena, net->batch_count, sizeof(*net->chain->taken));
	return net->chain->taken ? 0 : mfs_fail_nomem(err);
}

int mft_batch_begin(struct mft_net *net, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = net->backend->device;

	if (!has_window(net) || net->chain->on_device.stage[0].keys)
		return 0;
	for (int i = 0; i < 2; i++) {
		struct mft_key_stage *stage = &net->chain->on_device.stage[i];

		stage->keys = dev->host_alloc(net->device, keys_bytes(net));
		if (!stage->keys || dev->event_new(net->device, &stage->copied))
			return mfs_fail_nomem(err);
	}
	return 0;
}

void mft_batch_release(struct mft_net *net)
{
	for (int i = 0; i < 2; i++) {
		struct mft_key_stage *stage = &net->chain->on_device.stage[i];

		if (stage->copied)
			net->backend->device->event_free(stage->copied);
		if (stage->keys)
			net->backend->device->host_free(net->device, stage->keys, keys_bytes(net));
	}
}

/* The buffer was copied two microbatches ago; that the event waits for it costs nothing then. */
static int copy_window_keys(struct mft_net *net, struct mft_pass *pass, uint32_t place,
			    struct mfs_error *err)
{
	void *keys = mft_net_at(net, net->chain->on_device.first_key +
					     place * net->chain->on_device.key_bytes);
	const struct mfk_device_ops *dev = net->backend->device;
	struct mft_key_stage *stage =
		&net->chain->on_device.stage[net->chain->on_device.turn++ % 2];
	const int32_t *first = pass->info->batch->first_key;
	char why[MFK_WHY] = "";
	const int r = dev->event_sync(stage->copied, why);

	if (r)
		return mfs_fail(err, r, "%s", why);
	for (int64_t t = 0; t < net->tokens; t++) {
		const int64_t position = mft_context_position(net->context.size, net->context.rank,
							      net->context.whole, t % net->seq);
		const int64_t start = position - (net->args->window_size - 1);

		stage->keys[t] = start > first[t] ? (int32_t)start : first[t];
	}
	dev->copy_in(pass->ctx, keys, stage->keys, keys_bytes(net));
	dev->event_record(pass->ctx, stage->copied);
	pass->first_key = keys;
	return 0;
}

/* Where an array of the block that was copied is on the device. */
#define ON_DEVICE(type, name, way)                                                                 \
	to->name = (type *)(block + ((char *)from->name - (char *)b->block));

static void find_policy(const struct mft_batch *b, char *block, struct mft_pass *to)
{
	const struct mft_batch *from = b;

	MFT_BATCH_ARRAYS_POLICY(ON_DEVICE)
}

static void find_arrays(const struct mft_batch *b, char *block, struct mft_pass *to)
{
	const struct mft_batch *from = b;

	MFT_BATCH_ARRAYS(ON_DEVICE)
	if (b->old)
		find_policy(b, block, to);
	if (!b->documents)
		to->first_key = NULL;
	to->counted = b->counted;
}

static void find_ahead(const struct mft_batch *b, const struct mft_batch_ahead *from, char *block,
		       struct mft_batch_ahead *to)
{
	MFT_BATCH_ARRAYS_AHEAD(ON_DEVICE)
	to->counted = from->counted;
}

int mft_batch_copy(struct mft_net *net, struct mft_pass *pass, uint32_t place,
		   struct mfs_error *err)
{
	const struct mft_batch *b = pass->info->batch;
	char *block =
		mft_net_at(net, net->chain->on_device.block + place * net->chain->on_device.bytes);
	int r;

	if (b->bytes > net->chain->on_device.bytes)
		return mfs_fail(err, -EINVAL,
				"a microbatch has %zu bytes: expected at most %llu for %lld tokens",
				b->bytes, (unsigned long long)net->chain->on_device.bytes,
				(long long)net->tokens);
	net->backend->device->copy_in(pass->ctx, block, b->block, b->bytes);
	find_arrays(b, block, pass);
	for (uint32_t k = 0; k < b->ahead_count; k++)
		find_ahead(b, &b->ahead[k], block, &pass->ahead[k]);
	r = has_window(net) ? copy_window_keys(net, pass, place, err) : 0;
	if (!r)
		mft_context_gather_keys(net, pass, place);
	return r;
}
