/* Rollouts: bins, microbatches of responses, log-probs that go back to their tokens, rules. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "trainer/rl/bins.h"
#include "trainer/rl/feed.h"
#include "trainer/rl/prompts.h"
#include "trainer/rl/reward/reward_i.h"
#include "trainer/rl/rollout.h"

/* ---- bins ---- */

START_TEST(bins_have_what_fits)
{
	static const uint32_t responses[] = {3, 5, 7, 9, 11}, lengths[] = {6, 7, 4, 3, 2};
	const struct mft_bins_rules rules = {.room = 10, .most = 2, .multiple = 2};
	const struct mft_bins_rules alone = {.room = 10, .most = 1, .multiple = 4};
	struct mft_bins b;
	struct mfs_error err;

	ck_assert_int_eq(mft_bins_pack(&rules, responses, lengths, 5, &b, &err), 0);
	/* 6 + 4, 7 + 3; the last one is alone, since two are the most. */
	ck_assert_uint_eq(b.count, 4);
	ck_assert_uint_eq(b.firsts[1], 2);
	ck_assert_uint_eq(b.list[0], 3);
	ck_assert_uint_eq(b.list[1], 7);
	ck_assert_uint_eq(b.firsts[2], 4);
	ck_assert_uint_eq(b.list[2], 5);
	ck_assert_uint_eq(b.list[3], 9);
	ck_assert_uint_eq(b.firsts[3], 5);
	ck_assert_uint_eq(b.list[4], 11);
	ck_assert_uint_eq(b.firsts[4], 5);
	mft_bins_release(&b);
	ck_assert_int_eq(mft_bins_pack(&alone, responses, lengths, 5, &b, &err), 0);
	ck_assert_uint_eq(b.count, 8);
	mft_bins_release(&b);
	ck_assert_int_eq(mft_bins_pack(&alone, responses, lengths, 0, &b, &err), 0);
	ck_assert_uint_eq(b.count, 4);
	mft_bins_release(&b);
}
END_TEST

/* ---- microbatches ---- */

#define LENGTH 16

static void *slot_alloc(void *arg, size_t bytes)
{
	(void)arg;
	return malloc(bytes);
}

static void slot_free(void *arg, void *p, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(p);
}

static int open_prompts(const char *text, const char *label_key, struct mft_prompts **ret,
			struct mfs_error *err)
{
	const char *dir = unit_tmpdir();
	char path[256];
	const struct mft_prompts_config config = {.path = path,
						  .prompt_key = "prompt",
						  .label_key = label_key,
						  .vocab = 64,
						  .longest = 8};

	unit_write(dir, "prompts.jsonl", text, strlen(text));
	snprintf(path, sizeof(path), "%s/prompts.jsonl", dir);
	return mft_prompts_open(&config, ret, err);
}

static struct mft_prompts *prompts_of(const char *text, const char *label_key)
{
	struct mft_prompts *ret = NULL;
	struct mfs_error err = {0};

	unit_ok(open_prompts(text, label_key, &ret, &err), &err);
	return ret;
}

/* Two prompts with two responses each; that of three tokens is the first one. */
static void fill_rollout(struct mft_rollout *r, bool in_order)
{
	static uint32_t tokens[] = {40, 41, 42, 43, 44};
	static float log_probs[] = {-1, -2, -3, -4, -5};
	static const uint32_t counts[] = {3, 1, 5, 2};
	struct mfs_error err;

	ck_assert_int_eq(mft_rollout_new(2, 2, 5, r, &err), 0);
	for (uint32_t i = 0; i < 4; i++) {
		const struct mft_response one = {tokens,	  log_probs, counts[i],
						 MFT_FINISH_STOP, 0,	     0};

		ck_assert_int_eq(mft_rollout_put(r, i, &one, 64, &err), 0);
		r->advantage[i] = i + 1;
		r->drawn[i / 2] = in_order ? i / 2 : 1 - i / 2;
		for (uint32_t t = 0; t < counts[i]; t++)
			r->old[i * 5 + t] = (float)(100 * i + t);
	}
}

static void check_bin(const struct mft_batch *b, const struct mft_rollout *r,
		      struct mft_prompts *prompts, uint32_t first, uint32_t response)
{
	const struct mft_prompt *p = mft_prompts_draw(prompts, r->drawn[response / 2]);
	uint32_t at = first;

	for (uint32_t t = 0; t < p->count + r->count[response] - 1; t++, at++) {
		const bool counts = t + 1 >= p->count;

		ck_assert_int_eq(b->positions[at], (int)t);
		ck_assert_int_eq(b->sequence[at] >= 0, counts);
		ck_assert(b->loss_mask[at] == (counts ? 0.5f : 0));
		if (!counts)
			continue;
		ck_assert_int_eq(b->labels[at], (int)(40 + t + 1 - p->count));
		ck_assert(b->old[at] == (float)(100 * response + t + 1 - p->count));
		ck_assert(b->rollout[at] == -(float)(t + 2 - p->count));
		ck_assert(b->advantage[at] == (float)(response + 1));
	}
}

