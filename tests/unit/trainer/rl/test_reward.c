/* Rewards of trainer/rl/reward that have settings: patterns, lengths, programs, and a server in
 * threads of the test that answers as it should, or not. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "trainer/rl/reward/reward.h"

static struct mfs_error err;

/* ---- rows ---- */

#define ROWS 200

static const uint32_t ids[] = {7, 8, 9};
static struct mft_reward_row rows[ROWS];
static char texts[ROWS][16];

/* The response of row i is "is i.", its label i. */
static void make_rows(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		snprintf(texts[i], sizeof(texts[i]), "is %zu.", i);
		rows[i] = (struct mft_reward_row){.prompt = "what \"is\" it?",
						  .prompt_len = strlen("what \"is\" it?"),
						  .response = texts[i],
						  .response_len = strlen(texts[i]),
						  .prompt_ids = ids,
						  .response_ids = ids + 1,
						  .prompt_count = 1,
						  .response_count = 2,
						  .label = json_integer((json_int_t)i),
						  .row = json_pack("{s:s}", "unit", "apples")};
	}
}

static void free_rows(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		json_decref(rows[i].label);
		json_decref(rows[i].row);
	}
}

static struct mft_rewards *open_kind(const char *kind, struct mft_reward_config c)
{
	struct mft_rewards *r;

	c.kinds = &kind;
	c.count = 1;
	unit_ok(mft_rewards_open(&c, &r, &err), &err);
	return r;
}

/* The reward of one response by a kind. */
static double reward_of(const char *kind, struct mft_reward_config c,
			const struct mft_reward_row *row)
{
	struct mft_rewards *r = open_kind(kind, c);
	double ret = 9;

	unit_ok(mft_rewards_score(r, row, 1, &ret, &err), &err);
	mft_rewards_close(r);
	return ret;
}

/* ---- patterns and lengths ---- */

static const struct {
	const char *pattern, *response, *label;
	double reward;
} patterns[] = {
	{"^<think>.*</think>", "<think>a</think> 7", NULL, 1},
	{"^<think>.*</think>", " <think>a</think> 7", NULL, 0},
	{"(?i)answer: *(\\d+)", "The Answer:  42.", "42", 1},
	{"(?i)answer: *(\\d+)", "The Answer: 421", "42", 0},
	{"(?i)answer: *(\\d+)", "42", "42", 0},
	{"a|(b)", "a", "\"\"", 0},
	{"<(.*)>", "< so it is >", "\"so it is\"", 1},
	{"\xc3\xa9.$", "\xc3\xa9\xe4\xb8\xad", NULL, 1},
	{"\\d", "\xe4\xb8 1", NULL, 1},
	/* It takes too long: there is no match. */
	{"^(?:a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", NULL, 0},
};

START_TEST(patterns_match)
{
	struct mft_reward_row row = {.response = patterns[_i].response,
				     .response_len = strlen(patterns[_i].response)};

	row.label =
		patterns[_i].label ? json_loads(patterns[_i].label, JSON_DECODE_ANY, NULL) : NULL;
	ck_assert_double_eq(reward_of("regex",
				      (struct mft_reward_config){.pattern = patterns[_i].pattern},
				      &row),
			    patterns[_i].reward);
	json_decref(row.label);
}
END_TEST

START_TEST(long_responses_cost)
{
	static const struct {
		uint32_t count;
		double reward;
	} cases[] = {{60, 0}, {80, 0}, {90, -1}, {100, -2}};
	const struct mft_reward_config c = {
		.length = 100, .overlong_buffer = 20, .overlong_factor = 2};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const struct mft_reward_row row = {.response_count = cases[i].count};

		ck_assert_double_eq(reward_of("length", c, &row), cases[i].reward);
	}
}
END_TEST

static const struct {
	const char *kind, *pattern;
	uint32_t buffer;
	const char *sentence;
} unset[] = {
	{"regex", NULL, 0, "--rl-reward regex: expected --rl-reward-pattern"},
	{"regex", "(a", 0, "--rl-reward-pattern: at byte 2 of '(a': missing closing parenthesis"},
	{"length", NULL, 0, "1 to 8 tokens that a response may have; found 0"},
	{"length", NULL, 9, "1 to 8 tokens that a response may have; found 9"},
	{"url", NULL, 0, "--rl-reward url: expected --rl-reward-url"},
	{"command", NULL, 0, "--rl-reward command: expected --rl-reward-command"},
	{"quiz", NULL, 0, "expected match, gsm8k, boxed, regex, length, url or command"},
};

START_TEST(settings_are_checked)
{
	const struct mft_reward_config c = {.kinds = &unset[_i].kind,
					    .count = 1,
					    .pattern = unset[_i].pattern,
					    .length = 8,
					    .overlong_buffer = unset[_i].buffer};
	struct mft_rewards *r;

	unit_fails(mft_rewards_open(&c, &r, &err), &err, -EINVAL, unset[_i].sentence);
}
END_TEST

