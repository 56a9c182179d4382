/*
 * SGLang: /generate with ids, whose log-probs are of logits divided by the temperature, and weights
 * from a directory. Requests that it is working on are put back, since their caches are of the
 * older weights.
 */
#include <errno.h>
#include <stdio.h>

#include "trainer/rl/engine/engine_i.h"

static json_t *sampling_of(const struct mft_request *r, const struct mft_sampling *how)
{
	return json_pack("{s:f, s:f, s:I, s:i, s:I, s:o, s:b, s:b}", "temperature",
			 how->temperature, "top_p", how->top_p, "top_k",
			 (json_int_t)(how->top_k ? how->top_k : -1), "max_new_tokens",
			 (int)how->max_tokens, "sampling_seed", (json_int_t)(r->seed >> 1),
			 "stop_token_ids",
			 mft_engine_ids(how->stops, how->ignore_stops ? 0 : how->stop_count),
			 "ignore_eos", 1, "skip_special_tokens", 0);
}

static json_t *ask(const struct mft_engine *e, const struct mft_request *r,
		   const struct mft_sampling *how)
{
	(void)e;
	return json_pack("{s:o, s:o, s:b, s:i}", "input_ids", mft_engine_ids(r->tokens, r->count),
			 "sampling_params", sampling_of(r, how), "return_logprob", 1,
			 "logprob_start_len", -1);
}

/* [log-prob, id, text] of a token. */
static int take_triple(const json_t *triple, uint32_t *ret_id, float *ret_log_prob,
		       struct mfs_error *err)
{
	return mft_engine_token(json_array_get(triple, 1), json_array_get(triple, 0), ret_id,
				ret_log_prob, err);
}

static int answer(const struct mft_engine *e, const json_t *reply, struct mft_response *ret,
		  struct mfs_error *err)
{
	const json_t *meta = json_object_get(reply, "meta_info"),
		     *list = json_object_get(meta, "output_token_logprobs");
	const json_t *named = json_object_get(meta, "weight_version");
	const size_t count = json_array_size(json_object_get(reply, "output_ids"));
	int rc = mft_engine_finish(json_object_get(json_object_get(meta, "finish_reason"), "type"),
				   &ret->finish, err);

	if (rc)
		return rc;
	if (!count || json_array_size(list) != count)
		return mfs_fail(err, -EPROTO,
				"expected output_ids and as many log-probs, found %zu and %zu",
				count, json_array_size(list));
	ret->first_version = ret->last_version = named ? mft_engine_version(named) : e->version;
	rc = mft_engine_room(ret, count, err);
	for (size_t i = 0; i < count && !rc; i++)
		rc = take_triple(json_array_get(list, i), &ret->tokens[i], &ret->log_probs[i], err);
	return rc;
}

/* ---- log-probs of given tokens ---- */

static json_t *ask_score(const struct mft_engine *e, const struct mft_request *r)
{
	(void)e;
	return json_pack("{s:o, s:{s:i, s:f}, s:b, s:i}", "input_ids",
			 mft_engine_ids(r->tokens, r->count), "sampling_params", "max_new_tokens",
			 1, "temperature", 1.0, "return_logprob", 1, "logprob_start_len", 0);
}

static int answer_score(const json_t *reply, const uint32_t *tokens, uint32_t count, float *ret,
			struct mfs_error *err)
{
	const json_t *list =
		json_object_get(json_object_get(reply, "meta_info"), "input_token_logprobs");
	uint32_t id;
	int rc = 0;

	if (json_array_size(list) != count)
		return mfs_fail(err, -EPROTO,
				"expected input_token_logprobs of %u tokens, found %zu", count,
				json_array_size(list));
	for (uint32_t i = 1; i < count && !rc; i++) {
		rc = take_triple(json_array_get(list, i), &id, &ret[i - 1], err);
		if (!rc && id != tokens[i])
			rc = mfs_fail(err, -EPROTO, "token %u: expected %u, found %u", i, tokens[i],
				      id);
	}
	return rc;
}

/* ---- new weights ---- */

static json_t *pause(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	(void)e;
	(void)w;
	return json_pack("{s:s}", "mode", "retract");
}

static json_t *reload(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	char text[32];

	(void)e;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)w->version);
	return json_pack("{s:s, s:s, s:b}", "model_path", w->path, "weight_version", text,
			 "flush_cache", 1);
}

static json_t *nothing(const struct mft_engine *e, const struct mft_engine_weights *w)
{
	(void)e;
	(void)w;
	return json_object();
}

const struct mft_engine_kind mft_engine_sglang = {
	.name = "sglang",
	.path = "/generate",
	.ask = ask,
	.answer = answer,
	.ask_score = ask_score,
	.answer_score = answer_score,
	.update = {{"/pause_generation", pause, false},
		   {"/update_weights_from_disk", reload, true},
		   {"/continue_generation", nothing, false}},
	.version_path = "/model_info",
};
