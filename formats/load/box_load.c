/* A load: its threads, and what they tell who waits for it. */
#define _GNU_SOURCE
#include "formats/load/box_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "formats/io/fileset.h"
#include "formats/load/box_load_i.h"

#define SLOT_MOST    (4ull << 20)
#define SLOT_LEAST   (256ull << 10)
#define SLOTS_MOST   8
#define SLOTS_WANTED 4
#define SLOTS_LEAST  2

/* ---- what threads tell ---- */

void mfs_load_ended(struct mfs_load *load, int rc, const struct mfs_error *err)
{
	pthread_mutex_lock(&load->lock);
	if (rc && !load->rc) {
		load->rc = rc;
		load->err = *err;
		atomic_store(&load->stop, true);
	}
	load->running--;
	pthread_cond_broadcast(&load->changed);
	pthread_mutex_unlock(&load->lock);
}

void mfs_load_arrived(struct mfs_load *load, const struct mfs_load_chunk *chunk)
{
	bool any = false;

	pthread_mutex_lock(&load->lock);
	for (uint32_t i = 0; i < chunk->count; i++) {
		const struct mfs_load_piece *p = &load->job.pieces[chunk->first + i];

		load->left[p->box] -= p->rows * p->width;
		if (load->left[p->box])
			continue;
		load->arrived[load->arrived_count++] = p->box;
		any = true;
	}
	if (any)
		pthread_cond_broadcast(&load->changed);
	pthread_mutex_unlock(&load->lock);
	atomic_fetch_add(&load->done, chunk->bytes);
}

/* ---- starting ---- */

/* Slots within the bound of memory. A chunk and the pages that O_DIRECT reads around it fill
 * one. */
static void size_buffers(struct mfs_load *load)
{
	const uint64_t memory = load->options.memory ? load->options.memory : MFS_LOAD_MEMORY;
	const uint64_t each = memory / load->thread_count;
	uint64_t slot = SLOT_MOST;

	while (slot > SLOT_LEAST && each / slot < SLOTS_WANTED)
		slot /= 2;
	load->slot_size = slot;
	load->chunk = slot - 2 * MFS_LOAD_PAGE;
	load->slots = (unsigned)mfs_min_u64(SLOTS_MOST, mfs_max_u64(SLOTS_LEAST, each / slot));
}

static int list_boxes(struct mfs_load *load, const struct mfs_load_box *boxes, size_t count,
		      struct mfs_error *err)
{
	load->box_count = count;
	load->left = calloc(count + 1, sizeof(*load->left));
	load->arrived = calloc(count + 1, sizeof(*load->arrived));
	if (!load->left || !load->arrived)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++) {
		load->left[i] = mfs_load_box_bytes(&boxes[i]);
		if (!load->left[i])
			load->arrived[load->arrived_count++] = (uint32_t)i;
	}
	return 0;
}

static int find_device(struct mfs_load *load, const struct mfs_load_box *boxes, size_t count,
		       struct mfs_error *err)
{
	int rc;

	if (load->options.device < 0)
		return 0;
	atomic_store(&load->gds_why, "nothing is read past the page cache, not used");
	rc = mfs_cuda_open(load->options.device, &load->cuda, err);
	for (size_t i = 0; i < count && !rc; i++)
		if (mfs_load_box_bytes(&boxes[i]))
			rc = mfs_cuda_check(load->cuda, boxes[i].to, err);
	return rc;
}

static int start_threads(struct mfs_load *load, struct mfs_error *err)
{
	const unsigned wanted = load->thread_count;
	int rc = 0;

	load->threads = calloc(wanted, sizeof(*load->threads));
	if (!load->threads)
		return mfs_fail_nomem(err);
	load->running = wanted;
	for (load->thread_count = 0; load->thread_count < wanted && !rc; load->thread_count += !rc)
		rc = mfs_thread_start(&load->threads[load->thread_count], "mcorefs load",
				      mfs_load_work, load);
	if (!rc)
		return 0;
	pthread_mutex_lock(&load->lock);
	load->running -= wanted - load->thread_count;
	pthread_mutex_unlock(&load->lock);
	/* With fewer threads it only takes longer. */
	return load->thread_count
		       ? 0
		       : mfs_fail(err, rc, "no thread can be started: %s", mfs_errno_text(-rc));
}

static int start(struct mfs_load *load, const struct mfs_load_box *boxes, size_t count,
		 struct mfs_error *err)
{
	const bool may_be_small = mfs_load_may_be_small(load, boxes, count);
	int rc;

	load->thread_count = mfs_threads_count(load->options.threads, MFS_THREADS_MAX);
	if (!load->options.threads)
		load->thread_count = (unsigned)mfs_min_u64(load->thread_count, MFS_LOAD_THREADS);
	size_buffers(load);
	if (!may_be_small)
		mfs_load_make_plans(boxes, count, load->thread_count);
	rc = mfs_load_job_make(&load->job, boxes, count, load->chunk, err);
	if (!rc)
		rc = list_boxes(load, boxes, count, err);
	if (!rc)
		rc = find_device(load, boxes, count, err);
	if (rc || !load->job.chunk_count)
		return rc;
	if (may_be_small && mfs_load_is_small(load)) {
		load->thread_count = 0;
		mfs_load_run_here(load);
		return 0;
	}
	load->thread_count = (unsigned)mfs_min_u64(load->thread_count, load->job.chunk_count);
	rc = mfs_load_buffers_take(&load->buffers, load->thread_count, load->slots, load->slot_size,
				   load->cuda, err);
	return rc ? rc : start_threads(load, err);
}

