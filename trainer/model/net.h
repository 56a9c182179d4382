/*
 * The model as a computation: forward and backward of microbatches through the model chunks of this
 * process.
 *
 * One layer is driven by a table of what the arguments say (norm, bias, gate, positions, heads,
 * experts); there are no models by name. Activations lie in memory that was planned
 * (trainer/params/memory.h). docs/TRAINING.md walks through a step.
 */
#ifndef MFT_TRAINER_MODEL_NET_H
#define MFT_TRAINER_MODEL_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/data/loader.h"
#include "trainer/model/base/pass.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"
#include "trainer/parallel/parallel.h"
#include "trainer/parallel/pipeline.h"

struct mft_net;

/* Plans activations of micro_batch_size sequences of seq_length tokens, in memory: as often as the
 * largest batch of the run has passes between forward and backward here. Borrows config,
 * params and memory. backend and device may be NULL for a plan alone (--dry-run). -ENOTSUP: an
 * argument that has no computation here, by name. */
int mft_net_new(const struct mft_train_config *config, struct mft_params *params,
		struct mft_memory *memory, const struct mfk_backend *backend,
		struct mfk_device *device, const struct mft_parallel *parallel,
		struct mft_net **ret, struct mfs_error *err);
void mft_net_free(struct mft_net *net);

/* After mft_memory_place(): fills tables of sines and cosines. */
int mft_net_begin(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);

/* After weights have been loaded that were trained before. True: products of 8 bits have scales
 * that are kept from pass to pass, and they begin with those of the first pass's numbers. */
bool mft_net_find_scales(struct mft_net *net);

/* Something that runs in parallel with the passes, and is told of the units that they use
 * (trainer/params/params.h). A function that is NULL is not called. */
#define MFT_UNIT_NONE (-2)

struct mft_net_visit {
	int32_t unit;
	int32_t next;	   /* the unit that the pass visits after this one; MFT_UNIT_NONE */
	bool reads;	   /* its weights */
	bool writes;	   /* its gradients */
	bool again, later; /* the pass has written to them before, and will once more */
	bool last;	   /* it is of the step's last microbatch */
};

struct mft_net_hooks {
	/* Called before operations of ctx that use the unit, and after them. */
	void (*begins)(void *arg, struct mfk_ctx *ctx, const struct mft_net_visit *v);
	void (*ends)(void *arg, struct mfk_ctx *ctx, const struct mft_net_visit *v);
	void *arg;
};
void mft_net_set_hooks(struct mft_net *net, const struct mft_net_hooks *hooks);

/* Before a step's first microbatch: zeroes gradients, but for those of weights that the first pass
 * writes whole. */
void mft_net_clear_grads(struct mft_net *net, struct mfk_ctx *ctx);

/* What a step of so many microbatches is made of, for mft_pipeline_new(). */
void mft_net_pipeline(const struct mft_net *net, uint64_t microbatches, bool backward,
		      struct mft_pipeline_shape *ret);
/* True if there is memory for all that a pipeline has at once. */
bool mft_net_has_room(const struct mft_net *net, const struct mft_pipeline *p);
/* Brings a microbatch to its place on the device (struct mft_pipeline_step: batch), by operations
 * of the context. */
int mft_net_take(struct mft_net *net, struct mfk_ctx *ctx, uint32_t place,
		 const struct mft_microbatch_info *info, struct mfs_error *err);
/* A forward pass, a backward one or an exchange, of microbatches that have been taken. Adds to the
 * flat gradients, and to the sums of losses (mft_net_losses). Nothing is waited for. */
void mft_net_step(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_pipeline_step *step);
/* Call it after a pipeline's last step: ctx waits for what is still exchanged. */
void mft_net_end(struct mft_net *net, struct mfk_ctx *ctx);
/* Whether a step adds to the loss of tokens. Its microbatch has been taken. */
bool mft_net_gives_loss(const struct mft_net *net, const struct mft_pipeline_step *step);

/* All of a microbatch, in a process that has the whole model. For tests. */
int mft_net_run(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_microbatch_info *info,
		struct mfs_error *err);

