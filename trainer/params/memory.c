#include "trainer/params/memory.h"

#include <stdio.h>

#include "formats/base/bytes.h"

#define MOST (UINT64_C(1) << 60)

uint64_t mft_memory_add(struct mft_memory *m, enum mft_memory_kind kind, uint64_t bytes)
{
	const uint64_t offset = m->total;

	if (bytes > MOST)
		bytes = MOST;
	bytes = mfs_round_up(bytes, MFT_MEMORY_ALIGN);
	m->bytes[kind] += bytes;
	if (m->bytes[kind] > MOST)
		m->bytes[kind] = MOST;
	if (kind == MFT_MEMORY_HOST)
		return 0;
	m->total += bytes;
	if (m->total > MOST)
		m->total = MOST;
	return offset;
}

const char *mft_memory_kind_name(enum mft_memory_kind kind)
{
	static const char *const names[MFT_MEMORY_KINDS] = {
		[MFT_MEMORY_WEIGHTS] = "weights",
		[MFT_MEMORY_GRADIENTS] = "gradients",
		[MFT_MEMORY_MAIN] = "main parameters",
		[MFT_MEMORY_MOMENTS] = "moments",
		[MFT_MEMORY_UNITS] = "gathered",
		[MFT_MEMORY_ACTIVATIONS] = "activations",
		[MFT_MEMORY_SCRATCH] = "scratch",
		[MFT_MEMORY_BATCH] = "batch",
		[MFT_MEMORY_HOST] = "host",
	};

	return names[kind];
}

/* "weights 2.31 GiB, gradients 4.62 GiB" */
static const char *describe(const struct mft_memory *m, char *text, size_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (int k = 0; k < MFT_MEMORY_HOST && used < size; k++) {
		if (!m->bytes[k])
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s %.2f GiB",
					 used ? ", " : "", mft_memory_kind_name(k),
					 (double)m->bytes[k] / (1 << 30));
	}
	return text;
}

bool mft_memory_is_of_experts(const struct mft_memory *m)
{
	bool most = m->experts > 0;

	/* At least as much as any kind, and as the other activations. */
	for (int k = 0; k < MFT_MEMORY_HOST; k++)
		most &= m->experts >= m->bytes[k] / (k == MFT_MEMORY_ACTIVATIONS ? 2 : 1);
	return most;
}

const char *mft_memory_remedies(const struct mft_memory *m)
{
	return mft_memory_is_of_experts(m)
		       ? "--recompute-granularity selective --recompute-modules moe, a "
			 "smaller --micro-batch-size or --optimizer-cpu-offload"
		       : "a smaller --micro-batch-size, --recompute-granularity full or "
			 "--optimizer-cpu-offload";
}

int mft_memory_place(struct mft_memory *m, const struct mfk_backend *backend,
		     struct mfk_device *device, struct mfs_error *err)
{
	struct mfk_device_info info;
	char text[320];

	m->base = m->total < MOST ? backend->device->alloc(device, m->total) : NULL;
	if (m->base)
		return 0;
	backend->device->info(device, &info);
	return mfs_fail(err, -ENOMEM,
			"%s has %.2f GiB free, and the run needs %.2f GiB: %s; %s needs less",
			info.name, (double)info.free / (1 << 30), (double)m->total / (1 << 30),
			describe(m, text, sizeof(text)), mft_memory_remedies(m));
}

void mft_memory_release(struct mft_memory *m, const struct mfk_backend *backend,
			struct mfk_device *device)
{
	if (m->base)
		backend->device->free(device, m->base);
	m->base = NULL;
}
