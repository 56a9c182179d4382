/*
 * Private to the mixture of experts: each token goes to top_k of the layer's experts.
 *
 *   moe_router.c     logits, chosen experts and their probabilities, the bias
 *   moe_balance.c    losses that balance experts
 *   moe_drop.c       choices that experts have no room for
 *   moe_dispatch.c   choices sorted by expert: rows go to their experts and come back
 *   moe_side.c     the context that their communication is submitted to
 *   moe_experts.c    fc1, activation times probability, fc2, as products of groups of rows
 *   moe_shared.c     the experts that every token goes to
 *   moe.c            a layer of them
 *
 * Sources: megatron/core/transformer/moe/{moe_layer,router,token_dispatcher,experts,
 * shared_experts}.py.
 */
#ifndef MFT_TRAINER_MODEL_MLP_MOE_I_H
#define MFT_TRAINER_MODEL_MLP_MOE_I_H

#include "trainer/model/mlp/mlp_i.h"

struct mft_router {
	int64_t experts, top_k;
	struct mft_linear linear;
	enum mfk_dtype type;		     /* of logits */
	const struct mft_model_buffer *bias; /* NULL: none */

	/* auxiliary losses */
	const double *balance_coeffs; /* [MFT_AUX_LOSSES]; 0: none */
	double z_coeff;		      /* 0: none */
	int64_t balance_tokens;	      /* of which loads are counted by themselves */
	int64_t layers;		      /* that have experts: the logged losses are means over them */

	uint64_t logits, expert, prob, weight;	     /* kept */
	uint64_t losses, dlogits, wide, wide_weight; /* scratch */
	uint64_t key;				     /* scratch, of sinkhorn */
	uint64_t load, sum, loss_weight;	     /* scratch of the losses; moe_balance.c */
	uint64_t running;			     /* of the step: mfk_balance */
	uint64_t totals;			     /* of the run */
};

/* Choices that experts have no room for. */
struct mft_drop {
	int64_t capacity; /* of an expert, for a process's rows; < 0: there is room for all */
	bool by_prob;
	uint64_t taken; /* scratch: [tokens, top_k] */
};

/*
 * Rows of tokens on their way to experts. Each process of MFT_GROUP_EXPERT_TOKENS has a part of
 * all_experts experts: neighbours by their numbers, whole ones or a part of each. A process sends
 * R * top_k rows, where R is its rows of the stream (net->rows), or fewer if experts have no room
 * for more; how many its own experts get is found out in each forward, which waits for it.
 */
struct mft_dispatch {
	int64_t all_experts, top_k, choices; /* choices: R * top_k */
	uint32_t processes, parts;	     /* parts: processes that share each expert */
	bool exchanges;			     /* rows of several processes meet */
	int64_t first, experts;		     /* this process's */
	int64_t most;			     /* rows that they get at most */
	bool wants_host;		     /* a product reads host_offsets */

	uint64_t row, from, row_prob; /* kept: the order of choices, and their probabilities */
	uint64_t expert_prob;	      /* kept: probabilities of the rows of own experts */
	uint64_t sorted;	      /* scratch: [parts][choices][hidden] */
	uint64_t at_experts;	      /* scratch: [most][hidden]; sorted, if nothing is exchanged */
	uint64_t dsorted_prob;	      /* scratch: [parts][choices]; backward */
	uint64_t sent, offsets;	      /* kept: the first row of each expert, of each own expert */

	/* the same on the host, of each slot: sent [processes][all_experts + 1] of each process,
	 * offsets [experts + 1] */
	int64_t *host_sent, *host_offsets;
	struct mfk_message *messages;
};

/* One linear of all own experts. Their weights lie at a fixed distance from one another, and so do
 * their biases. */
struct mft_grouped {
	struct mft_linear of_first;
	int64_t stride, bias_stride; /* elements */
};

struct mft_experts {
	struct mft_grouped fc1, fc2;
	bool gated, act_again, active_is_scratch;
	enum mfk_activation activation;
	uint64_t hidden, active; /* kept */
	/* scratch; act: active, if it is not kept; fc2 may keep what it needs of it */
	uint64_t act, dactive, drow_prob;
};

struct mft_shared_experts {
	bool exist;
	struct mft_mlp mlp;
	struct mft_linear gate;			      /* weight NULL: none */
	uint64_t gate_logits, gate_choice, gate_prob; /* kept */
	uint64_t dgate, dx;			      /* scratch; dx: of the rows of the stream */
};

struct mft_moe {
	struct mft_router router;
	struct mft_drop drop;
	struct mft_dispatch dispatch;
	struct mft_experts experts;
	struct mft_shared_experts shared;
};

/* Each plan finds parameters, refuses what cannot be computed, and asks for what is kept; each
 * plan_scratch asks for scratch. */

/* ---- moe_router.c ---- */

int mft_router_plan(struct mft_net *net, uint32_t layer, struct mft_router *r,
		    struct mft_part_plan *p, struct mfs_error *err);
void mft_router_plan_scratch(const struct mft_net *net, struct mft_router *r,
			     struct mft_part_plan *p);
void mft_router_begin(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_router *r);
/* Computes the experts and probabilities of all tokens from x[R, hidden]. Adds to the sums of
 * losses. */
void mft_router_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_part *part, const void *x);
/* dx, which is written, of dprob [R * top_k], the probabilities' gradients in the order of sorted
 * choices. */
