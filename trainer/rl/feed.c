#include "trainer/rl/feed.h"

#include <errno.h>
#include <stdlib.h>

#include "trainer/data/batch_fill.h"
#include "trainer/parallel/context_parallel.h"

#define SLOTS 3 /* two that a step has at a time, and the next one */

struct mft_feed {
	struct mft_batch_rules rules;
	uint32_t rank, ranks;
	struct mft_slot_memory_ops memory;
	struct mft_batch slot[SLOTS];
	bool out[SLOTS];
	struct mft_batch whole; /* of all processes that share its sequences; no block: of one */
	int32_t *scratch;	/* [T] */
	uint64_t *samples;	/* [B] */
	struct mft_feed_of of;
	uint64_t next; /* microbatch */
};

/* ---- one bin ---- */

uint32_t mft_feed_places(const struct mft_prompt *prompt, uint32_t response_tokens)
{
	return prompt->count + response_tokens - 1;
}

static const struct mft_prompt *prompt_of(const struct mft_feed *f, uint32_t response)
{
	const struct mft_rollout *r = f->of.rollout;

	return mft_prompts_draw(f->of.prompts, r->drawn[response / r->group]);
}

/* What a label of the response has, its token number t; at: the place of the token before it. */
static void write_label(const struct mft_feed *f, uint32_t response, uint32_t t, uint64_t at,
			int32_t sequence, const struct mft_batch *to)
{
	const struct mft_rollout *r = f->of.rollout;
	const size_t from = (size_t)response * r->room + t;

	to->loss_mask[at] = (float)f->of.weight[response];
	to->old[at] = r->old[from];
	to->reference[at] = r->reference[from];
	to->rollout[at] = r->sampled[from];
	to->advantage[at] = (float)r->advantage[response];
	to->sequence[at] = sequence;
}

static void write_nothing(uint64_t at, const struct mft_batch *to)
{
	to->loss_mask[at] = 0;
	to->old[at] = to->reference[at] = to->rollout[at] = to->advantage[at] = 0;
	to->sequence[at] = -1;
}

static int32_t token_of(const struct mft_feed *f, uint32_t response, const struct mft_prompt *p,
			uint32_t t)
{
	const struct mft_rollout *r = f->of.rollout;

	return (int32_t)(t < p->count ? p->ids[t]
				      : r->tokens[(size_t)response * r->room + t - p->count]);
}

/* Writes a response from place `start` of a sample on; first: the sample's element. Returns how
 * many places it takes. */
static uint32_t write_response(const struct mft_feed *f, uint32_t response, uint64_t first,
			       uint32_t start, int32_t sequence, const struct mft_batch *to,
			       uint64_t *counted)
{
	const struct mft_prompt *p = prompt_of(f, response);
	const uint32_t places = mft_feed_places(p, f->of.rollout->count[response]);

	for (uint32_t t = 0; t < places; t++) {
		const uint64_t at = first + start + t;

		to->tokens[at] = token_of(f, response, p, t);
		to->labels[at] = token_of(f, response, p, t + 1);
		to->positions[at] = (int32_t)t;
		to->first_key[at] = (int32_t)start;
		if (t + 1 < p->count)
			write_nothing(at, to);
		else
			write_label(f, response, t + 1 - p->count, at, sequence, to);
		*counted += to->loss_mask[at] != 0;
	}
	return places;
}

static uint64_t write_bin(void *arg, uint64_t bin, uint64_t first, const struct mft_batch *to)
{
	const struct mft_feed *f = arg;
	const struct mft_bins *bins = f->of.bins;
	uint64_t counted = 0;
	uint32_t at = 0, rest;

	for (uint32_t i = bins->firsts[bin]; i < bins->firsts[bin + 1]; i++)
		at += write_response(f, bins->list[i], first, at, (int32_t)(i - bins->firsts[bin]),
				     to, &counted);
	for (rest = at; at < f->rules.length; at++) {
		to->tokens[first + at] = to->labels[first + at] = 0;
		to->positions[first + at] = (int32_t)(at - rest);
		to->first_key[first + at] = (int32_t)rest;
		write_nothing(first + at, to);
	}
	return counted;
}

/* ---- the source ---- */

/* Which bin a microbatch has as its sample number i. */
static uint64_t bin_of(const struct mft_feed *f, uint64_t microbatch, uint32_t i)
{
	return (microbatch * f->ranks + f->rank) * f->rules.sequences + i;
}

static int next(void *arg, const struct mft_batch **ret, struct mfs_error *err)
{
	const struct mft_batch_documents from = {write_bin, arg};
	struct mft_feed *f = arg;
	unsigned s = 0;

	if (f->next >= mft_feed_microbatches(f))
		return mfs_fail(err, -ENODATA, "the rollout has no more microbatches");
	while (f->out[s])
		s++;
	for (uint32_t i = 0; i < f->rules.sequences; i++)
		f->samples[i] = bin_of(f, f->next, i);
	mft_batch_fill_documents(&f->rules, &from, f->samples, f->rules.sequences, f->scratch,
				 &f->whole, &f->slot[s]);
	f->next++;
	f->out[s] = true;
	*ret = &f->slot[s];
	return 0;
}