START_TEST(responses_are_fed_and_found_again)
{
	struct mft_train_config config = {.seq_length = LENGTH,
					  .micro_batch_size = 1,
					  .context_parallel_size = (int64_t)_i,
					  .perform_rl_step = true,
					  .eod = MFS_ABSENT,
					  .pad = MFS_ABSENT};
	const struct mft_slot_memory_ops memory = {slot_alloc, slot_free, NULL};
	struct mft_prompts *prompts =
		prompts_of("{\"prompt\": [1, 2, 3]}\n\n{\"prompt\": [4, 5]}\n", NULL);
	const uint32_t list[] = {0, 1, 2, 3}, places[] = {5, 3, 6, 3};
	const double weight[] = {.5, .5, .5, .5};
	const struct mft_bins_rules rules = {.room = LENGTH, .most = 9, .multiple = 1};
	float rows[20] = {0}, got[LENGTH];
	struct mft_rollout r;
	struct mft_bins bins;
	struct mft_feed *f;
	struct mfs_error err = {0};

	config.model.mtp_num_layers = MFS_ABSENT;
	fill_rollout(&r, mft_prompts_draw(prompts, 0)->count == 3);
	ck_assert_int_eq(mft_bins_pack(&rules, list, places, 4, &bins, &err), 0);
	ck_assert_uint_eq(bins.count, 2);
	/* Each part of a sequence that several processes share. */
	for (int part = 0; part < _i; part++) {
		config.context_parallel_rank = part;
		ck_assert_msg(!mft_feed_new(&config, 64, 0, 1, &memory, &f, &err), "%s", err.msg);
		mft_feed_begin(f, &(struct mft_feed_of){&r, prompts, &bins, weight});
		for (uint64_t m = 0; m < mft_feed_microbatches(f); m++) {
			const struct mft_batch_source from = mft_feed_source(f);
			const struct mft_batch *b;

			ck_assert_int_eq(from.ops->next(from.arg, &b, &err), 0);
			ck_assert_uint_eq(b->counted, m ? 2 : 9);
			if (_i == 1 && m == 0) {
				check_bin(b, &r, prompts, 0, 0);
				check_bin(b, &r, prompts, 5, 1);
				check_bin(b, &r, prompts, 8, 2);
			}
			for (int t = 0; t < LENGTH / _i; t++)
				got[t] = b->old[t];
			mft_feed_scatter(f, m, got, rows);
			from.ops->give_back(from.arg, b);
		}
		mft_feed_free(f);
	}
	ck_assert_mem_eq(rows, r.old, sizeof(rows));
	mft_bins_release(&bins);
	mft_rollout_release(&r);
	mft_prompts_free(prompts);
}
END_TEST

