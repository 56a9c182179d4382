/*
 * Microbatches in the order in which Megatron draws them, read ahead of the step.
 *
 * A thread reads the tokens of the next microbatches through io_uring into slots, and makes of them
 * what the model needs. The step takes one slot after the other. Where io_uring is refused, threads
 * with pread() do the same; engine says which.
 *
 * Sources: pretrain_gpt.py: get_batch, loss_func; megatron/core/datasets/gpt_dataset.py:
 * _get_ltor_masks_and_position_ids; megatron/training/datasets/data_samplers.py.
 */
#ifndef MFT_TRAINER_DATA_LOADER_H
#define MFT_TRAINER_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "trainer/config/config.h"
#include "trainer/data/batch_source.h"

#define MFT_BATCH_ALIGN 256 /* bytes */

/* Where an array's elements come from when a microbatch is cut or shifted. */
enum mft_batch_array_kind {
	MFT_BATCH_MOVES, /* each element goes with its token */
	MFT_BATCH_SORTS, /* the array is computed again from the others */
};

/*
 * The arrays of a microbatch, each of T elements of four bytes, in the order of its block: one row
 * X(type, name, way) is all that an array needs to be placed, cut, shifted and found on the device.
 *
 * tokens          ids, less than the vocabulary
 * labels          label t is the token after t
 * positions       0 to S-1; with reset_position_ids from each document's start
 * order           numbers of tokens, sorted by (id, number)
 * position_order  numbers of tokens, sorted by (position, number)
 * loss_mask       1, or 0 where the loss does not count
 * first_key       the first position of the sequence that token t sees: 0; with
 *                 reset_attention_mask its document's start
 * With sft, positions and first_key are those of conversations.
 *
 * Runs of a policy loss (--perform-rl-step) have five more, MFT_BATCH_ARRAYS_POLICY. They are of
 * the label of each token: element t belongs to labels[t].
 *
 * old             log-probs under the weights before the first update by these tokens
 * reference       log-probs under the reference; not looked at without a KL term
 * rollout         log-probs as the engine that has sampled the tokens reported them
 * advantage       times the response's weight, where a correction is one of whole responses
 * sequence        number of the response in the sample, from 0 on; -1: the label is of none
 *
 * There loss_mask is a weight: what the label's loss counts in that of the step; 0: it does not.
 */
#define MFT_BATCH_ARRAYS_AHEAD(X)                                                                  \
	X(int32_t, tokens, MFT_BATCH_MOVES)                                                        \
	X(int32_t, labels, MFT_BATCH_MOVES)                                                        \
	X(int32_t, positions, MFT_BATCH_MOVES)                                                     \
	X(int32_t, order, MFT_BATCH_SORTS)                                                         \
	X(int32_t, position_order, MFT_BATCH_SORTS)                                                \
	X(float, loss_mask, MFT_BATCH_MOVES)
#define MFT_BATCH_ARRAYS(X) MFT_BATCH_ARRAYS_AHEAD(X) X(int32_t, first_key, MFT_BATCH_MOVES)
#define MFT_BATCH_ARRAYS_POLICY(X)                                                                 \
	X(float, old, MFT_BATCH_MOVES)                                                             \
	X(float, reference, MFT_BATCH_MOVES)                                                       \
	X(float, rollout, MFT_BATCH_MOVES)                                                         \
	X(float, advantage, MFT_BATCH_MOVES)                                                       \
	X(int32_t, sequence, MFT_BATCH_MOVES)

#define MFT_BATCH_MEMBER(type, name, way) type *name;
#define MFT_BATCH_ONE(type, name, way)	  +1
enum {
	MFT_BATCH_ARRAY_COUNT = 0 MFT_BATCH_ARRAYS(MFT_BATCH_ONE),
	MFT_BATCH_AHEAD_COUNT = 0 MFT_BATCH_ARRAYS_AHEAD(MFT_BATCH_ONE),
	MFT_BATCH_POLICY_COUNT = 0 MFT_BATCH_ARRAYS_POLICY(MFT_BATCH_ONE),
};

/* A microbatch k + 1 places on, for multi-token prediction: in each sequence every array has what
 * the batch's has there, and zeros after the end (core/transformer/multi_token_prediction.py:
 * roll_tensor). */
