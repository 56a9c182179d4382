/*
 * Private to trainer/model: what the model is made of.
 *
 * A decoder is a chain of 2 L sublayers, attention and MLP by turns. Each normalises the residual
 * stream and computes a part of what it finds; the next one adds that to the stream:
 *
 *   x       = x of the sublayer before + dropout(its part's output)     one operation with the norm
 *   normed  = norm(x)
 *   output  = part(normed)
 *
 * backward, where dx is the gradient of the sum that follows:
 *
 *   dnormed = part's backward(dropout's backward(dx))
 *   dx      = norm's backward(dnormed) + dx
 *
 * Tensor parallelism divides parts: each process has some heads, or columns of an MLP, and gets a
 * part's output and dx as one of the terms that the chain adds up (tensor_parallel.c). So a part
 * knows no other process.
 *
 * A part is of a kind: a table of functions. Kinds are chosen by what the arguments say of a layer
 * (kinds.c): attention.c or mla.c, mlp.c or moe.c. All else is shared. Source:
 * megatron/core/transformer/transformer_layer.py.
 */
#ifndef MFS_TRAINER_MODEL_NET_I_H
#define MFS_TRAINER_MODEL_NET_I_H

#include "formats/base/arena.h"
#include "trainer/model/net.h"
#include "trainer/parallel/context.h"

struct mfs_net;

/* ---- a pass ---- */

/* How processes attend together; struct mfs_context. */
enum mfs_context_ways {
	MFS_CONTEXT_RING,  /* all of them in one ring */
	MFS_CONTEXT_HEADS, /* all of them exchange heads */
	MFS_CONTEXT_BOTH,  /* neighbours exchange heads */
	MFS_CONTEXT_WAYS,
};

/* What is on its way: the context, and the microbatch on the device. */
struct mfs_pass {
	struct mfk_ctx *ctx;
	const struct mfs_net_pass *pass; /* without its batch, when that is on the device */
	uint64_t counted;		 /* tokens whose loss counts */
	bool train;			 /* with dropout, and a backward pass follows */
	bool adds;			 /* the pass has written to the same gradients before */
	bool again; /* a forward that backward runs again: nothing is counted a second time */
	const int32_t *tokens, *labels, *positions, *order, *position_order; /* [T] */
	const int32_t *first_key; /* [T]; NULL: every token sees its whole past */
	/* of the tokens of processes that exchange them for heads, [batch, net->seq * way.heads] */
	const int32_t *heads_first_key[MFS_CONTEXT_WAYS];
	const float *loss_mask; /* [T] */
	struct mfs_batch_ahead ahead[MFS_MTP_MOST];
	struct mfs_dx_sum *dx_sum; /* of the part that goes backward; NULL: none */
};

/* Where dropout is applied. Each place of each layer has a stream of random numbers of its own. */
enum mfs_dropout_site {
	MFS_DROPOUT_EMBEDDING,
	MFS_DROPOUT_SCORES, /* of attention */
	MFS_DROPOUT_ATTENTION,
	MFS_DROPOUT_MLP,
	MFS_RANDOM_LOGITS, /* of a router: no dropout, and another such place */
};

/* The generator's key: a function of seed, iteration, microbatch, layer and site. */
uint64_t mfs_pass_seed(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer,
		       enum mfs_dropout_site site);

/* Dropout of the stream, or its backward, of the rows that the process has; dropout.c. */
bool mfs_drops(const struct mfs_net *net, const struct mfs_pass *run);
struct mfk_dropout mfs_dropout_at(const struct mfs_net *net, const struct mfs_pass *run,
				  uint32_t layer, enum mfs_dropout_site site);
void mfs_drop(const struct mfs_net *net, const struct mfs_pass *run,
	      void (*op)(struct mfk_ctx *c, const struct mfk_dropout *a),
	      const struct mfk_dropout *all);

/* Normal numbers in place of a router's logits [tokens, experts]. */
void mfs_random_logits(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer,
		       enum mfk_dtype type, void *logits, int64_t experts);

/* ---- memory ---- */

/* What a part asks for. Each function gives an offset: of what is kept from forward to backward,
 * from mfs_part_kept(); of scratch, from mfs_net_scratch(). Scratch is a part's for one call of
 * forward or backward. */
