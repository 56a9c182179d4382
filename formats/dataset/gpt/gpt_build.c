/*
 * The indices of a GPT dataset (gpt_dataset.py: _build_document_index, _build_shuffle_index).
 *
 * One generator gives all random numbers: first those of the document index, then those of the
 * shuffle index, whose length does not depend on the documents' order. So the sums over the
 * shuffled documents are made by another thread meanwhile.
 *
 * Documents are shuffled together with their lengths, as pairs of 8 bytes: an exchange waits for
 * memory once whatever its size, and sums over pairs that are in order wait no more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/gpt/gpt_dataset_i.h"
#include "formats/dataset/gpt/index_memory.h"
#include "formats/dataset/random/numpy.h"

#define CHUNK	    (1u << 16) /* lengths copied at once */
#define DROP_CHUNKS 128	       /* after so many, what reading them has mapped is let go of */

void mfs_gpt_drop_indices(struct mfs_gpt_dataset *g)
{
	mfs_index_free(g->document_index, 4 * g->documents);
	mfs_index_free(g->sums, 8 * mfs_gpt_sum_count(g));
	mfs_index_free(g->shuffle_index, g->sizes.samples * mfs_gpt_dataset_shuffle_index_width(g));
	g->document_index = NULL;
	g->sums = NULL;
	g->shuffle_index = NULL;
}

/* What threads work on; lengths are taken in portions, none twice. */
struct job {
	struct mfs_gpt_dataset *g;
	int32_t *lengths;     /* of the sequences [first, end) */
	uint64_t *pairs;      /* of the documents: number and length; becomes the document index */
	uint64_t last_length; /* of the last document */
	_Atomic uint64_t next_length;
	pthread_mutex_t lock; /* of rc and err */
	int rc;
	struct mfs_error err;
};

static int allocate(struct job *j, struct mfs_error *err)
{
	struct mfs_gpt_dataset *g = j->g;

	j->lengths = mfs_index_alloc(4 * (g->end - g->first));
	j->pairs = mfs_index_alloc(8 * g->documents);
	g->sums = mfs_index_alloc(8 * mfs_gpt_sum_count(g));
	g->shuffle_index =
		mfs_index_alloc(g->sizes.samples * mfs_gpt_dataset_shuffle_index_width(g));
	if (j->lengths && j->pairs && g->sums && g->shuffle_index)
		return 0;
	return mfs_fail(
		err, -ENOMEM, "no memory: %llu bytes are needed for the indices of %llu documents",
		(unsigned long long)mfs_gpt_dataset_bytes(g), (unsigned long long)g->documents);
}

/* ---- random numbers ---- */

/* A document and its length, shuffled as one number. */
static uint64_t pair_of(uint32_t document, int32_t length)
{
	return (uint64_t)(uint32_t)length << 32 | document;
}

static void order_documents(struct job *j, struct mfs_numpy_random *r)
{
	const struct mfs_gpt_dataset *g = j->g;
	const uint64_t per_epoch = g->end - g->first;
	uint64_t *pairs = j->pairs, *a = pairs;

	for (uint64_t e = 0; e < g->sizes.epochs; e++)
		for (uint64_t i = 0; i < per_epoch; i++)
			*a++ = pair_of((uint32_t)(g->first + i), j->lengths[i]);
	if (!g->sizes.separate) {
		mfs_numpy_shuffle64(r, pairs, g->documents);
		return;
	}
	mfs_numpy_shuffle64(r, pairs, g->documents - per_epoch);
	mfs_numpy_shuffle64(r, pairs + g->documents - per_epoch, per_epoch);
}

static void order_samples(struct mfs_gpt_dataset *g, struct mfs_numpy_random *r)
{
	const uint64_t before = g->sizes.samples_before, rest = g->sizes.samples - before;

	if (mfs_gpt_dataset_shuffle_index_width(g) == 8) {
		uint64_t *a = g->shuffle_index;

		for (uint64_t i = 0; i < g->sizes.samples; i++)
			a[i] = i;
		mfs_numpy_shuffle64(r, a, before);
		mfs_numpy_shuffle64(r, a + before, rest);
	} else {
		uint32_t *a = g->shuffle_index;

		for (uint64_t i = 0; i < g->sizes.samples; i++)
			a[i] = (uint32_t)i;
		mfs_numpy_shuffle32(r, a, before);
		mfs_numpy_shuffle32(r, a + before, rest);
	}
}

/* ---- sums ---- */

static void failed(struct job *j, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&j->lock);
	if (!j->rc) {
		j->rc = rc;
		j->err = *err;
	}
	pthread_mutex_unlock(&j->lock);
}

/* Copies the lengths, as each is used once an epoch. */
static void *copy_lengths(void *arg)
{
	struct job *j = arg;
	const uint64_t total = j->g->end - j->g->first;
	struct mfs_error err = {0};
	uint64_t at;

	while ((at = atomic_fetch_add(&j->next_length, CHUNK)) < total) {
		int rc = mfs_rows_lengths(j->g->data, j->g->first + at,
					  mfs_min_u64(CHUNK, total - at), j->lengths + at, &err);

		if (rc) {
			failed(j, rc, &err);
			break;
		}
		if (at / CHUNK % DROP_CHUNKS == DROP_CHUNKS - 1)
			mfs_rows_drop(j->g->data);
	}
	return NULL;
}

