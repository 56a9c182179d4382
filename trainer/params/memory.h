/*
 * One static block of device memory for a whole run, planned before anything is allocated.
 *
 * Code that needs memory adds it to the plan with its kind, and gets an offset. When all have added
 * theirs, the block is allocated once. The plan alone answers --dry-run: does it fit? What a
 * backend works in for itself (cublasLt's 64 MiB, sums of a kernel) is not planned, and grows in
 * the first step.
 */
#ifndef MFT_TRAINER_PARAMS_MEMORY_H
#define MFT_TRAINER_PARAMS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"

enum mft_memory_kind {
	MFT_MEMORY_WEIGHTS,
	MFT_MEMORY_GRADIENTS,
	MFT_MEMORY_MAIN, /* fp32 parameters */
	MFT_MEMORY_MOMENTS,
	MFT_MEMORY_UNITS,	/* weights and gradients that are whole for a while (FSDP) */
	MFT_MEMORY_ACTIVATIONS, /* kept from forward to backward */
	MFT_MEMORY_SCRATCH,	/* reused by each layer */
	MFT_MEMORY_BATCH,
	MFT_MEMORY_HOST, /* the host's memory: counted alone, and placed by who adds it */
	MFT_MEMORY_KINDS,
};

#define MFT_MEMORY_ALIGN 256 /* bytes */

struct mft_memory {
	uint64_t bytes[MFT_MEMORY_KINDS];
	uint64_t total;	     /* of the device */
	uint64_t experts;    /* of the activations: what routed experts keep of their rows */
	unsigned char *base; /* device; NULL until it is placed */
};

/* Adds bytes, and returns their offset from base (of the host's: 0). Sizes beyond 2^60 count as
 * that: place() fails. */
uint64_t mft_memory_add(struct mft_memory *m, enum mft_memory_kind kind, uint64_t bytes);
static inline void *mft_memory_at(const struct mft_memory *m, uint64_t offset)
{
	return m->base + offset;
}
const char *mft_memory_kind_name(enum mft_memory_kind kind);
/* What routed experts keep is the largest part. */
bool mft_memory_is_of_experts(const struct mft_memory *m);
/* The flags that would need less, nearest first: "a smaller --micro-batch-size, ... or ...". */
const char *mft_memory_remedies(const struct mft_memory *m);
/* Allocates all that was planned, once. -ENOMEM: the device has less, and the message says how much
 * of what kind was planned. */
int mft_memory_place(struct mft_memory *m, const struct mfk_backend *backend,
		     struct mfk_device *device, struct mfs_error *err);
void mft_memory_release(struct mft_memory *m, const struct mfk_backend *backend,
			struct mfk_device *device);

#endif
