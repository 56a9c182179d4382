/*
 * Engines that answer prompts: servers of vLLM and SGLang, by HTTP, token ids in and out. Nothing
 * of them runs here, and they keep their own programs: new weights are a directory that they are
 * told to read again.
 *
 * Sources: vllm/entrypoints/serve (0.32), sglang/srt/entrypoints/http_server.py (0.5.23).
 */
#ifndef MFT_TRAINER_RL_ENGINE_H
#define MFT_TRAINER_RL_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/generate/response.h"

struct mft_engines_config {
	const char *const *urls; /* "http://host:8000" of each engine */
	size_t count;
	unsigned most;	/* requests that one engine has at a time */
	long seconds;	/* that an answer may take */
	unsigned tries; /* of a request, by one engine or another */
	uint64_t vocab; /* ids are less */
};

struct mft_engines;

/* Asks each engine what it is. -EPROTO: one is neither vLLM nor SGLang, or its interface for token
 * ids is not open; -EIO: none is there. */
int mft_engines_open(const struct mft_engines_config *config, struct mft_engines **ret,
		     struct mfs_error *err);
void mft_engines_close(struct mft_engines *e); /* NULL: nothing */

/* Answers all requests: ret [count], which the caller releases, also after a failure. A request
 * whose answer fails, or is none, goes to another engine. An engine that is gone is asked again
 * from time to time. -EIO: a request has failed so many times, or no engine has been there for as
 * long as an answer may take; the message has the last reason. */
int mft_engines_run(struct mft_engines *e, const struct mft_request *requests, size_t count,
		    const struct mft_sampling *how, struct mft_response *ret,
		    struct mfs_error *err);

/* Any thread: a run that is under way, and each later one, fails soon with -ECANCELED. */
void mft_engines_give_up(struct mft_engines *e);

/* Weights that all engines are to have. */
struct mft_engine_weights {
	const char *path; /* an HF directory, where the engines see it */
	uint64_t version;
	/* The same engines, of which another thread asks: it hears of it before they go on. NULL:
	 * none. */
	struct mft_engines *also;
};
/* What came of an update. */
struct mft_engine_update {
	double paused; /* seconds from the first pause to the last answer */
	size_t out;    /* engines that did not answer, and get no requests until the next one */
	struct mfs_error why; /* of the last one that the update before had reached; or empty */
};
/* Pauses the engines, which keep what they are working on, tells them to read the weights, drops
 * what they have cached of prompts, and goes on; then asks each which version it has. One that does
 * not answer is left out until the next update, and is told to go on if it was paused, unless its
 * weights may be mixed, which is in why then. -EPROTO: one has another version, or has refused;
 * -EIO: none answers. */
int mft_engines_update(struct mft_engines *e, const struct mft_engine_weights *w,
		       struct mft_engine_update *ret, struct mfs_error *err);

/* Log-probs of tokens 1 to count - 1, each of the tokens before it, at temperature 1: ret [count -
 * 1]; of each engine one after another, to see whether they have the weights. */
int mft_engines_score(struct mft_engines *e, size_t engine, const uint32_t *tokens, uint32_t count,
		      float *ret, struct mfs_error *err);
size_t mft_engines_count(const struct mft_engines *e);
bool mft_engines_is_out(const struct mft_engines *e, size_t engine);

#endif