/* Call it after a step's passes. Sums, over the tensor parallel processes, the gradients of which
 * each process has a term. Of gradients that are divided it sums what this process owns, which was
 * summed over other groups before. Source: megatron/core/distributed/finalize_model_grads.py:
 * _allreduce_non_tensor_model_parallel_grads. */
void mft_net_sum_gradients(struct mft_net *net, struct mfk_ctx *ctx);

/* Sums since the last mft_net_clear_losses(); waits for the context. All members are doubles. */
struct mft_net_losses {
	double loss[MFT_LOSS_TERMS]; /* sums over counted tokens of mft_net_loss_terms() */
	/* means over layers, summed over microbatches; of MFT_GLOBAL_AUX_LOSS the process's part */
	double aux[MFT_AUX_LOSSES], z_loss;
	double mtp[MFT_MTP_MOST]; /* means over counted tokens, summed over microbatches */
};
/* What the log calls them; NULL ends them, if they are fewer. */
const char *const *mft_net_loss_terms(const struct mft_train_config *config);
int mft_net_losses(struct mft_net *net, struct mfk_ctx *ctx, struct mft_net_losses *ret,
		   struct mfs_error *err);
/* Sums are 0, and a step's microbatches are counted anew. */
void mft_net_clear_losses(struct mft_net *net, struct mfk_ctx *ctx);
/* Submits a copy of the log-probs of the labels to pinned memory [T], in a run whose loss gives
 * them (--perform-rl-step): of the pass that was submitted last whose step gives a loss
 * (mft_net_gives_loss). -ENOTSUP: the loss gives none, or the process has no last stage. */
int mft_net_copy_log_probs(struct mft_net *net, struct mfk_ctx *ctx, float *host);
/* Submits a copy of loss[0], as it is after the passes so far, to pinned memory. */
void mft_net_copy_loss(struct mft_net *net, struct mfk_ctx *ctx, double *ret);

/* After the last microbatch of a step and before the update: router.expert_bias by the tokens that
 * each expert got (core/transformer/moe/moe_utils.py: get_updated_expert_bias). */
int mft_net_update_expert_bias(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);

/* After the update of a step: --qk-clip, and the largest score of the process's heads, 0 where none
 * is above that, or was asked for. Waits for the context if there are any. */
int mft_net_clip_qk(struct mft_net *net, struct mfk_ctx *ctx, double *ret_max,
		    struct mfs_error *err);

/*
 * A net whose config has cached_sequences generates. A step is a batch of T tokens, of which tokens
 * and positions count; each goes on with one of the sequences, from the position after its last.
 *
 * sequence     [T]: place in the cache; -1: there is no such token
 * row          [draws]: the token after which one is drawn
 * seed, number [draws]: of random numbers (struct mfk_sample)
 *
 * All arrays lie in one block of pinned host memory.
 */
struct mft_cached_step {
	int32_t *sequence, *row;
	uint64_t *seed, *number;
	int64_t draws;	 /* at most T */
	int32_t *token;	 /* [draws]: what was drawn, when the context was waited for */
	float *log_prob; /* [draws] */
};
size_t mft_cached_step_bytes(int64_t tokens);
/* Sets the arrays to their places in a block of so many bytes, which they do not own. */
void mft_cached_step_place(struct mft_cached_step *s, int64_t tokens, void *block);

struct mft_draw {
	float temperature, top_p;
	int64_t top_k, vocab; /* see struct mfk_sample */
};
/* Submits a step. All processes that share the model's parts do the same ones. */
int mft_net_extend(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_batch *batch,
		   const struct mft_cached_step *step, struct mfs_error *err);
/* Submits the draws of the step that was submitted last. */
void mft_net_draw(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_draw *how,
		  const struct mft_cached_step *step);

/* Logits in fp32 of a batch, host memory [T, columns of the padded vocabulary that the process
 * has]. For tests. */
int mft_net_logits(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_batch *batch,
		   float *ret, struct mfs_error *err);

#endif
