/* Engines: trainer/rl/engine, over servers in threads of the test that answer as vLLM 0.32 and
 * SGLang 0.5.23 do, or as they should not. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "trainer/rl/engine/ahead.h"
#include "trainer/rl/engine/engine.h"

#define VOCAB 100

enum fault {
	FINE,
	NO_JSON,
	REFUSES, /* HTTP 500 */
	NO_LOG_PROBS,
	NAN_LOG_PROB,
	LARGE_ID,
	TOO_MANY,
	NO_REASON,
	ABORTS,
	FAULTS,
};

static struct server {
	struct MHD_Daemon *daemon;
	char url[64];
	const char *owner;
	_Atomic enum fault fault;
	atomic_int faults; /* of so many requests */
	atomic_int requests;
	atomic_int version, told;     /* told: calls of an update that came in their order */
	atomic_int lies;	      /* about its version */
	atomic_bool away;	      /* as a proxy answers */
	_Atomic(const char *) broken; /* path: its proxy gives up, or cuts it off */
	atomic_bool cuts;
	atomic_int resumed;
	char path[64];
} servers[2];

static struct mfs_error err;

/* ---- what a server says ---- */

/* Tokens of a request: as many as it may have, each of its seed and the prompt's first token. */
static json_t *vllm_reply(const json_t *body, enum fault fault)
{
	const json_t *sampling = json_object_get(body, "sampling_params");
	const json_int_t seed = json_integer_value(json_object_get(sampling, "seed")),
			 first = json_integer_value(
				 json_array_get(json_object_get(body, "token_ids"), 0));
	json_int_t count = json_integer_value(json_object_get(sampling, "max_tokens"));
	json_t *ids = json_array(), *content = json_array(), *log_probs;

	count += fault == TOO_MANY;
	for (json_int_t i = 0; i < count; i++) {
		const json_int_t id =
			fault == LARGE_ID ? VOCAB : (seed * 7 + first * 3 + i) % VOCAB;

		json_array_append_new(ids, json_integer(id));
		json_array_append_new(content, json_pack("{s:I, s:o}", "token_id", id, "logprob",
							 fault == NAN_LOG_PROB
								 ? json_string("NaN")
								 : json_real(-0.5 * (double)i)));
	}
	log_probs = json_pack("{s:o}", "content", content);
	if (fault == NO_LOG_PROBS) {
		json_decref(log_probs);
		log_probs = json_null();
	}
	return json_pack("{s:[{s:i, s:s, s:o, s:o, s:[{s:s, s:i, s:i}]}]}", "choices", "index", 0,
			 "finish_reason",
			 fault == NO_REASON ? "tired"
			 : fault == ABORTS  ? "abort"
					    : "length",
			 "token_ids", ids, "logprobs", log_probs, "weight_versions", "version", "3",
			 "start", 0, "end", 2);
}

static json_t *sglang_reply(const json_t *body)
{
	const json_t *sampling = json_object_get(body, "sampling_params");
	const json_int_t seed = json_integer_value(json_object_get(sampling, "sampling_seed")),
			 first = json_integer_value(
				 json_array_get(json_object_get(body, "input_ids"), 0)),
			 count = json_integer_value(json_object_get(sampling, "max_new_tokens"));
	json_t *ids = json_array(), *triples = json_array();

	for (json_int_t i = 0; i < count; i++) {
		const json_int_t id = (seed * 7 + first * 3 + i) % VOCAB;

		json_array_append_new(ids, json_integer(id));
		json_array_append_new(triples, json_pack("[f, I, n]", -0.5 * (double)i, id));
	}
	return json_pack("{s:o, s:{s:{s:s}, s:s, s:o}}", "output_ids", ids, "meta_info",
			 "finish_reason", "type", "length", "weight_version", "3",
			 "output_token_logprobs", triples);
}

