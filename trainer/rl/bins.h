/*
 * Bins: samples of --seq-length tokens that prompts with their responses are put into, so that no
 * row is padded to the longest. In a bin each is a document of its own (trainer/data/loader.h:
 * first_key, positions); what is left at the end of a bin counts for nothing.
 *
 * Source: megatron/rl/sequence_packing_utils.py: its `fifo` puts sequences in their order into the
 * bins that have room.
 */
#ifndef MFT_TRAINER_RL_BINS_H
#define MFT_TRAINER_RL_BINS_H

#include <stdint.h>

#include "formats/base/error.h"

struct mft_bins {
	uint32_t count;	  /* bins, empty ones at the end included */
	uint32_t *firsts; /* [count + 1]: where each bin's responses begin in list */
	uint32_t *list;	  /* numbers of responses, bin after bin */
};

struct mft_bins_rules {
	uint32_t room;	   /* tokens of a bin */
	uint32_t most;	   /* responses of a bin; 1: nothing is packed */
	uint32_t multiple; /* of bins: all processes have as many, and at least one */
};

/* lengths [count]: places that each of `responses` needs, at most room. */
int mft_bins_pack(const struct mft_bins_rules *rules, const uint32_t *responses,
		  const uint32_t *lengths, uint32_t count, struct mft_bins *ret,
		  struct mfs_error *err);
void mft_bins_release(struct mft_bins *b);

#endif
