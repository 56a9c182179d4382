/*
 * How a sequence is divided among the processes of MFT_GROUP_CONTEXT (context parallelism).
 *
 * With parts processes it is cut into 2 parts equal pieces, and process p has pieces p and 2 parts
 * - 1 - p, one after the other. A token's attention costs as much as there is before it, so each
 * process has the same to do. Source: megatron/core/utils.py: get_batch_on_this_cp_rank.
 */
#ifndef MFT_TRAINER_PARALLEL_CONTEXT_PARALLEL_H
#define MFT_TRAINER_PARALLEL_CONTEXT_PARALLEL_H

#include <stdint.h>

/* Which of the sequence's pieces is piece 0 or 1 of a part. */
static inline uint32_t mft_context_number(uint32_t parts, uint32_t part, int which)
{
	return which ? 2 * parts - 1 - part : part;
}

/* The position that piece 0 or 1 of a part begins at. length: of the sequence. */
static inline int64_t mft_context_piece(uint32_t parts, uint32_t part, int64_t length, int which)
{
	return mft_context_number(parts, part, which) * (length / (2 * parts));
}

/* The position of a part's token i. */
static inline int64_t mft_context_position(uint32_t parts, uint32_t part, int64_t length, int64_t i)
{
	const int64_t piece = length / (2 * parts);

	if (parts == 1)
		return i;
	return mft_context_piece(parts, part, length, i >= piece) + i % piece;
}

/* The part that has a position, and its token there. */
static inline uint32_t mft_context_part(uint32_t parts, int64_t length, int64_t position,
					int64_t *ret_token)
{
	const int64_t piece = length / (2 * parts), number = position / piece;

	if (parts == 1) {
		*ret_token = position;
		return 0;
	}
	*ret_token = position % piece + (number >= parts ? piece : 0);
	return (uint32_t)(number >= parts ? 2 * parts - 1 - number : number);
}

#endif