static const char *const updates[][6] = {
	{"/pause", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache", "/resume"},
	{"/pause_generation", "/update_weights_from_disk", "/continue_generation"},
};

/* A call of an update is counted where it is the one that is due. */
static json_t *update_reply(struct server *s, const char *path, const json_t *body)
{
	const char *const *order = updates[!strcmp(s->owner, "sglang")];
	const json_t *version = json_object_get(body, "new_version");

	if (!version)
		version = json_object_get(body, "weight_version");
	if (order[s->told] && !strcmp(path, order[s->told]))
		s->told++;
	if (version)
		s->version = atoi(json_string_value(version)) + s->lies;
	return json_pack("{s:b}", "success", 1);
}

static json_t *reply_of(struct server *s, const char *path, const json_t *body, enum fault fault)
{
	if (!strcmp(path, "/v1/models"))
		return json_pack("{s:[{s:s, s:s}]}", "data", "id", "policy", "owned_by", s->owner);
	if (!strcmp(path, "/inference/v1/generate"))
		return vllm_reply(body, fault);
	if (!strcmp(path, "/generate"))
		return sglang_reply(body);
	if (!strcmp(path, "/weight_info") || !strcmp(path, "/model_info")) {
		char text[16];

		snprintf(text, sizeof(text), "%d", s->version);
		return json_pack("{s:s}", "weight_version", text);
	}
	return update_reply(s, path, body);
}

/* ---- the server ---- */

struct request {
	char *bytes;
	size_t len;
};

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, char *text)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	const enum MHD_Result ret = MHD_queue_response(c, status, r);

	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *path,
			      const char *method, const char *http, const char *data, size_t *size,
			      void **state)
{
	struct server *s = arg;
	struct request *q = *state;
	enum fault fault = FINE;
	json_t *body, *reply;

	(void)method;
	(void)http;
	if (!q) {
		*state = calloc(1, sizeof(*q));
		return MHD_YES;
	}
	if (*size) {
		q->bytes = realloc(q->bytes, q->len + *size);
		memcpy(q->bytes + q->len, data, *size);
		q->len += *size;
		*size = 0;
		return MHD_YES;
	}
	body = json_loadb(q->bytes ? q->bytes : "", q->len, 0, NULL);
	free(q->bytes);
	free(q);
	*state = NULL;
	if (strstr(path, "generate") && strcmp(path, "/pause_generation") &&
	    strcmp(path, "/continue_generation")) {
		s->requests++;
		if (s->faults > 0) {
			s->faults--;
			fault = s->fault;
		}
	}
	if (s->away) {
		json_decref(body);
		return send_text(c, 503, strdup("no upstream"));
	}
	if (s->broken && !strcmp(path, s->broken)) {
		json_decref(body);
		return s->cuts ? MHD_NO : send_text(c, 504, strdup("upstream timed out"));
	}
	s->resumed += !strcmp(path, "/resume") || !strcmp(path, "/continue_generation");
	reply = reply_of(s, path, body, fault);
	json_decref(body);
	data = fault == NO_JSON ? strdup("<html>") : json_dumps(reply, 0);
	json_decref(reply);
	return send_text(c, fault == REFUSES ? 500 : 200, (char *)(uintptr_t)data);
}

static void serve(struct server *s, const char *owner)
{
	const union MHD_DaemonInfo *info;

	*s = (struct server){.owner = owner};
	s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, s,
				     MHD_OPTION_END);
	ck_assert_ptr_nonnull(s->daemon);
	info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
	snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%u/", info->port);
}

static struct mft_engines *engines_of(size_t count)
{
	static const char *urls[] = {servers[0].url, servers[1].url};
	const struct mft_engines_config config = {
		.urls = urls, .count = count, .most = 3, .seconds = 5, .tries = 3, .vocab = VOCAB};
	struct mft_engines *e;

	unit_ok(mft_engines_open(&config, &e, &err), &err);
	return e;
}

static void stop(void)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(servers); i++)
		if (servers[i].daemon)
			MHD_stop_daemon(servers[i].daemon);
	memset(servers, 0, sizeof(servers));
}

/* ---- tests ---- */

#define REQUESTS 20

static const uint32_t prompt[] = {5, 6, 7};
static const struct mft_sampling how = {.temperature = 1, .top_p = 1, .max_tokens = 4};

static void make_requests(struct mft_request *requests)
{
	for (uint32_t i = 0; i < REQUESTS; i++)
		requests[i] = (struct mft_request){prompt, 3, 2 * i};
}

static void check_responses(struct mft_response *r)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		ck_assert_uint_eq(r[i].count, 4);
		ck_assert_int_eq(r[i].finish, MFT_FINISH_LENGTH);
		ck_assert_uint_eq(r[i].first_version, 3);
		for (uint32_t t = 0; t < 4; t++) {
			ck_assert_uint_eq(r[i].tokens[t], (i * 7 + 15 + t) % VOCAB);
			ck_assert(r[i].log_probs[t] == -0.5f * (float)t);
		}
		mft_response_release(&r[i]);
	}
}

START_TEST(engines_of_both_kinds_answer)
{
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	serve(&servers[1], "sglang");
	e = engines_of(2);
	make_requests(requests);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_eq(servers[0].requests + servers[1].requests, REQUESTS);
	ck_assert_int_gt(servers[0].requests, 0);
	ck_assert_int_gt(servers[1].requests, 0);
	mft_engines_close(e);
	stop();
}
END_TEST

/* Twice each is too few to be given up. */
START_TEST(a_bad_answer_is_asked_for_again)
{
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	serve(&servers[1], "sglang");
	e = engines_of(2);
	servers[0].fault = (enum fault)_i;
	servers[0].faults = 2;
	make_requests(requests);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_eq(servers[0].requests + servers[1].requests, REQUESTS + 2);
	mft_engines_close(e);
	stop();
}
END_TEST

