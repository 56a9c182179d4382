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
 * part's output and dx as one of the terms that the chain adds up (base/tensor_parallel.c). So a
 * part knows no other process.
 *
 * A part is of a kind: a table of functions. Kinds are chosen by what the arguments say of a layer
 * (kinds.c): attention/attention.c or mla.c, mlp/mlp.c or moe.c. All else is shared. Source:
 * megatron/core/transformer/transformer_layer.py.
 */
#ifndef MFT_TRAINER_MODEL_NET_I_H
#define MFT_TRAINER_MODEL_NET_I_H

#include "trainer/model/base/dropout.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/part.h"
#include "trainer/model/base/state.h"
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/loss/loss.h"
#include "trainer/model/net.h"

/* The kinds of a layer's two parts. */
void mft_part_kinds(const struct mfs_megatron_args *args, uint32_t layer,
		    const struct mft_part_kind **ret_attention,
		    const struct mft_part_kind **ret_mlp);

/* ---- the chain ---- */

struct mft_joint;
struct mft_sublayer;
struct mft_layer;

/* Of the pass that is being submitted: where a part's output lies, and the gradient of its input;
 * and the gradient of the residual stream. */
void *mft_branch_now(const struct mft_net *net);
void *mft_dx_now(const struct mft_net *net);

/* x = x of before + dropout(its output), and the norm of that. before NULL: x is there. */
void mft_join(const struct mft_net *net, const struct mft_pass *pass,
	      const struct mft_sublayer *before, const struct mft_joint *at);
/* The stream's gradient = gradient of dnormed through the norm, + dstream (NULL: the stream ends
 * here). */
void mft_join_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_joint *at, const void *dnormed, const void *dstream);
/* output NULL: it is not wanted, only what is kept is. */
void mft_sublayer_forward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_sublayer *before, const struct mft_sublayer *s,
			  void *output);
void mft_sublayer_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_sublayer *s);
/* What selective recomputation did not keep. */
void mft_make_again(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_sublayer *s);
/* The stream's gradient before a dropout; mft_dx_now() if there is none. */
const void *mft_before_dropout(const struct mft_net *net, const struct mft_pass *pass,
			       uint32_t layer, enum mft_dropout_site site);

/* The stream of the pass's tokens, and the embedding's gradient of mft_dx_now(). layer: of the
 * dropout's random numbers. */
void mft_embed(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer, void *x);
void mft_embed_backward(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer);

/* The norm of the stream: its gradient is of the rows that the process has. */
int mft_stream_norm_find(struct mft_net *net, const char *prefix, int32_t layer,
			 struct mft_norm *ret, struct mfs_error *err);
/* i: its number in the whole model; those of MTP are numbered after the decoder's. */
int mft_layer_plan(struct mft_net *net, struct mft_layer *l, uint32_t i,
		   struct mft_part_plan *scratch, struct mfs_error *err);
/* Adds memory to the plan that exists once, for all passes. */
struct mft_at mft_memory_for_all(struct mft_net *net, uint64_t bytes);

/* Where the residual stream meets a norm. */
struct mft_joint {
	struct mft_norm norm;
	struct mft_at x, normed, stats; /* [rows, hidden] twice, fp32 [2, rows] */
};

struct mft_sublayer {
	struct mft_joint in;
	struct mft_part part;
	enum mft_dropout_site site;  /* of the part's output */
	bool norm_again, part_again; /* selective recomputation */
};

struct mft_layer {
	struct mft_sublayer attention, mlp;
};

/* A model chunk: the layers that follow one another in this process. */
struct mft_net_chunk {
	struct mft_layer *layers;
	uint32_t count;
	bool embeds; /* it is the model's first: its first x is of the embedding */
	bool ends;   /* it is the model's last: the last norm and the head follow it */
};

