/*
 * Checks of what a step has computed, before its update.
 *
 * A loss or a gradient norm that is NaN or infinite is rejected (--check-for-nan-in-loss-and-grad).
 * One that is ten times the largest of the first hundred is logged, and the run goes on
 * (--check-for-spiky-loss, --check-for-large-grads).
 *
 * Sources: pretrain_gpt.py: loss_func; core/distributed/param_and_grad_buffer.py: check_grads;
 * core/rerun_state_machine.py: validate_result, is_unexpectedly_large. Megatron runs a rejected
 * step a second time, to find faulty hardware; here nothing is run again.
 */
#ifndef MFT_TRAINER_LOOP_STEP_CHECK_H
#define MFT_TRAINER_LOOP_STEP_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/config/config.h"

#define MFT_CHECK_SAMPLES 100 /* values that the largest is of */
#define MFT_CHECK_FACTOR  10

struct mft_largest {
	unsigned count;
	double value;
};

enum mft_verdict { MFT_TAKEN, MFT_SUSPECT, MFT_REJECTED };

struct mft_check {
	bool finite, spiky, large; /* what is checked */
	uint32_t rank;		   /* of the process */
	struct mft_largest loss, grads;
	/* of the step: the first of the worst kind */
	enum mft_verdict verdict;
	char why[320]; /* as Megatron says it; empty: another process says it */
};

void mft_check_init(struct mft_check *c, const struct mft_train_config *config, uint32_t rank);
/* A step begins: nothing has been found. */
void mft_check_begin(struct mft_check *c);
/* The sum of the losses of microbatch 1, 2, ... of the step that makes the iteration. */
void mft_check_loss(struct mft_check *c, uint64_t iteration, uint64_t microbatch, double loss);
/* Process `by` rejects the step, and says why: this one, or another. */
void mft_check_reject(struct mft_check *c, uint32_t by);
/* The norm of all gradients as they are added up, before they are unscaled and clipped. */
void mft_check_grads(struct mft_check *c, uint64_t iteration, double norm);

#endif
