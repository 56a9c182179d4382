#include "trainer/data/batch_fill.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/args/megatron_args.h"
#include "trainer/parallel/context_parallel.h"

#define WIDEN 1024 /* tokens at once */
#define DIGIT 11   /* bits of a pass of a sort */

/* ---- the block ---- */

size_t mft_batch_bytes(uint64_t tokens, uint32_t ahead, bool policy)
{
	return (MFT_BATCH_ARRAY_COUNT + MFT_BATCH_AHEAD_COUNT * (size_t)ahead +
		(policy ? MFT_BATCH_POLICY_COUNT : 0)) *
	       mfs_round_up(tokens * sizeof(int32_t), MFT_BATCH_ALIGN);
}

#define PLACE(type, name, way)                                                                     \
	to->name = (type *)at;                                                                     \
	at += size;

static void place_ahead(struct mft_batch_ahead *to, size_t size, char *at)
{
	MFT_BATCH_ARRAYS_AHEAD(PLACE)
}

static void place(struct mft_batch *to, size_t size, char *at)
{
	MFT_BATCH_ARRAYS(PLACE)
}

static void place_policy(struct mft_batch *to, size_t size, char *at)
{
	MFT_BATCH_ARRAYS_POLICY(PLACE)
}

void mft_batch_place(struct mft_batch *b, uint64_t tokens, uint32_t ahead, bool policy, void *block)
{
	const size_t size = mfs_round_up(tokens * sizeof(int32_t), MFT_BATCH_ALIGN);
	char *at = block;

	b->block = block;
	b->bytes = mft_batch_bytes(tokens, ahead, policy);
	b->ahead_count = ahead;
	place(b, size, at);
	for (uint32_t k = 0; k < ahead; k++)
		place_ahead(&b->ahead[k], size,
			    at + (MFT_BATCH_ARRAY_COUNT + MFT_BATCH_AHEAD_COUNT * k) * size);
	if (policy)
		place_policy(b, size, at + b->bytes - MFT_BATCH_POLICY_COUNT * size);
}

static uint32_t ahead_of(const struct mft_train_config *config)
{
	const int64_t layers = config->model.mtp_num_layers;

	return layers <= 0 ? 0 : layers < MFT_MTP_MOST ? (uint32_t)layers : MFT_MTP_MOST;
}

int mft_batch_rules_take(const struct mft_train_config *config, uint32_t micro, uint64_t vocab,
			 struct mft_batch_rules *ret, struct mfs_error *err)
{
	uint64_t tokens;

	*ret = (struct mft_batch_rules){
		.sequences = micro,
		.length = (uint32_t)config->seq_length,
		.vocab = vocab,
		.eod = config->eod,
		.pad = config->pad, /* MFS_ABSENT is MFT_PAD_TOKEN_ID */
		.reset_position_ids = config->reset_position_ids,
		.reset_attention_mask = config->reset_attention_mask,
		.eod_mask_loss = config->eod_mask_loss,
		.parts = config->context_parallel_size > 1 ? (uint32_t)config->context_parallel_size
							   : 1,
		.part = (uint32_t)config->context_parallel_rank,
		.ahead = ahead_of(config),
		.policy = config->perform_rl_step,
	};
	if (!vocab || vocab > INT32_MAX)
		return mfs_fail(err, -EINVAL, "a vocabulary of %llu is impossible",
				(unsigned long long)vocab);
	if (mfs_mul_overflows(micro, ret->length + 1, &tokens) || tokens > INT32_MAX)
		return mfs_fail(err, -EINVAL,
				"a microbatch of %u sequences of %u tokens is too large", micro,
				ret->length);
	if (config->eod == MFS_ABSENT &&
	    (config->reset_position_ids || config->reset_attention_mask || config->eod_mask_loss))
		return mfs_fail(err, -EINVAL,
				"%s needs a token that ends a document: no tokenizer says one",
				config->eod_mask_loss	     ? "--eod-mask-loss"
				: config->reset_position_ids ? "--reset-position-ids"
							     : "--reset-attention-mask");
	return 0;
}

/* ---- tokens and labels ---- */

static int outside(const struct mft_batch_rules *r, const struct mft_fetch_part *part,
		   int64_t token, uint64_t sample, uint32_t at, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL,
			"%s: token %u of sample %llu is %lld: the vocabulary has 0 to %llu",
			part->rows->name, at, (unsigned long long)sample, (long long)token,
			(unsigned long long)r->vocab - 1);
}

/* Puts tokens of a sequence, from token `at` of its S + 1 on. */
static void put(const struct mft_batch_rules *r, struct mft_batch *b, uint32_t sequence,
		uint32_t at, const int64_t *wide, uint32_t count)
{
	const uint64_t first = (uint64_t)sequence * r->length + at;

	for (uint32_t i = 0; i < count; i++) {
		if (at + i < r->length)
			b->tokens[first + i] = (int32_t)wide[i];
		if (at + i)
			b->labels[first + i - 1] = (int32_t)wide[i];
	}
}

