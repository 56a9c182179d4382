#include "trainer/loop/step_check.h"

#include <math.h>
#include <stdio.h>

#define BACKWARD " for bucket #0 in backward pass before data-parallel communication collective"

void mft_check_init(struct mft_check *c, const struct mft_train_config *config, uint32_t rank)
{
	*c = (struct mft_check){
		.finite = config->check_for_nan_in_loss_and_grad,
		.spiky = config->check_for_spiky_loss,
		.large = config->check_for_large_grads,
		.rank = rank,
	};
}

void mft_check_begin(struct mft_check *c)
{
	c->verdict = MFT_TAKEN;
	c->why[0] = 0;
}

/* What is not finite is another check's. */
static bool is_unexpectedly_large(struct mft_largest *l, double value)
{
	if (!isfinite(value))
		return false;
	value = fabs(value);
	if (l->count == MFT_CHECK_SAMPLES)
		return value >= l->value * MFT_CHECK_FACTOR;
	l->count++;
	l->value = fmax(l->value, value);
	return false;
}

static void say(struct mft_check *c, enum mft_verdict verdict, uint64_t iteration,
		uint64_t microbatch, double value, const char *message)
{
	char number[32];

	if (verdict <= c->verdict)
		return;
	c->verdict = verdict;
	/* Python's NaN has no sign. */
	snprintf(number, sizeof(number), "%.6g", isnan(value) ? (double)NAN : value);
	snprintf(c->why, sizeof(c->why),
		 "Unexpected result %s on rank %u at iteration #%llu invocation #%llu "
		 "(message='%s')",
		 number, c->rank, (unsigned long long)iteration, (unsigned long long)microbatch,
		 message);
}

void mft_check_loss(struct mft_check *c, uint64_t iteration, uint64_t microbatch, double loss)
{
	if (c->finite && !isfinite(loss))
		say(c, MFT_REJECTED, iteration, microbatch, loss,
		    isnan(loss) ? "found NaN in local forward loss calculation"
				: "found Inf in local forward loss calculation");
	if (c->spiky && is_unexpectedly_large(&c->loss, loss))
		say(c, MFT_SUSPECT, iteration, microbatch, loss, "Spiky loss");
}

void mft_check_grads(struct mft_check *c, uint64_t iteration, double norm)
{
	const enum mft_verdict before = c->verdict;

	if (c->finite && !isfinite(norm))
		say(c, MFT_REJECTED, iteration, 1, norm,
		    isnan(norm) ? "found NaN in local grad norm" BACKWARD
				: "found Inf in local grad norm" BACKWARD);
	if (c->large && is_unexpectedly_large(&c->grads, norm))
		say(c, MFT_SUSPECT, iteration, 1, norm,
		    "found unexpected large grads in bucket #0 in backward pass before "
		    "data-parallel communication collective");
	/* All processes find the same. */
	if (c->rank && c->verdict != before)
		c->why[0] = 0;
}

void mft_check_reject(struct mft_check *c, uint32_t by)
{
	if (by != c->rank)
		c->why[0] = 0;
	c->verdict = MFT_REJECTED;
}
