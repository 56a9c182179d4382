/*
 * The indices of a GPT dataset (gpt_dataset.py: _build_document_index, _build_shuffle_index).
 *
 * One generator gives all random numbers: first those of the document index, then those of the shuffle
 * index, whose length does not depend on the documents' order. So the sums over the shuffled documents,
 * which are half of the work, are made by other threads meanwhile.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/gpt_dataset_i.h"
#include "formats/dataset/index_memory.h"
#include "formats/dataset/numpy_random.h"

#define CHUNK	    (1u << 16) /* lengths copied at once */
#define DROP_CHUNKS 128	       /* after so many, what reading them has mapped is let go of */
#define MAX_THREADS 256

void mfs_gpt_drop_indices(struct mfs_gpt_dataset *g)
{
	mfs_index_free(g->document_index, 4 * g->documents);
	mfs_index_free(g->sums, 8 * mfs_gpt_sum_count(g));
	mfs_index_free(g->shuffle_index, g->sizes.samples * mfs_gpt_dataset_shuffle_index_width(g));
	g->document_index = NULL;
	g->sums = NULL;
	g->shuffle_index = NULL;
}

static int allocate(struct mfs_gpt_dataset *g, struct mfs_error *err)
{
	g->document_index = mfs_index_alloc(4 * g->documents);
	g->sums = mfs_index_alloc(8 * mfs_gpt_sum_count(g));
	g->shuffle_index =
		mfs_index_alloc(g->sizes.samples * mfs_gpt_dataset_shuffle_index_width(g));
	if (g->document_index && g->sums && g->shuffle_index)
		return 0;
	return mfs_fail(err, -ENOMEM, "no %llu bytes for the indices of %llu documents",
			(unsigned long long)mfs_gpt_dataset_bytes(g),
			(unsigned long long)g->documents);
}

/* ---- random numbers ---- */

static void order_documents(struct mfs_gpt_dataset *g, struct mfs_numpy_random *r)
{
	const uint64_t per_epoch = g->end - g->first;
	uint32_t *a = g->document_index;

	for (uint64_t e = 0; e < g->sizes.epochs; e++)
		for (uint64_t i = 0; i < per_epoch; i++)
			*a++ = (uint32_t)(g->first + i);
	if (!g->sizes.separate) {
		mfs_numpy_shuffle32(r, g->document_index, g->documents);
		return;
	}
	mfs_numpy_shuffle32(r, g->document_index, g->documents - per_epoch);
	mfs_numpy_shuffle32(r, g->document_index + g->documents - per_epoch, per_epoch);
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

/* Work that threads take in portions, none twice. */
struct job {
	struct mfs_gpt_dataset *g;
	int32_t *lengths; /* of the sequences [first, end) */
	_Atomic uint64_t next_length, next_block;
	pthread_mutex_t lock; /* of rc and err */
	int rc;
	struct mfs_error err;
};

static void failed(struct job *j, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&j->lock);
	if (!j->rc) {
		j->rc = rc;
		j->err = *err;
	}
	pthread_mutex_unlock(&j->lock);
}

/* The lengths into memory of ours: each is looked up once an epoch, at random. */
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

/* Tokens of the documents [at, end). */
static uint64_t tokens_of(const struct job *j, uint64_t at, uint64_t end)
{
	const uint32_t *document = j->g->document_index;
	const uint64_t first = j->g->first;
	uint64_t sum = 0;

	for (; at < end; at++)
		sum += (uint32_t)j->lengths[document[at] - first];
	return sum;
}

/* Sums of blocks of MFS_GPT_STRIDE documents, each by itself. */
static void *sum_blocks(void *arg)
{
	struct job *j = arg;
	const uint64_t documents = j->g->documents, blocks = mfs_gpt_sum_count(j->g) - 1;
	const uint64_t portion = CHUNK / MFS_GPT_STRIDE;
	uint64_t block;

	while ((block = atomic_fetch_add(&j->next_block, portion)) < blocks) {
		const uint64_t last = mfs_min_u64(block + portion, blocks);

		for (; block < last; block++) {
			const uint64_t at = block * MFS_GPT_STRIDE;

			j->g->sums[block] =
				tokens_of(j, at, mfs_min_u64(at + MFS_GPT_STRIDE, documents));
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
			"%s: the lengths of the split's sequences sum to %llu tokens, where they begin "
			"says %llu: it is damaged",
			g->data->name, (unsigned long long)(sum / g->sizes.epochs),
			(unsigned long long)(g->sizes.tokens / g->sizes.epochs));
	return 0;
}

/* ---- threads ---- */

/* Starts up to count threads; fewer, and be it none, only make it slower. */
static unsigned start(pthread_t *threads, unsigned count, void *(*fn)(void *), struct job *j)
{
	unsigned n = 0;

	while (n < count && !pthread_create(&threads[n], NULL, fn, j))
		n++;
	return n;
}

static void join_all(pthread_t *threads, unsigned count)
{
	while (count)
		pthread_join(threads[--count], NULL);
}

static int run(struct job *j, unsigned threads, struct mfs_error *err)
{
	pthread_t helpers[MAX_THREADS];
	struct mfs_numpy_random random;
	unsigned n = threads > MAX_THREADS ? MAX_THREADS : threads;

	mfs_numpy_random_seed(&random, j->g->config.seed);
	n = start(helpers, n - 1, copy_lengths, j);
	order_documents(j->g, &random);
	copy_lengths(j);
	join_all(helpers, n);
	if (j->rc)
		goto done;
	n = start(helpers, threads > MAX_THREADS ? MAX_THREADS - 1 : threads - 1, sum_blocks, j);
	order_samples(j->g, &random);
	sum_blocks(j);
	join_all(helpers, n);
done:
	if (j->rc && err)
		*err = j->err;
	return j->rc ? j->rc : accumulate(j->g, err);
}

/* Megatron's index would have an offset of -1 there, and its assertion fails. */
static int check_last_row(struct mfs_gpt_dataset *g, const int32_t *lengths, struct mfs_error *err)
{
	const uint64_t end = g->sizes.samples * g->config.seq_length + g->extra;

	if (!g->extra || end <= g->sizes.tokens ||
	    lengths[g->document_index[g->documents - 1] - g->first])
		return 0;
	return mfs_fail(
		err, -EINVAL,
		"the last partial sample cannot be kept: an empty sequence came last, where "
		"Megatron fails too");
}

int mfs_gpt_build_indices(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err)
{
	const uint64_t bytes = 4 * (g->end - g->first);
	struct job j = {.g = g, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc = allocate(g, err);

	if (rc)
		return rc;
	j.lengths = mfs_index_alloc(bytes);
	if (!j.lengths)
		return mfs_fail_nomem(err);
	rc = run(&j, threads, err);
	if (!rc)
		rc = check_last_row(g, j.lengths, err);
	mfs_index_free(j.lengths, bytes);
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
	pthread_t helpers[MAX_THREADS];
	unsigned n = 0;

	if (!threads)
		threads = 1;
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	m.threads_each = count && threads > count ? threads / (unsigned)count : 1;
	while (n + 1 < threads && n + 1 < count &&
	       !pthread_create(&helpers[n], NULL, build_some, &m))
		n++;
	build_some(&m);
	join_all(helpers, n);
	if (m.rc && err)
		*err = m.err;
	return m.rc;
}
