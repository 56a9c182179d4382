#include "trainer/data/sft/sft_samples.h"

#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/dataset/random/numpy.h"
#include "formats/sft/conversation.h"
#include "formats/sft/documents.h"
#include "formats/sft/row_file.h"

struct mft_sft {
	struct mft_sft_config config;
	bool packed; /* rows of the file are packed samples */
	struct mfs_documents documents;
	uint64_t *firsts; /* [samples + 1]: documents of each, which follow each other */
	uint64_t samples;
	uint32_t *order;      /* [samples] of an epoch; NULL: as they are */
	uint64_t order_epoch; /* plus 1; 0: none yet */
	uint32_t line;	      /* that is read; 0 is the first sample's */
};

/* ---- reading ---- */

static int add_document(void *arg, const struct mfs_turns *turns, struct mfs_error *err)
{
	struct mft_sft *s = arg;
	/* The token after the last one of a sample is of no use, and what is longer is cut. */
	const uint32_t most = s->packed ? UINT32_MAX : s->config.length + s->config.packs;

	for (size_t i = 0; i < turns->count && i < most; i++)
		if (turns->ids[i] >= s->config.vocab)
			return mfs_fail(err, -EINVAL,
					"token %zu is %u: the vocabulary has 0 to %llu", i,
					turns->ids[i], (unsigned long long)s->config.vocab - 1);
	return mfs_documents_add(&s->documents, turns, most, s->line, err);
}

struct reading {
	struct mft_sft *s;
	struct mfs_talk *talk;
};

/* Packed samples are taken as they are, and so they must be those of the run. */
static int check_packs(const struct mft_sft *s, uint64_t first, struct mfs_error *err)
{
	uint64_t places = 0;

	for (uint64_t i = first; i < s->documents.count; i++)
		places += mfs_packed_places(s->documents.at[i].count, s->config.multiple);
	if (places <= s->config.length)
		return 0;
	return mfs_fail(err, -EINVAL,
			"a packed sample has %llu tokens to train on, with each document's up to a "
			"multiple of %u: expected at most %u (--seq-length)",
			(unsigned long long)places, s->config.multiple, s->config.length);
}

static int read_row(void *arg, json_t *row, struct mfs_error *err)
{
	struct reading *r = arg;
	struct mft_sft *s = r->s;
	const struct mfs_talk_hooks hooks = {s, add_document};
	const uint64_t first = s->documents.count;
	int rc;

	if (!s->line)
		s->packed = mfs_row_is_packed(row);
	if (s->packed != mfs_row_is_packed(row))
		return mfs_fail(err, -EINVAL,
				"expected seq_start_id in all rows or in none: the first one has "
				"%s",
				s->packed ? "it" : "none");
	rc = mfs_talk_row(r->talk, row, &hooks, err);
	if (rc == -ENODATA && !s->config.tokenizer && s->config.overruled)
		mfs_fail(err, rc,
			 "messages need a tokenizer, and %s: "
			 "--no-use-tokenizer-model-from-checkpoint-args keeps the given one",
			 s->config.overruled);
	if (!rc && s->packed)
		rc = check_packs(s, first, err);
	s->line++;
	return rc;
}

/* ---- samples ---- */

/* Samples have several documents, each of whose last token is a label alone. */
static bool has_packs(const struct mft_sft *s)
{
	return s->config.packs || s->packed;
}

static uint64_t places(const struct mft_sft *s, const struct mfs_document *d)
{
	return has_packs(s) ? mfs_packed_places(d->count, s->config.multiple)
			    : mfs_round_up(d->count, s->config.multiple);
}

static int index_samples(struct mft_sft *s, struct mfs_error *err)
{
	uint64_t at = 0;

	s->firsts = calloc(s->samples + 1, sizeof(*s->firsts));
	s->order = has_packs(s) ? calloc(s->samples, sizeof(*s->order)) : NULL;
	if (!s->firsts || (has_packs(s) && !s->order))
		return mfs_fail_nomem(err);
	for (uint64_t i = 0; i <= s->samples; i++) {
		while (at < s->documents.count && s->documents.at[at].sample < i)
			at++;
		s->firsts[i] = at;
	}
	return 0;
}

/* A split without data is passed over, but not one whose text cannot be made, or whose files are
 * not there. */
static int no_data_is_wrong(int rc)
{
	return rc == -ENODATA ? -EINVAL : rc;
}

static int take_range(struct mft_sft *s, uint64_t *first, uint64_t *end, struct mfs_error *err)
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits splits;
	uint64_t rows;
	int rc;

	if (!s->config.shares)
		return 0;
	rc = no_data_is_wrong(mfs_row_file_read(s->config.path, 0, 0, NULL, &rows, err));
	if (!rc)
		rc = mfs_splits_parse(s->config.shares, &rules, &splits, err);
	return rc ? rc : mfs_splits_range(&splits, s->config.split, rows, first, end, err);
}

static int fill(struct mft_sft *s, struct mfs_error *err)
{
	uint64_t first = 0, end = UINT64_MAX, rows;
	struct reading r = {s, NULL};
	const struct mfs_row_hooks hooks = {.arg = &r, .row = read_row};
	int rc = take_range(s, &first, &end, err);

	if (rc)
		return rc;
	rc = mfs_talk_open(s->config.tokenizer, s->config.format, s->config.answers_only,
			   (time_t)s->config.now, &r.talk, err);
	if (!rc)
		rc = mfs_row_file_read(s->config.path, first, end, &hooks, &rows, err);
	mfs_talk_free(r.talk);
	if (rc)
		return no_data_is_wrong(rc);
	if (!s->documents.count)
		return mfs_fail(err, -ENODATA, "%s has no conversations for the %s split",
				s->config.path, mfs_split_name(s->config.split));
	s->samples = s->line;
	if (s->config.packs && !s->packed)
		rc = mfs_documents_pack(&s->documents, s->config.length, s->config.multiple,
					&s->samples, err);
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
	mfs_documents_release(&s->documents);
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
	for (uint64_t i = 0; i < s->documents.count; i++) {
		const struct mfs_document *d = &s->documents.at[i];

		/* Documents may have been padded when they were packed. */
		parts[1] = d->sample;
		parts[2] = s->config.multiple > 1 ? places(s, d) : d->count;
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
static uint32_t put(const struct mft_sft *s, const struct mfs_document *d, uint32_t at, int32_t pad,
		    const struct mft_sft_sample *to)
{
	const uint32_t end = (uint32_t)mfs_min_u64((uint64_t)at + places(s, d), s->config.length);
	const int32_t *tokens = s->documents.tokens + d->first;
	const uint8_t *counts = s->documents.counts + d->first;

	for (uint32_t t = at, i = 0; t < end; t++, i++) {
		const bool labelled =
			i + 1 < d->count && (has_packs(s) || t + 1 < s->config.length);

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
		at = put(s, &s->documents.at[d], at, pad, to);
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
