/*
 * One static block of device memory for a whole run, planned before anything is allocated.
 *
 * Code that needs memory adds it to the plan with its kind, and gets an offset. When all have added
 * theirs, the block is allocated once. The plan alone answers --dry-run: does it fit? What a
 * backend works in for itself (cublasLt's 64 MiB, sums of a kernel) is not planned, and grows in
 * the first step.
 */
#ifndef MFS_TRAINER_BASE_MEMORY_H
#define MFS_TRAINER_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"

enum mfs_memory_kind {
	MFS_MEMORY_WEIGHTS,
	MFS_MEMORY_GRADIENTS,
	MFS_MEMORY_MAIN, /* fp32 parameters */
	MFS_MEMORY_MOMENTS,
	MFS_MEMORY_UNITS,	/* weights and gradients that are whole for a while (FSDP) */
	MFS_MEMORY_ACTIVATIONS, /* kept from forward to backward */
	MFS_MEMORY_SCRATCH,	/* reused by each layer */
	MFS_MEMORY_BATCH,
	MFS_MEMORY_HOST, /* the host's memory: counted alone, and placed by who adds it */
	MFS_MEMORY_KINDS,
};

#define MFS_MEMORY_ALIGN 256 /* bytes */

struct mfs_memory {
	uint64_t bytes[MFS_MEMORY_KINDS];
	uint64_t total;	     /* of the device */
	uint64_t experts;    /* of the activations: what routed experts keep of their rows */
	unsigned char *base; /* device; NULL until it is placed */
};

/* Adds bytes, and returns their offset from base (of the host's: 0). Sizes beyond 2^60 count as
 * that: place() fails. */
uint64_t mfs_memory_add(struct mfs_memory *m, enum mfs_memory_kind kind, uint64_t bytes);
static inline void *mfs_memory_at(const struct mfs_memory *m, uint64_t offset)
{
	return m->base + offset;
}
const char *mfs_memory_kind_name(enum mfs_memory_kind kind);
/* What routed experts keep is the largest part. */
bool mfs_memory_is_of_experts(const struct mfs_memory *m);
/* The flags that would need less, nearest first: "a smaller --micro-batch-size, ... or ...". */
const char *mfs_memory_remedies(const struct mfs_memory *m);
/* -ENOMEM: the device has less, and the message says how much of what kind was planned. */
int mfs_memory_place(struct mfs_memory *m, const struct mfk_backend *backend,
		     struct mfk_device *device, struct mfs_error *err);
void mfs_memory_release(struct mfs_memory *m, const struct mfk_backend *backend,
			struct mfk_device *device);

#endif
