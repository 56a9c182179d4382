/* What a run says of a rollout: a line, and TensorBoard's values by Megatron's names where it has
 * them (megatron/rl/rl_utils.py). */
#include <math.h>
#include <stdio.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "trainer/loop/rl_i.h"
#include "trainer/rl/advantage.h"

static void count(const struct mft_rollout *r, struct mft_rl_numbers *to)
{
	const uint32_t n = mft_rollout_size(r);
	double squares = 0, reward = 0, length = 0, truncated = 0, same = 0;

	for (uint32_t i = 0; i < n; i++) {
		reward += r->reward[i];
		squares += r->reward[i] * r->reward[i];
		length += r->count[i];
		truncated += r->finish[i] == MFT_FINISH_LENGTH;
	}
	for (uint32_t p = 0; p < r->prompts; p++)
		same += !mft_rl_has_signal(r->reward + (size_t)p * r->group, r->group);
	to->reward = reward / n;
	to->reward_std = sqrt(fmax(squares / n - to->reward * to->reward, 0));
	to->length = length / n;
	to->truncated = truncated / n;
	to->same = same / r->prompts;
}

void mft_rl_log(struct mft_trainer *t)
{
	struct mft_rl_numbers *n = &t->rl->numbers;
	const struct {
		const char *tag;
		double value;
	} told[] = {
		{"rl/mean_reward", n->reward},		 {"rl/reward_std", n->reward_std},
		{"rl/mean_length", n->length},		 {"rl/truncated", n->truncated},
		{"rl/groups_with_same_reward", n->same}, {"rl/generate_seconds", n->generate_s}};
	struct mfs_buf b = {0};

	count(&t->rl->rollout, n);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(told); i++)
		mft_log_value(t, told[i].tag, told[i].value);
	mfs_buf_printf(
		&b,
		" rollout %8llu | mean reward: %.6f | reward std: %.6f | mean length: %.1f | "
		"truncated: %.3f | groups of one reward: %.3f | seconds: %.2f to answer, %.2f "
		"to reward, %.2f for log-probs |\n",
		(unsigned long long)t->rl->rollout.number, n->reward, n->reward_std, n->length,
		n->truncated, n->same, n->generate_s, n->reward_s, n->log_probs_s);
	if (t->config->rl_inference_url.count)
		mfs_buf_printf(&b,
			       " weights %8llu | %.3f GB | seconds: %.3f to save, %.3f to fetch "
			       "ahead, %.3f paused |\n",
			       (unsigned long long)t->progress.iteration,
			       (double)n->sync_bytes / 1e9, n->save_s, n->ahead_s, n->paused_s);
	mft_log_text(t, &b);
}