static void give_back(void *arg, const struct mft_batch *b)
{
	struct mft_feed *f = arg;

	f->out[b - f->slot] = false;
}

struct mft_batch_source mft_feed_source(struct mft_feed *f)
{
	static const struct mft_batch_source_ops ops = {next, give_back};

	return (struct mft_batch_source){&ops, f};
}

void mft_feed_begin(struct mft_feed *f, const struct mft_feed_of *of)
{
	f->of = *of;
	f->next = 0;
}

uint64_t mft_feed_microbatches(const struct mft_feed *f)
{
	return f->of.bins->count / ((uint64_t)f->rules.sequences * f->ranks);
}

/* ---- log-probs of labels ---- */

/* Where this process's token number t of a sample lies in the whole sample. */
static uint32_t place_of(const struct mft_feed *f, uint32_t t)
{
	return (uint32_t)mft_context_position(f->rules.parts, f->rules.part, f->rules.length, t);
}

/* Log-probs of the labels of this process's part of a bin, [part]. */
static void scatter_bin(const struct mft_feed *f, uint64_t bin, uint32_t part,
			const float *log_probs, float *rows)
{
	const struct mft_rollout *r = f->of.rollout;
	const struct mft_bins *bins = f->of.bins;
	uint32_t start = 0, t = 0;

	/* Places of a process's part ascend, as responses do. */
	for (uint32_t i = bins->firsts[bin]; i < bins->firsts[bin + 1]; i++) {
		const uint32_t response = bins->list[i];
		const struct mft_prompt *p = prompt_of(f, response);
		const uint32_t end = start + mft_feed_places(p, r->count[response]);
		float *row = rows + (size_t)response * r->room;

		for (; t < part && place_of(f, t) < end; t++)
			if (place_of(f, t) + 1 >= start + p->count)
				row[place_of(f, t) + 1 - start - p->count] = log_probs[t];
		start = end;
	}
}

void mft_feed_scatter(const struct mft_feed *f, uint64_t microbatch, const float *log_probs,
		      float *rows)
{
	const uint32_t part = f->rules.length / f->rules.parts;

	for (uint32_t i = 0; i < f->rules.sequences; i++)
		scatter_bin(f, bin_of(f, microbatch, i), part, log_probs + (size_t)i * part, rows);
}

/* ---- making one ---- */

static int make_batch(struct mft_feed *f, unsigned s, struct mfs_error *err)
{
	const uint64_t tokens = mft_batch_tokens(&f->rules);
	void *block = f->memory.alloc(f->memory.arg,
				      mft_batch_bytes(tokens, f->rules.ahead, f->rules.policy));

	if (!block)
		return mfs_fail_nomem(err);
	mft_batch_place(&f->slot[s], tokens, f->rules.ahead, f->rules.policy, block);
	return 0;
}

static int make_whole(struct mft_feed *f, struct mfs_error *err)
{
	const uint64_t tokens = mft_batch_tokens(&f->rules) * f->rules.parts;
	void *block;

	if (f->rules.parts == 1)
		return 0;
	block = malloc(mft_batch_bytes(tokens, f->rules.ahead, f->rules.policy));
	if (!block)
		return mfs_fail_nomem(err);
	mft_batch_place(&f->whole, tokens, f->rules.ahead, f->rules.policy, block);
	return 0;
}

static int make(struct mft_feed *f, const struct mft_train_config *config, uint64_t vocab,
		struct mfs_error *err)
{
	int rc = mft_batch_rules_take(config, (uint32_t)config->micro_batch_size, vocab, &f->rules,
				      err);

	if (rc)
		return rc;
	f->scratch = calloc(mft_batch_tokens(&f->rules), sizeof(*f->scratch));
	f->samples = calloc(f->rules.sequences, sizeof(*f->samples));
	if (!f->scratch || !f->samples)
		return mfs_fail_nomem(err);
	rc = make_whole(f, err);
	for (unsigned s = 0; s < SLOTS && !rc; s++)
		rc = make_batch(f, s, err);
	return rc;
}

int mft_feed_new(const struct mft_train_config *config, uint64_t vocab, uint32_t rank,
		 uint32_t ranks, const struct mft_slot_memory_ops *memory, struct mft_feed **ret,
		 struct mfs_error *err)
{
	struct mft_feed *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return mfs_fail_nomem(err);
	f->rank = rank;
	f->ranks = ranks;
	f->memory = *memory;
	rc = make(f, config, vocab, err);
	if (rc) {
		mft_feed_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

void mft_feed_free(struct mft_feed *f)
{
	if (!f)
		return;
	for (unsigned s = 0; s < SLOTS; s++)
		if (f->slot[s].block)
			f->memory.free(f->memory.arg, f->slot[s].block, f->slot[s].bytes);
	free(f->whole.block);
	free(f->scratch);
	free(f->samples);
	free(f);
}