/* ---- programs ---- */

/* A program that answers "is 12." with 12. */
#define NUMBER_OF "sed -uE 's/.*\"response\": \"is ([0-9]+)[.]\".*/\\1/'"

static const struct {
	const char *command, *key;
} programs[] = {
	{NUMBER_OF, NULL},
	/* All is read before anything is written. */
	{"lines=$(head -n 200); echo \"$lines\" | " NUMBER_OF "; " NUMBER_OF, NULL},
	{"sed -uE 's/.*\"label\": ([0-9]+), .*/{\"score\": \\1}/'", NULL},
	{"sed -uE 's/.*\"label\": ([0-9]+), .*/{\"a\": \\1, \"reward\": 1}/'", "a"},
};

START_TEST(programs_answer)
{
	struct mft_rewards *r =
		open_kind("command", (struct mft_reward_config){.command = programs[_i].command,
								.key = programs[_i].key,
								.seconds = 20});
	double ret[ROWS];

	make_rows(ROWS);
	for (int round = 0; round < 2; round++) {
		unit_ok(mft_rewards_score(r, rows, ROWS, ret, &err), &err);
		for (size_t i = 0; i < ROWS; i++)
			ck_assert_double_eq(ret[i], (double)i);
	}
	free_rows(ROWS);
	mft_rewards_close(r);
}
END_TEST

START_TEST(a_program_is_told_all)
{
	static const char *const want =
		"{\"prompt\": \"what \\\"is\\\" it?\", \"response\": \"is 0.\", \"label\": 0, "
		"\"metadata\": {\"unit\":\"apples\"}, \"prompt_ids\": [7], \"response_ids\": "
		"[8, 9], \"finish_reason\": \"stop\"}\n";
	const char *dir = unit_tmpdir();
	char command[300], path[256];
	size_t len;
	uint8_t *got;

	make_rows(1);
	snprintf(path, sizeof(path), "%s/row", dir);
	snprintf(command, sizeof(command), "head -n 1 >%s; echo 1e0", path);
	ck_assert_double_eq(reward_of("command",
				      (struct mft_reward_config){.command = command, .seconds = 20},
				      rows),
			    1);
	got = unit_slurp(path, &len);
	ck_assert_uint_eq(len, strlen(want));
	ck_assert_mem_eq(got, want, len);
	free(got);
	free_rows(1);
}
END_TEST

static const struct {
	const char *command;
	int rc;
	const char *sentence;
} bad_programs[] = {
	{"sleep 100", -ETIMEDOUT, "it has answered 0 of 3, and then for 0.3 seconds none"},
	{"read line; echo 1; sleep 100 & wait", -ETIMEDOUT, "it has answered 1 of 3"},
	{"read line; echo 1; exit 3", -EIO, "it has ended after 1 of 3 answers, with status 3"},
	{"exec <&-; kill -TERM $$", -EIO, "it has ended after 0 of 3 answers, by signal 15"},
	{"no-such-program-at-all 2>/dev/null", -EIO, "with status 127"},
	{"read line; echo good", -EPROTO, "response 0, its answer 'good': expected a number, or"},
	{"read line; echo NaN", -EPROTO, "its answer 'NaN': expected a number"},
	{"read line; echo 1e999", -EPROTO, "its answer '1e999': expected a number"},
	{"read line; echo '\"1\"'", -EPROTO, "an object whose 'reward' or 'score' is one"},
	{"read line; echo '{\"reward\": null}'", -EPROTO, "expected a number"},
	{"read line; echo", -EPROTO, "its answer ''"},
	{"cat; sleep 100", -EPROTO, "its answer '{\"prompt\""},
	{"read a; read a; read a; printf '1\\n2\\n3\\n4\\n'", -EPROTO,
	 "it has written more lines than it was asked for: 4"},
	{"head -c 3000000 /dev/zero; sleep 100", -EPROTO, "its answer has more than 1048576"},
};

START_TEST(bad_programs_are_refused)
{
	struct mft_rewards *r = open_kind(
		"command",
		(struct mft_reward_config){.command = bad_programs[_i].command,
					   .seconds = bad_programs[_i].rc == -ETIMEDOUT ? .3 : 20});
	double ret[3];

	make_rows(3);
	unit_fails(mft_rewards_score(r, rows, 3, ret, &err), &err, bad_programs[_i].rc,
		   bad_programs[_i].sentence);
	unit_sentence(err.msg, "the reward command: ");
	free_rows(3);
	mft_rewards_close(r);
}
END_TEST