struct mft_batch_ahead {
	MFT_BATCH_ARRAYS_AHEAD(MFT_BATCH_MEMBER)
	uint64_t counted; /* tokens whose loss counts */
};

/* One microbatch of B sequences of S tokens, T = B S. All arrays lie one after another in one host
 * block, each at a multiple of MFT_BATCH_ALIGN, so that one copy brings them to the device. Where
 * cp processes share a sequence (trainer/parallel/context_parallel.h), a process has T = B S / cp
 * of them: positions and first_key are those of the whole sequence. */
struct mft_batch {
	MFT_BATCH_ARRAYS(MFT_BATCH_MEMBER)
	MFT_BATCH_ARRAYS_POLICY(MFT_BATCH_MEMBER)   /* NULL: the run has no policy loss */
	struct mft_batch_ahead ahead[MFT_MTP_MOST]; /* number k: k + 1 places on */
	uint32_t ahead_count;
	void *block; /* the whole of it */
	size_t bytes;
	uint64_t counted; /* tokens whose loss counts, of whole sequences */
	bool documents;	  /* some first_key is not 0 */
};

/* Bytes of the block of T tokens. policy: with the arrays of a policy loss. */
size_t mft_batch_bytes(uint64_t tokens, uint32_t ahead, bool policy);
/* Sets the arrays to their places in a block of so many bytes, which they do not own. */
void mft_batch_place(struct mft_batch *b, uint64_t tokens, uint32_t ahead, bool policy,
		     void *block);

/* The slots are the caller's kind of host memory (pinned). */
struct mft_slot_memory_ops {
	void *(*alloc)(void *arg, size_t bytes);
	void (*free)(void *arg, void *p, size_t bytes);
	void *arg;
};

struct mft_loader;

/* How many loaders a split has: validation sets that are kept apart have one each. -ENODATA: the
 * run asks for no sample of the split. */
int mft_loader_sets(const struct mft_train_config *config, enum mfs_split split, uint32_t *ret,
		    struct mfs_error *err);

/*
 * The samples of a split's set, the first of which is 0. consumed: samples of the whole run that
 * came before; micro: B; vocab: padded rows, a token outside of them is refused when it is read.
 * -ENODATA: there is no data for the split.
 *
 * With full_validation the validation split is read from its beginning to its end, again and again.
 * A pass ends with a microbatch whose last sequences may be repeated, with a loss_mask of 0.
 */
int mft_loader_new(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
		   uint64_t consumed, uint32_t micro, uint64_t vocab,
		   const struct mft_slot_memory_ops *memory, struct mft_loader **ret,
		   struct mfs_error *err);
void mft_loader_free(struct mft_loader *l);

/* The next microbatch; it is the caller's until he gives it back, and he has two at a time at most.
 * Waits if it is not there yet. -ENODATA: the data ends; each call after an error returns it again.
 */
int mft_loader_next(struct mft_loader *l, const struct mft_batch **ret, struct mfs_error *err);
void mft_loader_give_back(struct mft_loader *l, const struct mft_batch *b);
/* Both of these. */
struct mft_batch_source mft_loader_source(struct mft_loader *l);

/* Microbatches from consumed to the end of the data, or of a pass of full_validation; UINT64_MAX:
 * they have no end (dataloader_type cyclic). */
uint64_t mft_loader_microbatches(const struct mft_loader *l);

struct mft_loader_stats {
	const char *engine; /* "io_uring", "pread threads", "generated", "memory" */
	const char *why;    /* of pread threads: why not io_uring; NULL */
	uint64_t batches, tokens, bytes;
	uint64_t epoch_samples; /* of --sft; 0: of other data */
	uint64_t epoch_order;	/* mft_sft_blend_order(), or 0 */
	/* How long next() waited, without its first call. Percentiles are exact to 1/16. */
	uint64_t stall_ns, stall_p50_ns, stall_p99_ns, stall_max_ns;
	uint64_t open_ns; /* until the first microbatch was there */
};
void mft_loader_stats(struct mft_loader *l, struct mft_loader_stats *ret);

#endif
