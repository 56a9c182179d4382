#define _GNU_SOURCE
#include "trainer/data/sft/sft_samples.h"

#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/grow.h"
#include "formats/dataset/random/numpy.h"
#include "formats/sft/conversation.h"
#include "formats/sft/row_file.h"

struct document {
	uint64_t first; /* of the tokens */
	uint32_t count;
	uint32_t sample;
};

struct mft_sft {
	struct mft_sft_config config;
	int32_t *tokens;
	uint8_t *counts; /* of each token: as a label */
	uint64_t token_count, token_room;
	struct document *documents;
	uint64_t document_count;
	uint64_t *firsts; /* [samples + 1]: documents of each, which follow each other */
	uint64_t samples;
	uint32_t *order;      /* [samples] of an epoch; NULL: as they are */
	uint64_t order_epoch; /* plus 1; 0: none yet */
	uint32_t line;	      /* that is read; 0 is the first sample's */
};

/* ---- reading ---- */

static int make_room(struct mft_sft *s, uint64_t more, struct mfs_error *err)
{
	const uint64_t room = mfs_max_u64(2 * s->token_room, s->token_count + more);
	int32_t *tokens;
	uint8_t *counts;

	if (s->token_count + more <= s->token_room)
		return 0;
	tokens = realloc(s->tokens, room * sizeof(*tokens));
	s->tokens = tokens ? tokens : s->tokens;
	counts = realloc(s->counts, room);
	s->counts = counts ? counts : s->counts;
	if (!tokens || !counts)
		return mfs_fail_nomem(err);
	s->token_room = room;
	return 0;
}

static int add_document(void *arg, const struct mfs_turns *turns, struct mfs_error *err)
{
	struct mft_sft *s = arg;
	/* The token after the last one of a sample is of no use, and what is longer is cut. */
	const uint32_t count =
		(uint32_t)mfs_min_u64(turns->count, (uint64_t)s->config.length + s->config.packs);
	int rc = make_room(s, count, err);

	if (rc || !count)
		return rc;
	if (mfs_grow(&s->documents, s->document_count))
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < count; i++) {
		if (turns->ids[i] >= s->config.vocab)
			return mfs_fail(err, -EINVAL,
					"token %u is %u: the vocabulary has 0 to %llu", i,
					turns->ids[i], (unsigned long long)s->config.vocab - 1);
		s->tokens[s->token_count + i] = (int32_t)turns->ids[i];
		s->counts[s->token_count + i] = turns->counts[i];
	}
	s->documents[s->document_count++] =
		(struct document){.first = s->token_count, .count = count, .sample = s->line};
	s->token_count += count;
	return 0;
}

struct reading {
	struct mft_sft *s;
	struct mfs_talk *talk;
};

static int read_row(void *arg, json_t *row, struct mfs_error *err)
{
	struct reading *r = arg;
	const struct mfs_talk_hooks hooks = {r->s, add_document};
	const int rc = mfs_talk_row(r->talk, row, &hooks, err);

	r->s->line++;
	return rc;
}

/* ---- samples ---- */

static int by_length(const void *a, const void *b, void *documents)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	const struct document *d = documents;
	const uint32_t m = d[x].count, n = d[y].count;

	return m != n ? (m < n ? 1 : -1) : x < y ? -1 : x > y;
}

static int by_sample(const void *a, const void *b)
{
	const struct document *x = a, *y = b;

	if (x->sample != y->sample)
		return x->sample < y->sample ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Places of a document in a sample. The last token of one that is packed is a label alone. */
static uint32_t places(const struct mft_sft *s, const struct document *d)
{
	const uint32_t count = d->count - (s->config.packs && d->count > 1);

	return (uint32_t)mfs_round_up(count, s->config.multiple);
}

static int pack(struct mft_sft *s, struct mfs_error *err)
{
	const uint64_t n = s->document_count;
	uint32_t *lengths = calloc(n, sizeof(*lengths)), *order = calloc(n, sizeof(*order)),
		 *bins = calloc(n, sizeof(*bins));
	int rc = 0;

	if (!lengths || !order || !bins) {
		rc = mfs_fail_nomem(err);
	} else {
		for (uint32_t i = 0; i < n; i++) {
			lengths[i] = (uint32_t)mfs_min_u64(places(s, &s->documents[i]),
							   s->config.length);
			order[i] = i;
		}
		qsort_r(order, n, sizeof(*order), by_length, s->documents);
		s->samples = mft_first_fit(lengths, order, n, s->config.length, bins);
		for (uint64_t i = 0; i < n; i++)
			s->documents[i].sample = bins[i];
		qsort(s->documents, n, sizeof(*s->documents), by_sample);
		rc = s->samples ? 0 : mfs_fail_nomem(err);
	}
	free(lengths);
	free(order);
	free(bins);
	return rc;
}

static int index_samples(struct mft_sft *s, struct mfs_error *err)
{
	uint64_t at = 0;

	s->firsts = calloc(s->samples + 1, sizeof(*s->firsts));
	s->order = s->config.packs ? calloc(s->samples, sizeof(*s->order)) : NULL;
	if (!s->firsts || (s->config.packs && !s->order))
		return mfs_fail_nomem(err);
	for (uint64_t i = 0; i <= s->samples; i++) {
		while (at < s->document_count && s->documents[at].sample < i)
			at++;
		s->firsts[i] = at;
	}
	return 0;
}

static int take_range(struct mft_sft *s, uint64_t *first, uint64_t *end, struct mfs_error *err)
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits splits;
	uint64_t rows;
	int rc;

	if (!s->config.shares)
		return 0;
	rc = mfs_row_file_read(s->config.path, 0, 0, NULL, &rows, err);
	if (!rc)
		rc = mfs_splits_parse(s->config.shares, &rules, &splits, err);
	return rc ? rc : mfs_splits_range(&splits, s->config.split, rows, first, end, err);
}

