#include "trainer/rl/bins.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"

/* What the bins have, while they are filled. */
struct filling {
	uint32_t *left, *has; /* [count]: places, and responses, of each bin */
	uint32_t *bin;	      /* [count]: of each response */
	uint32_t open;	      /* the first bin that may have room */
	uint32_t bins;
};

/* The first bin with room. Full ones at the beginning are not looked at again. */
static uint32_t find(struct filling *f, const struct mft_bins_rules *rules, uint32_t length)
{
	uint32_t b;

	while (f->open < f->bins && (!f->left[f->open] || f->has[f->open] == rules->most))
		f->open++;
	for (b = f->open; b < f->bins; b++)
		if (f->left[b] >= length && f->has[b] < rules->most)
			return b;
	f->left[b] = rules->room;
	f->bins++;
	return b;
}

static void fill(struct filling *f, const struct mft_bins_rules *rules, const uint32_t *lengths,
		 uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t b = find(f, rules, lengths[i]);

		f->bin[i] = b;
		f->left[b] -= lengths[i];
		f->has[b]++;
	}
}

static int list_bins(const struct filling *f, const struct mft_bins_rules *rules,
		     const uint32_t *responses, uint32_t count, struct mft_bins *ret)
{
	ret->count = (uint32_t)mfs_round_up(mfs_max_u64(f->bins, 1), rules->multiple);
	ret->firsts = calloc((size_t)ret->count + 2, sizeof(*ret->firsts));
	ret->list = calloc((size_t)count + 1, sizeof(*ret->list));
	if (!ret->firsts || !ret->list)
		return -ENOMEM;
	/* firsts[b + 1] goes on from where bin b begins while its responses are listed. */
	for (uint32_t b = 0; b < ret->count; b++)
		ret->firsts[b + 2] = ret->firsts[b + 1] + (b < f->bins ? f->has[b] : 0);
	for (uint32_t i = 0; i < count; i++)
		ret->list[ret->firsts[f->bin[i] + 1]++] = responses[i];
	return 0;
}

int mft_bins_pack(const struct mft_bins_rules *rules, const uint32_t *responses,
		  const uint32_t *lengths, uint32_t count, struct mft_bins *ret,
		  struct mfs_error *err)
{
	const size_t n = (size_t)count + 1;
	struct filling f = {calloc(n, sizeof(*f.left)), calloc(n, sizeof(*f.has)),
			    calloc(n, sizeof(*f.bin)), 0, 0};
	int rc = f.left && f.has && f.bin ? 0 : -ENOMEM;

	*ret = (struct mft_bins){0};
	if (!rc) {
		fill(&f, rules, lengths, count);
		rc = list_bins(&f, rules, responses, count, ret);
	}
	free(f.left);
	free(f.has);
	free(f.bin);
	if (!rc)
		return 0;
	mft_bins_release(ret);
	return mfs_fail_nomem(err);
}

void mft_bins_release(struct mft_bins *b)
{
	free(b->firsts);
	free(b->list);
	*b = (struct mft_bins){0};
}
