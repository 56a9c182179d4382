/* A part: what a sublayer computes, attention or an MLP; and the memory that it asks for. */
#ifndef MFT_TRAINER_MODEL_BASE_PART_H
#define MFT_TRAINER_MODEL_BASE_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* What a part asks for. Each function gives an offset: of what is kept from forward to backward,
 * from mft_part_kept(); of scratch, from mft_net_scratch(). Scratch is a part's for one call of
 * forward or backward. */
struct mft_part_plan {
	uint64_t kept, scratch, scratch_most; /* bytes */
};
/* Takes bytes after what is used, and returns where they lie. */
uint64_t mft_memory_after(uint64_t *used, uint64_t bytes);
uint64_t mft_part_plan_keep(struct mft_part_plan *p, uint64_t bytes);
uint64_t mft_part_plan_scratch(struct mft_part_plan *p, uint64_t bytes);
/* What is asked from here on lies where scratch began: backward's, after forward's. */
void mft_part_plan_scratch_anew(struct mft_part_plan *p);
/* Bytes of rows x cols elements of a type. Sizes beyond 2^60 count as that. */
uint64_t mft_matrix_bytes(enum mfk_dtype type, int64_t rows, int64_t cols);

struct mft_part {
	const struct mft_part_kind *kind;
	uint32_t layer;
	void *own;    /* the kind's sizes, linears and offsets; of the net's arena */
	bool keeps_x; /* set by plan(): backward does not look at x */
	/* set when plan() has returned: */
	uint64_t bytes; /* what it keeps */
	struct mft_at kept;
	bool again; /* forward runs again before backward */
};

struct mft_part_kind {
	const char *name;
	/* Of --recompute-modules: the whole part is run again in backward. NULL: none. */
	const char *module;
	/* Tensor parallel processes share it: x has all of the microbatch's tokens, y and dx are
	 * terms of sums, dy is whole. Otherwise all four are of the stream's rows, and whole. */
	bool divided;
	/* Finds parameters, fills part->own, and asks for memory. What must outlive a microbatch is
	 * added to net->memory here. -ENOTSUP: an argument that has no computation here. */
	int (*plan)(struct mft_net *net, struct mft_part *part, struct mft_part_plan *plan,
		    struct mfs_error *err);
	/* After memory was placed. NULL: nothing is to be done. */
	int (*begin)(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part,
		     struct mfs_error *err);
	/* y[T, hidden] of x[T, hidden]. y NULL: it is not wanted, only what is kept is. */
	void (*forward)(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_part *part, const void *x, void *y);
	/* dx of dy; adds to gradients of parameters. What was kept may be overwritten. */
	void (*backward)(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const void *x, const void *dy, void *dx);
	/* Called before the first microbatch of a step. NULL: nothing is called. */
	void (*begin_step)(const struct mft_net *net, struct mfk_ctx *ctx,
			   const struct mft_part *part);
	/* Called after the last microbatch of a step, before the update. NULL: nothing is
	 * called. */
	int (*end_step)(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part,
			struct mfs_error *err);
};

/* An address in what a part keeps of the pass that is being submitted. */
void *mft_part_kept(const struct mft_net *net, const struct mft_part *part, uint64_t offset);
/* True with selective recomputation of a module of that name. */
bool mft_recomputes(const struct mft_net *net, const char *module);

#endif
