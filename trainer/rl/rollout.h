/*
 * A rollout: responses of a policy to prompts, in groups that answer one prompt each, and what they
 * were worth. All processes of a run have the same.
 *
 * Responses are rows of `room` places: element [i * room + t] is of token t of response i.
 * Responses [p * group, p * group + group) answer prompt p.
 */
#ifndef MFT_TRAINER_RL_ROLLOUT_H
#define MFT_TRAINER_RL_ROLLOUT_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/generate/response.h"
#include "trainer/parallel/parallel.h"

struct mft_rollout {
	uint64_t number; /* 0, 1, ... of the run */
	uint32_t prompts, group, room;
	uint64_t *drawn; /* [prompts]: numbers of the prompts, as prompts.h draws them */
	/* [prompts * group] each */
	uint32_t *count; /* tokens of a response */
	uint8_t *finish; /* enum mft_finish */
	/* of the weights that sampled a response's first and last token */
	uint64_t *first_version, *last_version;
	double *reward, *advantage;
	/* [prompts * group][room] each: what was sampled, and log-probs of it: as the engine says,
	 * of the weights before the rollout's first update, and of the reference */
	uint32_t *tokens;
	float *sampled, *old, *reference;
};

/* Responses. */
static inline uint32_t mft_rollout_size(const struct mft_rollout *r)
{
	return r->prompts * r->group;
}

/* Zero-filled rows of so many places. */
int mft_rollout_new(uint32_t prompts, uint32_t group, uint32_t room, struct mft_rollout *ret,
		    struct mfs_error *err);
void mft_rollout_release(struct mft_rollout *r);

/* Copies a response to row i. -EINVAL: it has no tokens, more than there is room for, or a token
 * that is not below vocab. */
int mft_rollout_put(struct mft_rollout *r, uint32_t i, const struct mft_response *from,
		    uint64_t vocab, struct mfs_error *err);

/* Adds up, over all processes, what each has put into rows, where the others have zeros. */
int mft_rollout_share(struct mft_rollout *r, const struct mft_parallel *p, struct mfs_error *err);
/* Likewise, of log-probs of all rows. */
int mft_rollout_share_rows(const struct mft_rollout *r, const struct mft_parallel *p, float *rows,
			   struct mfs_error *err);

#endif
