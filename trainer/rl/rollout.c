#include "trainer/rl/rollout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

#define AT_ONCE 65536 /* numbers that processes add up in one go */

int mft_rollout_new(uint32_t prompts, uint32_t group, uint32_t room, struct mft_rollout *ret,
		    struct mfs_error *err)
{
	const size_t n = (size_t)prompts * group, places = n * room;

	*ret = (struct mft_rollout){
		.prompts = prompts,
		.group = group,
		.room = room,
		.drawn = calloc(prompts, sizeof(*ret->drawn)),
		.count = calloc(n, sizeof(*ret->count)),
		.finish = calloc(n, sizeof(*ret->finish)),
		.first_version = calloc(n, sizeof(*ret->first_version)),
		.last_version = calloc(n, sizeof(*ret->last_version)),
		.reward = calloc(n, sizeof(*ret->reward)),
		.advantage = calloc(n, sizeof(*ret->advantage)),
		.tokens = calloc(places, sizeof(*ret->tokens)),
		.sampled = calloc(places, sizeof(*ret->sampled)),
		.old = calloc(places, sizeof(*ret->old)),
		.reference = calloc(places, sizeof(*ret->reference)),
	};
	if (ret->drawn && ret->count && ret->finish && ret->first_version && ret->last_version &&
	    ret->reward && ret->advantage && ret->tokens && ret->sampled && ret->old &&
	    ret->reference)
		return 0;
	mft_rollout_release(ret);
	return mfs_fail_nomem(err);
}

void mft_rollout_release(struct mft_rollout *r)
{
	free(r->drawn);
	free(r->count);
	free(r->finish);
	free(r->first_version);
	free(r->last_version);
	free(r->reward);
	free(r->advantage);
	free(r->tokens);
	free(r->sampled);
	free(r->old);
	free(r->reference);
	*r = (struct mft_rollout){0};
}

int mft_rollout_put(struct mft_rollout *r, uint32_t i, const struct mft_response *from,
		    uint64_t vocab, struct mfs_error *err)
{
	const size_t first = (size_t)i * r->room;

	if (!from->count || from->count > r->room)
		return mfs_fail(err, -EINVAL, "response %u: expected 1 to %u tokens, found %u", i,
				r->room, from->count);
	for (uint32_t t = 0; t < from->count; t++)
		if (from->tokens[t] >= vocab)
			return mfs_fail(err, -EINVAL,
					"response %u, token %u: expected less than %llu, found %u",
					i, t, (unsigned long long)vocab, from->tokens[t]);
	r->count[i] = from->count;
	r->finish[i] = (uint8_t)from->finish;
	r->first_version[i] = from->first_version;
	r->last_version[i] = from->last_version;
	memcpy(r->tokens + first, from->tokens, from->count * sizeof(*r->tokens));
	memcpy(r->sampled + first, from->log_probs, from->count * sizeof(*r->sampled));
	return 0;
}

/* ---- of all processes ---- */

/* Words of 32 bits, as they are: of each only one process has others than zeros. */
static int share_words(const struct mft_parallel *p, void *words, size_t count,
		       struct mfs_error *err)
{
	double *some = malloc(AT_ONCE * sizeof(*some));
	char *at = words;
	int rc = some ? 0 : mfs_fail_nomem(err);

	for (size_t done = 0; done < count && !rc; done += AT_ONCE) {
		const unsigned n = (unsigned)mfs_min_u64(count - done, AT_ONCE);
		uint32_t word;

		for (unsigned i = 0; i < n; i++) {
			memcpy(&word, at + (done + i) * sizeof(word), sizeof(word));
			some[i] = word;
		}
		rc = mft_parallel_sum(p, MFT_GROUP_WORLD, some, n, err);
		for (unsigned i = 0; i < n && !rc; i++) {
			word = (uint32_t)some[i];
			memcpy(at + (done + i) * sizeof(word), &word, sizeof(word));
		}
	}
	free(some);
	return rc;
}

static int share_bytes(const struct mft_parallel *p, uint8_t *bytes, size_t count,
		       struct mfs_error *err)
{
	uint32_t *words = calloc(count, sizeof(*words));
	int rc = words ? 0 : mfs_fail_nomem(err);

	for (size_t i = 0; i < count && !rc; i++)
		words[i] = bytes[i];
	if (!rc)
		rc = share_words(p, words, count, err);
	for (size_t i = 0; i < count && !rc; i++)
		bytes[i] = (uint8_t)words[i];
	free(words);
	return rc;
}

int mft_rollout_share(struct mft_rollout *r, const struct mft_parallel *p, struct mfs_error *err)
{
	const size_t n = mft_rollout_size(r), places = n * r->room;
	int rc;

	if (p->launch.size == 1)
		return 0;
	rc = share_words(p, r->count, n, err);
	if (!rc)
		rc = share_bytes(p, r->finish, n, err);
	if (!rc)
		rc = share_words(p, r->first_version, 2 * n, err);
	if (!rc)
		rc = share_words(p, r->last_version, 2 * n, err);
	if (!rc)
		rc = share_words(p, r->tokens, places, err);
	return rc ? rc : share_words(p, r->sampled, places, err);
}

int mft_rollout_share_rows(const struct mft_rollout *r, const struct mft_parallel *p, float *rows,
			   struct mfs_error *err)
{
	return p->launch.size == 1
		       ? 0
		       : share_words(p, rows, (size_t)mft_rollout_size(r) * r->room, err);
}
