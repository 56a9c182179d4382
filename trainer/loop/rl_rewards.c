/* What a rollout's responses are worth. The first process asks, and tells the others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/tokenizer/tokenizer.h"
#include "trainer/loop/rl_i.h"

/* Texts of all rows, one after the other. */
struct texts {
	struct mfs_buf text;
	size_t *ends; /* [2 * responses]: of a prompt and of its response */
};

static int decode(struct mfs_decoder *dec, const uint32_t *ids, uint32_t count, struct texts *to,
		  size_t number, struct mfs_error *err)
{
	int rc = mfs_decode(dec, ids, count, &to->text, err);

	if (!rc)
		rc = mfs_decode_end(dec, &to->text, err);
	if (!rc && to->text.failed)
		rc = mfs_fail_nomem(err);
	to->ends[number] = to->text.len;
	return rc;
}

static const struct mft_prompt *prompt_of(const struct mft_rl *rl, uint32_t i)
{
	return mft_prompts_draw(rl->prompts, rl->rollout.drawn[i / rl->rollout.group]);
}

static const uint32_t *tokens_of(const struct mft_rl *rl, uint32_t i)
{
	return rl->rollout.tokens + (size_t)i * rl->rollout.room;
}

/* Tokens of a response without the one that ended it. */
static uint32_t words_of(const struct mft_rl *rl, uint32_t i)
{
	return rl->rollout.count[i] - (rl->rollout.finish[i] == MFT_FINISH_STOP);
}

static int decode_all(const struct mft_rl *rl, struct texts *to, struct mfs_error *err)
{
	const uint32_t n = mft_rollout_size(&rl->rollout);
	struct mfs_decoder *dec;
	int rc = mfs_decoder_new(rl->tokenizer, false, &dec, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < n && !rc; i++) {
		const struct mft_prompt *p = prompt_of(rl, i);

		rc = decode(dec, p->ids, p->count, to, 2 * (size_t)i, err);
		if (!rc)
			rc = decode(dec, tokens_of(rl, i), words_of(rl, i), to, 2 * (size_t)i + 1,
				    err);
	}
	mfs_decoder_free(dec);
	return rc;
}

static void set_rows(const struct mft_rl *rl, const struct texts *texts,
		     struct mft_reward_row *rows)
{
	const char *at = texts->text.data ? texts->text.data : "";
	size_t begin = 0;

	for (uint32_t i = 0; i < mft_rollout_size(&rl->rollout); i++) {
		const struct mft_prompt *p = prompt_of(rl, i);
		const size_t middle = texts->ends[2 * (size_t)i],
			     end = texts->ends[2 * (size_t)i + 1];

		rows[i] = (struct mft_reward_row){
			.prompt = rl->tokenizer ? at + begin : NULL,
			.prompt_len = middle - begin,
			.response = rl->tokenizer ? at + middle : NULL,
			.response_len = end - middle,
			.prompt_ids = p->ids,
			.prompt_count = p->count,
			.response_ids = tokens_of(rl, i),
			.response_count = rl->rollout.count[i],
			.finish = (enum mft_finish)rl->rollout.finish[i],
			.label = p->label,
			.row = p->row,
		};
		begin = end;
	}
}

static void add_member(struct mfs_buf *b, const char *name, const char *text, size_t len)
{
	mfs_buf_printf(b, ", \"%s\": ", name);
	mfs_buf_add_json_bytes(b, text, len);
}

static void add_samples(const struct mft_rl *rl, const struct mft_reward_row *rows,
			struct mfs_buf *b)
{
	const struct mft_rollout *r = &rl->rollout;

	for (uint32_t i = 0; i < mft_rollout_size(r); i++) {
		mfs_buf_printf(b,
			       "{\"rollout\": %llu, \"group\": %u, \"row\": %llu, \"reward\": "
			       "%.9g, \"finish_reason\": \"%s\", \"weight_version\": %llu",
			       (unsigned long long)r->number, i / r->group,
			       (unsigned long long)prompt_of(rl, i)->number, r->reward[i],
			       mft_finish_name((enum mft_finish)r->finish[i]),
			       (unsigned long long)r->last_version[i]);
		if (rows[i].response) {
			add_member(b, "prompt", rows[i].prompt, rows[i].prompt_len);
			add_member(b, "response", rows[i].response, rows[i].response_len);
		}
		mfs_buf_adds(b, ", \"token_ids\": [");
		for (uint32_t k = 0; k < r->count[i]; k++)
			mfs_buf_printf(b, "%s%u", k ? ", " : "", rows[i].response_ids[k]);
		mfs_buf_adds(b, "]}\n");
	}
}

int mft_rl_write_samples(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rl *rl = t->rl;
	struct mfs_buf *b = &rl->sample_lines;
	int rc = 0;

	if (rl->samples && b->failed)
		rc = mfs_fail_nomem(err);
	else if (rl->samples &&
		 (fwrite(b->data, 1, b->len, rl->samples) != b->len || fflush(rl->samples)))
		rc = mfs_fail(err, -errno, "--rl-log-samples: '%s': %s", t->config->rl_log_samples,
			      strerror(errno));
	mfs_buf_release(b);
	return rc;
}

/* Of the process that asks. */
static int score(struct mft_rl *rl, struct mfs_error *err)
{
	const uint32_t n = mft_rollout_size(&rl->rollout);
	struct mft_reward_row *rows = calloc(n, sizeof(*rows));
	struct texts texts = {.ends = calloc(2 * (size_t)n, sizeof(*texts.ends))};
	int rc = rows && texts.ends ? 0 : mfs_fail_nomem(err);

	if (!rc && rl->tokenizer)
		rc = decode_all(rl, &texts, err);
	if (!rc) {
		set_rows(rl, &texts, rows);
		rc = mft_rewards_score(rl->rewards, rows, n, rl->rollout.reward, err);
	}
	if (!rc && rl->samples)
		add_samples(rl, rows, &rl->sample_lines);
	mfs_buf_release(&texts.text);
	free(texts.ends);
	free(rows);
	return rc;
}

int mft_rl_reward(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rollout *r = &t->rl->rollout;
	const int64_t from = mfs_now_ns();
	int rc = 0;

	for (uint32_t i = 0; i < mft_rollout_size(r); i++)
		r->reward[i] = 0;
	if (!t->parallel.launch.rank)
		rc = score(t->rl, err);
	if (!rc)
		rc = mft_parallel_sum(&t->parallel, MFT_GROUP_WORLD, r->reward, mft_rollout_size(r),
				      err);
	t->rl->numbers.reward_s = (double)(mfs_now_ns() - from) / 1e9;
	return rc;
}