int mfs_load_start(const struct mfs_load_box *boxes, size_t count,
		   const struct mfs_load_options *options, struct mfs_load **ret,
		   struct mfs_error *err)
{
	struct mfs_load *load = calloc(1, sizeof(*load));
	pthread_condattr_t monotonic;
	int rc;

	if (!load)
		return mfs_fail_nomem(err);
	if (count > UINT32_MAX) {
		free(load);
		return mfs_fail(err, -EINVAL, "%zu boxes are too many for one load", count);
	}
	load->options = *options;
	pthread_mutex_init(&load->lock, NULL);
	pthread_mutex_init(&load->gds_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&load->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	rc = start(load, boxes, count, err);
	if (rc) {
		mfs_load_free(load);
		return rc;
	}
	*ret = load;
	return 0;
}

/* ---- waiting ---- */

/* A source that was changed while it was read may have been read half before and half after. */
static int check_sources(struct mfs_load *load, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < load->job.source_count && !rc; i++)
		if (load->job.sources[i].files)
			rc = mfs_fileset_check(load->job.sources[i].files,
					       load->job.sources[i].file, err);
	return rc;
}

/* The lock is held. False: the time is over. */
static bool wait_for_change(struct mfs_load *load, int64_t deadline)
{
	const struct timespec until = {deadline / 1000000000, deadline % 1000000000};

	if (deadline == INT64_MAX)
		return !pthread_cond_wait(&load->changed, &load->lock);
	return pthread_cond_timedwait(&load->changed, &load->lock, &until) != ETIMEDOUT;
}

/* The lock is held. */
static int take_next(struct mfs_load *load, int64_t deadline, size_t *ret, struct mfs_error *err)
{
	while (!load->rc && load->told_count == load->arrived_count && load->running)
		if (!wait_for_change(load, deadline))
			return -EAGAIN;
	if (load->rc) {
		if (err)
			*err = load->err;
		return load->rc;
	}
	if (load->told_count == load->arrived_count)
		return 0;
	*ret = load->arrived[load->told_count++];
	return 1;
}

int mfs_load_next(struct mfs_load *load, int timeout_ms, size_t *ret, struct mfs_error *err)
{
	const int64_t deadline =
		timeout_ms < 0 ? INT64_MAX : mfs_now_ns() + timeout_ms * INT64_C(1000000);
	int rc;

	pthread_mutex_lock(&load->lock);
	rc = take_next(load, deadline, ret, err);
	pthread_mutex_unlock(&load->lock);
	if (rc == -EAGAIN)
		return mfs_fail(err, rc, "nothing has come within %d ms", timeout_ms);
	return rc ? rc : check_sources(load, err);
}

int mfs_load_wait(struct mfs_load *load, struct mfs_error *err)
{
	size_t box;
	int rc;

	do {
		rc = mfs_load_next(load, -1, &box, err);
	} while (rc > 0);
	return rc;
}

void mfs_load_cancel(struct mfs_load *load)
{
	pthread_mutex_lock(&load->lock);
	if (!load->rc && load->running) {
		load->rc = mfs_fail(&load->err, -ECANCELED, "the load was cancelled");
		atomic_store(&load->stop, true);
	}
	pthread_cond_broadcast(&load->changed);
	pthread_mutex_unlock(&load->lock);
}

void mfs_load_tell(struct mfs_load *load, struct mfs_load_state *ret)
{
	*ret = (struct mfs_load_state){
		.bytes = load->job.bytes,
		.done = atomic_load(&load->done),
		.read = atomic_load(&load->read),
		.cached = atomic_load(&load->cached),
		.direct = atomic_load(&load->direct),
		.gathered = atomic_load(&load->gathered),
		.threads = load->thread_count,
		.engine = atomic_load(&load->uses_uring) ? "io_uring" : "pread",
		.buffers = (uint64_t)load->buffers.parts * load->buffers.part,
		.gds = mfs_load_gds_words(load),
		.gds_bytes = atomic_load(&load->gds),
	};
}

void mfs_load_free(struct mfs_load *load)
{
	if (!load)
		return;
	mfs_load_cancel(load);
	for (unsigned i = 0; load->threads && i < load->thread_count; i++)
		pthread_join(load->threads[i], NULL);
	mfs_load_buffers_give(&load->buffers);
	mfs_load_job_release(&load->job);
	pthread_cond_destroy(&load->changed);
	pthread_mutex_destroy(&load->lock);
	pthread_mutex_destroy(&load->gds_lock);
	free(load->threads);
	free(load->left);
	free(load->arrived);
	free(load);
}
