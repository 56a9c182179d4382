#include "fs/delta/delta_pairs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/threads.h"
#include "fs/cli/progress.h"
#include "fs/cli/stop.h"

/* Bytes of tensors in a shard: a thread has one at a time, and an engine reads its file whole. */
#define SHARD_BYTES (1ull << 30)
#define MOST_SHARDS 4096
#define MAX_THREADS 64

/* ---- pairs ---- */

static int check_pair(const struct mfs_delta_pair *p, struct mfs_error *err)
{
	const struct mfs_weight_tensor *a = p->at[0], *b = p->at[1];
	char text[2][128];

	if (a->dtype == b->dtype && a->ndim == b->ndim &&
	    !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)))
		return 0;
	for (int i = 0; i < 2; i++)
		mfs_shape_text(p->at[i]->shape, p->at[i]->ndim, text[i], sizeof(text[i]));
	return mfs_fail(err, -EINVAL,
			"tensor '%s' is %s of %s in A and %s of %s in B: a delta is of models of "
			"one shape and type",
			a->name, text[0], mfs_dtype_torch(a->dtype), text[1],
			mfs_dtype_torch(b->dtype));
}

static int pair_up(const struct mfs_weight_files *a, const struct mfs_weight_files *b,
		   struct mfs_delta_pairs *p, struct mfs_error *err)
{
	const char *only = NULL;
	char side = 'B';
	int rc = 0;

	for (uint32_t i = 0; i < b->tensor_count && !rc && !only; i++) {
		struct mfs_delta_pair *pair = &p->pairs[p->count];

		*pair = (struct mfs_delta_pair){
			.sides = {a, b},
			.at = {mfs_weight_files_find(a, b->tensors[i].name), &b->tensors[i]}};
		if (!pair->at[0])
			only = b->tensors[i].name;
		else
			rc = check_pair(pair, err);
		p->count++;
	}
	for (uint32_t i = 0; i < a->tensor_count && !rc && !only; i++)
		if (!mfs_weight_files_find(b, a->tensors[i].name)) {
			only = a->tensors[i].name;
			side = 'A';
		}
	if (!only)
		return rc;
	return mfs_fail(err, -EINVAL,
			"tensor '%s' is in %c alone (A has %u tensors, B %u): a delta is of models "
			"with the same tensors",
			only, side, a->tensor_count, b->tensor_count);
}

/* Files are read from their beginning to their end. */
static int by_place(const void *a, const void *b)
{
	const struct mfs_weight_tensor *x = ((const struct mfs_delta_pair *)a)->at[1];
	const struct mfs_weight_tensor *y = ((const struct mfs_delta_pair *)b)->at[1];

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int read_pair(void *arg, enum mfs_delta_side side, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err)
{
	const struct mfs_delta_pair *p = arg;
	const int i = side == MFS_DELTA_NEW;

	return mfs_weight_files_read(p->sides[i], p->at[i]->file, p->at[i]->offset + off, buf, len,
				     err);
}

static int divide(struct mfs_delta_pairs *p, uint64_t bytes, struct mfs_error *err)
{
	uint64_t room = 0;
	const uint64_t each =
		bytes / MOST_SHARDS > SHARD_BYTES ? bytes / MOST_SHARDS + 1 : SHARD_BYTES;

	for (uint32_t i = 0; i < p->count; i++) {
		p->tensors[i] = (struct mfs_delta_tensor){.name = p->pairs[i].at[1]->name,
							  .bytes = p->pairs[i].at[1]->bytes,
							  .read = read_pair,
							  .arg = &p->pairs[i]};
		if (i && p->tensors[i].bytes <= room) {
			room -= p->tensors[i].bytes;
			continue;
		}
		if (mfs_grow(&p->shards, p->shard_count))
			return mfs_fail_nomem(err);
		p->shards[p->shard_count++] = i;
		room = p->tensors[i].bytes < each ? each - p->tensors[i].bytes : 0;
	}
	if (mfs_grow(&p->shards, p->shard_count))
		return mfs_fail_nomem(err);
	p->shards[p->shard_count] = p->count;
	return 0;
}

int mfs_delta_pairs_init(const struct mfs_weight_files *a, const struct mfs_weight_files *b,
			 struct mfs_delta_pairs *ret, struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_delta_pairs){
		.pairs = calloc((size_t)b->tensor_count + 1, sizeof(*ret->pairs)),
		.tensors = calloc((size_t)b->tensor_count + 1, sizeof(*ret->tensors))};
	rc = ret->pairs && ret->tensors ? pair_up(a, b, ret, err) : mfs_fail_nomem(err);
	if (!rc) {
		qsort(ret->pairs, ret->count, sizeof(*ret->pairs), by_place);
		rc = divide(ret, b->bytes, err);
	}
	if (rc)
		mfs_delta_pairs_release(ret);
	return rc;
}