struct mfs_part_plan {
	uint64_t kept, scratch, scratch_most; /* bytes */
};
/* Takes bytes behind what is used, and returns where they lie. */
uint64_t mfs_memory_behind(uint64_t *used, uint64_t bytes);
uint64_t mfs_part_plan_keep(struct mfs_part_plan *p, uint64_t bytes);
uint64_t mfs_part_plan_scratch(struct mfs_part_plan *p, uint64_t bytes);
/* What is asked from here on lies where scratch began: backward's, after forward's. */
void mfs_part_plan_scratch_anew(struct mfs_part_plan *p);
/* Bytes of rows x cols elements of a type. Sizes beyond 2^60 count as that. */
uint64_t mfs_matrix_bytes(enum mfk_dtype type, int64_t rows, int64_t cols);

void *mfs_net_scratch(const struct mfs_net *net, uint64_t offset);

/* Where something lies: at one place for all passes, or in the slot of each. */
struct mfs_at {
	uint64_t offset; /* in memory, or in the slot */
	bool in_slot;
};

/* ---- linears and norms ---- */

/* y[rows, out] = x[rows, in] weight[out, in]^T + bias: sizes of what the process has. Rows of the
 * weight are divided (megatron/core/tensor_parallel/layers.py: ColumnParallelLinear), columns
 * (RowParallelLinear: y is a term of a sum), or neither; weight->part.split says it. */
struct mfs_linear {
	const struct mfs_param *weight, *bias; /* bias NULL: none */
	int64_t out, in;
	int64_t ld;    /* elements between rows of y, if there is no bias; 0: out */
	int64_t first; /* rows [first, first + out) of weight and bias are the linear's */
	bool biased;   /* forward adds the bias: of terms of a sum, one process's does */
	bool replaces; /* see mfs_linear_replaces() */
	bool adds;     /* backward adds to dx */
	bool ends_dx;  /* backward is the last that writes a part's dx; see mfs_dx_sum_begin() */
	bool sums;     /* forward adds to y */
	/* Columns [col, col + in) of a weight whose rows have so many elements; 0: they have in. */
	int64_t row, col;
	/* Rows are divided, and each process uses all of them: scratch of the whole weight, and of
	 * a term of its gradient. See mfs_linear_gather(). There is no bias then. */
	bool gathered;
	uint64_t whole, term;
};

/* prefix: "decoder.layers.mlp.linear_fc1". The bias is there if the model has it. */
int mfs_linear_find(const struct mfs_net *net, const char *prefix, int32_t layer, int32_t expert,
		    struct mfs_linear *ret, struct mfs_error *err);
void mfs_linear_forward(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_linear *l, int64_t rows, const void *x, void *y);
/* act->x is written, and act->y, the activation of it. */
void mfs_linear_forward_act(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_linear *l, const void *x, const struct mfk_act *act);
/* Of one that is gathered: the whole weight, before forward or backward; and its gradient, which
 * backward has written the process's term of, behind that. */
void mfs_linear_gather(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_linear *l);
void mfs_linear_scatter(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_linear *l);
/* For a linear that is the first to touch its weight's gradient, once in each pass: a step's first
 * pass writes the gradient instead of adding to it, and mfs_net_clear_grads() leaves it alone. */
void mfs_linear_replaces(struct mfs_net *net, struct mfs_linear *l);
/* Adds to the gradients of weight and bias. dx NULL: not wanted. Otherwise it is written, or, if
 * the linear adds, added to. */
void mfs_linear_backward(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_linear *l, int64_t rows, const void *x, const void *dy,
			 void *dx);
/* The same for a linear whose input was act->y: act->dx is written. act->dy is room for the
 * gradient between the two. */
void mfs_linear_backward_act(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_linear *l, const void *dy, const struct mfk_act *act);

struct mfs_norm {
	const struct mfs_param *weight, *bias; /* bias NULL: none */
	int64_t cols;
};

/* prefix: "decoder.layers.input_layernorm". stats: fp32 [2, rows], kept for backward. */
int mfs_norm_find(const struct mfs_net *net, const char *prefix, int32_t layer,
		  struct mfs_norm *ret, struct mfs_error *err);
uint64_t mfs_norm_stats_bytes(int64_t rows);
/* residual NULL: x is normalised; else sum = x + residual is. */
void mfs_norm_forward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_norm *n, int64_t rows, const void *x, const void *residual,
		      void *sum, void *y, float *stats);
/* x: what was normalised. dx = gradient (+ dresidual). */
void mfs_norm_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_norm *n, int64_t rows, const void *x, const float *stats,
		       const void *dy, const void *dresidual, void *dx);