static void fill_with(int64_t *to, uint32_t count, int64_t token)
{
	for (uint32_t i = 0; i < count; i++)
		to[i] = token;
}

static int put_part(const struct mft_batch_rules *r, const struct mft_fetch *from,
		    const struct mft_fetch_part *part, const uint64_t *samples, struct mft_batch *b,
		    struct mfs_error *err)
{
	const uint32_t sequence = part->at / (r->length + 1), at = part->at % (r->length + 1);
	const uint8_t *bytes = (const uint8_t *)(from->raw + part->at);
	int64_t wide[WIDEN];

	for (uint32_t done = 0, n; done < part->count; done += n) {
		n = (uint32_t)mfs_min_u64(WIDEN, part->count - done);
		if (part->lacking)
			fill_with(wide, n, r->pad);
		else if (part->wide)
			memcpy(wide, from->raw + part->at + done, n * sizeof(*wide));
		else
			mfs_dtype_widen(part->rows->dtype,
					bytes + (size_t)done * part->rows->token_size, n, wide);
		for (uint32_t i = 0; i < n; i++)
			if ((uint64_t)wide[i] >= r->vocab && wide[i] != r->pad)
				return outside(r, part, wide[i], samples[sequence], at + done + i,
					       err);
		put(r, b, sequence, at + done, wide, n);
	}
	return 0;
}

/* ---- positions and masks ---- */

static uint64_t fill_sequence(const struct mft_batch_rules *r, struct mft_batch *b,
			      uint32_t sequence, bool counts)
{
	const uint64_t first = (uint64_t)sequence * r->length;
	int32_t *tokens = b->tokens + first, *labels = b->labels + first;
	uint32_t start = 0; /* of the document at hand */
	uint64_t counted = 0;

	for (uint32_t t = 0; t < r->length; t++) {
		const bool ends = r->eod != MFS_ABSENT && tokens[t] == r->eod;
		const bool masked = !counts || (r->eod_mask_loss && ends) || labels[t] == r->pad;

		b->positions[first + t] = (int32_t)(r->reset_position_ids ? t - start : t);
		b->first_key[first + t] = r->reset_attention_mask ? (int32_t)start : 0;
		b->documents |= b->first_key[first + t] != 0;
		b->loss_mask[first + t] = masked ? 0 : 1;
		counted += !masked;
		if (tokens[t] == r->pad)
			tokens[t] = 0;
		if (labels[t] == r->pad)
			labels[t] = 0;
		if (ends)
			start = t + 1;
	}
	return counted;
}

/* ---- tokens further on ---- */

static void roll(void *to, const void *from, uint32_t length, uint32_t by)
{
	const size_t left = by < length ? length - by : 0, size = sizeof(int32_t);

	memcpy(to, (const char *)from + (length - left) * size, left * size);
	memset((char *)to + left * size, 0, (length - left) * size);
}

#define ROLL(type, name, way)                                                                      \
	if (way == MFT_BATCH_MOVES)                                                                \
		roll(a->name + first, b->name + first, r->length, by);

static void fill_ahead(const struct mft_batch_rules *r, const struct mft_batch *b, uint32_t by,
		       struct mft_batch_ahead *a)
{
	a->counted = 0;
	for (uint32_t i = 0; i < r->sequences; i++) {
		const uint64_t first = (uint64_t)i * r->length;

		MFT_BATCH_ARRAYS_AHEAD(ROLL)
		for (uint32_t t = 0; t < r->length; t++)
			a->counted += a->loss_mask[first + t] != 0;
	}
}

/* ---- one of several parts ---- */

#define COPY(type, name, way)                                                                      \
	if (way == MFT_BATCH_MOVES)                                                                \
		memcpy(to->name + at, from->name + first, count * sizeof(type));

static void copy_piece(struct mft_batch *to, uint64_t at, const struct mft_batch *from,
		       uint64_t first, uint64_t count)
{
	MFT_BATCH_ARRAYS(COPY)
}

static void copy_piece_policy(struct mft_batch *to, uint64_t at, const struct mft_batch *from,
			      uint64_t first, uint64_t count)
{
	MFT_BATCH_ARRAYS_POLICY(COPY)
}

static void copy_piece_ahead(struct mft_batch_ahead *to, uint64_t at,
			     const struct mft_batch_ahead *from, uint64_t first, uint64_t count)
{
	MFT_BATCH_ARRAYS_AHEAD(COPY)
}

/* This process's two pieces of each sequence. */
static void take_part(const struct mft_batch_rules *r, const struct mft_batch *whole,
		      struct mft_batch *b)
{
	const uint64_t piece = r->length / (2 * r->parts);