START_TEST(a_bad_response_is_refused)
{
	uint32_t tokens[] = {63, 64};
	float log_probs[] = {0, 0};
	struct mft_response one = {tokens, log_probs, 2, MFT_FINISH_STOP, 0, 0};
	struct mft_rollout r;
	struct mfs_error err;

	ck_assert_int_eq(mft_rollout_new(1, 2, 2, &r, &err), 0);
	ck_assert_int_eq(mft_rollout_put(&r, 1, &one, 64, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "response 1, token 1: expected less than 64, found 64");
	one.count = 0;
	ck_assert_int_eq(mft_rollout_put(&r, 0, &one, 64, &err), -EINVAL);
	mft_rollout_release(&r);
}
END_TEST

/* ---- prompts ---- */

static const struct {
	const char *text, *sentence;
} refused[] = {
	{"{\"prompt\": [1]}\n{\"prompt\": \"a\"}\n", "prompts.jsonl, line 2: the prompt is a text"},
	{"{\"prompt\": [1, \"x\"]}\n", "prompts.jsonl, line 1: the prompt is a list"},
	{"{\"prompt\": [64]}\n", "prompts.jsonl, line 1: token 0 is 64"},
	{"{\"prompt\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n", "expected a prompt of 1 to 8 tokens"},
	{"{\"text\": [1]}\n", "'prompt': expected a text, or a list of token ids or messages"},
	{"{\"prompt\": [{\"role\": \"user\", \"content\": \"1\"}]}\n",
	 "the prompt is messages, and there is no tokenizer with a chat template"},
	{"[1]\n", "expected a JSON object"},
	{"{\"prompt\": [1]\n", "prompts.jsonl, line 1: no JSON: "},
	{"\n", "has no prompts"},
};

START_TEST(bad_prompts_are_refused)
{
	struct mft_prompts *p;
	struct mfs_error err = {0};

	ck_assert_int_lt(open_prompts(refused[_i].text, NULL, &p, &err), 0);
	ck_assert_msg(strstr(err.msg, refused[_i].sentence), "%s", err.msg);
}
END_TEST

START_TEST(labels_may_lie_in_objects)
{
	struct mft_prompts *p =
		prompts_of("{\"prompt\": [1], \"reward_model\": {\"ground_truth\": \"7\"}}\n",
			   "reward_model.ground_truth");

	ck_assert_str_eq(json_string_value(mft_prompts_draw(p, 5)->label), "7");
	mft_prompts_free(p);
}
END_TEST

/* A tokenizer of digits and of "<": the template writes "<" before what is asked, and "<<" before
 * an answer. */
static const char tokenizer[] =
	"{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], "
	"\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
	"\".\"}, \"behavior\": \"Isolated\", \"invert\": false}, \"post_processor\": null, "
	"\"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"0\", \"vocab\": "
	"{\"0\": 0, \"1\": 1, \"2\": 2, \"<\": 3}}}";
static const char tokenizer_config[] =
	"{\"chat_template\": \"{% for m in messages %}<{{ m['content'] }}{% endfor %}{% if "
	"add_generation_prompt %}<<{% endif %}\"}";

START_TEST(messages_are_rendered)
{
	static const char row[] = "{\"ask\": {\"chat\": [{\"role\": \"user\", \"content\": "
				  "\"12\"}]}, \"answer\": 3}\n";
	static const uint32_t want[] = {3, 1, 2, 3, 3};
	const char *dir = unit_tmpdir();
	char path[256];
	const struct mft_prompts_config config = {.path = path,
						  .prompt_key = "ask.chat",
						  .label_key = "answer",
						  .tokenizer = dir,
						  .vocab = 4,
						  .longest = 5};
	struct mft_prompts *p;
	const struct mft_prompt *one;
	struct mfs_error err = {0};

	unit_write(dir, "tokenizer.json", tokenizer, strlen(tokenizer));
	unit_write(dir, "tokenizer_config.json", tokenizer_config, strlen(tokenizer_config));
	unit_write(dir, "p.jsonl", row, strlen(row));
	snprintf(path, sizeof(path), "%s/p.jsonl", dir);
	unit_ok(mft_prompts_open(&config, &p, &err), &err);
	one = mft_prompts_draw(p, 0);
	ck_assert_uint_eq(one->count, 5);
	ck_assert_mem_eq(one->ids, want, sizeof(want));
	ck_assert_int_eq(json_integer_value(one->label), 3);
	mft_prompts_free(p);
}
END_TEST

/* ---- rules ---- */

static const struct {
	const char *rule, *response, *label;
	double reward;
} rules[] = {
	{"match", " 42\n", "\"42\"", 1},
	{"match", "42", "42", 1},
	{"match", "4 2", "42", 0},
	{"gsm8k", "so #### 1,234", "1234", 1},
	{"gsm8k", "#### 5 and then #### none", "\"5\"", 1},
	{"gsm8k", "#### 5 #### 6", "5", 0},
	{"gsm8k", "#### -7", "-7", 1},
	{"gsm8k", "7", "7", 0},
	{"boxed", "it is \\boxed{1} or \\boxed{\\frac{1}{2}}.", "\"\\\\frac{1}{2}\"", 1},
	{"boxed", "\\boxed{ 3 }", "3", 1},
	{"boxed", "\\boxed{3", "3", 0},
	{"boxed", "3", "3", 0},
};

START_TEST(rules_find_answers)
{
	const char *kinds[] = {rules[_i].rule};
	const struct mft_reward_config config = {.kinds = kinds, .count = 1};
	struct mft_reward_row row = {.response = rules[_i].response,
				     .response_len = strlen(rules[_i].response),
				     .label = json_loads(rules[_i].label, JSON_DECODE_ANY, NULL)};
	struct mft_rewards *r;
	struct mfs_error err = {0};
	double reward = 9;

	ck_assert_int_eq(mft_rewards_open(&config, &r, &err), 0);
	ck_assert_msg(!mft_rewards_score(r, &row, 1, &reward, &err), "%s", err.msg);
	ck_assert_double_eq(reward, rules[_i].reward);
	json_decref(row.label);
	row.label = NULL;
	ck_assert_int_eq(mft_rewards_score(r, &row, 1, &reward, &err), -EINVAL);
	mft_rewards_close(r);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rl");
	TCase *c = unit_case(s, "rl", bins_have_what_fits);

	tcase_add_loop_test(c, responses_are_fed_and_found_again, 1, 3);
	tcase_add_test(c, a_bad_response_is_refused);
	tcase_add_loop_test(c, bad_prompts_are_refused, 0, (int)MFS_ARRAY_SIZE(refused));
	tcase_add_test(c, labels_may_lie_in_objects);
	tcase_add_test(c, messages_are_rendered);
	tcase_add_loop_test(c, rules_find_answers, 0, (int)MFS_ARRAY_SIZE(rules));
	return s;
}