/* Device addresses of a parameter's weights and gradients. */
const void *mfs_weight(const struct mfs_net *net, const struct mfs_param *p);
void *mfs_grad(const struct mfs_net *net, const struct mfs_param *p);
/* True if the gradient of what mfs_linear_replaces() named is written, not added to. */
bool mfs_grad_is_new(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_param *p);

/* ---- parts ---- */

struct mfs_part {
	const struct mfs_part_kind *kind;
	uint32_t layer;
	void *own; /* the kind's sizes, linears and offsets; of the net's arena */
	/* set when plan() has returned: */
	uint64_t bytes; /* what it keeps */
	struct mfs_at kept;
	bool again; /* forward runs again before backward */
};

struct mfs_part_kind {
	const char *name;
	/* Of --recompute-modules: the whole part is run again in backward. NULL: none. */
	const char *module;
	/* Tensor parallel processes share it: x has all of the microbatch's tokens, y and dx are
	 * terms of sums, dy is whole. Otherwise all four are of the stream's rows, and whole. */
	bool divided;
	/* Finds parameters, fills part->own, and asks for memory. What must outlive a microbatch is
	 * added to net->memory here. -ENOTSUP: an argument that has no computation here. */
	int (*plan)(struct mfs_net *net, struct mfs_part *part, struct mfs_part_plan *plan,
		    struct mfs_error *err);
	/* After memory was placed. NULL: nothing is to be done. */
	int (*begin)(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
		     struct mfs_error *err);
	/* y[T, hidden] of x[T, hidden]. y NULL: it is not wanted, only what is kept is. */
	void (*forward)(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_part *part, const void *x, void *y);
	/* dx of dy; adds to gradients of parameters. What was kept may be overwritten. */
	void (*backward)(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_part *part, const void *x, const void *dy, void *dx);
	/* Before the first microbatch of a step. NULL: nothing. */
	void (*begin_step)(const struct mfs_net *net, struct mfk_ctx *ctx,
			   const struct mfs_part *part);
	/* After the last microbatch of a step, before the update. NULL: nothing. */
	int (*end_step)(const struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
			struct mfs_error *err);
};

/* An address in what a part keeps of the pass that is being submitted. */
void *mfs_part_kept(const struct mfs_net *net, const struct mfs_part *part, uint64_t offset);
/* True with selective recomputation of a module of that name. */
bool mfs_recomputes(const struct mfs_net *net, const char *module);

extern const struct mfs_part_kind mfs_part_attention; /* attention.c */
extern const struct mfs_part_kind mfs_part_mla;	      /* mla.c */
extern const struct mfs_part_kind mfs_part_mlp;	      /* mlp.c */
extern const struct mfs_part_kind mfs_part_moe;	      /* moe.c */

/* Where a part keeps what attention gives and needs for backward. */
struct mfs_attention_kept {
	uint64_t q, k, v, out, lse;
};

/* A shape with what a pass and a part add: documents, dropout and memory. */
struct mfk_attention mfs_attention_of(const struct mfs_net *net, const struct mfs_pass *run,
				      const struct mfs_part *part, struct mfk_attention shape,
				      const struct mfs_attention_kept *kept);

/* What computes outputs of queries, keys and values, alone or with the processes that share the
 * sequence (core.c). */
#define MFS_CORE_BUFFERS 12
struct mfs_core {
	enum mfs_context_ways way;
	const struct mfs_core_kind *kind; /* what attends, where heads were exchanged, if any are */
	struct mfk_attention shape;	  /* what it attends with */
	/* scratch of forward, of backward: the kind's, and the exchange's */
	uint64_t at[2][MFS_CORE_BUFFERS], heads_at[2][MFS_CORE_BUFFERS];
};
/* -EINVAL: --cp-comm-type does not do the shape. */
int mfs_core_find(const struct mfs_net *net, uint32_t layer, const struct mfk_attention *shape,
		  struct mfs_core *ret, struct mfs_error *err);
void mfs_core_plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		   bool backward);
/* a: as mfs_attention_of() gives it; backward with dout, dq, dk and dv. */
void mfs_core_forward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_core *core, const struct mfk_attention *a);
void mfs_core_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_core *core, const struct mfk_attention *a);
/* A layer does it in this way. */
bool mfs_core_has_way(const struct mfs_net *net, enum mfs_context_ways which);

/* The kinds of a layer's two parts. */
void mfs_part_kinds(const struct mfs_megatron_args *args, uint32_t layer,
		    const struct mfs_part_kind **ret_attention,
		    const struct mfs_part_kind **ret_mlp);