static int fill(struct mft_sft *s, struct mfs_error *err)
{
	uint64_t first = 0, end = UINT64_MAX, rows;
	struct reading r = {s, NULL};
	const struct mfs_row_hooks hooks = {&r, read_row};
	int rc = take_range(s, &first, &end, err);

	if (!rc)
		rc = mfs_talk_open(s->config.tokenizer, s->config.format, s->config.answers_only,
				   (time_t)s->config.now, &r.talk, err);
	if (!rc)
		rc = mfs_row_file_read(s->config.path, first, end, &hooks, &rows, err);
	mfs_talk_free(r.talk);
	/* A split without data is passed over, but not one whose text cannot be made. */
	if (rc)
		return rc == -ENODATA ? -EINVAL : rc;
	if (!s->document_count || s->document_count > UINT32_MAX)
		return mfs_fail(err, -ENODATA,
				"%s has no conversations, or too many, for the %s split",
				s->config.path, mfs_split_name(s->config.split));
	s->samples = s->line;
	if (s->config.packs)
		rc = pack(s, err);
	return rc ? rc : index_samples(s, err);
}

int mft_sft_open(const struct mft_sft_config *config, struct mft_sft **ret, struct mfs_error *err)
{
	struct mft_sft *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	s->config = *config;
	rc = fill(s, err);
	if (rc) {
		mft_sft_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void mft_sft_free(struct mft_sft *s)
{
	if (!s)
		return;
	free(s->tokens);
	free(s->counts);
	free(s->documents);
	free(s->firsts);
	free(s->order);
	free(s);
}

uint64_t mft_sft_count(const struct mft_sft *s)
{
	return s->samples;
}

uint64_t mft_sft_order(const struct mft_sft *s)
{
	static const uint8_t key[16] = {0};
	uint64_t parts[4] = {0, s->config.length, s->config.multiple, s->config.seed};

	if (!s->order)
		return 0;
	parts[0] = mfs_siphash(parts, sizeof(parts), key);
	for (uint64_t i = 0; i < s->document_count; i++) {
		parts[1] = s->documents[i].sample;
		parts[2] = s->documents[i].count;
		parts[0] = mfs_siphash(parts, 3 * sizeof(*parts), key);
	}
	return parts[0] >> 1 | 1;
}

/* ---- one sample ---- */

static uint64_t number_of(struct mft_sft *s, uint64_t sample)
{
	const uint64_t epoch = sample / s->samples, i = sample % s->samples;
	struct mfs_numpy_random random;

	if (!s->order)
		return i;
	if (s->order_epoch != epoch + 1) {
		for (uint64_t k = 0; k < s->samples; k++)
			s->order[k] = (uint32_t)k;
		mfs_numpy_random_seed(&random, s->config.seed + (uint32_t)epoch);
		mfs_numpy_shuffle32(&random, s->order, s->samples);
		s->order_epoch = epoch + 1;
	}
	return s->order[i];
}

/* Writes a document from place `at` on, up to where the next one begins, which is returned. */
static uint32_t put(const struct mft_sft *s, const struct document *d, uint32_t at, int32_t pad,
		    const struct mft_sft_sample *to)
{
	const uint32_t end = (uint32_t)mfs_min_u64((uint64_t)at + places(s, d), s->config.length);
	const int32_t *tokens = s->tokens + d->first;
	const uint8_t *counts = s->counts + d->first;

	for (uint32_t t = at, i = 0; t < end; t++, i++) {
		const bool labelled =
			i + 1 < d->count && (s->config.packs || t + 1 < s->config.length);

		to->tokens[t] = i < d->count ? tokens[i] : pad;
		to->labels[t] = labelled ? tokens[i + 1] : pad;
		to->loss_mask[t] = labelled && counts[i + 1] ? 1 : 0;
		to->positions[t] = (int32_t)i;
		to->first_key[t] = (int32_t)at;
	}
	return end;
}

uint64_t mft_sft_read(struct mft_sft *s, uint64_t sample, int32_t pad,
		      const struct mft_sft_sample *to)
{
	const uint64_t n = number_of(s, sample);
	uint32_t at = 0, start = 0;
	uint64_t counted = 0;

	for (uint64_t d = s->firsts[n]; d < s->firsts[n + 1] && at < s->config.length; d++) {
		start = at;
		at = put(s, &s->documents[d], at, pad, to);
	}
	/* As in Megatron padding belongs to the last document. */
	for (; at < s->config.length; at++) {
		to->tokens[at] = to->labels[at] = pad;
		to->loss_mask[at] = 0;
		to->positions[at] = (int32_t)(at - start);
		to->first_key[at] = (int32_t)start;
	}
	for (uint32_t t = 0; t < s->config.length; t++)
		counted += to->loss_mask[t] != 0;
	return counted;
}
