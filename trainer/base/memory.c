#include "trainer/base/memory.h"

#include <stdio.h>

#include "formats/base/bytes.h"

#define MOST (UINT64_C(1) << 60)

uint64_t mfs_memory_add(struct mfs_memory *m, enum mfs_memory_kind kind, uint64_t bytes)
{
	const uint64_t offset = m->total;

	if (bytes > MOST)
		bytes = MOST;
	bytes = mfs_round_up(bytes, MFS_MEMORY_ALIGN);
	m->bytes[kind] += bytes;
	if (m->bytes[kind] > MOST)
		m->bytes[kind] = MOST;
	if (kind == MFS_MEMORY_HOST)
		return 0;
	m->total += bytes;
	if (m->total > MOST)
		m->total = MOST;
	return offset;
}

const char *mfs_memory_kind_name(enum mfs_memory_kind kind)
{
	static const char *const names[MFS_MEMORY_KINDS] = {
		[MFS_MEMORY_WEIGHTS] = "weights",
		[MFS_MEMORY_GRADIENTS] = "gradients",
		[MFS_MEMORY_MAIN] = "main parameters",
		[MFS_MEMORY_MOMENTS] = "moments",
		[MFS_MEMORY_UNITS] = "gathered",
		[MFS_MEMORY_ACTIVATIONS] = "activations",
		[MFS_MEMORY_SCRATCH] = "scratch",
		[MFS_MEMORY_BATCH] = "batch",
		[MFS_MEMORY_HOST] = "host",
	};

	return names[kind];
}

/* "weights 2.31 GiB, gradients 4.62 GiB" */
static const char *describe(const struct mfs_memory *m, char *text, size_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (int k = 0; k < MFS_MEMORY_HOST && used < size; k++) {
		if (!m->bytes[k])
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s %.2f GiB",
					 used ? ", " : "", mfs_memory_kind_name(k),
					 (double)m->bytes[k] / (1 << 30));
	}
	return text;
}

bool mfs_memory_is_of_experts(const struct mfs_memory *m)
{
	bool most = m->experts > 0;

	/* At least as much as any kind, and as the other activations. */
	for (int k = 0; k < MFS_MEMORY_HOST; k++)
		most &= m->experts >= m->bytes[k] / (k == MFS_MEMORY_ACTIVATIONS ? 2 : 1);
	return most;
}

const char *mfs_memory_remedies(const struct mfs_memory *m)
{
	return mfs_memory_is_of_experts(m)
		       ? "--recompute-granularity selective --recompute-modules moe, a "
			 "smaller --micro-batch-size or --optimizer-cpu-offload"
		       : "a smaller --micro-batch-size, --recompute-granularity full or "
			 "--optimizer-cpu-offload";
}

int mfs_memory_place(struct mfs_memory *m, const struct mfk_backend *backend,
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
			describe(m, text, sizeof(text)), mfs_memory_remedies(m));
}

void mfs_memory_release(struct mfs_memory *m, const struct mfk_backend *backend,
			struct mfk_device *device)
{
	if (m->base)
		backend->device->free(device, m->base);
	m->base = NULL;
}
