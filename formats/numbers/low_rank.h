/*
 * A row of a product of two thin matrices, added to weights: w[j] += scale * sum_k a[k] * b[k][j].
 *
 * The sum is of float32, from k = 0 on, each term by one fused multiply-add. Then come the
 * multiplication by scale, the addition to w, and one rounding to w's type. That is what
 * torch.matmul of float32 on a CPU computes for so thin matrices, and PEFT's merge after it
 * (peft/tuners/lora/layer.py: get_delta_weight, merge), where the adapter is of float32.
 */
#ifndef MFS_NUMBERS_LOW_RANK_H
#define MFS_NUMBERS_LOW_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/tensor.h"

struct mfs_low_rank {
	const float *a, *b;
	/* elements between row k and row k + 1; a row of b is contiguous */
	uint64_t a_stride, b_stride;
	uint64_t rank;
	float scale;
};

/* True for float32, bfloat16 and float16. */
bool mfs_low_rank_is_possible(enum mfs_dtype dtype);

/* Adds to count elements at w, which need not be aligned. */
void mfs_low_rank_add(enum mfs_dtype dtype, void *w, const struct mfs_low_rank *l, uint64_t count);
/* Like mfs_low_rank_add(), without what the processor has beyond its architecture, to compare
 * with. */
void mfs_low_rank_add_portable(enum mfs_dtype dtype, void *w, const struct mfs_low_rank *l,
			       uint64_t count);

#endif