void mfs_delta_pairs_release(struct mfs_delta_pairs *p)
{
	free(p->pairs);
	free(p->tensors);
	free(p->shards);
	*p = (struct mfs_delta_pairs){0};
}

/* ---- writing ---- */

struct writing {
	struct mfs_delta_pairs *pairs;
	const struct mfs_delta *before;
	struct mfs_delta_writer *writer;
	struct mfs_progress progress;
	pthread_mutex_t lock; /* of the fields below */
	uint32_t next;
	uint64_t done;
	struct mfs_error err; /* the first one */
};

static int check_before(const struct writing *x, const struct mfs_delta_tensor *t,
			struct mfs_error *err)
{
	const struct mfs_delta_change *c = x->before ? mfs_delta_find(x->before, t->name) : NULL;
	const char *found = t->sums[MFS_DELTA_OLD];

	/* A sum of another kind is of another length. */
	if (!c || strlen(c->sum) != strlen(found) || !strcmp(c->sum, found))
		return 0;
	return mfs_fail(err, -EINVAL,
			"A is not version %u of the chain: tensor '%s' has the checksum %s there, "
			"and %s in A",
			x->before->meta.version, t->name, c->sum, found);
}

static int wrote(void *arg, const struct mfs_delta_tensor *t)
{
	struct writing *x = arg;
	int rc;

	pthread_mutex_lock(&x->lock);
	x->done += t->bytes;
	mfs_progress_update(&x->progress, t->name, x->done);
	if (!x->err.code && mfs_stop_requested)
		mfs_fail(&x->err, -EINTR, "it was interrupted: nothing was written");
	if (!x->err.code)
		check_before(x, t, &x->err);
	rc = x->err.code;
	pthread_mutex_unlock(&x->lock);
	return rc;
}

/* False: there are no more, or another one has failed. */
static bool take(struct writing *x, uint32_t *ret)
{
	bool more;

	pthread_mutex_lock(&x->lock);
	more = !x->err.code && x->next < x->pairs->shard_count;
	if (more)
		*ret = x->next++;
	pthread_mutex_unlock(&x->lock);
	return more;
}

static void *work(void *arg)
{
	struct writing *x = arg;
	const struct mfs_delta_hooks hooks = {wrote, x};
	const uint32_t *first = x->pairs->shards;
	uint32_t i;

	while (take(x, &i)) {
		struct mfs_error err = {0};

		if (!mfs_delta_write_shard(x->writer, i, x->pairs->tensors + first[i],
					   first[i + 1] - first[i], &hooks, &err))
			continue;
		pthread_mutex_lock(&x->lock);
		if (!x->err.code)
			x->err = err;
		pthread_mutex_unlock(&x->lock);
	}
	return NULL;
}

int mfs_delta_pairs_write(struct mfs_delta_pairs *p, const struct mfs_delta *before,
			  struct mfs_delta_writer *w, struct mfs_error *err)
{
	const unsigned most = p->shard_count < MAX_THREADS ? p->shard_count : MAX_THREADS;
	struct writing x = {.pairs = p, .before = before, .writer = w};
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < p->count; i++)
		bytes += p->tensors[i].bytes;
	pthread_mutex_init(&x.lock, NULL);
	mfs_progress_init(&x.progress, stderr, 0, bytes);
	mfs_threads_run(mfs_threads_count(0, most ? most : 1), work, &x);
	mfs_progress_clear(&x.progress);
	pthread_mutex_destroy(&x.lock);
	return x.err.code ? mfs_fail(err, x.err.code, "%s", x.err.msg) : 0;
}
