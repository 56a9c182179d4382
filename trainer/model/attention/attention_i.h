/* Private to attention: what its kinds share. */
#ifndef MFT_TRAINER_MODEL_ATTENTION_ATTENTION_I_H
#define MFT_TRAINER_MODEL_ATTENTION_ATTENTION_I_H

#include "trainer/model/attention/attention.h"

/* Where a part keeps what attention gives and needs for backward. */
struct mft_attention_kept {
	uint64_t q, k, v, out, lse;
};

/* A shape with what a pass and a part add: documents, dropout and memory. */
struct mfk_attention mft_attention_of(const struct mft_net *net, const struct mft_pass *pass,
				      const struct mft_part *part, struct mfk_attention shape,
				      const struct mft_attention_kept *kept);

/* What computes outputs of queries, keys and values, alone or with the processes that share the
 * sequence (core.c). */
#define MFT_CORE_BUFFERS 12
struct mft_core {
	enum mft_context_kind way;
	const struct mft_core_ops *ops; /* what attends, where heads were exchanged, if any are */
	struct mfk_attention shape;	/* what it attends with */
	/* scratch of forward, of backward: the kind's, and the exchange's */
	uint64_t at[2][MFT_CORE_BUFFERS], heads_at[2][MFT_CORE_BUFFERS];
};
/* -EINVAL: --cp-comm-type does not do the shape. */
int mft_core_find(const struct mft_net *net, uint32_t layer, const struct mfk_attention *shape,
		  struct mft_core *ret, struct mfs_error *err);
void mft_core_plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		   bool backward);
/* a: as mft_attention_of() gives it; backward with dout, dq, dk and dv. */
void mft_core_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_core *core, const struct mfk_attention *a);
void mft_core_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_core *core, const struct mfk_attention *a);
/* A layer does it in this way. */
bool mft_core_has_way(const struct mft_net *net, enum mft_context_kind which);

/* ---- processes that share sequences; context.c ---- */

/* Of the tokens of one in the ring, [whole / ring]; device memory. */
const int32_t *mft_context_positions(const struct mft_net *net, enum mft_context_kind which,
				     uint32_t part);
/* Rows of so many bytes: this process's tokens for its neighbour p, which begin at row p * step of
 * parts, become those of all neighbours in joined [batch, net->seq * way.heads], or the reverse. */
void mft_context_exchange(const struct mft_net *net, const struct mft_pass *pass,
			  enum mft_context_kind which, void *parts, int64_t step, void *joined,
			  size_t row, bool to_joined);

/* ---- tables ---- */

/* Groups of queries that tensor parallel processes share; shared_groups.c. */
struct mft_shared_groups {
	int64_t share; /* columns of linear_qkv that a process computes; 0: no group is shared */
	int64_t taken; /* that it takes of all processes' */
	int64_t unit;
	/* offsets in memory, int32: the unit of all, [size, T, share / unit], that each taken one
	 * is, [T, taken / unit]; and the reverse, negative where none is taken */
	uint64_t to_taken, to_all;
};
/* taken [T, taken] of share [T, share] of each process. all: room for [size, T, share]. */
void mft_shared_groups_take(const struct mft_net *net, const struct mft_pass *pass,
			    const void *share, void *all, void *taken);
/* The gradient of share, of all processes' gradients of what they have taken. */
void mft_shared_groups_give(const struct mft_net *net, const struct mft_pass *pass,
			    const void *dtaken, void *all, void *dshare);

/* Tables of sines and cosines, fp32 [whole, dim / 2], and the positions of tokens [T]. */
struct mft_rope {
	int64_t dim; /* 0: no rotation */
	uint64_t cos, sin, positions;
};
/* yarn_rotary_pos_embedding.py: _yarn_get_mscale. */
double mft_yarn_mscale(double factor, double mscale);

#endif
