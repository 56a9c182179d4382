/*
 * Slots go round: the thread takes a free one, plans its reads, and when they are done makes a
 * batch of it, in order; the step takes the oldest batch and gives its slot back.
 */
#include "trainer/data/loader_i.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "trainer/data/batch_fill.h"
#include "trainer/data/stall.h"
#include "trainer/data/train_data.h"

#define LEAST_SLOTS  4
#define MOST_SLOTS   64
#define READ_THREADS 8 /* where io_uring is refused */

struct slot {
	struct mft_batch batch; /* the first member */
	struct mft_fetch fetch;
	uint64_t *samples; /* [B] */
	uint32_t own;
	int rc; /* no batch: why */
	struct mfs_error err;
};

/* Slots, first in, first out. */
struct queue {
	struct slot *slot[MOST_SLOTS];
	unsigned head, count;
};

struct mft_loader {
	struct mft_train_data data;
	struct mft_batch_rules rules;
	struct mft_fetcher *fetcher;
	struct mft_slot_memory_ops memory;
	struct slot slots[MOST_SLOTS];
	unsigned slot_count;
	int32_t *scratch;	/* [T] */
	struct mft_batch whole; /* of all processes that share its sequences; no block: of one */
	const char *engine;
	char why[128];
	uint64_t began_ns;

	/* the thread's alone */
	struct queue fetching;
	uint64_t next; /* microbatch */
	bool ended;    /* it found an error */

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t free_or_stop, ready_one;
	bool stop;
	struct queue free, ready;
	struct mft_stall stall;
	uint64_t batches, bytes, open_ns;
};

static void push(struct queue *q, struct slot *s)
{
	q->slot[(q->head + q->count++) % MOST_SLOTS] = s;
}

static struct slot *pop(struct queue *q)
{
	struct slot *s = q->slot[q->head];

	q->head = (q->head + 1) % MOST_SLOTS;
	q->count--;
	return s;
}

/* ---- the thread ---- */

static int plan(struct mft_loader *l, struct slot *s, struct mfs_error *err)
{
	int rc = mft_train_data_draw(&l->data, l->next, s->samples, &s->own, err);

	if (rc || l->data.sft)
		return rc;
	rc = mft_fetch_plan(l->fetcher, s->samples, l->data.micro, &s->fetch, err);
	return rc ? rc : mft_fetch_submit(l->fetcher, &s->fetch, err);
}

/* The error of a slot is its own; the slots after it are not planned any more. */
static void begin(struct mft_loader *l, struct slot *s)
{
	s->rc = plan(l, s, &s->err);
	l->ended = s->rc;
	l->next++;
	push(&l->fetching, s);
}

static int finish(struct mft_loader *l, struct slot *s)
{
	int rc;

	if (l->data.sft) {
		const struct mft_batch_documents from = {mft_batch_write_sft, l->data.sft};

		mft_batch_fill_documents(&l->rules, &from, s->samples, s->own, l->scratch,
					 &l->whole, &s->batch);
		return 0;
	}
	rc = mft_fetch_finish(l->fetcher, &s->fetch, &s->err);
	if (!rc && s->fetch.rc) {
		s->err = s->fetch.err;
		rc = s->fetch.rc;
	}
	return rc ? rc
		  : mft_batch_fill(&l->rules, &s->fetch, s->samples, s->own, l->scratch, &l->whole,
				   &s->batch, &s->err);
}

static void publish(struct mft_loader *l, struct slot *s)
{
	pthread_mutex_lock(&l->lock);
	if (!l->open_ns)
		l->open_ns = (uint64_t)mfs_now_ns() - l->began_ns;
	l->bytes += s->rc ? 0 : s->fetch.bytes;
	push(&l->ready, s);
	pthread_cond_signal(&l->ready_one);
	pthread_mutex_unlock(&l->lock);
}

/* A free slot. NULL: there is none, and the caller has something to do; or *ret_stop. */
static struct slot *take_free(struct mft_loader *l, bool *ret_stop)
{
	struct slot *s = NULL;

	pthread_mutex_lock(&l->lock);
	while (!l->stop && !l->fetching.count && (l->ended || !l->free.count))
		pthread_cond_wait(&l->free_or_stop, &l->lock);
	*ret_stop = l->stop;
	if (!l->ended && l->free.count)
		s = pop(&l->free);
	pthread_mutex_unlock(&l->lock);
	return s;
}

/* Once the first slots are full there is time to make the indices of datasets that no sample has
 * needed yet, so that no step has to wait for them. What fails here fails again when it is needed.
 */
static void build_others(struct mft_loader *l)
{
	struct mfs_error err;

	if (l->data.samples)
		mfs_samples_build(l->data.samples, NULL, 0, 0, &err);
}