static const char *const sentences[FAULTS] = {
	[NO_JSON] = "expected one choice, found 0",
	[REFUSES] = "HTTP 500",
	[NO_LOG_PROBS] = "expected token_ids and as many log-probs, found 4 and 0",
	[NAN_LOG_PROB] = "expected a log-prob",
	[LARGE_ID] = "token 0 is 100: the vocabulary has 0 to 99",
	[TOO_MANY] = "expected 4 tokens at most, found 5",
	[NO_REASON] = "expected stop, length or abort, found tired",
	[ABORTS] = "the request was aborted",
};

START_TEST(answers_that_stay_bad_are_refused)
{
	const struct mft_request one = {prompt, 3, 2};
	struct mft_response r = {0};
	const struct mft_engines_config config = {.urls = (const char *[]){servers[0].url},
						  .count = 1,
						  .most = 1,
						  .seconds = 5,
						  .tries = 1,
						  .vocab = VOCAB};
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	unit_ok(mft_engines_open(&config, &e, &err), &err);
	servers[0].fault = (enum fault)_i;
	servers[0].faults = 1;
	unit_fails(mft_engines_run(e, &one, 1, &how, &r, &err), &err, -EIO, sentences[_i]);
	ck_assert_ptr_nonnull(strstr(err.msg, servers[0].url));
	ck_assert_ptr_null(r.tokens);
	/* It can be asked again. */
	unit_ok(mft_engines_run(e, &one, 1, &how, &r, &err), &err);
	mft_response_release(&r);
	mft_engines_close(e);
	stop();
}
END_TEST

START_TEST(an_engine_that_is_gone_is_done_without)
{
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	serve(&servers[1], "vllm");
	e = engines_of(2);
	MHD_stop_daemon(servers[1].daemon);
	servers[1].daemon = NULL;
	make_requests(requests);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	mft_engines_close(e);
	stop();
}
END_TEST

START_TEST(engines_are_told_of_weights)
{
	static const struct mft_engine_weights w = {"/mnt/run/iter_0000007/hf", 7, NULL};
	struct mft_engine_update took;
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	serve(&servers[1], "sglang");
	e = engines_of(2);
	unit_ok(mft_engines_update(e, &w, &took, &err), &err);
	ck_assert_int_eq(servers[0].told, 5);
	ck_assert_int_eq(servers[1].told, 3);
	servers[1].lies = 1;
	unit_fails(mft_engines_update(e, &w, &took, &err), &err, -EPROTO,
		   "expected version 7 of the weights, found 8");
	mft_engines_close(e);
	stop();
}
END_TEST

/* It fails once, and answers then that it has what it was started with. */
START_TEST(an_engine_with_other_weights_is_left_out)
{
	static const struct mft_engine_weights w = {"/mnt/run/iter_0000003/hf", 3, NULL};
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engine_update took;
	struct mft_engines *e;

	serve(&servers[0], "vllm");
	serve(&servers[1], "vllm");
	e = engines_of(2);
	unit_ok(mft_engines_update(e, &w, &took, &err), &err);
	servers[1].version = 0;
	servers[1].fault = REFUSES;
	servers[1].faults = 3;
	make_requests(requests);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_le(servers[1].requests, 3);
	/* Until it is told. */
	unit_ok(mft_engines_update(e, &w, &took, &err), &err);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_gt(servers[1].requests, 3);
	mft_engines_close(e);
	stop();
}
END_TEST

/* It is there again when others have been told, and gets nothing until it is told, too. */
START_TEST(an_engine_that_is_away_has_no_weights)
{
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engine_update u;
	struct mft_engines *told, *e;
	struct mft_engine_weights w = {"/mnt/run/iter_0000003/hf", 3, NULL};

	serve(&servers[0], "vllm");
	serve(&servers[1], "vllm");
	told = engines_of(2);
	e = engines_of(2);
	w.also = e;
	servers[1].away = true;
	unit_ok(mft_engines_update(told, &w, &u, &err), &err);
	ck_assert_uint_eq(u.out, 1);
	ck_assert_ptr_nonnull(strstr(u.why.msg, servers[1].url));
	ck_assert(!mft_engines_is_out(told, 0) && mft_engines_is_out(told, 1));
	unit_ok(mft_engines_update(told, &w, &u, &err), &err);
	ck_assert(u.out == 1 && !u.why.msg[0]); /* that is known */
	servers[1].away = false;
	make_requests(requests);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_eq(servers[1].requests, 0);
	unit_ok(mft_engines_update(told, &w, &u, &err), &err);
	ck_assert_uint_eq(u.out, 0);
	unit_ok(mft_engines_run(e, requests, REQUESTS, &how, r, &err), &err);
	check_responses(r);
	ck_assert_int_gt(servers[1].requests, 0);
	servers[0].away = servers[1].away = true;
	unit_fails(mft_engines_update(told, &w, &u, &err), &err, -EIO,
		   "no engine is left, for the last time so: http://127.0.0.1:");
	mft_engines_close(told);
	mft_engines_close(e);
	stop();
}
END_TEST

