/* What is asked of a sampler, and what it answers: of the one here (generate.h), and of engines
 * that other programs are. */
#ifndef MFT_TRAINER_GENERATE_RESPONSE_H
#define MFT_TRAINER_GENERATE_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

/* What a sampler is asked of a prompt. */
struct mft_sampling {
	double temperature;    /* 0: greedy */
	double top_p;	       /* 1: off */
	int64_t top_k;	       /* 0: off */
	uint32_t max_tokens;   /* of a response */
	const uint32_t *stops; /* token ids that end a response; they are part of it */
	size_t stop_count;
	bool ignore_stops; /* tests */
};

/* One response wanted: seed is its own (derived from run, step, prompt, sample). */
struct mft_request {
	const uint32_t *tokens;
	uint32_t count;
	uint64_t seed;
};

enum mft_finish { MFT_FINISH_STOP, MFT_FINISH_LENGTH, MFT_FINISH_ABORT };

/* tokens, log_probs [count]: of the sampled tokens, the stop token included; log_probs are of
 * logits / temperature over the true vocabulary, fp32 (temperature 0: of logits). first_version,
 * last_version: of the weights that sampled the first and the last token. Release it with
 * mft_response_release(). */
struct mft_response {
	uint32_t *tokens;
	float *log_probs;
	uint32_t count;
	enum mft_finish finish;
	uint64_t first_version, last_version;
};

/* Frees what it holds, and leaves it empty. */
void mft_response_release(struct mft_response *r);

/* True if a token ends a response. */
bool mft_sampling_stops(const struct mft_sampling *how, uint32_t token);

/* "stop", "length" or "abort", as engines' interfaces call them. */
const char *mft_finish_name(enum mft_finish finish);

/* -EINVAL: a member has a value that nothing can be sampled with. */
int mft_sampling_check(const struct mft_sampling *how, struct mfs_error *err);

#endif
