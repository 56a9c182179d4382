#define _GNU_SOURCE
#include "trainer/ckpt/save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/base/threads.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"
#include "trainer/base/host_memory.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/ckpt/module_state.h"
#include "trainer/ckpt/save_i.h"

#define TOKENIZER_MOST (UINT64_C(256) << 20) /* bytes of a tokenizer's file */

/* ---- the thread ---- */

/* The state is that of this moment of the run's context: what it did before is done. */
static int await_begin(struct mft_saver *s, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = s->backend->device->event_sync(s->begun, why);

	return rc ? mfs_fail(err, rc, "the device: %s", why) : 0;
}

/* The items of modules' states, of the scales as they were at the start. */
static int write_modules(struct mft_saver *s, struct mfs_error *err)
{
	const struct mft_save_plan *p = &s->plan;
	int rc = 0;

	for (uint32_t i = 0; i < p->module_count && !rc; i++)
		rc = mft_module_state_item(s->config, s->params, s->scales, p->modules[i].param,
					   p->modules[i].bytes, p->module_bytes, err);
	return rc;
}

static void save(struct mft_saver *s)
{
	const int64_t begin = mfs_now_ns();
	struct mfs_error err = {0};
	int rc;

	s->result = (struct mft_save_result){
		.iteration = s->progress.iteration, .dir = s->dir, .engine = ""};
	rc = await_begin(s, &err);
	if (!rc)
		rc = write_modules(s, &err);
	if (!rc)
		rc = mft_save_iteration(s, &err);
	s->result.failed = rc != 0;
	if (rc)
		snprintf(s->result.why, sizeof(s->result.why), "%s", err.msg);
	s->result.persist_ns = (uint64_t)(mfs_now_ns() - begin);
}

/* Waits for work, and meanwhile gives the ring memory. False: the run ends. */
static bool await_work(struct mft_saver *s)
{
	bool busy;

	pthread_mutex_lock(&s->lock);
	while (s->state != MFT_SAVER_BUSY && !s->quit)
		if (s->ring.count == s->ring.capacity) {
			pthread_cond_wait(&s->changed, &s->lock);
		} else {
			pthread_mutex_unlock(&s->lock);
			mft_save_ring_grow(s);
			pthread_mutex_lock(&s->lock);
		}
	busy = s->state == MFT_SAVER_BUSY;
	pthread_mutex_unlock(&s->lock);
	return busy;
}