/* The arguments' activation function. */
enum mfk_activation mfs_activation(const struct mfs_megatron_args *args);

/* An MLP that is a part, or in one: fc2(scale * activation(fc1(x))). */
struct mfs_mlp {
	struct mfs_linear fc1, fc2; /* fc1 adds: so does backward */
	bool gated;
	enum mfk_activation activation;
	bool again;		 /* backward runs forward again: hidden and active are scratch */
	uint64_t hidden, active; /* kept: [T, fc1.out], [T, fc2.in] */
	uint64_t dactive;	 /* scratch: [T, fc2.in] */
};

/* prefix: "decoder.layers.mlp"; ret->again is set before. */
int mfs_mlp_plan(struct mfs_net *net, const char *prefix, uint32_t layer, struct mfs_mlp *ret,
		 struct mfs_part_plan *plan, struct mfs_error *err);
/* scale: fp32 [T]; NULL: 1. y NULL: it is not wanted. */
void mfs_mlp_forward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const struct mfs_mlp *m, const float *scale,
		     const void *x, void *y);
void mfs_mlp_backward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_part *part, const struct mfs_mlp *m, const float *scale,
		      float *dscale, const void *x, const void *dy, void *dx);

/* ---- tensor and sequence parallelism; tensor_parallel.c ---- */

/*
 * Without --sequence-parallel every process has the whole residual stream. With it a process has
 * net->rows rows of it, from net->first_row on: norms, dropout and sums of the stream are of tokens
 * each for itself, so any division is exact. Source: megatron/core/tensor_parallel/mappings.py.
 */
bool mfs_is_divided(const struct mfs_net *net);
/* -EINVAL: tokens that cannot be divided. Sets net->rows and net->first_row. */
int mfs_stream_divide(struct mfs_net *net, struct mfs_error *err);
void mfs_stream_plan(struct mfs_net *net);

/* Where all of the microbatch's tokens are gathered. */
enum mfs_gathered { MFS_GATHERED_X, MFS_GATHERED_DY };
/* All processes' rows of the stream: x itself, or gathered. Beside: whoever reads them calls
 * mfs_stream_await() before. */
const void *mfs_stream_gather(const struct mfs_net *net, const struct mfs_pass *run,
			      enum mfs_gathered which, const void *x);
const void *mfs_stream_gather_beside(const struct mfs_net *net, const struct mfs_pass *run,
				     enum mfs_gathered which, const void *x);
void mfs_stream_await(const struct mfs_net *net, const struct mfs_pass *run);
/* Where a term [T, hidden] of a sum is to be written that goes to y: y itself, or a place. */
void *mfs_stream_term(const struct mfs_net *net, void *y);
/* y[rows, hidden] = the sum of all processes' terms. */
void mfs_stream_sum(const struct mfs_net *net, const struct mfs_pass *run, void *term, void *y);

/* The sum of the processes' terms of a part's dx. It goes on while the gradient of the weight is
 * computed whose linear ends dx. */
struct mfs_dx_sum {
	void *term, *dx;
	bool begun;
};
/* The term is still to be written. */
struct mfs_dx_sum mfs_dx_sum_new(const struct mfs_net *net, void *dx);
/* The term of run->dx_sum is written. */
void mfs_dx_sum_begin(const struct mfs_net *net, const struct mfs_pass *run);
/* dx is there for what follows. run->dx_sum as before. */
void mfs_dx_sum_end(const struct mfs_net *net, const struct mfs_pass *run);

/* What tensor parallel processes say besides, as mfs_parallel_all_gather() and
 * mfs_parallel_reduce_scatter() do. Everything else that these processes say goes through the
 * functions above: all of it is in one context. */
void mfs_tensor_gather(const struct mfs_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
		       void *to, const void *from, uint64_t elements);
void mfs_tensor_scatter(const struct mfs_net *net, struct mfk_ctx *ctx, enum mfk_dtype dtype,
			void *to, void *from, uint64_t elements);

/* A parameter that all processes of the group have, and whose gradient is a sum of theirs: of the
 * stream's rows that each has, or of the heads. p NULL: none. To be said when the net is planned.
 */
void mfs_net_gradient_is_term(struct mfs_net *net, const struct mfs_param *p);
/* Behind a step's passes: those gradients become the sums. */
void mfs_tensor_sum_gradients(const struct mfs_net *net, struct mfk_ctx *ctx);

/* ---- the chain ---- */

struct mfs_joint;
struct mfs_sublayer;
struct mfs_layer;

