/* The processes that share sequences, as all of a net knows them. */
#ifndef MFT_TRAINER_MODEL_BASE_CONTEXT_H
#define MFT_TRAINER_MODEL_BASE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/parallel/context_parallel.h"
#include "trainer/parallel/parallel.h"

/* How processes attend together. */
enum mft_context_kind {
	MFT_CONTEXT_RING,  /* all of them in one ring */
	MFT_CONTEXT_HEADS, /* all of them exchange heads */
	MFT_CONTEXT_BOTH,  /* neighbours exchange heads */
	MFT_CONTEXT_WAYS,
};

/* In a group of one the offsets are not set. */
struct mft_context {
	uint32_t size, rank;
	int64_t whole; /* tokens of a sequence; this process has net->seq of them */
	/* offsets in memory, int32 [batch, whole] each: the rows that maps take, from all
	 * processes' tokens, [size, T], to sequences, [batch, whole], and back */
	uint64_t to_sequence, from_sequence, array_bytes; /* of all arrays, from the first on */
	/* Processes whose ranks are neighbours exchange tokens for heads. Together they have a part
	 * of the sequence as if it were cut for `ring` processes, and pass that on in a ring of
	 * those that have the same heads. Offsets are not set of what is 1. */
	struct mft_context_way {
		enum mft_group heads_group, ring_group;
		uint32_t heads, heads_rank, ring, ring_rank; /* heads * ring is size */
		/* int32: maps of tokens with their heads, [T, heads], to processes, [heads, T], and
		 * back; and positions of the tokens of all in the ring, [ring, whole / ring] */
		uint64_t to_heads, from_heads, positions;
		bool used;	    /* a layer does it in this way */
		uint64_t first_key; /* then: of the tokens that neighbours have */
	} way[MFT_CONTEXT_WAYS];
	struct mfk_message *messages;
};

#endif