/* It was paused, and goes on, unless it may have read some of the weights. */
START_TEST(an_engine_that_was_paused_goes_on)
{
	static const struct {
		const char *owner, *broken;
		bool cuts;
		int resumed;
	} cases[] = {{"vllm", "/pause", false, 0},
		     {"vllm", "/collective_rpc", false, 0},
		     {"sglang", "/update_weights_from_disk", false, 0},
		     {"vllm", "/collective_rpc", true, 1},
		     {"vllm", "/update_weight_version", false, 1},
		     {"vllm", "/resume", false, 0}};
	static const struct mft_engine_weights w = {"/mnt/run/iter_0000003/hf", 3, NULL};
	struct mft_engine_update u;
	struct mft_engines *e;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const bool reloads = i == 1 || i == 2;

		serve(&servers[0], "vllm");
		serve(&servers[1], cases[i].owner);
		e = engines_of(2);
		servers[1].broken = cases[i].broken;
		servers[1].cuts = cases[i].cuts;
		unit_ok(mft_engines_update(e, &w, &u, &err), &err);
		ck_assert_uint_eq(u.out, 1);
		ck_assert(mft_engines_is_out(e, 1));
		ck_assert_int_eq(servers[0].resumed, 1);
		ck_assert_int_eq(servers[1].resumed, cases[i].resumed);
		ck_assert_int_eq(!!strstr(u.why.msg, "its weights may be mixed: http"), reloads);
		servers[1].broken = NULL;
		unit_ok(mft_engines_update(e, &w, &u, &err), &err);
		ck_assert_uint_eq(u.out, 0);
		mft_engines_close(e);
		stop();
	}
}
END_TEST

START_TEST(what_is_no_engine_is_refused)
{
	const char *urls[] = {servers[0].url};
	struct mft_engines_config config = {.urls = urls, .count = 1, .most = 1, .seconds = 1};
	struct mft_engines *e;

	serve(&servers[0], "llama.cpp");
	unit_fails(mft_engines_open(&config, &e, &err), &err, -EPROTO,
		   "expected a server of vLLM or SGLang; /v1/models names 'llama.cpp'");
	stop();
	urls[0] = "http://127.0.0.1:9";
	unit_fails(mft_engines_open(&config, &e, &err), &err, -EIO, "127.0.0.1:9");
}
END_TEST

static bool never(void)
{
	return false;
}

static bool always(void)
{
	return true;
}

START_TEST(rollouts_are_answered_ahead)
{
	struct mft_request requests[REQUESTS];
	struct mft_response r[REQUESTS] = {0};
	struct mft_engines *e;
	struct mft_ahead *a;

	serve(&servers[0], "vllm");
	e = engines_of(1);
	make_requests(requests);
	unit_ok(mft_ahead_new(e, &how, &a, &err), &err);
	unit_ok(mft_ahead_submit(a, requests, REQUESTS, &err), &err);
	unit_ok(mft_ahead_submit(a, requests, REQUESTS, &err), &err);
	for (int i = 0; i < 2; i++) {
		unit_ok(mft_ahead_take(a, r, REQUESTS, never, &err), &err);
		check_responses(r);
	}
	unit_fails(mft_ahead_take(a, r, REQUESTS, never, &err), &err, -ENODATA, "no such batch");
	/* One is still under way, and nobody waits for it. */
	servers[0].away = true;
	unit_ok(mft_ahead_submit(a, requests, REQUESTS, &err), &err);
	unit_fails(mft_ahead_take(a, r, REQUESTS, always, &err), &err, -EINTR, "has ended");
	mft_ahead_free(a);
	mft_engines_close(e);
	stop();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("engine");
	TCase *c = unit_case(s, "engine", engines_of_both_kinds_answer);

	tcase_add_loop_test(c, a_bad_answer_is_asked_for_again, NO_JSON, FAULTS);
	tcase_add_loop_test(c, answers_that_stay_bad_are_refused, NO_JSON, FAULTS);
	tcase_add_test(c, an_engine_that_is_gone_is_done_without);
	tcase_add_test(c, engines_are_told_of_weights);
	tcase_add_test(c, an_engine_with_other_weights_is_left_out);
	tcase_add_test(c, an_engine_that_is_away_has_no_weights);
	tcase_add_test(c, an_engine_that_was_paused_goes_on);
	tcase_add_test(c, what_is_no_engine_is_refused);
	tcase_add_test(c, rollouts_are_answered_ahead);
	return s;
}
