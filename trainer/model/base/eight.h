/*
 * Operands of 8 bits: where they lie, and when they are made.
 *
 * Inputs and outputs' gradients become operands right before their product, in scratch that all
 * linears share. A weight becomes two, itself and its transposed one, when the first pass after
 * mft_eight_begin_step() uses it, and both stay for the step's other passes. With FSDP, where a
 * weight is whole for a while alone, each use makes the one that it needs.
 *
 * With delayed scaling a linear's scales, of inputs and weights and of outputs' gradients, are in
 * tables. Each pass forward begins with a copy of the first one in its slot, so that what is
 * computed again has the same bits; at its end, and at that of a pass backward, the next scales
 * follow from what was seen, in all processes that share the model. Outside of training they stay.
 * Source: TransformerEngine, pytorch/quantization.py: FP8GlobalStateManager.
 *
 * Scales are of a whole matrix as the process has it: of all tokens where these were gathered, of
 * its part of a weight that is divided. Groups, which are experts, have a scale each. That is what
 * Megatron's processes do as well (TransformerEngine, pytorch/module/linear.py).
 */
#ifndef MFT_TRAINER_MODEL_BASE_EIGHT_H
#define MFT_TRAINER_MODEL_BASE_EIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/model/base/pass.h"
#include "trainer/model/base/recipe.h"
#include "trainer/model/base/state.h"

struct mft_part;

/* Where a linear keeps its input from forward to backward, transposed: in what its part keeps. part
 * NULL: it does not, and its input is kept as it was, and becomes an operand again. */
struct mft_kept_columns {
	const struct mft_part *part;
	uint64_t offset;
};

/* An operand of a product, of either kind. */
struct mft_operand {
	enum mfk_dtype type;
	const void *at;
	int64_t ld;
	const struct mfk_scale *scale; /* NULL: it has none */
};

/* Sets a product's operands. Those of 8 bits have rows along k both. */
void mft_operands_set(struct mfk_gemm *g, const struct mft_operand *a, const struct mft_operand *b);

/* Sets net->eight, if the run has products of 8 bits. */
int mft_eight_new(struct mft_net *net, struct mfs_error *err);
/* The recipe of a linear; NULL: its operands are of the io type. */
const struct mft_recipe *mft_eight_recipe(const struct mft_net *net, const char *prefix,
					  int64_t layer);
/* -EINVAL: sizes that products of 8 bits cannot have. */
int mft_eight_check(const char *prefix, int64_t layer, int64_t out, int64_t in,
		    struct mfs_error *err);

/* A linear's weight, or those of a group of experts, [out, in] each, stride elements apart. */
struct mft_eight_weight {
	const struct mft_param *first;
	int64_t out, in, groups, stride;
};
/* Plans memory for a linear's operands, of so many rows at most. The same weight may be named
 * again. */
void mft_eight_plan(const struct mft_net *net, const struct mft_eight_weight *w, int64_t rows);
/* Call it when all linears are planned. slot: bytes of a slot, to which some are added. */
void mft_eight_place_slot(struct mft_net *net, uint64_t *slot);
void mft_eight_place(struct mft_net *net);
/* After mft_memory_place(): scales are 1. Sets params->scales. */
int mft_eight_begin(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* For weights that were trained before, whose scales nobody knows: those of the first pass begin as
 * those of its numbers, instead of 1. Experts that it has no tokens for begin with 1, which their
 * first tokens change. False: scales are not kept from pass to pass. */
bool mft_eight_find_scales(const struct mft_net *net);
/* Called around a pass forward, which may have a second part (MTP), and after a pass backward. */
void mft_eight_begin_forward(const struct mft_net *net, const struct mft_pass *pass);
void mft_eight_end_forward(const struct mft_net *net, const struct mft_pass *pass);
void mft_eight_end_backward(const struct mft_net *net, const struct mft_pass *pass);
/* Weights have changed, or may have. */
void mft_eight_begin_step(const struct mft_net *net);

/* The weights [groups][out, in], or transposed, [groups][in, out]. */
struct mft_operand mft_eight_weight(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_eight_weight *w, bool transposed);
/* Numbers become operands of a linear of that weight: rows, as they are, and columns, transposed. x
 * has its sizes and groups (struct mfk_quantise). What of both is NULL is not wanted. They last
 * until the next ones of the same factor, but for those whose place mft_eight_keep() has set. */
void mft_eight_matrix(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_eight_weight *w, enum mft_factor which,
		      const struct mfk_quantise *x, struct mft_operand *rows,
		      struct mft_operand *columns);
/* Bytes that a linear keeps its input in. */
uint64_t mft_eight_kept_bytes(const struct mft_eight_weight *w, int64_t rows);
/* Sets where columns and scales of x go. */
void mft_eight_keep(const struct mft_net *net, const struct mft_kept_columns *to,
		    struct mfk_quantise *x);
/* The columns that were kept of x, whose numbers are not looked at. */
struct mft_operand mft_eight_kept(const struct mft_net *net, const struct mft_eight_weight *w,
				  const struct mft_kept_columns *from,
				  const struct mfk_quantise *x);
/* How long sums over rows are, of transposed operands. */
int64_t mft_eight_columns(int64_t rows);

#endif