/* A run that is killed leaves nobody, not even what does not read. */
START_TEST(a_program_ends_with_its_run)
{
	struct pollfd left = {.events = POLLIN};
	char byte;
	int ends[2];
	pid_t run;

	ck_assert(!pipe(ends));
	run = fork();
	ck_assert_int_ge(run, 0);
	if (!run) {
		open_kind("command",
			  (struct mft_reward_config){.command = "sleep 1000; :", .seconds = 20});
		ck_assert_int_eq(write(ends[1], "", 1), 1);
		pause();
	}
	close(ends[1]); /* the program has the other one, too, as long as it is there */
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	kill(run, SIGKILL);
	waitpid(run, NULL, 0);
	left.fd = ends[0];
	ck_assert_int_eq(poll(&left, 1, 20000), 1);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}
END_TEST

/* ---- a server ---- */

enum fault { FINE, REFUSES, NO_JSON, NO_NUMBER };

static struct {
	struct MHD_Daemon *daemon;
	char url[64];
	_Atomic enum fault fault;
	atomic_int faults, requests; /* faults: of so many requests */
} server;

struct request {
	char *bytes;
	size_t len;
};

static char *reply_to(struct request *q, enum fault fault)
{
	json_t *body = json_loadb(q->bytes ? q->bytes : "", q->len, 0, NULL);
	char text[64] = "<html>";

	if (fault == NO_NUMBER)
		snprintf(text, sizeof(text), "{\"rewards\": 1}");
	else if (fault != NO_JSON)
		snprintf(text, sizeof(text), "{\"score\": %lld}",
			 (long long)json_integer_value(json_object_get(body, "label")));
	json_decref(body);
	return strdup(text);
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *path,
			      const char *method, const char *http, const char *data, size_t *size,
			      void **state)
{
	struct request *q = *state;
	enum fault fault = FINE;
	struct MHD_Response *r;
	enum MHD_Result ret;
	char *text;

	(void)arg;
	(void)path;
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
	server.requests++;
	if (server.faults > 0) {
		server.faults--;
		fault = server.fault;
	}
	text = reply_to(q, fault);
	free(q->bytes);
	free(q);
	*state = NULL;
	r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	ret = MHD_queue_response(c, fault == REFUSES ? 503 : 200, r);
	MHD_destroy_response(r);
	return ret;
}

static void serve(enum fault fault, int faults)
{
	const union MHD_DaemonInfo *info;

	server.fault = fault;
	server.faults = faults;
	server.requests = 0;
	server.daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle,
					 NULL, MHD_OPTION_END);
	ck_assert_ptr_nonnull(server.daemon);
	info = MHD_get_daemon_info(server.daemon, MHD_DAEMON_INFO_BIND_PORT);
	snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u/score", info->port);
}

/* A bad answer is asked for again. */
START_TEST(a_server_answers)
{
	struct mft_rewards *r;
	double ret[ROWS];

	serve((enum fault)_i, _i ? 2 : 0);
	r = open_kind("url", (struct mft_reward_config){.url = server.url, .seconds = 20});
	make_rows(ROWS);
	unit_ok(mft_rewards_score(r, rows, ROWS, ret, &err), &err);
	for (size_t i = 0; i < ROWS; i++)
		ck_assert_double_eq(ret[i], (double)i);
	ck_assert_int_eq(server.requests, ROWS + (_i ? 2 : 0));
	free_rows(ROWS);
	mft_rewards_close(r);
	MHD_stop_daemon(server.daemon);
}
END_TEST

START_TEST(a_server_that_stays_bad_is_refused)
{
	struct mft_rewards *r;
	double ret[2];

	serve(NO_NUMBER, 1000);
	r = open_kind("url", (struct mft_reward_config){
				     .url = server.url, .key = "reward", .seconds = 20});
	make_rows(2);
	unit_fails(mft_rewards_score(r, rows, 2, ret, &err), &err, -EPROTO,
		   "the reward url: after 4 tries: http://127.0.0.1:");
	unit_sentence(err.msg, "expected a number, or an object whose 'reward' is one");
	free_rows(2);
	mft_rewards_close(r);
	MHD_stop_daemon(server.daemon);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("reward");
	TCase *c = unit_case(s, "reward", long_responses_cost);

	tcase_add_loop_test(c, patterns_match, 0, (int)MFS_ARRAY_SIZE(patterns));
	tcase_add_loop_test(c, settings_are_checked, 0, (int)MFS_ARRAY_SIZE(unset));
	tcase_add_loop_test(c, programs_answer, 0, (int)MFS_ARRAY_SIZE(programs));
	tcase_add_test(c, a_program_is_told_all);
	tcase_add_test(c, a_program_ends_with_its_run);
	tcase_add_loop_test(c, bad_programs_are_refused, 0, (int)MFS_ARRAY_SIZE(bad_programs));
	tcase_add_loop_test(c, a_server_answers, FINE, NO_NUMBER + 1);
	tcase_add_test(c, a_server_that_stays_bad_is_refused);
	return s;
}
