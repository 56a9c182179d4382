/* What is taken from responses that come near to the longest that they may be. */
#include <errno.h>
#include <stdlib.h>

#include "trainer/rl/advantage.h"
#include "trainer/rl/reward/reward_i.h"

struct penalty {
	uint32_t most, buffer;
	double factor;
};

static int open_length(const struct mft_reward_config *c, void **ret, struct mfs_error *err)
{
	struct penalty *p;

	if (!c->overlong_buffer || c->overlong_buffer > c->length)
		return mfs_fail(err, -EINVAL,
				"--rl-reward length: expected --rl-overlong-buffer, 1 to %u tokens "
				"that a response may have; found %u",
				c->length, c->overlong_buffer);
	p = calloc(1, sizeof(*p));
	if (!p)
		return mfs_fail_nomem(err);
	*p = (struct penalty){c->length, c->overlong_buffer, c->overlong_factor};
	*ret = p;
	return 0;
}

static int score_length(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
			struct mfs_error *err)
{
	const struct penalty *p = self;

	(void)err;
	for (size_t i = 0; i < count; i++)
		ret[i] += mft_rl_overlong_penalty(rows[i].response_count, p->most, p->buffer,
						  p->factor);
	return 0;
}

const struct mft_reward_kind mft_reward_length = {
	.name = "length", .open = open_length, .close = free, .score = score_length};