/* Of the pass that is being submitted: where a part's output lies, and the gradient of its input;
 * and the gradient of the residual stream. */
void *mfs_branch_now(const struct mfs_net *net);
void *mfs_dx_now(const struct mfs_net *net);

/* x = x of before + dropout(its output), and the norm of that. before NULL: x is there. */
void mfs_join(const struct mfs_net *net, const struct mfs_pass *run,
	      const struct mfs_sublayer *before, const struct mfs_joint *at);
/* The stream's gradient = gradient of dnormed through the norm, + dstream (NULL: the stream ends
 * here). */
void mfs_join_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_joint *at, const void *dnormed, const void *dstream);
/* output NULL: it is not wanted, only what is kept is. */
void mfs_sublayer_forward(const struct mfs_net *net, const struct mfs_pass *run,
			  const struct mfs_sublayer *before, const struct mfs_sublayer *s,
			  void *output);
void mfs_sublayer_backward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct mfs_sublayer *s);
/* What selective recomputation did not keep. */
void mfs_make_again(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_sublayer *s);
/* The stream's gradient before a dropout; mfs_dx_now() if there is none. */
const void *mfs_before_dropout(const struct mfs_net *net, const struct mfs_pass *run,
			       uint32_t layer, enum mfs_dropout_site site);

/* The stream of the pass's tokens, and the embedding's gradient of mfs_dx_now(). layer: of the
 * dropout's random numbers. */
void mfs_embed(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer, void *x);
void mfs_embed_backward(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer);

/* The norm of the stream: its gradient is of the rows that the process has. */
int mfs_stream_norm_find(struct mfs_net *net, const char *prefix, int32_t layer,
			 struct mfs_norm *ret, struct mfs_error *err);
/* i: its number in the whole model; those of MTP are numbered behind the decoder's. */
int mfs_layer_plan(struct mfs_net *net, struct mfs_layer *l, uint32_t i,
		   struct mfs_part_plan *scratch, struct mfs_error *err);
/* Memory that is there once, for all passes. */
struct mfs_at mfs_memory_for_all(struct mfs_net *net, uint64_t bytes);

/* Where the residual stream meets a norm. */
struct mfs_joint {
	struct mfs_norm norm;
	struct mfs_at x, normed, stats; /* [rows, hidden] twice, fp32 [2, rows] */
};

struct mfs_sublayer {
	struct mfs_joint in;
	struct mfs_part part;
	enum mfs_dropout_site site;  /* of the part's output */
	bool norm_again, part_again; /* selective recomputation */
};

struct mfs_layer {
	struct mfs_sublayer attention, mlp;
};

/* A model chunk: the layers that follow one another in this process. */
struct mfs_net_chunk {
	struct mfs_layer *layers;
	uint32_t count;
	bool embeds; /* it is the model's first: its first x is of the embedding */
	bool ends;   /* it is the model's last: the last norm and the head follow it */
};

/* The processes that share sequences; context.c. In a group of one the offsets are not set. */
struct mfs_context {
	uint32_t size, rank;
	int64_t whole; /* tokens of a sequence; this process has net->seq of them */
	/* offsets in memory, int32 [batch, whole] each: the rows that maps take, from all
	 * processes' tokens, [size, T], to sequences, [batch, whole], and back */
	uint64_t to_sequence, from_sequence, array_bytes; /* of all arrays, from the first on */
	/* Processes whose ranks are neighbours exchange tokens for heads. Together they have a part
	 * of the sequence as if it were cut for `ring` processes, and pass that on in a ring of
	 * those that have the same heads. Offsets are not set of what is 1. */
	struct mfs_context_way {
		enum mfs_group heads_group, ring_group;
		uint32_t heads, heads_rank, ring, ring_rank; /* heads * ring is size */
		/* int32: maps of tokens with their heads, [T, heads], to processes, [heads, T], and
		 * back; and positions of the tokens of all in the ring, [ring, whole / ring] */
		uint64_t to_heads, from_heads, positions;
		bool used;	    /* a layer does it in this way */
		uint64_t first_key; /* then: of the tokens that neighbours have */
	} way[MFS_CONTEXT_WAYS];
	struct mfk_message *messages;
};
void mfs_context_find(const struct mfs_parallel *p, int64_t whole, struct mfs_context *ret);
int mfs_context_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_context_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* Of the tokens of one in the ring, [whole / ring]; device memory. */
const int32_t *mfs_context_positions(const struct mfs_net *net, enum mfs_context_ways which,
				     uint32_t part);