static void *run(void *arg)
{
	struct mft_saver *s = arg;

	while (await_work(s)) {
		MFT_RANGE_BEGIN("save, in parallel");
		save(s);
		MFT_RANGE_END();
		pthread_mutex_lock(&s->lock);
		s->state = MFT_SAVER_IDLE;
		s->stage = MFT_SAVE_DONE;
		s->released = s->ended = true;
		s->result.stall_ns = s->stall_ns;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

/* ---- what a saver has ---- */

static int read_asset(struct mft_saver *s, int dirfd, const char *name, struct mfs_error *err)
{
	struct mft_save_small *to;
	struct stat st;
	void *bytes;
	int fd, rc;

	if (mfs_open_regular(dirfd, name, 0, &fd, &st))
		return 0; /* a directory, or a link that leads nowhere */
	if ((uint64_t)st.st_size > TOKENIZER_MOST) {
		close(fd);
		return mfs_fail(err, -EINVAL,
				"the tokenizer's file '%s' has %lld bytes: expected %llu at most",
				name, (long long)st.st_size, (unsigned long long)TOKENIZER_MOST);
	}
	if (mfs_grow(&s->tokenizer, s->tokenizer_count)) {
		close(fd);
		return mfs_fail_nomem(err);
	}
	to = &s->tokenizer[s->tokenizer_count];
	*to = (struct mft_save_small){0};
	snprintf(to->name, sizeof(to->name), "tokenizer/%s", name);
	bytes = malloc((size_t)st.st_size + 1);
	rc = bytes ? mfs_pread_whole(fd, 0, bytes, (size_t)st.st_size) : -ENOMEM;
	close(fd);
	if (!rc)
		mfs_buf_add(&to->bytes, bytes, (size_t)st.st_size);
	free(bytes);
	if (rc || to->bytes.failed)
		return mfs_fail(err, rc ? rc : -ENOMEM, "cannot read the tokenizer's file '%s'",
				name);
	s->tokenizer_count++;
	return 0;
}

/* Its files are read now: they may be gone when the run saves. Weights in the same directory stay
 * where they are. */
static bool is_asset(const char *name)
{
	static const char *const names[] = {"tokenizer.json",
					    "tokenizer_config.json",
					    "special_tokens_map.json",
					    "added_tokens.json",
					    "vocab.json",
					    "merges.txt",
					    "tokenizer.model",
					    "vocab.txt",
					    "chat_template.jinja",
					    "chat_template.json",
					    "spiece.model",
					    "sentencepiece.bpe.model",
					    "generation_config.json"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static int read_assets(struct mft_saver *s, const char *path, struct mfs_error *err)
{
	const bool wanted = path && s->config->save_tokenizer_assets && !s->parallel->launch.rank;
	DIR *dir = wanted ? opendir(path) : NULL;
	struct dirent *d;
	int rc = 0;

	if (!wanted)
		return 0;
	if (!dir)
		return mfs_fail_errno(err, "cannot open the tokenizer's directory '%s'", path);
	while (!rc && (d = readdir(dir)))
		if (is_asset(d->d_name))
			rc = read_asset(s, dirfd(dir), d->d_name, err);
	closedir(dir);
	return rc;
}

/* A quarter of the memory that nobody uses, for all processes of the host; no more than a save has.
 * RLIMIT_MEMLOCK says nothing here: CUDA pins pages outside of it, and a buffer that cannot be had
 * ends the ring's growth. */
static uint64_t ring_size(const struct mft_saver *s, uint64_t wanted)
{
	const uint64_t sharers = 4 * (uint64_t)s->parallel->launch.local_size;
	const uint64_t bytes = wanted ? wanted : mft_host_memory_free("") / sharers;

	return mfs_min_u64(mfs_max_u64(bytes / MFT_SAVE_SLOT, 2), s->plan.fill_count);
}

static int make_buffers(struct mft_saver *s, struct mfs_error *err)
{
	const uint64_t bytes = s->params->buffer_elements * sizeof(float);

	if (s->params->scales) {
		s->scales = s->backend->device->host_alloc(s->device,
							   mft_scales_bytes(s->params->scales));
		if (!s->scales)
			return mfs_fail_nomem(err);
	}
	if (!bytes)
		return 0;
	s->buffers = s->backend->device->host_alloc(s->device, bytes);
	return s->buffers ? 0 : mfs_fail_nomem(err);
}

static int make_device(struct mft_saver *s, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	int rc = s->backend->device->ctx_new(s->device, true, &s->ctx, why);

	if (!rc)
		rc = s->backend->device->event_new(s->device, &s->begun);
	return rc ? mfs_fail(err, rc, "saving: the device makes no context: %s", why) : 0;
}

static int start_thread(struct mft_saver *s, struct mfs_error *err)
{
	/* (A signal would end an allocation of the save's files.) */
	const int rc = mfs_thread_start(&s->thread, "save", run, s);

	if (rc)
		return mfs_fail(err, rc, "cannot start a thread: %s", strerror(-rc));
	s->started = true;
	return 0;
}

/* All processes come here, or the run has ended. */
static int await_all(const struct mft_saver *s, struct mfs_error *err)
{
	double nothing = 0;

	return mft_parallel_sum(s->parallel, MFT_GROUP_WORLD, &nothing, 1, err);
}

static int fill(struct mft_saver *s, const char *tokenizer_dir, uint64_t ring_bytes,
		struct mfs_error *err)
{
	int rc;

	if (!s->config->save)
		return mfs_fail(err, -EINVAL, "--save is missing");
	/* They may lie in an iteration that gets its name back (save_commit.c: bring_back). */
	rc = read_assets(s, tokenizer_dir, err);
	if (!rc)
		rc = await_all(s, err); /* that may still load from the directory */
	if (!rc)
		rc = mft_save_homes(s, err);
	if (!rc)
		rc = make_buffers(s, err);
	if (!rc)
		rc = mft_save_plan(s->config, s->params, s->parallel, s->buffers, &s->plan, err);
	if (!rc)
		rc = make_device(s, err);
	if (rc)
		return rc;
	s->ring.capacity = (uint32_t)ring_size(s, ring_bytes);
	s->ring.slots = calloc(s->ring.capacity + 1u, sizeof(*s->ring.slots));
	s->slot_of = calloc(s->plan.fill_count + 1u, sizeof(*s->slot_of));
	if (!s->ring.slots || !s->slot_of)
		return mfs_fail_nomem(err);
	/* With one buffer a save comes to its end, however slowly; without any it would not. */
	if (s->ring.capacity && !mft_save_ring_grow(s))
		return mfs_fail(err, -ENOMEM, "--save: no memory for a buffer of %llu MiB",
				(unsigned long long)(MFT_SAVE_SLOT >> 20));
	rc = start_thread(s, err);
	return rc ? rc : await_all(s, err); /* the directory is there for all */
}

int mft_saver_new_with(const struct mft_save_system_ops *system,
		       const struct mft_train_config *config, const struct mft_params *params,
		       const struct mft_parallel *parallel, const struct mfk_backend *backend,
		       struct mfk_device *device, const char *tokenizer_dir, uint64_t ring_bytes,
		       struct mft_saver **ret, struct mfs_error *err)
{
	struct mft_saver *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	s->config = config;
	s->params = params;
	s->parallel = parallel;
	s->backend = backend;
	s->device = device;
	s->system = *system;
	s->released = true;
	s->dirfd = -1;
	for (int i = 0; i < MFT_SAVE_KINDS; i++)
		s->homes[i].fd = s->homes[i].lock_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	rc = fill(s, tokenizer_dir, ring_bytes, err);
	if (rc)
		mft_saver_free(s);
	else
		*ret = s;
	return rc;
}

int mft_saver_new(const struct mft_train_config *config, const struct mft_params *params,
		  const struct mft_parallel *parallel, const struct mfk_backend *backend,
		  struct mfk_device *device, const char *tokenizer_dir, struct mft_saver **ret,
		  struct mfs_error *err)
{
	return mft_saver_new_with(&mft_save_system, config, params, parallel, backend, device,
				  tokenizer_dir, 0, ret, err);
}

static void end_thread(struct mft_saver *s)
{
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
}

void mft_saver_free(struct mft_saver *s)
{
	if (!s)
		return;
	if (s->started)
		end_thread(s);
	mft_save_ring_release(s);
	mft_save_plan_release(&s->plan);
	if (s->begun)
		s->backend->device->event_free(s->begun);
	if (s->ctx)
		s->backend->device->ctx_free(s->ctx);
	if (s->buffers)
		s->backend->device->host_free(s->device, s->buffers,
					      s->params->buffer_elements * sizeof(float));
	if (s->scales)
		s->backend->device->host_free(s->device, s->scales,
					      mft_scales_bytes(s->params->scales));
	for (uint32_t i = 0; i < s->tokenizer_count; i++)
		mfs_buf_release(&s->tokenizer[i].bytes);
	free(s->tokenizer);
	free(s->slot_of);
	free(s->reports);
	mft_save_homes_release(s);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- from the run's thread ---- */

int mft_saver_start(struct mft_saver *s, struct mfk_ctx *ctx, enum mft_save_kind kind,
		    const struct mft_progress *progress, struct mfs_error *err)
{
	pthread_mutex_lock(&s->lock);
	if (s->state == MFT_SAVER_BUSY) {
		pthread_mutex_unlock(&s->lock);
		return mfs_fail(err, -EBUSY, "the save of iteration %llu has not ended yet",
				(unsigned long long)s->progress.iteration);
	}
	/* The model's buffers and scales are small, and change before the update does. */
	if (s->scales)
		mft_scales_copy(s->params->scales, s->backend->device, ctx, s->scales, false);
	if (s->buffers)
		s->backend->device->copy_out(ctx, s->buffers, s->params->buffers,
					     s->params->buffer_elements * sizeof(float));
	s->backend->device->event_record(ctx, s->begun);
	s->kind = kind;
	s->dir = s->homes[kind].dir;
	s->progress = *progress;
	s->submitted = s->completed = 0;
	s->stall_ns = 0;
	s->released = s->ended = false;
	s->stage = MFT_SAVE_WRITES;
	s->state = MFT_SAVER_BUSY;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	s->in_flight = true;
	return 0;
}

void mft_saver_fence(struct mft_saver *s, struct mfk_ctx *ctx, uint64_t first, uint64_t count)
{
	struct mfk_event *copied = NULL;
	int64_t last, begin;

	pthread_mutex_lock(&s->lock);
	if (s->released) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	last = mft_save_plan_last(&s->plan, s->params, first, count);
	begin = mfs_now_ns();
	while (!s->released && (int64_t)s->submitted <= last)
		pthread_cond_wait(&s->changed, &s->lock);
	s->stall_ns += (uint64_t)(mfs_now_ns() - begin);
	if (!s->released && (int64_t)s->completed <= last)
		copied = s->slot_of[last]->copied;
	pthread_mutex_unlock(&s->lock);
	/* If the buffer is used again meanwhile, the wait is longer than it need be. */
	if (copied)
		s->backend->device->event_wait(ctx, copied);
}

bool mft_saver_is_locked(const struct mft_saver *s)
{
	for (int i = 0; i < MFT_SAVE_KINDS; i++)
		if (s->homes[i].dir && !s->homes[i].locked && !s->parallel->launch.rank)
			return false;
	return true;
}

bool mft_saver_ended(struct mft_saver *s, bool wait, struct mft_save_result *ret)
{
	bool ended;

	if (s->parallel->launch.size > 1)
		return mft_save_agree(s, wait, ret);
	pthread_mutex_lock(&s->lock);
	while (wait && s->state == MFT_SAVER_BUSY)
		pthread_cond_wait(&s->changed, &s->lock);
	ended = s->ended;
	if (ended)
		*ret = s->result;
	s->ended = false;
	pthread_mutex_unlock(&s->lock);
	return ended;
}
