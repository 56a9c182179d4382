/*
 * Conversations in memory, as documents of tokens; and the samples that they are packed into, first
 * fit by decreasing length (Megatron-Bridge: data/packing/algorithms.py: first_fit_decreasing).
 */
#ifndef MFS_FORMATS_SFT_DOCUMENTS_H
#define MFS_FORMATS_SFT_DOCUMENTS_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/sft/conversation.h"

struct mfs_document {
	uint64_t first; /* of the tokens */
	uint32_t count;
	uint32_t sample;
};

/* Zero-filled at first. 5 bytes a token, and 16 a document. */
struct mfs_documents {
	int32_t *tokens;
	uint8_t *counts; /* of each token: as a label */
	uint64_t token_count, token_room;
	struct mfs_document *at; /* in the order of their samples */
	uint64_t count;
};

/* Adds a conversation's first tokens, at most so many, which are below 2^31; none are no document.
 * -EFBIG: there are 2^32 documents. */
int mfs_documents_add(struct mfs_documents *d, const struct mfs_turns *turns, uint32_t most,
		      uint32_t sample, struct mfs_error *err);
void mfs_documents_release(struct mfs_documents *d);

/* Places that a document of count tokens has in a packed sample, up to a multiple of so many: its
 * last token is a label alone, unless it is the only one. */
uint64_t mfs_packed_places(uint32_t count, uint32_t multiple);

/* Puts each document into a sample of length places, and sorts documents by samples. Each has at
 * most length + 1 tokens. There is one at least. */
int mfs_documents_pack(struct mfs_documents *d, uint32_t length, uint32_t multiple,
		       uint64_t *ret_samples, struct mfs_error *err);

/* First fit: items, in order, go into the first bin that has room. *ret [count]: the bin of each.
 * Lengths are at most room. Returns the number of bins; 0: there is no memory. */
uint64_t mfs_first_fit(const uint32_t *lengths, const uint32_t *order, uint64_t count,
		       uint32_t room, uint32_t *ret);

#endif