static void *work(void *arg)
{
	struct mft_loader *l = arg;
	bool stop = false, built = false;

	for (;;) {
		struct slot *s = take_free(l, &stop);

		if (stop)
			break;
		if (s) {
			begin(l, s);
			continue;
		}
		s = pop(&l->fetching);
		if (!s->rc)
			s->rc = finish(l, s);
		l->ended |= s->rc != 0;
		publish(l, s);
		if (!built && !l->fetching.count) {
			build_others(l);
			built = true;
		}
	}
	if (l->fetcher)
		mft_fetcher_drain(l->fetcher);
	return NULL;
}

/* ---- making one ---- */

static int make_slot(struct mft_loader *l, struct slot *s, struct mfs_error *err)
{
	const uint64_t tokens = mft_batch_tokens(&l->rules);
	void *block = l->memory.alloc(l->memory.arg,
				      mft_batch_bytes(tokens, l->rules.ahead, l->rules.policy));

	if (!block)
		return mfs_fail_nomem(err);
	mft_batch_place(&s->batch, tokens, l->rules.ahead, l->rules.policy, block);
	s->fetch.raw =
		calloc(l->rules.sequences * ((uint64_t)l->rules.length + 1), sizeof(*s->fetch.raw));
	s->samples = calloc(l->rules.sequences, sizeof(*s->samples));
	if (!s->fetch.raw || !s->samples)
		return mfs_fail_nomem(err);
	push(&l->free, s);
	return 0;
}

static int make_whole(struct mft_loader *l, struct mfs_error *err)
{
	const uint64_t tokens = mft_batch_tokens(&l->rules) * l->rules.parts;
	void *block;

	if (l->rules.parts == 1)
		return 0;
	block = malloc(mft_batch_bytes(tokens, l->rules.ahead, l->rules.policy));
	if (!block)
		return mfs_fail_nomem(err);
	mft_batch_place(&l->whole, tokens, l->rules.ahead, l->rules.policy, block);
	return 0;
}

static int make_slots(struct mft_loader *l, int64_t workers, struct mfs_error *err)
{
	int rc = make_whole(l, err);

	l->slot_count = LEAST_SLOTS;
	if (workers > LEAST_SLOTS - 2)
		l->slot_count = (unsigned)mfs_min_u64((uint64_t)workers + 2, MOST_SLOTS);
	l->scratch = calloc(mft_batch_tokens(&l->rules), sizeof(*l->scratch));
	if (!rc && !l->scratch)
		return mfs_fail_nomem(err);
	for (unsigned i = 0; i < l->slot_count && !rc; i++)
		rc = make_slot(l, &l->slots[i], err);
	return rc;
}

static int start(struct mft_loader *l, struct mfs_error *err)
{
	const int rc = mfs_thread_start(&l->thread, "load", work, l);

	if (rc)
		return mfs_fail(err, rc, "the loader's thread: %s", strerror(-rc));
	l->has_thread = true;
	return 0;
}

static int open_all(struct mft_loader *l, const struct mft_train_config *config,
		    enum mfs_split split, uint32_t set, uint64_t consumed, uint32_t micro,
		    uint64_t vocab, struct mfs_io_engine *engine, struct mfs_error *err)
{
	int rc = mft_train_data_open(config, split, set, consumed, micro, vocab, &l->data, err);

	if (!rc)
		rc = mft_batch_rules_take(config, micro, vocab, &l->rules, err);
	if (rc) {
		mfs_io_engine_free(engine);
		return rc;
	}
	l->engine = config->mock_data ? "generated"
		    : config->sft     ? "memory"
				      : mfs_io_engine_name(engine);
	if (config->sft)
		mfs_io_engine_free(engine);
	else
		rc = mft_fetcher_new(l->data.samples, engine, MFT_LOADER_DEPTH, &l->fetcher, err);
	if (!rc)
		rc = make_slots(l, config->num_workers, err);
	return rc ? rc : start(l, err);
}

int mft_loader_new_on(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
		      uint64_t consumed, uint32_t micro, uint64_t vocab,
		      const struct mft_slot_memory_ops *memory, struct mfs_io_engine *engine,
		      struct mft_loader **ret, struct mfs_error *err)
{
	struct mft_loader *l = calloc(1, sizeof(*l));
	int rc;

	if (!l) {
		mfs_io_engine_free(engine);
		return mfs_fail_nomem(err);
	}
	l->began_ns = (uint64_t)mfs_now_ns();
	l->memory = *memory;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->free_or_stop, NULL);
	pthread_cond_init(&l->ready_one, NULL);
	rc = open_all(l, config, split, set, consumed, micro, vocab, engine, err);
	if (rc) {
		mft_loader_free(l);
		return rc;
	}
	*ret = l;
	return 0;
}

