/* Private to MLPs: one that is a part, or in one. */
#ifndef MFT_TRAINER_MODEL_MLP_MLP_I_H
#define MFT_TRAINER_MODEL_MLP_MLP_I_H

#include "trainer/model/base/linear.h"
#include "trainer/model/base/part.h"
#include "trainer/model/mlp/mlp.h"

/* The arguments' activation function. */
enum mfk_activation mft_activation(const struct mfs_megatron_args *args);

/* An MLP that is a part, or in one: fc2(scale * activation(fc1(x))). */
struct mft_mlp {
	struct mft_linear fc1, fc2; /* fc1 adds: so does backward */
	bool gated;
	enum mfk_activation activation;
	const struct mft_part *part;
	bool again;		 /* backward runs forward again: hidden and active are scratch */
	bool active_is_scratch;	 /* fc2 keeps what it needs of it */
	uint64_t hidden, active; /* kept: [T, fc1.out], [T, fc2.in] */
	uint64_t dactive;	 /* scratch: [T, fc2.in] */
};

/* prefix: "decoder.layers.mlp"; ret->part and ret->again are set before. */
int mft_mlp_plan(struct mft_net *net, const char *prefix, uint32_t layer, struct mft_mlp *ret,
		 struct mft_part_plan *plan, struct mfs_error *err);
/* scale: fp32 [T]; NULL: 1. y NULL: it is not wanted. */
void mft_mlp_forward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct mft_mlp *m, const float *scale,
		     const void *x, void *y);
void mft_mlp_backward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_part *part, const struct mft_mlp *m, const float *scale,
		      float *dscale, const void *x, const void *dy, void *dx);

#endif