/* Pairs become the document index, in the first half of their own memory, and sums of blocks of
 * MFS_GPT_STRIDE documents. A pair is read before its place is written. */
static void *part_pairs(void *arg)
{
	struct job *j = arg;
	const uint64_t documents = j->g->documents;
	uint8_t *bytes = (uint8_t *)j->pairs;
	uint64_t *sum = j->g->sums, pair;

	for (uint64_t at = 0; at < documents; sum++) {
		const uint64_t end = mfs_min_u64(at + MFS_GPT_STRIDE, documents);

		*sum = 0;
		for (; at < end; at++) {
			memcpy(&pair, bytes + 8 * at, 8);
			memcpy(bytes + 4 * at, &pair, 4); /* little-endian: the document */
			*sum += pair >> 32;
		}
	}
	return NULL;
}

/* Block sums become sums of all before. */
static int accumulate(struct mfs_gpt_dataset *g, struct mfs_error *err)
{
	const uint64_t count = mfs_gpt_sum_count(g);
	uint64_t sum = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint64_t block = g->sums[i];

		g->sums[i] = sum;
		sum += block;
	}
	if (sum != g->sizes.tokens)
		return mfs_fail(
			err, -EINVAL,
			"%s: the lengths of the split's sequences add up to %llu tokens, but "
			"their starts say %llu: the index is damaged",
			g->data->name, (unsigned long long)(sum / g->sizes.epochs),
			(unsigned long long)(g->sizes.tokens / g->sizes.epochs));
	return 0;
}

/* ---- threads ---- */

static void run(struct job *j, unsigned threads)
{
	struct mfs_numpy_random random;
	pthread_t helper;
	bool helped;

	mfs_threads_run(threads, copy_lengths, j);
	if (j->rc)
		return;
	mfs_numpy_random_seed(&random, j->g->config.seed);
	order_documents(j, &random);
	j->last_length = j->pairs[j->g->documents - 1] >> 32;
	helped = threads > 1 && !pthread_create(&helper, NULL, part_pairs, j);
	order_samples(j->g, &random);
	if (helped)
		pthread_join(helper, NULL);
	else
		part_pairs(j);
}

/* Megatron's index would have an offset of -1 there, and its assertion fails. */
static int check_last_row(const struct job *j, struct mfs_error *err)
{
	const struct mfs_gpt_dataset *g = j->g;
	const uint64_t end = g->sizes.samples * g->config.seq_length + g->extra;

	if (!g->extra || end <= g->sizes.tokens || j->last_length)
		return 0;
	return mfs_fail(
		err, -EINVAL,
		"the last partial sample cannot be kept: the last sequence is empty, and Megatron "
		"fails there, too");
}

int mfs_gpt_build_indices(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err)
{
	struct job j = {.g = g, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc = allocate(&j, err);

	if (!rc) {
		run(&j, threads);
		rc = j.rc;
		if (rc && err)
			*err = j.err;
	}
	if (!rc)
		rc = accumulate(g, err);
	if (!rc)
		rc = check_last_row(&j, err);
	if (!rc) {
		mfs_index_shrink(j.pairs, 8 * g->documents, 4 * g->documents);
		g->document_index = (uint32_t *)j.pairs;
	} else {
		mfs_index_free(j.pairs, 8 * g->documents);
	}
	mfs_index_free(j.lengths, 4 * (g->end - g->first));
	return rc;
}

/* ---- many datasets ---- */

struct many {
	struct mfs_gpt_dataset *const *g;
	size_t count;
	unsigned threads_each;
	_Atomic size_t next;
	pthread_mutex_t lock;
	size_t failed; /* the lowest number of a dataset that failed, or count */
	int rc;
	struct mfs_error err;
};

static void *build_some(void *arg)
{
	struct many *m = arg;
	size_t i;

	while ((i = atomic_fetch_add(&m->next, 1)) < m->count) {
		struct mfs_error err = {0};
		int rc = mfs_gpt_dataset_build(m->g[i], m->threads_each, &err);

		if (!rc)
			continue;
		pthread_mutex_lock(&m->lock);
		if (i < m->failed) {
			m->failed = i;
			m->rc = rc;
			m->err = err;
		}
		pthread_mutex_unlock(&m->lock);
	}
	return NULL;
}

int mfs_gpt_dataset_build_all(struct mfs_gpt_dataset *const *g, size_t count, unsigned threads,
			      struct mfs_error *err)
{
	struct many m = {
		.g = g, .count = count, .failed = count, .lock = PTHREAD_MUTEX_INITIALIZER};

	if (!threads)
		threads = 1;
	if (threads > MFS_THREADS_MAX)
		threads = MFS_THREADS_MAX;
	m.threads_each = count && threads > count ? threads / (unsigned)count : 1;
	mfs_threads_run((unsigned)mfs_min_u64(threads, count), build_some, &m);
	if (m.rc && err)
		*err = m.err;
	return m.rc;
}