void mft_router_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const float *dprob, const void *x, void *dx);
/* Where a pass counts choices of each expert, for the bias. NULL: they are not counted. */
int32_t *mft_router_totals(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_router *r);
int mft_router_end_step(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_router *r,
			struct mfs_error *err);

/* ---- moe_balance.c ---- */

bool mft_balance_exists(const struct mft_router *r);
void mft_balance_plan(struct mft_net *net, struct mft_router *r, struct mft_part_plan *p);
void mft_balance_plan_scratch(const struct mft_net *net, struct mft_router *r,
			      struct mft_part_plan *p);
void mft_balance_begin_step(const struct mft_net *net, struct mfk_ctx *ctx,
			    const struct mft_router *r);
/* Call it after ops->route(a), which has counted loads: the weights for backward, and sums of
 * losses. */
void mft_balance_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const struct mfk_route *a);
/* Tokens of a microbatch, of all processes that share its sequences: what losses are means over. */
double mft_balance_tokens(const struct mft_net *net);

/* ---- moe_drop.c ---- */

int mft_drop_plan(const struct mft_net *net, struct mft_drop *d, struct mfs_error *err);
void mft_drop_plan_scratch(const struct mft_net *net, struct mft_drop *d, struct mft_part_plan *p);
/* What experts take of all tokens' choices, [tokens, top_k], below 0 where one is dropped: until
 * the layer's rows are computed. */
const int32_t *mft_drop_forward(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_part *part);
/* Rows of a process's choices that one expert takes at most. */
int64_t mft_drop_most(const struct mft_net *net, const struct mft_drop *d);

/* ---- moe_dispatch.c ---- */

int mft_dispatch_plan(struct mft_net *net, const struct mft_drop *drop, struct mft_dispatch *d,
		      struct mft_part_plan *p, struct mfs_error *err);
void mft_dispatch_plan_scratch(const struct mft_net *net, struct mft_dispatch *d,
			       struct mft_part_plan *p);
/* Sorts what the router chose of all tokens, and experts take, and says it to the other processes.
 * totals: choices of each of all experts are added; NULL: not wanted. */
void mft_dispatch_sort(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_part *part, const int32_t *taken, int32_t *totals);
/* The first rows of own experts on the host, of the pass that is being submitted. */
int64_t *mft_dispatch_offsets(const struct mft_net *net, const struct mft_dispatch *d);
/* Rows that own experts have in it, since it was sorted. */
int64_t mft_dispatch_rows(const struct mft_net *net, const struct mft_dispatch *d);
/* Rows of x[R, hidden] at their experts: [rows, hidden], sorted by expert, then by process, then by
 * token. They lie in one place, whatever x is, after mft_experts_await(). */
void *mft_dispatch_to_experts(const struct mft_net *net, const struct mft_pass *pass,
			      const struct mft_part *part, const void *x);
/* Rows go back from their experts, of what to_experts gave, which experts have changed. */
void mft_dispatch_back(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_part *part);
/* Call it after that and mft_experts_await(): y[R, hidden] (+)= each token's rows. */
void mft_dispatch_combine(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, bool adds, void *y);
/* Gradients of probabilities in the order of sorted choices, of those in the order of rows. */
const float *mft_dispatch_probs_back(const struct mft_net *net, const struct mft_pass *pass,
				     const struct mft_part *part, float *drow_prob);
/* Probabilities of the rows of own experts. */
const float *mft_dispatch_probs(const struct mft_net *net, const struct mft_part *part);

/* ---- moe_side.c ---- */

/* The context in which experts' processes communicate, after what ctx has so far. */
struct mfk_ctx *mft_experts_submit(const struct mft_net *net, struct mfk_ctx *ctx);
/* What follows in ctx runs after all communication that was submitted. */
void mft_experts_await(const struct mft_net *net, struct mfk_ctx *ctx);

/* ---- moe_experts.c ---- */

int mft_experts_plan(struct mft_net *net, const struct mft_part *part, const struct mft_dispatch *d,
		     struct mft_experts *e, struct mft_part_plan *p, struct mfs_error *err);
void mft_experts_plan_scratch(const struct mft_net *net, const struct mft_dispatch *d,
			      struct mft_experts *e, struct mft_part_plan *p);
/* A product of theirs reads how many rows each expert has on the host. */
bool mft_experts_want_host(const struct mft_net *net, const struct mft_part *part);
/* Of rows at their experts; the output takes their place. wanted false: only what is kept is. */
void mft_experts_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, void *rows, bool wanted);
/* The gradient of x's rows, where mft_dispatch_to_experts() has them, of dy. Returns that of
 * probabilities, in the order of rows. */
float *mft_experts_backward(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_part *part, const void *x, const void *dy);

/* ---- moe_shared.c ---- */

int mft_shared_experts_plan(struct mft_net *net, uint32_t layer, struct mft_shared_experts *s,
			    struct mft_part_plan *p, struct mfs_error *err);
void mft_shared_experts_plan_scratch(const struct mft_net *net, struct mft_shared_experts *s,
				     struct mft_part_plan *p);
/* y is written. NULL: it is not wanted. */
void mft_shared_experts_forward(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_part *part, const void *x, void *y);
/* Adds to dx. */
void mft_shared_experts_backward(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_part *part, const void *x, const void *dy,
				 void *dx);

#endif
