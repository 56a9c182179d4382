/*
 * Floating-point operations of a global batch, as Megatron counts them for its throughput
 * (megatron/training/training.py: num_floating_point_operations, transformer_flops): products of
 * matrices, forward and twice backward, two operations a product. Attention is causal, so half of
 * it counts. Logits are of the padded vocabulary. What is recomputed does not count.
 */
#ifndef MFT_TRAINER_REPORT_FLOPS_H
#define MFT_TRAINER_REPORT_FLOPS_H

#include "formats/args/megatron_args.h"

double mft_flops(const struct mfs_megatron_args *model, uint64_t seq_length, uint64_t padded_vocab,
		 uint64_t batch);

/* The share of a step's time that its products of matrices and its attention would need at `peak`
 * operations a second. 0: the peak or the time is not known. */
double mft_flops_share(double flops, double seconds, double peak);

#endif
