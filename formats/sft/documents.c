#define _GNU_SOURCE
#include "formats/sft/documents.h"

#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"

static int make_room(struct mfs_documents *d, uint64_t more, struct mfs_error *err)
{
	const uint64_t room = mfs_max_u64(2 * d->token_room, d->token_count + more);
	int32_t *tokens;
	uint8_t *counts;

	if (d->token_count + more <= d->token_room)
		return 0;
	tokens = realloc(d->tokens, room * sizeof(*tokens));
	d->tokens = tokens ? tokens : d->tokens;
	counts = realloc(d->counts, room);
	d->counts = counts ? counts : d->counts;
	if (!tokens || !counts)
		return mfs_fail_nomem(err);
	d->token_room = room;
	return 0;
}

int mfs_documents_add(struct mfs_documents *d, const struct mfs_turns *turns, uint32_t most,
		      uint32_t sample, struct mfs_error *err)
{
	const uint32_t count = (uint32_t)mfs_min_u64(turns->count, most);
	int rc = make_room(d, count, err);

	if (rc || !count)
		return rc;
	if (d->count == UINT32_MAX)
		return mfs_fail(err, -EFBIG, "there are 2^32 conversations, or more");
	if (mfs_grow(&d->at, d->count))
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < count; i++) {
		d->tokens[d->token_count + i] = (int32_t)turns->ids[i];
		d->counts[d->token_count + i] = turns->counts[i];
	}
	d->at[d->count++] = (struct mfs_document){d->token_count, count, sample};
	d->token_count += count;
	return 0;
}

void mfs_documents_release(struct mfs_documents *d)
{
	free(d->tokens);
	free(d->counts);
	free(d->at);
}

/* ---- packing ---- */

uint64_t mfs_packed_places(uint32_t count, uint32_t multiple)
{
	return mfs_round_up((uint64_t)count - (count > 1), multiple);
}

static int by_length(const void *a, const void *b, void *documents)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	const struct mfs_document *d = documents;
	const uint32_t m = d[x].count, n = d[y].count;

	return m != n ? (m < n ? 1 : -1) : x < y ? -1 : x > y;
}

static int by_sample(const void *a, const void *b)
{
	const struct mfs_document *x = a, *y = b;

	if (x->sample != y->sample)
		return x->sample < y->sample ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

int mfs_documents_pack(struct mfs_documents *d, uint32_t length, uint32_t multiple,
		       uint64_t *ret_samples, struct mfs_error *err)
{
	const uint64_t n = d->count;
	uint32_t *lengths = calloc(n, sizeof(*lengths)), *order = calloc(n, sizeof(*order)),
		 *bins = calloc(n, sizeof(*bins));
	int rc = 0;

	if (!lengths || !order || !bins) {
		rc = mfs_fail_nomem(err);
	} else {
		for (uint32_t i = 0; i < n; i++) {
			lengths[i] = (uint32_t)mfs_min_u64(
				mfs_packed_places(d->at[i].count, multiple), length);
			order[i] = i;
		}
		qsort_r(order, n, sizeof(*order), by_length, d->at);
		*ret_samples = mfs_first_fit(lengths, order, n, length, bins);
		for (uint64_t i = 0; i < n; i++)
			d->at[i].sample = bins[i];
		qsort(d->at, n, sizeof(*d->at), by_sample);
		rc = *ret_samples ? 0 : mfs_fail_nomem(err);
	}
	free(lengths);
	free(order);
	free(bins);
	return rc;
}