int mft_loader_sets(const struct mft_train_config *config, enum mfs_split split, uint32_t *ret,
		    struct mfs_error *err)
{
	return mft_train_data_sets(config, split, ret, err);
}

int mft_loader_new(const struct mft_train_config *config, enum mfs_split split, uint32_t set,
		   uint64_t consumed, uint32_t micro, uint64_t vocab,
		   const struct mft_slot_memory_ops *memory, struct mft_loader **ret,
		   struct mfs_error *err)
{
	struct mfs_io_engine *engine;
	struct mfs_error why = {0};
	int rc = mfs_io_uring(MFT_LOADER_DEPTH, &engine, &why);

	if (rc)
		rc = mfs_io_threads(MFT_LOADER_DEPTH, READ_THREADS, &engine, err);
	if (!rc)
		rc = mft_loader_new_on(config, split, set, consumed, micro, vocab, memory, engine,
				       ret, err);
	if (rc || !why.code)
		return rc;
	if (!config->mock_data && !config->sft)
		(*ret)->engine = "pread threads";
	snprintf((*ret)->why, sizeof((*ret)->why), "%s", why.msg);
	return 0;
}

void mft_loader_free(struct mft_loader *l)
{
	if (!l)
		return;
	if (l->has_thread) {
		pthread_mutex_lock(&l->lock);
		l->stop = true;
		pthread_cond_signal(&l->free_or_stop);
		pthread_mutex_unlock(&l->lock);
		pthread_join(l->thread, NULL);
	}
	for (unsigned i = 0; i < l->slot_count; i++) {
		struct slot *s = &l->slots[i];

		if (s->batch.block)
			l->memory.free(l->memory.arg, s->batch.block, s->batch.bytes);
		free(s->fetch.raw);
		free(s->fetch.parts);
		free(s->samples);
	}
	mft_fetcher_free(l->fetcher);
	mft_train_data_release(&l->data);
	free(l->scratch);
	free(l->whole.block);
	pthread_cond_destroy(&l->free_or_stop);
	pthread_cond_destroy(&l->ready_one);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* ---- the step ---- */

int mft_loader_next(struct mft_loader *l, const struct mft_batch **ret, struct mfs_error *err)
{
	uint64_t waited = 0;
	struct slot *s;

	pthread_mutex_lock(&l->lock);
	if (!l->ready.count) {
		const uint64_t from = (uint64_t)mfs_now_ns();

		while (!l->ready.count)
			pthread_cond_wait(&l->ready_one, &l->lock);
		waited = (uint64_t)mfs_now_ns() - from;
	}
	s = l->ready.slot[l->ready.head];
	if (!s->rc) {
		pop(&l->ready);
		if (l->batches++)
			mft_stall_add(&l->stall, waited);
	}
	pthread_mutex_unlock(&l->lock);
	if (s->rc) { /* the slot stays, for the next call */
		if (err)
			*err = s->err;
		return s->rc;
	}
	*ret = &s->batch;
	return 0;
}

void mft_loader_give_back(struct mft_loader *l, const struct mft_batch *b)
{
	pthread_mutex_lock(&l->lock);
	push(&l->free, (struct slot *)b);
	pthread_cond_signal(&l->free_or_stop);
	pthread_mutex_unlock(&l->lock);
}

static int source_next(void *arg, const struct mft_batch **ret, struct mfs_error *err)
{
	return mft_loader_next(arg, ret, err);
}

static void source_give_back(void *arg, const struct mft_batch *b)
{
	mft_loader_give_back(arg, b);
}

struct mft_batch_source mft_loader_source(struct mft_loader *l)
{
	static const struct mft_batch_source_ops ops = {source_next, source_give_back};

	return (struct mft_batch_source){&ops, l};
}

uint64_t mft_loader_microbatches(const struct mft_loader *l)
{
	return l->data.microbatches;
}

void mft_loader_stats(struct mft_loader *l, struct mft_loader_stats *ret)
{
	pthread_mutex_lock(&l->lock);
	*ret = (struct mft_loader_stats){
		.engine = l->engine,
		.why = *l->why ? l->why : NULL,
		.batches = l->batches,
		.tokens = l->batches * mft_batch_tokens(&l->rules),
		.bytes = l->bytes,
		.epoch_samples = l->data.sft ? mft_sft_blend_count(l->data.sft) : 0,
		.epoch_order = l->data.sft ? mft_sft_blend_order(l->data.sft) : 0,
		.stall_ns = l->stall.total_ns,
		.stall_p50_ns = mft_stall_percentile(&l->stall, 0.5),
		.stall_p99_ns = mft_stall_percentile(&l->stall, 0.99),
		.stall_max_ns = l->stall.max_ns,
		.open_ns = l->open_ns,
	};
	pthread_mutex_unlock(&l->lock);
}
