#include "trainer/rl/reward/reward.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/rl/reward/reward_i.h"

/* The list of kinds. */
static const struct mft_reward_kind *const kinds[] = {
	&mft_reward_match,  &mft_reward_gsm8k, &mft_reward_boxed,   &mft_reward_regex,
	&mft_reward_length, &mft_reward_url,   &mft_reward_command,
};
#define NAMES "match, gsm8k, boxed, regex, length, url or command"

struct mft_rewards {
	struct part {
		const struct mft_reward_kind *kind;
		void *self;
	} * parts;
	size_t count;
};

static const struct mft_reward_kind *find(const char *name)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (mfs_str_is(name, kinds[i]->name))
			return kinds[i];
	return NULL;
}

static int open_part(struct mft_rewards *r, const struct mft_reward_config *c, const char *name,
		     struct mfs_error *err)
{
	struct part *p = &r->parts[r->count];
	int rc = 0;

	p->kind = find(name);
	if (!p->kind)
		return mfs_fail(err, -EINVAL, "--rl-reward: expected " NAMES ", found '%s'", name);
	if (p->kind->open)
		rc = p->kind->open(c, &p->self, err);
	r->count += !rc;
	return rc;
}

int mft_rewards_open(const struct mft_reward_config *config, struct mft_rewards **ret,
		     struct mfs_error *err)
{
	struct mft_rewards *r = calloc(1, sizeof(*r));
	int rc = 0;

	if (!r)
		return mfs_fail_nomem(err);
	r->parts = calloc(config->count + 1, sizeof(*r->parts));
	if (!r->parts)
		rc = mfs_fail_nomem(err);
	for (size_t i = 0; i < config->count && !rc; i++)
		rc = open_part(r, config, config->kinds[i], err);
	if (rc) {
		mft_rewards_close(r);
		return rc;
	}
	*ret = r;
	return 0;
}

void mft_rewards_close(struct mft_rewards *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->count; i++)
		if (r->parts[i].kind->close)
			r->parts[i].kind->close(r->parts[i].self);
	free(r->parts);
	free(r);
}

static int check_labels(const struct mft_reward_kind *kind, const struct mft_reward_row *rows,
			size_t count, struct mfs_error *err)
{
	for (size_t i = 0; i < count && kind->wants_label; i++)
		if (!rows[i].label)
			return mfs_fail(err, -EINVAL,
					"it compares with labels, and there are none: expected "
					"--rl-label-key");
	return 0;
}

int mft_rewards_score(struct mft_rewards *r, const struct mft_reward_row *rows, size_t count,
		      double *ret, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < count; i++)
		ret[i] = 0;
	for (size_t i = 0; i < r->count && !rc; i++) {
		rc = check_labels(r->parts[i].kind, rows, count, err);
		if (!rc)
			rc = r->parts[i].kind->score(r->parts[i].self, rows, count, ret, err);
		if (rc)
			mfs_fail_in(err, "the reward %s", r->parts[i].kind->name);
	}
	for (size_t i = 0; i < count && !rc; i++)
		if (!isfinite(ret[i]))
			rc = mfs_fail(err, -ERANGE, "response %zu: expected a finite reward", i);
	return rc;
}