/* Rows of so many bytes: this process's tokens for its neighbour p, which begin at row p * step of
 * parts, become those of all neighbours in joined [batch, net->seq * way.heads], or the reverse. */
void mfs_context_exchange(const struct mfs_net *net, const struct mfs_pass *run,
			  enum mfs_context_ways which, void *parts, int64_t step, void *joined,
			  size_t row, bool to_joined);
/* run->heads_first_key, in one of net->batch_count places. */
void mfs_context_gather_keys(const struct mfs_net *net, struct mfs_pass *run, uint32_t place);

/* Groups of queries that tensor parallel processes share; shared_groups.c. */
struct mfs_shared_groups {
	int64_t share; /* columns of linear_qkv that a process computes; 0: no group is shared */
	int64_t taken; /* that it takes of all processes' */
	int64_t unit;
	/* offsets in memory, int32: the unit of all, [size, T, share / unit], that each taken one
	 * is, [T, taken / unit]; and the reverse, negative where none is taken */
	uint64_t to_taken, to_all;
};
int mfs_shared_groups_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_shared_groups_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* taken [T, taken] of share [T, share] of each process. all: room for [size, T, share]. */
void mfs_shared_groups_take(const struct mfs_net *net, const struct mfs_pass *run,
			    const void *share, void *all, void *taken);
/* The gradient of share, of all processes' gradients of what they have taken. */
void mfs_shared_groups_give(const struct mfs_net *net, const struct mfs_pass *run,
			    const void *dtaken, void *all, void *dshare);

/* Tables of sines and cosines, fp32 [whole, dim / 2], and the positions of tokens [T]. */
struct mfs_rope {
	int64_t dim; /* 0: no rotation */
	uint64_t cos, sin, positions;
};
/* -ENOTSUP: an odd number of elements would turn. */
int mfs_rope_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_rope_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* yarn_rotary_pos_embedding.py: _yarn_get_mscale. */
double mfs_yarn_mscale(double factor, double mscale);

/* The device's sums, doubles. Whole microbatches are added to them. */
enum mfs_sum {
	MFS_SUM_LM_LOSS,
	MFS_SUM_AUX_LOSS, /* and those of the other kinds: enum mfs_aux_loss */
	MFS_SUM_Z_LOSS = MFS_SUM_AUX_LOSS + MFS_AUX_LOSSES,
	MFS_SUM_MTP_LOSS, /* of each layer; means over counted tokens */
	MFS_SUM_COUNT = MFS_SUM_MTP_LOSS + MFS_MTP_MOST
};
double *mfs_net_sum(const struct mfs_net *net, unsigned which);

/* MTP layers; mtp.c. */
struct mfs_mtp_layer {
	/* enorm of the embedding; hnorm, whose x is the hidden state of the layer before; the last
	 * norm */
	struct mfs_joint embedding, hidden, out;
	struct mfs_linear halves[2]; /* of eh_proj: for embedding, for hidden */
	struct mfs_layer *layer;     /* its number is that behind the decoder's last */
};
struct mfs_mtp {
	struct mfs_mtp_layer *layers;
	uint32_t count; /* 0: none, or the stage does not end the model */
	struct mfs_at dhidden;
};
/* -ENOTSUP: an argument that MTP layers have no computation for here. */
int mfs_mtp_plan(struct mfs_net *net, struct mfs_part_plan *scratch, struct mfs_error *err);
void mfs_mtp_place(struct mfs_net *net); /* after the head's place */
/* Between mfs_head_begins() and mfs_head_ends(), of a pass backward: forward, when the last norm is
 * done; backward, with losses. */
void mfs_mtp_forward(const struct mfs_net *net, const struct mfs_pass *run);
void mfs_mtp_backward(const struct mfs_net *net, const struct mfs_pass *run);
/* Adds the gradient of the first layer's hidden state to mfs_branch_now(). */
void mfs_mtp_add_dhidden(const struct mfs_net *net, const struct mfs_pass *run);

