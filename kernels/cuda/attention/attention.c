/*
 * Which attention a shape gets: backward on sm_90 our kernels for that, else cuDNN's where there is
 * one, else our flash kernels, else the simple ones. All give and take the same lse, so forward and
 * backward may differ.
 *
 * MFK_ATTENTION=cudnn, flash or simple takes that one alone, hopper those of sm_90 for backward;
 * cudnn-atomics is cuDNN with a backward whose sums have no fixed order.
 */
#include "kernels/cuda/attention/attention.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/cudnn.h"
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/hopper.h"

struct choice {
	enum { NONE, HOPPER, CUDNN, FLASH, SIMPLE } kind;
	const struct mfk_cudnn_plan *plan; /* CUDNN */
};

/*
 * Measured on an H200, cuDNN 9.14, causal scores, milliseconds of backward against the best of the
 * others that have one order of sums, and against cuDNN's with atomics:
 *
 *	tokens	sequences	heads	of	size	ours	others	atomics
 *	4096	2		32	8	64	0.83	1.36	0.96
 *	4096	2		32	8	128	1.47	2.06	1.47
 *	4096	2		25	25	64	0.69	1.08	0.75
 *	4096	2		32	32	128	1.57	2.03	1.44
 *	2048	4		32	8	64	0.47	0.75	0.59
 *	1024	32		25	25	64	1.08	1.31	1.09
 *	1024	32		14	2	64	0.54	0.72	0.66
 *	1024	32		12	2	128	0.74	0.88	0.88
 *	1024	4		16	8	128	0.14	0.20	0.19
 *
 * On an H100, of scores without a mask:
 *
 *	8192	1		32	8	64	3.13	5.18	3.10
 *	8192	1		32	8	128	5.84	6.21	5.26
 *	1024	1		32	8	128	0.159	0.138	0.133
 *
 * Shorter sequences were not measured.
 */
static bool hopper_is_faster(const struct mfk_attention *a, bool backward)
{
	if (a->atomics && a->heads == a->kv_heads && a->qk_dim > 64)
		return false;
	return backward && a->seq >= (a->causal ? 1024 : 4096);
}

/*
 * Without atomics cuDNN's backward moves all scores through memory, which takes as long with small
 * heads as with large ones. On an H200, cuDNN 9.14, 32 heads of 8 and 64: at 4096 tokens 1.58 ms,
 * ours 1.40 ms; at 1024 tokens cuDNN's 0.24, ours 0.29. Where heads have keys of their own, and
 * where they are of 128, cuDNN's is always faster (328 to 239 TFLOP/s).
 */
static bool flash_is_faster(const struct mfk_attention *a, bool backward)
{
	return backward && !a->atomics && a->seq >= 4096 && a->qk_dim <= 64 && a->v_dim <= 64 &&
	       a->heads > a->kv_heads;
}

static struct choice choose(const struct mfk_device *d, const struct mfk_attention *a,
			    bool backward, bool pointers, char *why)
{
	const char *only = getenv("MFK_ATTENTION"), *no;
	struct choice none = {NONE, NULL};

	*why = 0;
	if (only && (!*only || (!strcmp(only, "hopper") && !backward)))
		only = NULL;
	if (only ? !strcmp(only, "hopper") : hopper_is_faster(a, backward)) {
		if (mfk_cuda_hopper_can(d, a, pointers, &no))
			return (struct choice){HOPPER, NULL};
		if (only) {
			snprintf(why, MFK_WHY, "our attention of sm_90 does not do %s", no);
			return none;
		}
	}
	if (!only && flash_is_faster(a, backward) &&
	    mfk_cuda_flash_can(d, a, backward, pointers, &no))
		return (struct choice){FLASH, NULL};
	if (!only || !strncmp(only, "cudnn", 5)) {
		bool atomics = a->atomics || (only && !strcmp(only, "cudnn-atomics"));
		const struct mfk_cudnn_plan *p = mfk_cudnn_plan(d, a, backward, atomics, why);

		if (p)
			return (struct choice){CUDNN, p};
		if (only)
			return none;
	}
	if (!only || !strcmp(only, "flash")) {
		if (mfk_cuda_flash_can(d, a, backward, pointers, &no))
			return (struct choice){FLASH, NULL};
		snprintf(why + strlen(why), MFK_WHY - strlen(why),
			 "%sour flash attention does not do %s", *why ? "; " : "", no);
		if (only)
			return none;
	}
	if (!only || !strcmp(only, "simple"))
		return (struct choice){SIMPLE, NULL};
	snprintf(why, MFK_WHY,
		 "MFK_ATTENTION is %.40s: cudnn, cudnn-atomics, hopper, flash or simple", only);
	return none;
}

const char *mfk_cuda_attention_choice(const struct mfk_device *d, const struct mfk_attention *a,
				      bool backward, char *why)
{
	static const char *const names[] = {"none", "hopper", "cudnn", "flash", "simple"};

	return names[choose(d, a, backward, false, why).kind];
}

static size_t scratch_of(struct choice c, const struct mfk_attention *a, bool backward)
{
	return c.kind == HOPPER	 ? mfk_cuda_hopper_scratch(a)
	       : c.kind == CUDNN ? mfk_cudnn_scratch(c.plan)
	       : c.kind == FLASH ? mfk_cuda_flash_scratch(a, backward)
				 : mfk_cuda_attention_simple_scratch(a, backward);
}

/* Pointers are not known yet: of what is chosen without and with a first_key, the greater. */
size_t mfk_cuda_attention_scratch(struct mfk_device *d, const struct mfk_attention *a,
				  bool backward)
{
	static const int32_t some;
	struct mfk_attention all = *a, parts = *a;
	char why[MFK_WHY];
	size_t x, y;

	all.first_key = NULL;
	parts.first_key = &some;
	x = scratch_of(choose(d, &all, backward, false, why), &all, backward);
	y = scratch_of(choose(d, &parts, backward, false, why), &parts, backward);
	return x > y ? x : y;
}

static void run(struct mfk_ctx *c, const struct mfk_attention *a, bool backward)
{
	char why[MFK_WHY];
	struct choice choice = choose(c->device, a, backward, true, why);

	switch (choice.kind) {
	case NONE:
		mfk_cuda_fail(c, -ENOTSUP, "attention: %s", why);
		break;
	case HOPPER:
		mfk_cuda_hopper_backward(c, a);
		break;
	case CUDNN:
		mfk_cudnn_run(c, choice.plan, a);
		break;
	case FLASH:
		(backward ? mfk_cuda_flash_backward : mfk_cuda_flash)(c, a);
		break;
	case SIMPLE:
		(backward ? mfk_cuda_attention_simple_backward : mfk_cuda_attention_simple)(c, a);
		break;
	}
}

void mfk_cuda_attention(struct mfk_ctx *c, const struct mfk_attention *a)
{
	run(c, a, false);
}

void mfk_cuda_attention_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	run(c, a, true);
}
