/*
 * vLLM: /inference/v1/generate (from 0.11.2; from 0.30 with --enable-scale-out), and the calls that
 * VLLM_SERVER_DEV_MODE=1 opens. --logprobs-mode processed_logprobs gives log-probs of what was
 * sampled from.
 *
 * Its caches of prompts are told apart by the version, so that one which was filled with older
 * weights is never hit.
 */
#include <errno.h>
#include <stdio.h>

#include "trainer/rl/engine/engine_i.h"

static json_t *sampling_of(const struct mft_request *r, const struct mft_sampling *how)
{
	/* Its seeds are signed numbers of 64 bits. */
	return json_pack("{s:i, s:f, s:f, s:I, s:f, s:i, s:I, s:o, s:b, s:i, s:b}", "n", 1,
			 "temperature", how->temperature, "top_p", how->top_p, "top_k",
			 (json_int_t)how->top_k, "min_p", 0.0, "max_tokens", (int)how->max_tokens,
			 "seed", (json_int_t)(r->seed >> 1), "stop_token_ids",
			 mft_engine_ids(how->stops, how->ignore_stops ? 0 : how->stop_count),
			 "ignore_eos", 1, "logprobs", 0, "detokenize", 0);
}

static json_t *ask(const struct mft_engine *e, const struct mft_request *r,
		   const struct mft_sampling *how)
{
	char salt[32];

	snprintf(salt, sizeof(salt), "v%llu", (unsigned long long)e->version);
	return json_pack("{s:s, s:o, s:o, s:s}", "model", e->model, "token_ids",
			 mft_engine_ids(r->tokens, r->count), "sampling_params",
			 sampling_of(r, how), "cache_salt", salt);
}

/* Versions of spans of tokens, of releases that say them; otherwise what it was told last. */
static void take_versions(const struct mft_engine *e, const json_t *spans, struct mft_response *ret)
{
	const size_t count = json_array_size(spans);
	const json_t *first = json_object_get(json_array_get(spans, 0), "version"),
		     *last = json_object_get(json_array_get(spans, count ? count - 1 : 0),
					     "version");

	ret->first_version = first ? mft_engine_version(first) : e->version;
	ret->last_version = last ? mft_engine_version(last) : e->version;
}

static int take_tokens(const json_t *choice, struct mft_response *ret, struct mfs_error *err)
{
	const json_t *ids = json_object_get(choice, "token_ids"),
		     *content = json_object_get(json_object_get(choice, "logprobs"), "content");
	const size_t count = json_array_size(ids);
	int rc;

	if (!count || json_array_size(content) != count)
		return mfs_fail(err, -EPROTO,
				"expected token_ids and as many log-probs, found %zu and %zu",
				count, json_array_size(content));
	rc = mft_engine_room(ret, count, err);
	for (size_t i = 0; i < count && !rc; i++)
		rc = mft_engine_token(json_array_get(ids, i),
				      json_object_get(json_array_get(content, i), "logprob"),
				      &ret->tokens[i], &ret->log_probs[i], err);
	return rc;
}

static int answer(const struct mft_engine *e, const json_t *reply, struct mft_response *ret,
		  struct mfs_error *err)
{
	const json_t *choices = json_object_get(reply, "choices"),
		     *choice = json_array_get(choices, 0);
	int rc;

	if (json_array_size(choices) != 1)
		return mfs_fail(err, -EPROTO, "expected one choice, found %zu",
				json_array_size(choices));
	rc = mft_engine_finish(json_object_get(choice, "finish_reason"), &ret->finish, err);
	if (rc)
		return rc;
	take_versions(e, json_object_get(choice, "weight_versions"), ret);
	return take_tokens(choice, ret, err);
}

/* ---- log-probs of given tokens ---- */

static json_t *ask_score(const struct mft_engine *e, const struct mft_request *r)
{
	return json_pack("{s:s, s:o, s:{s:i, s:f, s:i, s:b}}", "model", e->model, "token_ids",
			 mft_engine_ids(r->tokens, r->count), "sampling_params", "max_tokens", 1,
			 "temperature", 1.0, "prompt_logprobs", 0, "detokenize", 0);
}

static int answer_score(const json_t *reply, const uint32_t *tokens, uint32_t count, float *ret,
			struct mfs_error *err)
{
	const json_t *list = json_object_get(reply, "prompt_logprobs");
	int rc = 0;

	if (json_array_size(list) != count)
		return mfs_fail(err, -EPROTO, "expected prompt_logprobs of %u tokens, found %zu",
				count, json_array_size(list));
	for (uint32_t i = 1; i < count && !rc; i++) {
		char id[16];
		uint32_t same;
		json_t *number = json_integer(tokens[i]);

		snprintf(id, sizeof(id), "%u", tokens[i]);
		rc = mft_engine_token(
			number,
			json_object_get(json_object_get(json_array_get(list, i), id), "logprob"),
			&same, &ret[i - 1], err);
		json_decref(number);
	}
	return rc;
}

/* ---- new weights ---- */

static json_t *nothing(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	(void)e;
	(void)w;
	return json_object();
}

static json_t *reload(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	(void)e;
	return json_pack("{s:s, s:{s:s}}", "method", "reload_weights", "kwargs", "weights_path",
			 w->path);
}

static json_t *version(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	char text[32];

	(void)e;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)w->version);
	return json_pack("{s:s}", "new_version", text);
}

const struct mft_engine_kind mft_engine_vllm = {
	.name = "vllm",
	.path = "/inference/v1/generate",
	.ask = ask,
	.answer = answer,
	.ask_score = ask_score,
	.answer_score = answer_score,
	.update = {{"/pause?mode=keep&clear_cache=false", nothing, false},
		   {"/collective_rpc", reload, false},
		   {"/update_weight_version", version, true},
		   /* false while requests hold blocks: what they have of prompts stays theirs */
		   {"/reset_prefix_cache", nothing, false},
		   {"/resume", nothing, false}},
	.version_path = "/weight_info",
};