/* The last norm and the head; head.c. */
struct mfs_head {
	struct mfs_joint in;
	struct mfs_linear linear;     /* of the embedding, if it is tied */
	int64_t chunk;		      /* rows of logits at a time; linear.ld elements each */
	uint64_t logits, scale, loss; /* offsets in scratch */
	uint64_t stats;		      /* of a vocabulary that is divided: mfk_cross_entropy */
};
/* Finds it, and plans its scratch. */
int mfs_head_plan(struct mfs_net *net, struct mfs_part_plan *plan, struct mfs_error *err);
/* What the head's losses are added to, and what they count in the gradient. */
struct mfs_head_loss {
	float grad_scale; /* of a counted token's loss */
	double *sum;
	bool is_mean; /* what is added is a mean of so many tokens, not a sum */
	double mean_of;
	bool adds; /* the pass has written the head's gradients before */
};
struct mfs_head_loss mfs_head_loss(const struct mfs_net *net, const struct mfs_pass *run);
/* Losses of normed rows of the stream, without a backward pass. */
void mfs_head_forward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_head_loss *loss, const void *normed);
/* Losses, and the gradient of normed in mfs_branch_now(). */
void mfs_head_backward(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_head_loss *loss, const void *normed);
/* x[T, hidden]: all processes' rows. */
int mfs_head_logits(const struct mfs_net *net, const struct mfs_pass *run, const void *x,
		    float *ret, struct mfs_error *err);

/* Microbatches on the device; batch.c. */
struct mfs_batch_place {
	/* offsets in memory of the first one's; the others' follow */
	uint64_t block, first_key;
	uint64_t bytes, key_bytes; /* of each */
	struct mfs_key_stage {
		int32_t *keys; /* host, [T] */
		struct mfk_event *copied;
	} stage[2]; /* first keys that a window narrows */
	unsigned turn;
};
int mfs_batch_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_batch_begin(struct mfs_net *net, struct mfs_error *err);
/* Copies run->pass->batch to a place, and sets addresses in run. */
int mfs_batch_copy(struct mfs_net *net, struct mfs_pass *run, uint32_t place,
		   struct mfs_error *err);
void mfs_batch_release(struct mfs_net *net);

/* A microbatch that is on the device. */
struct mfs_taken {
	struct mfs_net_pass pass;
	struct mfs_pass run; /* its pass is the one above */
};

/* ---- what runs beside the passes is told; visit.c ---- */

/* Before operations of a pass that use a unit, and behind them. visit.last is set here. */
void mfs_visit_begins(const struct mfs_net *net, const struct mfs_pass *run,
		      struct mfs_net_visit visit);
void mfs_visit_ends(const struct mfs_net *net, const struct mfs_pass *run,
		    struct mfs_net_visit visit);
int32_t mfs_layer_unit(const struct mfs_layer *l);
/* The unit that a pass through the chunk visits first behind the embedding; MFS_UNIT_NONE: the
 * chunk has no layers. */
int32_t mfs_first_unit(const struct mfs_net_chunk *chunk);
/* The units that the head uses. */
void mfs_head_begins(const struct mfs_net *net, const struct mfs_pass *run, bool backward);
void mfs_head_ends(const struct mfs_net *net, const struct mfs_pass *run, bool backward);

/* Finds what the net is made of, and plans its memory; plan.c. */
int mfs_net_plan(struct mfs_net *net, struct mfs_error *err);
/* True if they exchange beside the passes. */
bool mfs_stages_overlap(const struct mfs_net *net);
/* After mfs_memory_place(). */
int mfs_stages_begin(struct mfs_net *net, struct mfs_error *err);
void mfs_stages_release(struct mfs_net *net);
/* step: of kind MFS_PIPELINE_EXCHANGE. */
void mfs_stages_exchange(struct mfs_net *net, struct mfk_ctx *ctx,
			 const struct mfs_pipeline_step *step);
/* ctx waits for so many exchanges of the step, the first ones. */
void mfs_stages_await(const struct mfs_net *net, struct mfk_ctx *ctx, uint64_t exchanges);
/* Buffers of a number: the first x of a slot, where a chunk's stream begins and is received; an
 * output of passes; a gradient of the stream. */
void *mfs_net_first_x(const struct mfs_net *net, uint32_t slot);
void *mfs_net_branch(const struct mfs_net *net, uint32_t number);
void *mfs_net_dx(const struct mfs_net *net, uint32_t number);

/* Bytes of the residual stream. */
uint64_t mfs_stream_bytes(const struct mfs_net *net);

/* Exchanges with other stages; stages.c. */
struct mfs_stages {
	struct mfk_ctx *beside; /* NULL: they are submitted to the passes' context */
	struct mfk_event *passes;
	struct mfk_event **done; /* of exchange number i: [i % count] */
	uint32_t count;
	uint64_t said; /* exchanges of this step */
};

