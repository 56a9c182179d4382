#include "fs/sums/tensor_hash.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/ckpt/target.h"
#include "formats/io/guard.h"
#include "formats/plan/plan.h"
#include "fs/cli/progress.h"

#define WINDOW	    (1u << 20)
#define AHEAD	    (8u << 20)
#define IOVECS	    512
#define MAX_THREADS 64

struct hashing {
	struct mfs_ckpt *ckpt;
	struct mfs_hash_job **jobs; /* the largest first */
	uint32_t count;
	pthread_mutex_t lock; /* of the fields below */
	uint32_t next;
	uint64_t done;
	bool no_memory;
	struct mfs_progress progress;
};

/* What one thread has. */
struct hasher {
	struct hashing *all;
	struct mfs_gather gather;
	uint8_t *bytes;
	EVP_MD_CTX *md;
};

uint64_t mfs_hash_bytes(const struct mfs_hash_job *job)
{
	const struct mfs_global_tensor *t = job->t;
	uint64_t elements = t->ndim ? job->rows : 1;

	for (unsigned a = 1; a < t->ndim; a++)
		elements *= t->shape[a];
	return elements * mfs_dtype_size(t->dtype);
}

/* ---- one tensor ---- */

static int plan_job(struct mfs_ckpt *ckpt, const struct mfs_hash_job *job, struct mfs_plan **ret,
		    struct mfs_error *err)
{
	struct mfs_whole_target target;

	if (job->add_one)
		mfs_whole_target_init_add_one(&target, ckpt, job->t);
	else
		mfs_whole_target_init(&target, ckpt, job->t);
	return mfs_plan_new(&target.base, ret, err);
}

static int hash_window(struct hasher *h, const struct mfs_plan *plan, uint64_t at, size_t len,
		       struct mfs_error *err)
{
	const struct mfs_gather *g = &h->gather;
	uint8_t *to = h->bytes;
	int rc;

	mfs_gather_reset(&h->gather);
	rc = mfs_plan_gather(plan, at, len, &h->gather, err);
	if (rc)
		return rc;
	for (unsigned i = 0; i < g->count; i++) {
		if (mfs_guard_copy(to, g->iov[i].iov_base, g->iov[i].iov_len))
			return mfs_fail(err, -EIO,
					"a source cannot be read (cut short while in use?)");
		to += g->iov[i].iov_len;
	}
	EVP_DigestUpdate(h->md, h->bytes, len);
	mfs_fileset_served(plan->files, len);
	return 0;
}

static void note_progress(struct hashing *all, size_t len)
{
	pthread_mutex_lock(&all->lock);
	all->done += len;
	mfs_progress_update(&all->progress, "sums", all->done);
	pthread_mutex_unlock(&all->lock);
}

static int hash_planned(struct hasher *h, const struct mfs_plan *plan, struct mfs_hash_job *job,
			struct mfs_error *err)
{
	const uint64_t bytes = mfs_hash_bytes(job);
	int rc = 0;

	EVP_DigestInit_ex(h->md, EVP_sha256(), NULL);
	for (uint64_t at = 0; at < bytes && !rc; at += WINDOW) {
		const size_t len = mfs_min_u64(WINDOW, bytes - at);

		/* The device reads what comes next while this window is hashed. */
		if (at % AHEAD == 0)
			mfs_plan_willneed(plan, at, mfs_min_u64(2 * AHEAD, bytes - at));
		rc = hash_window(h, plan, at, len, err);
		note_progress(h->all, len);
	}
	EVP_DigestFinal_ex(h->md, job->sha256, NULL);
	return rc;
}

static void hash_job(struct hasher *h, struct mfs_hash_job *job)
{
	struct mfs_plan *plan = NULL;
	struct mfs_error err;
	int rc = plan_job(h->all->ckpt, job, &plan, &err);

	if (!rc)
		rc = hash_planned(h, plan, job, &err);
	mfs_plan_free(plan);
	if (!rc)
		return;
	job->why = strdup(err.msg);
	if (job->why)
		return;
	pthread_mutex_lock(&h->all->lock);
	h->all->no_memory = true;
	pthread_mutex_unlock(&h->all->lock);
}

/* ---- all of them ---- */

static struct mfs_hash_job *take(struct hashing *all)
{
	struct mfs_hash_job *job = NULL;

	pthread_mutex_lock(&all->lock);
	if (all->next < all->count && !all->no_memory)
		job = all->jobs[all->next++];
	pthread_mutex_unlock(&all->lock);
	return job;
}

static void *work(void *arg)
{
	struct hasher h = {.all = arg, .bytes = malloc(WINDOW), .md = EVP_MD_CTX_new()};
	struct mfs_hash_job *job;

	if (h.bytes && h.md && !mfs_gather_init(&h.gather, WINDOW, IOVECS)) {
		while ((job = take(h.all)))
			hash_job(&h, job);
		mfs_gather_release(&h.gather);
	} else {
		pthread_mutex_lock(&h.all->lock);
		h.all->no_memory = true;
		pthread_mutex_unlock(&h.all->lock);
	}
	EVP_MD_CTX_free(h.md);
	free(h.bytes);
	return NULL;
}

static int largest_first(const void *a, const void *b)
{
	const struct mfs_hash_job *x = *(struct mfs_hash_job *const *)a;
	const struct mfs_hash_job *y = *(struct mfs_hash_job *const *)b;
	const uint64_t m = mfs_hash_bytes(x), n = mfs_hash_bytes(y);

	if (m != n)
		return m > n ? -1 : 1;
	return x < y ? -1 : x > y; /* as they come: as files have them, more or less */
}

int mfs_hash_all(struct mfs_ckpt *ckpt, struct mfs_hash_job *jobs, uint32_t count, unsigned threads,
		 struct mfs_error *err)
{
	struct hashing all = {.ckpt = ckpt, .count = count};
	uint64_t bytes = 0;

	all.jobs = calloc((size_t)count + 1, sizeof(*all.jobs));
	if (!all.jobs)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < count; i++) {
		all.jobs[i] = &jobs[i];
		bytes += mfs_hash_bytes(&jobs[i]);
	}
	qsort(all.jobs, count, sizeof(*all.jobs), largest_first);
	pthread_mutex_init(&all.lock, NULL);
	mfs_progress_init(&all.progress, stderr, 0, bytes);
	mfs_threads_run(mfs_threads_count(threads, count < MAX_THREADS ? count : MAX_THREADS), work,
			&all);
	mfs_progress_clear(&all.progress);
	pthread_mutex_destroy(&all.lock);
	free(all.jobs);
	return all.no_memory ? mfs_fail_nomem(err) : 0;
}