	for (uint32_t i = 0; i < 2 * r->sequences; i++) {
		const uint64_t at = i * piece;
		const uint64_t from =
			(uint64_t)(i / 2) * r->length +
			(uint64_t)mft_context_piece(r->parts, r->part, r->length, (int)(i % 2));

		copy_piece(b, at, whole, from, piece);
		if (r->policy)
			copy_piece_policy(b, at, whole, from, piece);
		for (uint32_t k = 0; k < r->ahead; k++)
			copy_piece_ahead(&b->ahead[k], at, &whole->ahead[k], from, piece);
	}
	b->counted = whole->counted;
	b->documents = whole->documents;
	for (uint32_t k = 0; k < r->ahead; k++)
		b->ahead[k].counted = whole->ahead[k].counted;
}

/* ---- orders ---- */

/* One pass of a radix sort, which keeps the order of equal digits. */
static void sort_digit(const int32_t *key, const int32_t *from, int32_t *to, uint64_t count,
		       unsigned shift)
{
	uint32_t place[(1 << DIGIT) + 1] = {0};
	const uint32_t mask = (1 << DIGIT) - 1;

	for (uint64_t i = 0; i < count; i++)
		place[((uint32_t)key[i] >> shift & mask) + 1]++;
	for (uint32_t d = 0; d < mask; d++)
		place[d + 1] += place[d];
	for (uint64_t i = 0; i < count; i++)
		to[place[(uint32_t)key[from[i]] >> shift & mask]++] = from[i];
}

/* Numbers 0 to count-1 by (key, number); keys are less than limit. */
static void sort_numbers(const int32_t *key, uint64_t count, uint64_t limit, int32_t *scratch,
			 int32_t *ret)
{
	unsigned passes = 1;
	int32_t *a = ret, *b = scratch, *swap;

	while (limit > (uint64_t)1 << passes * DIGIT)
		passes++;
	if (passes % 2) {
		a = scratch;
		b = ret;
	}
	for (uint64_t i = 0; i < count; i++)
		a[i] = (int32_t)i;
	for (unsigned p = 0; p < passes; p++) {
		sort_digit(key, a, b, count, p * DIGIT);
		swap = a;
		a = b;
		b = swap;
	}
}

/* What follows from the sequences of all processes: this one's part, and orders. */
static void complete(const struct mft_batch_rules *rules, int32_t *scratch, struct mft_batch *all,
		     struct mft_batch *b)
{
	const uint64_t count = mft_batch_tokens(rules);

	for (uint32_t k = 0; k < rules->ahead; k++)
		fill_ahead(rules, all, k + 1, &all->ahead[k]);
	if (rules->parts > 1)
		take_part(rules, all, b);
	sort_numbers(b->tokens, count, rules->vocab, scratch, b->order);
	sort_numbers(b->positions, count, rules->length, scratch, b->position_order);
	for (uint32_t k = 0; k < rules->ahead; k++) {
		struct mft_batch_ahead *a = &b->ahead[k];

		sort_numbers(a->tokens, count, rules->vocab, scratch, a->order);
		sort_numbers(a->positions, count, rules->length, scratch, a->position_order);
	}
}

int mft_batch_fill(const struct mft_batch_rules *rules, const struct mft_fetch *from,
		   const uint64_t *samples, uint32_t own, int32_t *scratch, struct mft_batch *whole,
		   struct mft_batch *b, struct mfs_error *err)
{
	struct mft_batch *all = rules->parts > 1 ? whole : b;
	int rc = 0;

	all->counted = 0;
	all->documents = false;
	for (uint32_t i = 0; i < from->part_count && !rc; i++)
		rc = put_part(rules, from, &from->parts[i], samples, all, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < rules->sequences; i++)
		all->counted += fill_sequence(rules, all, i, i < own);
	complete(rules, scratch, all, b);
	return 0;
}

uint64_t mft_batch_write_sft(void *arg, uint64_t sample, uint64_t first, const struct mft_batch *to)
{
	const struct mft_sft_sample at = {to->tokens + first, to->labels + first,
					  to->positions + first, to->first_key + first,
					  to->loss_mask + first};

	return mft_sft_blend_read(arg, sample, 0, &at);
}

void mft_batch_fill_documents(const struct mft_batch_rules *rules,
			      const struct mft_batch_documents *from, const uint64_t *samples,
			      uint32_t own, int32_t *scratch, struct mft_batch *whole,
			      struct mft_batch *b)
{
	struct mft_batch *all = rules->parts > 1 ? whole : b;

	all->counted = 0;
	all->documents = true;
	for (uint32_t i = 0; i < rules->sequences; i++) {
		const uint64_t first = (uint64_t)i * rules->length;
		const uint64_t counted = from->write(from->arg, samples[i], first, all);

		if (i < own)
			all->counted += counted;
		else
			memset(all->loss_mask + first, 0, rules->length * sizeof(*all->loss_mask));
	}
	complete(rules, scratch, all, b);
}