/* What is said beside the passes; beside.c. */
struct mfs_beside {
	struct mfk_ctx *ctx; /* NULL: it is submitted to the passes' context */
	struct mfk_event *passes, *said;
};
int mfs_beside_begin(const struct mfs_net *net, struct mfs_beside *b, struct mfs_error *err);
void mfs_beside_release(const struct mfs_net *net, struct mfs_beside *b);
/* The context in which to say something that needs what ctx has so far. */
struct mfk_ctx *mfs_beside_say(const struct mfs_net *net, const struct mfs_beside *b,
			       struct mfk_ctx *ctx);
/* ctx waits for all that was said; the group is the one that said what is needed. */
void mfs_beside_await(const struct mfs_net *net, const struct mfs_beside *b, enum mfs_group group,
		      struct mfk_ctx *ctx);

/* Of experts' rows, of tensor parallel processes, and of a ring. After mfs_memory_place(). */
int mfs_experts_beside_begin(struct mfs_net *net, struct mfs_error *err);
int mfs_tensor_beside_begin(struct mfs_net *net, struct mfs_error *err);
int mfs_context_beside_begin(struct mfs_net *net, struct mfs_error *err);

/* What the net is made of, and what its passes write beside what parts keep. Parts know nothing of
 * it. */
struct mfs_chain {
	struct mfs_net_watch watch;

	/* NULL: none, or the stage does not embed */
	const struct mfs_param *word_embeddings, *position_embeddings;
	struct mfs_layer *layers; /* of all chunks, and those of MTP */
	uint32_t layer_count;
	struct mfs_net_chunk *chunks;
	uint32_t chunk_count;
	struct mfs_head head; /* of the chunk that ends the model */
	int64_t vocab;	      /* padded; of it the columns of logits that the process has */
	struct mfs_mtp mtp;
	struct mfs_batch_place on_device;
	struct mfs_taken *taken; /* [net->batch_count] */

	/* Layers [k n, k n + n) of a model chunk are run again as one, where n is again_layers;
	 * layers from again_end on are not. again_layers 0: none are. */
	uint32_t again_layers, again_end;

	/* Gradients of the residual stream, [T, hidden] each, one behind the other. */
	uint64_t dx, dx_bytes;
	uint32_t dx_count;
	struct {
		uint32_t dx, output; /* numbers, of the pass that is being submitted */
	} now;
	struct mfs_stages stages;

	/* [rows, hidden]: a part's output; backward: the gradient of its input. A second one while
	 * the first is sent to the next stage. */
	uint64_t branch, branch_bytes;
	uint32_t branch_count;
	uint64_t dropped; /* [rows, hidden]: dx behind dropout; with hidden dropout alone */
	double *host_sums;
};

struct mfs_net {
	const struct mfs_train_config *config;
	const struct mfs_megatron_args *args; /* config->model */
	struct mfs_params *params;
	bool *replaced; /* [params->count]: by the first pass of a step */
	bool *term;	/* [params->count]: see mfs_net_gradient_is_term() */
	struct mfs_memory *memory;
	const struct mfk_backend *backend; /* NULL: a plan alone */
	struct mfk_device *device;
	const struct mfs_parallel *parallel;
	struct mfs_chain *chain;

	enum mfk_dtype io, grad;
	int64_t batch, seq, tokens, hidden; /* tokens = batch * seq */
	int64_t rows, first_row;	    /* of the residual stream, that the process has */
	struct mfs_context context;
	struct mfs_shared_groups *groups;
	struct mfs_rope *rope;
	struct mfs_beside experts_beside, tensor_beside, context_beside;

	/* What passes keep until their backward: slots of equal size, one behind the other. */
	uint64_t slots, slot_bytes;
	uint32_t slot_count, batch_count; /* batches: that are on the device at once */
	uint32_t slot;			  /* of the pass that is being submitted */

	/* [T, hidden], with --sequence-parallel: see mfs_stream_gather(), mfs_stream_term() */
	uint64_t gathered[2], of_all;
	uint64_t terms; /* gradients that are added up over the group, one behind the other */
	uint64_t scratch;
	uint64_t sums;
	struct mfs_arena arena;
};

static inline void *mfs_net_at(const struct mfs_net *net, uint64_t offset)
{
	return mfs_memory_at(net->memory, offset);
}

/* Of the pass that is being submitted. */
static inline void *mfs_pass_at(const struct mfs_net *net, struct mfs_at at)
{
	return mfs_net_at(net, at.in_slot ? net->slots + net->slot * net->slot_bytes + at.offset
					  : at.offset);
}

#endif