/* MTP layers; mtp.c. */
struct mft_mtp_layer {
	/* enorm of the embedding; hnorm, whose x is the hidden state of the layer before; the last
	 * norm */
	struct mft_joint embedding, hidden, out;
	struct mft_linear halves[2]; /* of eh_proj: for embedding, for hidden */
	struct mft_layer *layer;     /* its number follows the decoder's last */
};
struct mft_mtp {
	struct mft_mtp_layer *layers;
	uint32_t count; /* 0: none, or the stage does not end the model */
	struct mft_at dhidden;
};
/* -ENOTSUP: an argument that MTP layers have no computation for here. */
int mft_mtp_plan(struct mft_net *net, struct mft_part_plan *scratch, struct mfs_error *err);
void mft_mtp_place(struct mft_net *net); /* after the head's place */
/* Between mft_head_begins() and mft_head_ends(), of a pass backward: forward, when the last norm is
 * done; backward, with losses. */
void mft_mtp_forward(const struct mft_net *net, const struct mft_pass *pass);
void mft_mtp_backward(const struct mft_net *net, const struct mft_pass *pass);
/* Adds the gradient of the first layer's hidden state to mft_branch_now(). */
void mft_mtp_add_dhidden(const struct mft_net *net, const struct mft_pass *pass);

/* The last norm and the head; head.c. */
struct mft_head {
	struct mft_joint in;
	struct mft_linear linear; /* of the embedding, if it is tied */
	int64_t chunk;		  /* rows of logits at a time; linear.ld elements each */
	struct mft_loss loss;
	uint64_t logits, scale, terms[MFT_LOSS_TERMS]; /* offsets in scratch */
	struct mft_at log_probs;		       /* fp32 [T], of losses that give them */
};
/* Finds it, and plans its scratch. */
int mft_head_plan(struct mft_net *net, struct mft_part_plan *plan, struct mfs_error *err);
/* What the head's losses are added to, and what they count in the gradient. */
struct mft_head_loss {
	float grad_scale; /* of a counted token's loss */
	double *sums;	  /* [terms] */
	unsigned terms;	  /* of the loss's terms, the first ones */
	bool is_mean;	  /* what is added is a mean of so many tokens, not a sum */
	double mean_of;
	bool adds; /* the pass has written the head's gradients before */
};
struct mft_head_loss mft_head_loss(const struct mft_net *net, const struct mft_pass *pass);
/* Losses of normed rows of the stream, without a backward pass. */
void mft_head_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_head_loss *loss, const void *normed);
/* Losses, and the gradient of normed in mft_branch_now(). */
void mft_head_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_head_loss *loss, const void *normed);
/* x[T, hidden]: all processes' rows. */
int mft_head_logits(const struct mft_net *net, const struct mft_pass *pass, const void *x,
		    float *ret, struct mfs_error *err);

/* Logits of the pass whose last norm is done, of all its rows, where the head's chunk holds them:
 * [T, linear.ld] in scratch. */
const void *mft_head_all_logits(const struct mft_net *net, const struct mft_pass *pass);

/* What a net that generates needs; after the head's plan. cached.c. */
void mft_cached_plan(struct mft_net *net);
/* pass.c: up to the last norm, or the stream that the next chunk goes on with. */
void mft_chunk_forward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_net_chunk *chunk);

/* Microbatches on the device; batch.c. */
struct mft_batch_place {
	/* offsets in memory of the first one's; the others' follow */
	uint64_t block, first_key;
	uint64_t bytes, key_bytes; /* of each */
	struct mft_key_stage {
		int32_t *keys; /* host, [T] */
		struct mfk_event *copied;
	} stage[2]; /* first keys that a window narrows */
	unsigned turn;
};
int mft_batch_plan(struct mft_net *net, struct mfs_error *err);
int mft_batch_begin(struct mft_net *net, struct mfs_error *err);
/* Copies pass->info->batch to a place, and sets addresses in pass. */
int mft_batch_copy(struct mft_net *net, struct mft_pass *pass, uint32_t place,
		   struct mfs_error *err);
void mft_batch_release(struct mft_net *net);

/* A microbatch that is on the device. */
struct mft_taken {
	struct mft_microbatch_info info;
	struct mft_pass pass; /* its info is the one above */
};

