/* The peak of a device: operations a second of a large product of matrices, measured. */
#ifndef MFT_TRAINER_LOOP_PEAK_H
#define MFT_TRAINER_LOOP_PEAK_H

#include "formats/base/error.h"
#include "kernels/kernels.h"

struct mft_peak {
	double flops; /* a second; 0: not known */
	int64_t size; /* of the squares whose product it is */
};

/* Squares of random numbers, larger ones until a product takes a millisecond: some tens of
 * milliseconds in all. The device must have nothing else to do. What does not fit into its memory
 * is left out. */
int mft_peak_measure(const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, enum mfk_dtype type, struct mft_peak *ret,
		     struct mfs_error *err);

#endif
