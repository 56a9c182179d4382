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
#ifndef MFS_TRAINER_DATA_LOADER_H
#define MFS_TRAINER_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "trainer/config/config.h"

#define MFS_BATCH_ALIGN 256 /* bytes */

/* A microbatch k + 1 places on, for multi-token prediction: in each sequence every array has what
 * the batch's has there, and zeros behind the end (core/transformer/multi_token_prediction.py:
 * roll_tensor). */
struct mfs_batch_ahead {
	int32_t *tokens, *labels, *positions, *order, *position_order; /* [T] */
	float *loss_mask;
	uint64_t counted; /* tokens whose loss counts */
};

/* One microbatch of B sequences of S tokens, T = B S. All arrays lie behind one another in one host
 * block, each at a multiple of MFS_BATCH_ALIGN, so that one copy brings them to the device. Where
 * cp processes share a sequence (trainer/parallel/context.h), a process has T = B S / cp of them:
 * positions and first_key are those of the whole sequence. */
struct mfs_batch {
	int32_t *tokens, *labels; /* [T]; label t is the token behind t */
	int32_t *positions; /* [T]: 0 to S-1; with reset_position_ids from each document's start */
	int32_t *first_key; /* [T]: the first position of the sequence that t sees: 0; with
			     * reset_attention_mask its document's start */
	int32_t *order;	    /* [T]: numbers of tokens, sorted by (id, number) */
	int32_t *position_order;		    /* [T]: sorted by (position, number) */
	float *loss_mask;			    /* [T]: 1, or 0 where the loss does not count */
	struct mfs_batch_ahead ahead[MFS_MTP_MOST]; /* number k: k + 1 places on */
	uint32_t ahead_count;
	void *block; /* the whole of it */
	size_t bytes;
	uint64_t counted; /* tokens whose loss counts, of whole sequences */
	bool documents;	  /* some first_key is not 0 */
};

/* Bytes of the block of T tokens. */
size_t mfs_batch_bytes(uint64_t tokens, uint32_t ahead);

/* The slots are the caller's kind of host memory (pinned). */
struct mfs_slot_memory {
	void *(*alloc)(void *arg, size_t bytes);
	void (*free)(void *arg, void *p, size_t bytes);
	void *arg;
};

struct mfs_loader;

/* How many loaders a split has: validation sets that are kept apart have one each. -ENODATA: the
 * run asks for no sample of the split. */
int mfs_loader_sets(const struct mfs_train_config *config, enum mfs_split split, uint32_t *ret,
		    struct mfs_error *err);

/*
 * The samples of a split's set, the first of which is 0. consumed: samples of the whole run that
 * came before; micro: B; vocab: padded rows, a token outside of them is refused when it is read.
 * -ENODATA: there is no data for the split.
 *
 * With full_validation the validation split is read from its beginning to its end, again and again.
 * A pass ends with a microbatch whose last sequences may be repeated, with a loss_mask of 0.
 */
int mfs_loader_new(const struct mfs_train_config *config, enum mfs_split split, uint32_t set,
		   uint64_t consumed, uint32_t micro, uint64_t vocab,
		   const struct mfs_slot_memory *memory, struct mfs_loader **ret,
		   struct mfs_error *err);
void mfs_loader_free(struct mfs_loader *l);

/* The next microbatch; it is the caller's until he gives it back, and he has two at a time at most.
 * Waits if it is not there yet. -ENODATA: the data ends; each call after an error returns it again.
 */
int mfs_loader_next(struct mfs_loader *l, const struct mfs_batch **ret, struct mfs_error *err);
void mfs_loader_give_back(struct mfs_loader *l, const struct mfs_batch *b);

/* Microbatches from consumed to the end of the data, or of a pass of full_validation; UINT64_MAX:
 * they have no end (dataloader_type cyclic). */
uint64_t mfs_loader_microbatches(const struct mfs_loader *l);

struct mfs_loader_stats {
	const char *engine; /* "io_uring", "pread threads", "generated" */
	const char *why;    /* of pread threads: why not io_uring; NULL */
	uint64_t batches, tokens, bytes;
	/* Time that next() waited, but for the first one; percentiles to within 1/16. */
	uint64_t stall_ns, stall_p50_ns, stall_p99_ns, stall_max_ns;
	uint64_t open_ns; /* until the first microbatch was there */
};
void mfs_loader_stats(struct mfs_loader *l, struct mfs_loader_stats *ret);

#endif