/* ---- what runs in parallel with the passes is told; visit.c ---- */

/* Called before operations of a pass that use a unit, and after them. visit.last is set here. */
void mft_visit_begins(const struct mft_net *net, const struct mft_pass *pass,
		      struct mft_net_visit visit);
void mft_visit_ends(const struct mft_net *net, const struct mft_pass *pass,
		    struct mft_net_visit visit);
int32_t mft_layer_unit(const struct mft_layer *l);
/* The unit that a pass through the chunk visits first after the embedding; MFT_UNIT_NONE: the chunk
 * has no layers. */
int32_t mft_first_unit(const struct mft_net_chunk *chunk);
/* The units that the head uses. */
void mft_head_begins(const struct mft_net *net, const struct mft_pass *pass, bool backward);
void mft_head_ends(const struct mft_net *net, const struct mft_pass *pass, bool backward);

/* Finds what the net is made of, and plans its memory; net_plan.c. */
int mft_net_plan(struct mft_net *net, struct mfs_error *err);
/* True if they exchange in parallel with the passes. */
bool mft_stages_overlap(const struct mft_net *net);
/* After mft_memory_place(). */
int mft_stages_begin(struct mft_net *net, struct mfs_error *err);
void mft_stages_release(struct mft_net *net);
/* step: of kind MFT_PIPELINE_EXCHANGE. */
void mft_stages_exchange(struct mft_net *net, struct mfk_ctx *ctx,
			 const struct mft_pipeline_step *step);
/* ctx waits for so many exchanges of the step, the first ones. */
void mft_stages_await(const struct mft_net *net, struct mfk_ctx *ctx, uint64_t exchanges);
/* Buffers of a number: the first x of a slot, where a chunk's stream begins and is received; an
 * output of passes; a gradient of the stream. */
void *mft_net_first_x(const struct mft_net *net, uint32_t slot);
void *mft_net_branch(const struct mft_net *net, uint32_t number);
void *mft_net_dx(const struct mft_net *net, uint32_t number);

/* Bytes of the residual stream. */
uint64_t mft_stream_bytes(const struct mft_net *net);

/* Exchanges with other stages; stages.c. */
struct mft_stages {
	struct mfk_ctx *side; /* NULL: they are submitted to the passes' context */
	struct mfk_event *passes;
	struct mfk_event **done; /* of exchange number i: [i % count] */
	uint32_t count;
	uint64_t sent; /* exchanges of this step */
};

/* What the net is made of, and what its passes write in addition to what parts keep. Parts know
 * nothing of it. */
struct mft_chain {
	struct mft_net_hooks hooks;

	/* NULL: none, or the stage does not embed */
	const struct mft_param *word_embeddings, *position_embeddings;
	struct mft_layer *layers; /* of all chunks, and those of MTP */
	uint32_t layer_count;
	struct mft_net_chunk *chunks;
	uint32_t chunk_count;
	struct mft_head head; /* of the chunk that ends the model */
	int64_t vocab;	      /* padded; of it the columns of logits that the process has */
	struct mft_mtp mtp;
	struct mft_batch_place on_device;
	struct mft_taken *taken; /* [net->batch_count] */

	/* Layers [k n, k n + n) of a model chunk are run again as one, where n is again_layers;
	 * layers from again_end on are not. again_layers 0: none are. */
	uint32_t again_layers, again_end;

	/* Gradients of the residual stream, [T, hidden] each, one after the other. */
	uint64_t dx, dx_bytes;
	uint32_t dx_count;
	struct {
		uint32_t dx, output; /* numbers, of the pass that is being submitted */
	} now;
	struct mft_stages stages;

	/* [rows, hidden]: a part's output; backward: the gradient of its input. A second one while
	 * the first is sent to the next stage. */
	uint64_t branch, branch_bytes;
	uint32_t branch_count;
	uint64_t dropped; /* [rows, hidden]: dx after dropout; with hidden dropout alone */
	double *host_sums;
};

#endif
