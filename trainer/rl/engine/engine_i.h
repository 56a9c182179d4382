/* Private to trainer/rl/engine: what kinds of engines there are, and one engine. */
#ifndef MFT_TRAINER_RL_ENGINE_I_H
#define MFT_TRAINER_RL_ENGINE_I_H

#include <jansson.h>
#include <stdbool.h>

#include "trainer/rl/engine/engine.h"

struct mft_engine_kind;

struct mft_engine {
	const char *url; /* the caller's */
	const struct mft_engine_kind *kind;
	char *model;		  /* its name there */
	_Atomic uint64_t version; /* of the weights that it was told to read last */
	unsigned under_way;	  /* requests */
	int64_t not_before;	  /* ns: it failed, and is asked again then; 0: it did not */
	_Atomic bool is_out;	  /* it has not had the last weights, and gets no requests */
	bool failed;		  /* of the update that is under way: it does not answer */
	bool goes_on;		  /* likewise: it is paused, and is told to go on */
};

/* A call of an update, POSTed. body makes its JSON. */
struct mft_engine_call {
	const char *path;
	json_t *(*body)(const struct mft_engine *e, const struct mft_engine_weights *w);
	/* the answer has to say "success": true, where it says anything of success */
	bool must_succeed;
};
#define MFT_ENGINE_CALLS 6

struct mft_engine_kind {
	const char *name; /* what GET /v1/models calls its owner */
	const char *path; /* of a request */
	json_t *(*ask)(const struct mft_engine *e, const struct mft_request *r,
		       const struct mft_sampling *how);
	/* Sets all of ret, which the caller releases. -EPROTO: the answer is none, with what is
	 * wrong in it. */
	int (*answer)(const struct mft_engine *e, const json_t *reply, struct mft_response *ret,
		      struct mfs_error *err);
	/* A request for log-probs of its own tokens but the first, and those: ret [count - 1]. */
	json_t *(*ask_score)(const struct mft_engine *e, const struct mft_request *r);
	int (*answer_score)(const json_t *reply, const uint32_t *tokens, uint32_t count, float *ret,
			    struct mfs_error *err);
	struct mft_engine_call update[MFT_ENGINE_CALLS]; /* in order; path NULL ends them */
	const char *version_path;			 /* GET: an object with "weight_version" */
};

extern const struct mft_engine_kind mft_engine_vllm, mft_engine_sglang;

/* Room for tokens and log-probs of a response of so many. */
int mft_engine_room(struct mft_response *ret, size_t count, struct mfs_error *err);
/* A list of the vocabulary's ids, for JSON. */
json_t *mft_engine_ids(const uint32_t *ids, size_t count);
/* A token of an answer with its log-prob. -EPROTO: they are none. */
int mft_engine_token(const json_t *id, const json_t *log_prob, uint32_t *ret_id,
		     float *ret_log_prob, struct mfs_error *err);
/* "stop", "length" or "abort". -EPROTO: it is none of them. */
int mft_engine_finish(const json_t *reason, enum mft_finish *ret, struct mfs_error *err);
/* A version as engines say it, a text; of one that was never told any, 0. */
uint64_t mft_engine_version(const json_t *text);

#endif
