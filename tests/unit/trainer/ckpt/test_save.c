/*
 * --save (trainer/ckpt/save.h): what is saved is what was in memory, byte for byte, while the run
 * goes on and overwrites it; a save that fails or is killed at any system call leaves the old
 * checkpoint or the new one. Saves have threads (pthread_create() is in save.c): this test also
 * runs under ThreadSanitizer.
 */
#define _GNU_SOURCE
#include "trainer/ckpt/save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/rng.h"
#include "formats/ckpt/target.h"
#include "formats/megatron/tracker.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/settings.h"
#include "formats/plan/vfile.h"
#include "formats/ckpt/read/integrity.h"
#include "tests/unit/run_of.h"
#include "tests/unit/run_command.h"
#include "trainer/ckpt/load.h"
#include "trainer/ckpt/save_i.h"

static struct mfs_error err;
static struct mft_parallel alone;

/* ---- a run ---- */

struct fixture {
	const char *dir;
	const char *more; /* of the command line */
};

static const struct fixture fixtures[] = {
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--bf16"},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--bf16 --use-distributed-optimizer"},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", ""},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--fp16"},
	{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020", "--bf16 --transformer-impl local"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--bf16"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--bf16 --optimizer sgd"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--fp16 --optimizer sgd --sgd-momentum 0"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--optimizer sgd"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040", "--bf16 --optimizer muon"},
	{"weights/qwen3-torch_dist-tp4/iter_0000040", "--bf16 --use-distributed-optimizer"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040", "--bf16"},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040", "--bf16"},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--bf16 --ckpt-format torch"},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--ckpt-format torch"},
	{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
	 "--fp16 --use-distributed-optimizer --ckpt-format torch"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--bf16 --optimizer sgd --ckpt-format torch"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	 "--bf16 --use-distributed-optimizer --ckpt-format torch"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	 "--bf16 --optimizer muon --ckpt-format torch"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
	 "--optimizer dist_muon --ckpt-format torch"},
};

#define FIXTURES MFS_ARRAY_SIZE(fixtures)

struct setup {
	struct mft_train_config config;
	struct run run;
	struct mft_progress progress;
	char dir[256]; /* --save */
};

static void set_up(struct setup *s, const struct fixture *f, const char *more)
{
	struct run_words w = {0};
	struct mfs_ckpt *ckpt;

	snprintf(s->dir, sizeof(s->dir), "%s/run/checkpoints", unit_tmpdir());
	unit_ok(mfs_ckpt_open(unit_fixture(f->dir), 0, &ckpt, &err), &err);
	run_say_model(&w, ckpt);
	run_say(&w, "--save %s --save-interval 10 %s %s", s->dir, f->more, more);
	mfs_ckpt_free(ckpt);
	run_parse(&w, &s->config);
	run_new(&s->run, &s->config);
	s->progress = (struct mft_progress){.iteration = 30,
					    .consumed_train_samples = 240,
					    .consumed_valid_samples = 16,
					    .optimizer_step = 29,
					    .floating_point_operations = 1.5e12};
	unit_ok(mft_schedule_init(&s->config, &s->progress.schedule, &err), &err);
	mft_schedule_step(&s->progress.schedule, 240);
	mft_loss_scaler_init(&s->config, &s->progress.scaler);
}

static void tear_down(struct setup *s)
{
	run_free(&s->run);
	mft_train_config_release(&s->config);
}

/* ---- what is in memory ---- */

/* Numbers that say where they are, different in each round. */
static uint32_t pattern(enum mfs_state state, uint64_t element, unsigned round)
{
	uint64_t x = element * 0x9e3779b97f4a7c15 + state * 0xbf58476d1ce4e5b9 + round * 77777;

	x ^= x >> 29;
	x *= 0x94d049bb133111eb;
	return (uint32_t)(x >> 32) & 0x3fffffff; /* a finite float */
}

static void put(void *to, enum mfs_dtype type, enum mfs_state state, uint64_t element,
		unsigned round)
{
	const uint32_t bits = pattern(state, element, round);
	const uint16_t half = (uint16_t)(bits >> 16 & 0x3bff);

	if (type == MFS_F32)
		memcpy(to, &bits, sizeof(bits));
	else
		memcpy(to, &half, sizeof(half));
}

/* Where a parameter's state is, from an element on; at NULL: it has no such state. */
static struct mft_flat flat_of(const struct mft_params *p, const struct mft_param *q,
			       enum mfs_state state, uint64_t first)
{
	const struct mfs_global_tensor *t = q->tensor;

	if (!mfs_ckpt_find_state(p->ckpt, state, t->name, t->layer, t->expert))
		return (struct mft_flat){0};
	return mft_params_flat(p, state, first);
}

/* Elements [first, end) of a parameter's state. */
static void fill_state(const struct mft_params *p, const struct mft_param *q, enum mfs_state state,
		       uint64_t first, uint64_t end, unsigned round)
{
	const struct mft_flat flat = flat_of(p, q, state, first);

	for (uint64_t i = first; flat.at && i < end; i++)
		put((char *)flat.at + (i - first) * mfs_dtype_size(flat.type), flat.type, state, i,
		    round);
}

/* Elements [first, first + count) of all buffers. */
static void fill_range(const struct mft_params *p, uint64_t first, uint64_t count, unsigned round)
{
	for (uint32_t k = 0; k < p->count; k++) {
		const struct mft_param *q = &p->list[k];
		const uint64_t from = q->start > first ? q->start : first;
		const uint64_t after = q->start + q->elements, last = first + count;
		const uint64_t end = after < last ? after : last;

		for (int state = 0; from < end && state < MFS_STATE_COUNT; state++)
			fill_state(p, q, (enum mfs_state)state, from, end, round);
	}
}

static void fill(const struct mft_params *p, unsigned round)
{
	fill_range(p, 0, p->elements, round);
	for (uint64_t i = 0; i < p->buffer_elements; i++)
		put(&p->buffers[i], MFS_F32, MFS_STATE_COUNT, i, round);
}

/* An optimizer's step, range by range. */
static void update(struct mft_saver *saver, const struct run *r, unsigned round)
{
	const uint64_t step = r->params->elements / 7 + 1;

	for (uint64_t at = 0; at < r->params->elements; at += step) {
		const uint64_t n =
			r->params->elements - at < step ? r->params->elements - at : step;

		mft_saver_fence(saver, r->ctx, at, n);
		fill_range(r->params, at, n, round);
	}
	for (uint64_t i = 0; i < r->params->buffer_elements; i++)
		put(&r->params->buffers[i], MFS_F32, MFS_STATE_COUNT, i, round);
}

/* ---- what is on disk ---- */

static void *read_tensor(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	struct mfs_whole_target target;
	struct mfs_vfile *f;
	size_t len;
	void *p;

	mfs_whole_target_init(&target, ckpt, t);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &target.base, &err), &err);
	p = malloc(target.base.bytes);
	unit_ok(mfs_vfile_pread(f, 0, p, target.base.bytes, &len, &err), &err);
	mfs_vfile_free(f);
	return p;
}

/* Elements [first, first + count), which are all made before they are compared: a call for each
 * costs a sanitizer more than a save does. */
static void same_elements(const struct mfs_global_tensor *t, const void *found, enum mfs_dtype type,
			  enum mfs_state state, uint64_t first, uint64_t count, unsigned round)
{
	const unsigned size = mfs_dtype_size(type);
	unsigned char *want = malloc(count * size + 1);

	ck_assert_ptr_nonnull(want);
	for (uint64_t i = 0; i < count; i++)
		put(want + i * size, type, state, first + i, round);
	if (memcmp(found, want, count * size)) {
		uint64_t i = 0;

		while (!memcmp((const char *)found + i * size, want + i * size, size))
			i++;
		ck_abort_msg("state %d of %s %d: element %llu", state, t->name, t->layer,
			     (unsigned long long)i);
	}
	free(want);
}

static void same_bytes(struct mfs_ckpt *ckpt, enum mfs_state state, const struct mft_param *p,
		       enum mfs_dtype type, unsigned round)
{
	const struct mfs_global_tensor *t = mfs_ckpt_find_state(
		ckpt, state, p->tensor->name, p->tensor->layer, p->tensor->expert);
	void *found;

	ck_assert_msg(t != NULL, "state %d of %s is missing", state, p->tensor->name);
	ck_assert_int_eq(t->dtype, type);
	found = read_tensor(ckpt, t);
	same_elements(t, found, type, state, p->start, p->elements, round);
	free(found);
}

static void same_buffer(struct mfs_ckpt *ckpt, const struct mft_model_buffer *b, unsigned round)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(ckpt, b->tensor->name, b->tensor->layer, b->tensor->expert);
	void *found;

	ck_assert_ptr_nonnull(t);
	found = read_tensor(ckpt, t);
	same_elements(t, found, MFS_F32, MFS_STATE_COUNT, b->start, b->elements, round);
	free(found);
}

static void check_tensors(const struct setup *s, struct mfs_ckpt *ckpt, unsigned round)
{
	const struct mft_params *p = s->run.params;

	ck_assert_uint_eq(mfs_ckpt_count(ckpt), mfs_ckpt_count(p->ckpt));
	if (!s->config.no_save_optim)
		ck_assert_uint_eq(mfs_ckpt_count_all(ckpt), mfs_ckpt_count_all(p->ckpt));
	for (uint32_t i = 0; i < p->count; i++)
		for (int state = 0; state < MFS_STATE_COUNT; state++) {
			const struct mft_param *q = &p->list[i];
			const struct mft_flat flat = flat_of(p, q, (enum mfs_state)state, q->start);

			if (flat.at && !(state && s->config.no_save_optim))
				same_bytes(ckpt, (enum mfs_state)state, q, flat.type, round);
		}
	for (uint32_t i = 0; i < p->buffer_count; i++)
		same_buffer(ckpt, &p->buffer_list[i], round);
}

static void bad_file(void *arg, const struct mfs_error *e)
{
	(void)arg;
	ck_abort_msg("%s", e->msg);
}

/* One whole save, with all its tensors as they were in a round. */
static void check_save(const struct setup *s, uint64_t iteration, unsigned round)
{
	struct mfs_ckpt *ckpt;
	uint32_t checked;
	char dir[512];

	snprintf(dir, sizeof(dir), "%s/iter_%07llu", s->dir, (unsigned long long)iteration);
	if (s->config.no_save_optim)
		unit_ok(mfs_ckpt_open(dir, MFS_CKPT_COMMON, &ckpt, &err), &err);
	else
		unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	check_tensors(s, ckpt, round);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name,
			 s->config.saves_torch ? "torch" : "torch_dist");
	mfs_ckpt_free(ckpt);
	if (s->config.saves_torch)
		return;
	unit_ok(mfs_integrity_check(dir, bad_file, NULL, &checked, &err), &err);
	ck_assert_uint_gt(checked, 4);
}

static void check_tracker(const struct setup *s, int64_t want)
{
	struct mfs_tracker t = {0};

	mfs_tracker_read(s->dir, &t);
	ck_assert_int_eq(t.kind, want < 0 ? MFS_TRACKER_NONE : MFS_TRACKER_NUMBER);
	if (want >= 0)
		ck_assert_int_eq(t.number, want);
}

/* Nothing that is not finished is left. */
static void check_clean(const struct setup *s)
{
	DIR *dir = opendir(s->dir);
	struct dirent *d;

	ck_assert_ptr_nonnull(dir);
	while ((d = readdir(dir)))
		ck_assert_msg(!strstr(d->d_name, ".tmp") && !strstr(d->d_name, ".old"),
			      "'%s' is left", d->d_name);
	closedir(dir);
}

/* ---- saves ---- */

static struct mft_saver *new_saver(const struct setup *s, const struct mft_save_system_ops *system,
				   uint64_t ring)
{
	struct mft_saver *saver;

	unit_ok(mft_saver_new_with(system, &s->config, s->run.params, &alone, &mfk_cpu,
				   s->run.device, NULL, ring, &saver, &err),
		&err);
	return saver;
}

static struct mft_save_result end(struct mft_saver *saver)
{
	struct mft_save_result result;

	ck_assert(mft_saver_ended(saver, true, &result));
	return result;
}

static void save(struct mft_saver *saver, const struct setup *s, unsigned next_round)
{
	struct mft_save_result result;

	unit_ok(mft_saver_start(saver, s->run.ctx, MFT_SAVE_PERSISTENT, &s->progress, &err), &err);
	update(saver, &s->run, next_round);
	result = end(saver);
	ck_assert_msg(!result.failed, "%s", result.why);
	ck_assert_uint_eq(result.iteration, s->progress.iteration);
	ck_assert_uint_gt(result.bytes, s->run.params->parameters * 2);
	ck_assert_uint_gt(result.persist_ns, 0);
	ck_assert(strlen(result.engine) > 0);
	ck_assert(!mft_saver_ended(saver, true, &result));
}

START_TEST(round_trip)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[_i], "");
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, 0);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	check_tracker(&s, 30);
	/* The next one has what came after, and the first stays as it is. */
	s.progress.iteration = 40;
	save(saver, &s, 3);
	check_save(&s, 40, 2);
	check_save(&s, 30, 1);
	check_tracker(&s, 40);
	/* An iteration that is saved again takes the place of the old one. */
	save(saver, &s, 4);
	check_save(&s, 40, 3);
	check_clean(&s);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* Saved, and loaded into another run: the same bytes and the same progress. */
START_TEST(save_and_load)
{
	struct mft_progress p = {0};
	struct mft_saver *saver;
	struct setup s, t;
	struct mft_load *l;
	bool optim;

	set_up(&s, &fixtures[_i], "");
	set_up(&t, &fixtures[_i], "");
	fill(s.run.params, 1);
	s.progress.scaler.growth_tracker = 17;
	s.progress.scaler.scale /= 4;
	saver = new_saver(&s, &mft_save_system, 0);
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	ck_assert(!end(saver).failed);
	mft_saver_free(saver);
	t.config.load = s.dir;
	p.schedule = t.progress.schedule;
	p.schedule.num_steps = 0;
	p.scaler = t.progress.scaler;
	unit_ok(mft_load_open(&t.config, &l, &err), &err);
	unit_ok(mft_load_args(l, &t.config, &err), &err);
	unit_ok(mft_load_state(l, &t.config, t.run.params, &mfk_cpu, t.run.device, t.run.ctx, &p,
			       &optim, &err),
		&err);
	mft_load_free(l);
	ck_assert(optim);
	ck_assert_uint_eq(p.iteration, 30);
	ck_assert_uint_eq(p.consumed_train_samples, 240);
	ck_assert_uint_eq(p.consumed_valid_samples, 16);
	ck_assert_uint_eq(p.optimizer_step, mft_optimizer_counts(s.run.params->optimizer) ? 29 : 0);
	ck_assert(p.floating_point_operations == 1.5e12);
	ck_assert(!memcmp(&p.schedule, &s.progress.schedule, sizeof(p.schedule)));
	if (s.config.params_dtype == MFS_F16) {
		ck_assert(p.scaler.scale == s.progress.scaler.scale);
		ck_assert_int_eq(p.scaler.growth_tracker, 17);
	}
	for (uint32_t i = 0; i < s.run.params->count; i++)
		for (int state = 0; state < MFS_STATE_COUNT; state++) {
			const struct mft_param *q = &s.run.params->list[i];
			const struct mft_flat a =
				flat_of(s.run.params, q, (enum mfs_state)state, q->start);
			const struct mft_flat b =
				flat_of(t.run.params, q, (enum mfs_state)state, q->start);

			ck_assert(!a.at ||
				  !memcmp(a.at, b.at, q->elements * mfs_dtype_size(a.type)));
		}
	tear_down(&s);
	tear_down(&t);
}
END_TEST

/* ---- random states ---- */

/* The dict of the one rank has what Megatron looks for. */
static void check_states(const struct mfs_rng *rng)
{
	static const char *const names[] = {"random_rng_state", "np_rng_state", "torch_rng_state",
					    "cuda_rng_state", "rng_tracker_states"};
	const struct mfs_pickle *doc = rng->archive.doc;
	const mfs_value states = mfs_value_at(doc, rng->value, 0);
	struct mfs_torch_tensor t;

	ck_assert_uint_eq(mfs_value_count(doc, rng->value), 1);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		ck_assert(mfs_value_has(doc, states, names[i]));
	unit_ok(mfs_torch_tensor(&rng->archive, mfs_value_get(doc, states, names[2]), &t, &err),
		&err);
	ck_assert(t.ndim == 1 && t.shape[0] == 5056);
}

/* Those of an iteration have one size, and lie in the save as they were made. What Python makes of
 * them is compared in tests/interop/test_train_saves.py. */
START_TEST(random_states)
{
	static const uint64_t iterations[] = {0, 30, 1000000007};
	struct mfs_buf items[3] = {0};
	struct mft_saver *saver;
	struct mfs_ckpt *ckpt;
	struct mfs_rng rng;
	struct setup s;
	char path[512];
	uint8_t *bytes;
	size_t len;

	set_up(&s, &fixtures[0], _i ? "--no-save-rng" : "");
	for (int i = 0; i < 3; i++) {
		unit_ok(mft_save_rng(&s.config, &alone, iterations[i], &items[i], &err), &err);
		ck_assert_uint_eq(items[i].len, items[0].len);
		ck_assert(!i || memcmp(items[i].data, items[i - 1].data, items[i].len));
	}
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, 0);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	mft_saver_free(saver);
	snprintf(path, sizeof(path), "%s/iter_0000030", s.dir);
	unit_ok(mfs_ckpt_open(path, MFS_CKPT_COMMON, &ckpt, &err), &err);
	ck_assert_int_eq(mfs_rng_there(ckpt), !_i);
	if (!_i) {
		unit_ok(mfs_rng_open(ckpt, 0, 0, 0, &rng, &err), &err);
		check_states(&rng);
		snprintf(path, sizeof(path), "%s/iter_0000030/__0_0.distcp", s.dir);
		bytes = unit_slurp(path, &len);
		ck_assert_uint_le(rng.base + items[1].len, len);
		ck_assert(!memcmp(bytes + rng.base, items[1].data, items[1].len));
		free(bytes);
		mfs_rng_release(&rng);
	}
	mfs_ckpt_free(ckpt);
	for (int i = 0; i < 3; i++)
		mfs_buf_release(&items[i]);
	tear_down(&s);
}
END_TEST

START_TEST(weights_alone)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[0], "--no-save-optim");
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, 0);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* arg: a semaphore that lets one call go on. */
static int waits_in_mkdir(void *arg, int dirfd, const char *name)
{
	while (sem_wait(arg))
		;
	return mft_save_system.mkdir(NULL, dirfd, name);
}

START_TEST(a_second_save_at_a_time_is_refused)
{
	struct mft_save_system_ops system = mft_save_system;
	struct mft_save_result result;
	struct mft_saver *saver;
	struct setup s;
	sem_t may_go;

	set_up(&s, &fixtures[0], "");
	fill(s.run.params, 1);
	sem_init(&may_go, 0, 0);
	system.mkdir = waits_in_mkdir;
	system.arg = &may_go;
	saver = new_saver(&s, &system, 0);
	ck_assert(!mft_saver_ended(saver, true, &result));
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	unit_fails(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err,
		   -EBUSY, "iteration 30");
	for (int i = 0; i < 8; i++)
		sem_post(&may_go);
	/* Freeing waits for it. */
	mft_saver_free(saver);
	check_save(&s, 30, 1);
	tear_down(&s);
}
END_TEST

/* A second run that saves into the directory would remove what the first is writing. */
START_TEST(a_second_saver_is_refused)
{
	struct mft_saver *saver, *second;
	struct setup s;

	set_up(&s, &fixtures[0], "");
	saver = new_saver(&s, &mft_save_system, 0);
	ck_assert(mft_saver_is_locked(saver));
	unit_fails(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device, NULL,
				 &second, &err),
		   &err, -EBUSY, "another process saves into");
	mft_saver_free(saver);
	mft_saver_free(new_saver(&s, &mft_save_system, 0));
	tear_down(&s);
}
END_TEST

static int no_exchange(void *arg, int dirfd, const char *a, const char *b)
{
	(void)arg, (void)dirfd, (void)a, (void)b;
	return -EINVAL;
}

/* Of a file system that cannot exchange names: the older iteration makes room. If the process ends
 * then, a load finds it, and the next saver gives it its name back. */
START_TEST(makes_room)
{
	struct mft_save_system_ops system = mft_save_system;
	char path[512], aside[sizeof(path) + 8], tokenizer[sizeof(aside) + 16];
	struct mft_saver *saver;
	struct mft_load *l;
	struct setup s;

	system.exchange = no_exchange;
	set_up(&s, &fixtures[0], "");
	fill(s.run.params, 1);
	saver = new_saver(&s, &system, 0);
	save(saver, &s, 2);
	save(saver, &s, 3);
	check_save(&s, 30, 2);
	check_clean(&s);
	mft_saver_free(saver);
	snprintf(path, sizeof(path), "%s/iter_0000030", s.dir);
	snprintf(aside, sizeof(aside), "%s" MFT_SAVE_ASIDE, path);
	ck_assert_int_eq(rename(path, aside), 0);
	s.config.load = s.dir;
	unit_ok(mft_load_open(&s.config, &l, &err), &err);
	ck_assert_str_eq(mft_load_dir(l), aside);
	mft_load_free(l);
	snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer", aside);
	ck_assert_int_eq(mkdir(tokenizer, 0777), 0);
	unit_ok(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device, tokenizer,
			      &saver, &err),
		&err);
	mft_saver_free(saver);
	check_save(&s, 30, 2);
	check_clean(&s);
	tear_down(&s);
}
END_TEST

/* ---- retention ---- */

static bool there(const struct setup *s, int iteration)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/iter_%07d", s->dir, iteration);
	return !access(path, F_OK);
}

START_TEST(old_saves_go_and_the_kept_ones_stay)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[0], _i ? "--save-keep-last 2" : "--save-retain-interval 20");
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, 0);
	for (s.progress.iteration = 10; s.progress.iteration <= 50; s.progress.iteration += 10)
		save(saver, &s, 1);
	ck_assert(there(&s, 50));
	ck_assert(there(&s, 40));
	ck_assert(!there(&s, 30));
	ck_assert_int_eq(there(&s, 20), !_i);
	ck_assert(!there(&s, 10));
	check_tracker(&s, 50);
	check_clean(&s);
	/* What lies ahead of the newest one is nobody's to remove. */
	s.progress.iteration = 20;
	save(saver, &s, 1);
	ck_assert(there(&s, 20) && there(&s, 40));
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* What is there is removed where a saver with a directory of its own has left it. */
START_TEST(a_directory_of_its_own)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[0], "--no-save-optim");
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, 0);
	unit_ok(mft_saver_own(saver, &err), &err);
	for (s.progress.iteration = 10; s.progress.iteration <= 20; s.progress.iteration += 10)
		save(saver, &s, 1);
	mft_saver_free(saver);
	saver = new_saver(&s, &mft_save_system, 0);
	ck_assert(there(&s, 10) && there(&s, 20));
	unit_ok(mft_saver_own(saver, &err), &err);
	ck_assert(!there(&s, 10) && !there(&s, 20));
	s.progress.iteration = 10;
	save(saver, &s, 1);
	ck_assert(there(&s, 10));
	check_tracker(&s, 10);
	mft_saver_free(saver);
	/* Whose it is cannot be told without a lock. */
	saver = new_saver(&s, &mft_save_system, 0);
	saver->homes[MFT_SAVE_PERSISTENT].locked = false;
	unit_fails(mft_saver_own(saver, &err), &err, -ENOLCK,
		   "has iteration 10, and its file system has no locks");
	ck_assert(there(&s, 10));
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

static void have_own(struct setup *s, struct mft_saver **ret)
{
	set_up(s, &fixtures[0], "--no-save-optim --save-keep-last 2");
	fill(s->run.params, 1);
	*ret = new_saver(s, &mft_save_system, 0);
	unit_ok(mft_saver_own(*ret, &err), &err);
	for (s->progress.iteration = 10; s->progress.iteration <= 20; s->progress.iteration += 10)
		save(*ret, s, 1);
	mft_saver_free(*ret);
	*ret = new_saver(s, &mft_save_system, 0);
}

/* A run that saves for itself, in a directory that was another's, is no other's to remove. */
START_TEST(others_saves_stay_in_a_directory_of_its_own)
{
	struct mft_saver *saver;
	struct setup s;

	have_own(&s, &saver);
	save(saver, &s, 1);
	mft_saver_free(saver);
	saver = new_saver(&s, &mft_save_system, 0);
	unit_fails(
		mft_saver_own(saver, &err), &err, -EEXIST,
		"has iteration 30, which is not of a run that keeps such a directory for itself");
	ck_assert(!there(&s, 10) && there(&s, 20) && there(&s, 30));
	check_tracker(&s, 30);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* What is copied there while it runs stays, too. */
START_TEST(copies_stay_in_a_directory_of_its_own)
{
	struct mft_save_result result;
	struct mft_saver *saver;
	char path[400];
	struct setup s;

	have_own(&s, &saver);
	unit_ok(mft_saver_own(saver, &err), &err);
	s.progress.iteration = 10;
	save(saver, &s, 1);
	snprintf(path, sizeof(path), "%s/iter_0000010/" MFT_SAVE_OWN, s.dir);
	ck_assert(!unlink(path));
	for (s.progress.iteration = 20; s.progress.iteration <= 40; s.progress.iteration += 10)
		save(saver, &s, 1);
	ck_assert(there(&s, 10) && !there(&s, 20) && there(&s, 30) && there(&s, 40));
	s.progress.iteration = 10;
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	result = end(saver);
	ck_assert(result.failed && strstr(result.why, "iter_0000010' is of another run"));
	check_tracker(&s, 40);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* ---- a system that fails ---- */

/* Counts calls; the one of a number fails with an error, or ends the process, or finds that
 * somebody else has done something just before. */
struct faults {
	atomic_uint calls;
	unsigned at; /* 0: none */
	int fault;   /* errno; 0: the process ends, as by kill -9 */
	void (*meanwhile)(void);
	bool partial; /* writes are short, and the engine is full at times */
	unsigned turn;
};

static int strike(struct faults *f)
{
	if (atomic_fetch_add(&f->calls, 1) + 1 != f->at)
		return 0;
	if (f->meanwhile) {
		f->meanwhile();
		return 0;
	}
	if (!f->fault)
		_exit(9);
	return -f->fault;
}

#define CALL(arg_, call_) (strike(arg_) ?: mft_save_system.call_)

static int f_mkdir(void *a, int dirfd, const char *name)
{
	return CALL(a, mkdir(NULL, dirfd, name));
}

static int f_open_dir(void *a, int dirfd, const char *name, int *ret)
{
	return CALL(a, open_dir(NULL, dirfd, name, ret));
}

static int f_open(void *a, int dirfd, const char *path, int *ret)
{
	return CALL(a, open(NULL, dirfd, path, ret));
}

static int f_allocate(void *a, int fd, uint64_t size)
{
	return CALL(a, allocate(NULL, fd, size));
}

static int f_truncate(void *a, int fd, uint64_t size)
{
	return CALL(a, truncate(NULL, fd, size));
}

/* A descriptor is closed whatever close() says. */
static int f_close(void *a, int fd)
{
	const int rc = mft_save_system.close(NULL, fd);

	return strike(a) ?: rc;
}

static int f_sync_dir(void *a, int fd)
{
	return CALL(a, sync_dir(NULL, fd));
}

static int f_rename(void *a, int dirfd, const char *from, const char *to)
{
	return CALL(a, rename(NULL, dirfd, from, to));
}

static int f_exchange(void *a, int dirfd, const char *x, const char *y)
{
	return CALL(a, exchange(NULL, dirfd, x, y));
}

static int f_remove(void *a, int dirfd, const char *name, int flags)
{
	return CALL(a, remove(NULL, dirfd, name, flags));
}

static void *f_alloc(void *a, uint64_t bytes)
{
	return strike(a) ? NULL : mft_save_system.alloc(NULL, bytes);
}

static int f_sum_new(void *a, void **ret)
{
	*ret = NULL;
	return CALL(a, sum_new(NULL, ret));
}

static int f_sum_add(void *a, void *sum, const void *bytes, uint64_t length)
{
	return CALL(a, sum_add(NULL, sum, bytes, length));
}

static int f_sum_end(void *a, void *sum, char ret[MFT_SAVE_DIGEST])
{
	return CALL(a, sum_end(NULL, sum, ret));
}

/* The engine: system calls, which may be cut short or fail. */
#define RING 64

struct f_engine {
	struct faults *faults;
	struct mfs_io *queue[RING];
	unsigned head, tail;
};

static int f_start(void *state, struct mfs_io *io)
{
	struct f_engine *e = state;
	const int rc = strike(e->faults); /* the ring takes no more */

	if (!rc)
		e->queue[e->tail++ % RING] = io;
	return rc;
}

static int f_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct f_engine *e = state;
	struct mfs_io *io = *ret = e->queue[e->head++ % RING];
	struct iovec *iov = io->iov;
	const int rc = strike(e->faults);

	if (e->faults->partial && ++e->faults->turn % 5 == 0) {
		e->head--;
		return -EINTR;
	}
	if (rc)
		*ret_done = rc;
	else if (io->kind == MFS_IO_WRITE && e->faults->partial && e->faults->turn % 3 == 0)
		*ret_done = -EAGAIN; /* the ring is full */
	else if (io->kind == MFS_IO_WRITE && e->faults->partial && iov->iov_len > 4096)
		*ret_done = pwrite(io->fd, iov->iov_base, iov->iov_len / 4096 / 2 * 4096 + 4096,
				   (off_t)io->off);
	else
		*ret_done = mfs_io_call(io);
	return 0;
}

static int f_engine(void *arg, unsigned depth, struct mfs_io_engine **ret, struct mfs_error *e)
{
	static const struct mfs_io_engine_ops ops = {"faulty", f_start, f_reap, free};
	struct f_engine *state;
	const int rc = strike(arg);

	if (rc)
		return mfs_fail(e, rc, "there is no engine: %s", strerror(-rc));
	state = calloc(1, sizeof(*state));
	state->faults = arg;
	return mfs_io_engine_with(&ops, state, depth, ret, e);
}

static struct mft_save_system_ops faulty(struct faults *f)
{
	return (struct mft_save_system_ops){.mkdir = f_mkdir,
					    .open_dir = f_open_dir,
					    .open = f_open,
					    .allocate = f_allocate,
					    .truncate = f_truncate,
					    .close = f_close,
					    .sync_dir = f_sync_dir,
					    .rename = f_rename,
					    .exchange = f_exchange,
					    .remove = f_remove,
					    .engine = f_engine,
					    .alloc = f_alloc,
					    .sum_new = f_sum_new,
					    .sum_add = f_sum_add,
					    .sum_end = f_sum_end,
					    .sum_free = mft_save_system.sum_free,
					    .arg = f};
}

/* Few and small files: a save is begun for each of its calls. */
static const struct fixture small = {
	"resume/llama-torch_dist-tp2-pp2/iter_0000020",
	"--bf16 --num-layers 1 --hidden-size 32 --ffn-hidden-size 64 --kv-channels 8 "
	"--padded-vocab-size 128 --vocab-size 127"};

/* The calls of a save of iteration 40, of which 30 (and with again 40) is there. */
static unsigned count_calls(const struct setup *s)
{
	struct faults f = {0};
	const struct mft_save_system_ops system = faulty(&f);
	struct mft_saver *saver = new_saver(s, &system, 0);

	atomic_store(&f.calls, 0);
	unit_ok(mft_saver_start(saver, s->run.ctx, MFT_SAVE_PERSISTENT, &s->progress, &err), &err);
	ck_assert(!end(saver).failed);
	mft_saver_free(saver);
	return atomic_load(&f.calls);
}

/* Saves 30 in round 1, then begins each save of 40 in round 2 (0), or 30 again (1). */
static void prepare(struct setup *s, bool again, bool torch)
{
	struct mft_saver *saver;

	set_up(s, &small, torch ? "--save-keep-last 2 --ckpt-format torch" : "--save-keep-last 2");
	fill(s->run.params, 1);
	saver = new_saver(s, &mft_save_system, 0);
	save(saver, s, 2);
	mft_saver_free(saver);
	if (!again)
		s->progress.iteration = 40;
}

/* What is there is the old checkpoint or the new one, complete. Returns whether it is the new
 * one. */
static bool check_either(const struct setup *s, bool again)
{
	struct mfs_tracker t = {0};
	struct mfs_ckpt *ckpt;
	char dir[512];
	float found, old;
	bool is_new;

	mfs_tracker_read(s->dir, &t);
	ck_assert_int_eq(t.kind, MFS_TRACKER_NUMBER);
	ck_assert(t.number == 30 || (!again && t.number == 40));
	is_new = t.number == 40;
	if (again) { /* the first weight says which */
		const struct mft_param *p = &s->run.params->list[0];
		void *bytes;

		snprintf(dir, sizeof(dir), "%s/iter_0000030", s->dir);
		unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
		bytes = read_tensor(ckpt, mfs_ckpt_find(ckpt, p->tensor->name, -1, -1));
		found = old = 0;
		put(&old, s->run.params->weight_type, MFS_STATE_MODEL, p->start, 1);
		memcpy(&found, bytes, mfs_dtype_size(s->run.params->weight_type));
		is_new = found != old;
		free(bytes);
		mfs_ckpt_free(ckpt);
	}
	if (!again)
		check_save(s, 30, 1);
	if (is_new)
		check_save(s, again ? 30 : 40, 2);
	else
		check_save(s, 30, 1);
	return is_new;
}

/* Puts things back as they were before the save. */
static void undo(struct setup *s, bool again, bool is_new)
{
	struct mft_saver *saver = new_saver(s, &mft_save_system, 0);
	char dir[512];

	check_clean(s);
	if (again && is_new) {
		fill(s->run.params, 1);
		save(saver, s, 2);
	} else if (is_new) {
		snprintf(dir, sizeof(dir), "rm -rf %s/iter_0000040", s->dir);
		ck_assert_int_eq(system(dir), 0);
		unit_write(s->dir, MFS_TRACKER_FILE, "30", 2);
	}
	mft_saver_free(saver);
	fill(s->run.params, 2);
}

/* A sanitizer makes a save tens of times slower, and has found what it finds after a few calls:
 * each day others fail. */
#if defined(__SANITIZE_THREAD__)
#define STRIDE 13
#elif defined(__SANITIZE_ADDRESS__)
#define STRIDE 11
#else
#define STRIDE 1
#endif

/* The first call that fails. */
static unsigned first_call(void)
{
	const char *seed = getenv("MCOREFS_TEST_SEED");

	return 1 + (seed ? (unsigned)strtoul(seed, NULL, 10) % STRIDE : 0);
}

/* Every call of a save fails once: the run goes on, and is told. */
START_TEST(every_call_may_fail_and_the_run_is_told)
{
	static const int errors[] = {ENOSPC, EIO, ENOSPC}; /* the last of a torch save */
	const bool again = _i % 2, torch = _i == 4;
	unsigned calls, tried = 0, failed = 0;
	struct setup s;

	prepare(&s, again, torch);
	calls = count_calls(&s);
	undo(&s, again, true);
	for (unsigned at = first_call(); at <= calls; at += torch ? 3 * STRIDE : STRIDE, tried++) {
		struct faults f = {.at = at, .fault = errors[_i / 2]};
		const struct mft_save_system_ops system = faulty(&f);
		struct mft_save_result result;
		struct mft_saver *saver = new_saver(&s, &system, 0);
		bool is_new;

		unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err),
			&err);
		update(saver, &s.run, 3);
		result = end(saver);
		failed += result.failed;
		if (result.failed)
			ck_assert_msg(strlen(result.why) > 10, "call %u: no reason", at);
		/* The next interval's save is whole. */
		is_new = check_either(&s, again);
		ck_assert_msg(is_new || result.failed, "call %u: neither saved nor failed", at);
		mft_saver_free(saver);
		undo(&s, again, is_new);
	}
	ck_assert_uint_gt(failed, tried / 2);
	tear_down(&s);
}
END_TEST

/* The process is killed at every call of a save. ThreadSanitizer does not let a process that was
 * forked by one of many threads start new ones. */
#ifndef __SANITIZE_THREAD__
START_TEST(every_call_may_be_the_last)
{
	const bool again = _i == 1, torch = _i == 2;
	unsigned calls, tried = 0, old = 0;
	struct setup s;

	prepare(&s, again, torch);
	calls = count_calls(&s);
	undo(&s, again, true);
	for (unsigned at = first_call(); at <= calls; at += torch ? 3 * STRIDE : STRIDE, tried++) {
		const pid_t child = fork();
		bool is_new;
		int status;

		ck_assert_int_ge(child, 0);
		if (!child) {
			struct faults f = {.at = at};
			const struct mft_save_system_ops system = faulty(&f);
			struct mft_saver *saver;
			struct run r;
			struct mft_save_result result;

			/* A child has no threads of its parent's. */
			run_new(&r, &s.config);
			fill(r.params, 2);
			if (mft_saver_new_with(&system, &s.config, r.params, &alone, &mfk_cpu,
					       r.device, NULL, 0, &saver, &err) ||
			    mft_saver_start(saver, r.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err))
				_exit(1);
			mft_saver_ended(saver, true, &result);
			_exit(result.failed ? 2 : 0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 9, "call %u: status %x",
			      at, status);
		is_new = check_either(&s, again);
		old += !is_new;
		undo(&s, again, is_new);
	}
	/* Most of a save is before the new one is shown. */
	ck_assert_uint_gt(old, tried / 2);
	tear_down(&s);
}
END_TEST
#endif

/* ---- links ---- */

static char victim[300], save_dir[256];

/* Somebody's directory, which no save may touch. */
static void make_victim(const struct setup *s)
{
	char inside[320];

	snprintf(save_dir, sizeof(save_dir), "%s", s->dir);
	snprintf(victim, sizeof(victim), "%s/victim", unit_tmpdir());
	snprintf(inside, sizeof(inside), "%s/deep", victim);
	ck_assert_int_eq(mkdir(victim, 0777), 0);
	ck_assert_int_eq(mkdir(inside, 0777), 0);
	unit_write(victim, "file", "mine", 4);
	unit_write(inside, "file", "mine", 4);
}

static unsigned count_names(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static void check_victim(const char *when)
{
	char path[340];
	size_t len;

	ck_assert_msg(count_names(victim) == 2, "%s: %u names", when, count_names(victim));
	snprintf(path, sizeof(path), "%s/deep", victim);
	ck_assert_msg(count_names(path) == 1, "%s: deep", when);
	for (int i = 0; i < 2; i++) {
		void *bytes;

		snprintf(path, sizeof(path), "%s/%sfile", victim, i ? "deep/" : "");
		bytes = unit_slurp(path, &len);
		ck_assert_msg(len == 4 && !memcmp(bytes, "mine", 4), "%s: %s", when, path);
		free(bytes);
	}
}

static void put_link(const char *name, const char *to)
{
	char path[400], target[400];

	snprintf(path, sizeof(path), "%s/%s", save_dir, name);
	snprintf(target, sizeof(target), "%s%s", victim, to);
	ck_assert_int_eq(symlink(target, path), 0);
}

static bool is_link(const char *name)
{
	char path[400];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", save_dir, name);
	return !lstat(path, &st) && S_ISLNK(st.st_mode);
}

/* A link in the place of anything that a saver removes, replaces or makes goes itself. */
START_TEST(links_in_the_way_go_themselves)
{
	static const char *const left[] = {"iter_0000009.tmp", "iter_0000030.tmp",
					   MFS_TRACKER_FILE ".tmp"};
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &small, "--save-keep-last 1");
	fill(s.run.params, 1);
	mft_saver_free(new_saver(&s, &mft_save_system, 0));
	make_victim(&s);
	put_link(left[0], "");
	put_link(left[1], "");
	put_link(left[2], "/file");
	put_link("iter_0000031.old", "");
	put_link("iter_0000030", "");
	put_link(MFS_TRACKER_FILE, "/file");
	saver = new_saver(&s, &mft_save_system, 0);
	check_victim("a new saver");
	for (unsigned i = 0; i < 3; i++)
		ck_assert_msg(!is_link(left[i]), "'%s' is left", left[i]);
	put_link(left[1], "");
	put_link(left[2], "/file");
	save(saver, &s, 1);
	check_victim("a save");
	ck_assert(!is_link("iter_0000030") && !is_link(MFS_TRACKER_FILE));
	check_save(&s, 30, 1);
	check_tracker(&s, 30);
	/* What a person has moved elsewhere and linked back stays. */
	put_link("iter_0000020", "");
	s.progress.iteration = 40;
	save(saver, &s, 1);
	check_victim("retention");
	ck_assert(is_link("iter_0000020") && !there(&s, 30));
	check_clean(&s);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* A saver of root, and a directory that somebody else may write in: his links lead into a directory
 * of root's that he cannot enter. */
START_TEST(links_of_others)
{
	struct setup s;
	int status;
	pid_t child;

	set_up(&s, &small, "");
	if (geteuid()) {
		tear_down(&s);
		return;
	}
	mft_saver_free(new_saver(&s, &mft_save_system, 0));
	make_victim(&s);
	ck_assert_int_eq(chmod(victim, 0700), 0);
	ck_assert_int_eq(chmod(s.dir, 0777), 0);
	ck_assert_int_eq(chmod(unit_tmpdir(), 0755), 0);
	child = fork();
	if (!child)
		_exit(setgid(65534) || setuid(65534) || chdir(s.dir) ||
		      symlink(victim, "iter_0000009.tmp"));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	mft_saver_free(new_saver(&s, &mft_save_system, 0));
	check_victim("root's");
	ck_assert(!is_link("iter_0000009.tmp"));
	tear_down(&s);
}
END_TEST

/* --save itself may be a link. Another directory in its place later is not the one that was
 * meant, and one below it is no link. */
START_TEST(link_to_save)
{
	struct mft_save_result result;
	struct mft_saver *saver;
	char real[300];
	struct setup s;

	set_up(&s, &small, "--non-persistent-save-interval 2 --non-persistent-ckpt-type global");
	fill(s.run.params, 1);
	mft_saver_free(new_saver(&s, &mft_save_system, 0));
	make_victim(&s);
	snprintf(real, sizeof(real), "%s/elsewhere", unit_tmpdir());
	ck_assert_int_eq(rename(s.dir, real), 0);
	ck_assert_int_eq(symlink(real, s.dir), 0);
	saver = new_saver(&s, &mft_save_system, 0);
	save(saver, &s, 1);
	check_save(&s, 30, 1);
	ck_assert_int_eq(unlink(s.dir), 0);
	ck_assert_int_eq(symlink(victim, s.dir), 0);
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	result = end(saver);
	ck_assert(result.failed);
	unit_sentence(result.why, "is not the directory that it was when the run began");
	check_victim("another --save");
	ck_assert_int_eq(unlink(s.dir), 0);
	ck_assert_int_eq(symlink(s.dir, s.dir), 0);
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	result = end(saver);
	ck_assert(result.failed);
	unit_sentence(result.why, strerror(ELOOP));
	mft_saver_free(saver);
	ck_assert_int_eq(unlink(s.dir), 0);
	ck_assert_int_eq(rename(real, s.dir), 0);
	snprintf(real, sizeof(real), "rm -rf %s/non_persistent", s.dir);
	ck_assert_int_eq(system(real), 0);
	put_link("non_persistent", "");
	unit_fails(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device, NULL,
				 &saver, &err),
		   &err, -ELOOP, "--non-persistent-global-ckpt-dir");
	check_victim("non_persistent");
	tear_down(&s);
}
END_TEST

static void swap_tmp(void)
{
	char tmp[300], away[300];

	snprintf(tmp, sizeof(tmp), "%s/iter_0000040.tmp", save_dir);
	snprintf(away, sizeof(away), "%s/away", save_dir);
	if (!rename(tmp, away) || errno == ENOENT)
		ck_assert_int_eq(symlink(victim, tmp), 0);
}

static void swap_save(void)
{
	char away[300];

	snprintf(away, sizeof(away), "%s.away", save_dir);
	ck_assert_int_eq(rename(save_dir, away), 0);
	ck_assert_int_eq(symlink(victim, save_dir), 0);
}

static void swap_back(void)
{
	char away[300], command[700];

	snprintf(away, sizeof(away), "%s.away", save_dir);
	if (!access(away, F_OK)) {
		ck_assert_int_eq(unlink(save_dir), 0);
		ck_assert_int_eq(rename(away, save_dir), 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s/away", save_dir);
	ck_assert_int_eq(system(command), 0);
}

/* Before each call of a save somebody puts a link in the place of the directory that is being
 * written (0), or of --save (1). Nothing is written, renamed or removed where it leads. */
START_TEST(a_link_swapped_in_leads_nowhere)
{
	unsigned calls;
	struct setup s;

	prepare(&s, false, false);
	make_victim(&s);
	calls = count_calls(&s);
	undo(&s, false, true);
	for (unsigned at = first_call(); at <= calls; at += _i ? 3 * STRIDE : STRIDE) {
		struct faults f = {.at = at, .meanwhile = _i ? swap_save : swap_tmp};
		const struct mft_save_system_ops system = faulty(&f);
		struct mft_saver *saver = new_saver(&s, &system, 0);
		struct mfs_tracker t = {0};
		char when[40];

		unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err),
			&err);
		end(saver);
		mft_saver_free(saver);
		snprintf(when, sizeof(when), "before call %u of %u", at, calls);
		check_victim(when);
		swap_back();
		mfs_tracker_read(s.dir, &t);
		ck_assert_msg(!is_link("iter_0000040") || t.number == 30, "%s", when);
		undo(&s, false, check_either(&s, false));
		check_victim(when);
	}
	tear_down(&s);
}
END_TEST

/* Short writes, writes that must be tried again, signals, and a ring of two buffers. */
START_TEST(short_writes)
{
	struct faults f = {.partial = true};
	const struct mft_save_system_ops system = faulty(&f);
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[_i], "");
	fill(s.run.params, 1);
	saver = new_saver(&s, &system, 1);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	check_clean(&s);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* ---- files that refuse O_DIRECT ---- */

struct refusing {
	struct mfs_io *queue[RING];
	bool direct[RING]; /* the file was, when the request was submitted */
	unsigned head, tail, refused;
};

static int r_start(void *state, struct mfs_io *io)
{
	struct refusing *e = state;

	e->direct[e->tail % RING] = fcntl(io->fd, F_GETFL) & O_DIRECT;
	e->queue[e->tail++ % RING] = io;
	return 0;
}

static int r_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct refusing *e = state;
	const unsigned at = e->head++ % RING;

	*ret = e->queue[at];
	*ret_done = mfs_io_call(*ret);
	if ((*ret)->kind == MFS_IO_WRITE && e->direct[at]) {
		*ret_done = -EINVAL;
		e->refused++;
	}
	return 0;
}

static void r_free(void *state)
{
	(void)state;
}

static int r_engine(void *arg, unsigned depth, struct mfs_io_engine **ret, struct mfs_error *e)
{
	static const struct mfs_io_engine_ops ops = {"refusing", r_start, r_reap, r_free};

	return mfs_io_engine_with(&ops, arg, depth, ret, e);
}

/* A file system that has no O_DIRECT refuses it here, and the test has nothing to refuse. */
static int opens_direct(void *arg, int dirfd, const char *path, int *ret)
{
	const int rc = mft_save_system.open(NULL, dirfd, path, ret);

	(void)arg;
	if (!rc)
		fcntl(*ret, F_SETFL, fcntl(*ret, F_GETFL) | O_DIRECT);
	return rc;
}

/* ---- a model of many buffers ---- */

static const struct fixture large = {"resume/llama-torch_dist-tp2-pp2/iter_0000020",
				     "--bf16 --hidden-size 256 --ffn-hidden-size 768 "
				     "--kv-channels 128 --padded-vocab-size 2048"};

/* Some 70 MB through a ring of few buffers, overwritten as soon as a fence lets it: fences hold
 * exactly what is not copied. */
START_TEST(small_ring)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &large, "");
	fill(s.run.params, 1);
	saver = new_saver(&s, &mft_save_system, _i ? 4 * MFT_SAVE_SLOT : 0);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* Several writes of one file are under way when it is found to refuse them. */
START_TEST(refuses_direct)
{
	struct mft_save_system_ops system = mft_save_system;
	struct refusing e = {0};
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &large, "");
	fill(s.run.params, 1);
	system.engine = r_engine;
	system.open = opens_direct;
	system.arg = &e;
	saver = new_saver(&s, &system, 0);
	save(saver, &s, 2);
	check_save(&s, 30, 1);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* ---- a device that fails ---- */

/* As CUDA's: after a failure it copies nothing more, its events come, and sync() alone says so. */
static unsigned copies_left;

static void fails_to_copy(struct mfk_ctx *c, void *host, const void *from, size_t bytes)
{
	if (copies_left && copies_left--)
		mfk_cpu.device->copy_out(c, host, from, bytes);
}

static int knows_of_failure(struct mfk_ctx *c, char *why)
{
	if (copies_left)
		return mfk_cpu.device->sync(c, why);
	snprintf(why, MFK_WHY, "an illegal memory access was encountered");
	return -EIO;
}

START_TEST(failed_copies)
{
	struct mfk_device_ops device = *mfk_cpu.device;
	struct mfk_backend backend = mfk_cpu;
	struct mft_save_result result;
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[0], "");
	fill(s.run.params, 1);
	device.copy_out = fails_to_copy;
	device.sync = knows_of_failure;
	backend.device = &device;
	copies_left = 3;
	unit_ok(mft_saver_new(&s.config, s.run.params, &alone, &backend, s.run.device, NULL, &saver,
			      &err),
		&err);
	unit_ok(mft_saver_start(saver, s.run.ctx, MFT_SAVE_PERSISTENT, &s.progress, &err), &err);
	update(saver, &s.run, 2);
	result = end(saver);
	ck_assert(result.failed);
	unit_sentence(result.why, "illegal memory access");
	check_tracker(&s, -1);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

/* ---- what goes along ---- */

START_TEST(the_tokenizers_files_are_saved)
{
	struct mft_saver *saver;
	struct setup s;
	uint8_t *a, *b;
	size_t n, m;
	char path[512];

	set_up(&s, &fixtures[0], "");
	fill(s.run.params, 1);
	unit_ok(mft_saver_new(
			&s.config, s.run.params, &alone, &mfk_cpu, s.run.device,
			unit_fixture("resume/llama-torch_dist-tp2-pp2/iter_0000020/tokenizer"),
			&saver, &err),
		&err);
	save(saver, &s, 2);
	snprintf(path, sizeof(path), "%s/iter_0000030/tokenizer/tokenizer.json", s.dir);
	a = unit_slurp(path, &n);
	b = unit_slurp(
		unit_fixture(
			"resume/llama-torch_dist-tp2-pp2/iter_0000020/tokenizer/tokenizer.json"),
		&m);
	ck_assert(n == m && !memcmp(a, b, n));
	check_save(&s, 30, 1);
	free(a);
	free(b);
	mft_saver_free(saver);
	tear_down(&s);
}
END_TEST

START_TEST(directories_that_cannot_be_written_are_refused)
{
	struct mft_saver *saver;
	struct setup s;

	set_up(&s, &fixtures[0], "");
	unit_fails(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device,
				 "/nowhere/at/all", &saver, &err),
		   &err, -ENOENT, "/nowhere/at/all");
	s.config.save = "/proc/nowhere/run";
	ck_assert_int_lt(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device,
				       NULL, &saver, &err),
			 0);
	unit_sentence(err.msg, "/proc/nowhere");
	tear_down(&s);

	set_up(&s, &fixtures[0],
	       "--non-persistent-save-interval 2 --non-persistent-ckpt-type global");
	s.config.non_persistent_global_ckpt_dir = s.dir;
	unit_fails(mft_saver_new(&s.config, s.run.params, &alone, &mfk_cpu, s.run.device, NULL,
				 &saver, &err),
		   &err, -EINVAL, "expected another directory than that of --save");
	tear_down(&s);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("save");
	TCase *c = tcase_create("saves");

	mft_parallel_one(&alone);
	tcase_add_loop_test(c, round_trip, 0, UNIT_TSAN ? 2 : FIXTURES);
	tcase_add_loop_test(c, save_and_load, 0, FIXTURES);
	tcase_add_loop_test(c, old_saves_go_and_the_kept_ones_stay, 0, 2);
	tcase_add_test(c, a_directory_of_its_own);
	tcase_add_test(c, others_saves_stay_in_a_directory_of_its_own);
	tcase_add_test(c, copies_stay_in_a_directory_of_its_own);
	tcase_add_loop_test(c, short_writes, 0, FIXTURES);
	tcase_add_loop_test(c, small_ring, 0, 2);
	tcase_add_loop_test(c, random_states, 0, 2);
	tcase_add_test(c, weights_alone);
	tcase_add_test(c, a_second_save_at_a_time_is_refused);
	tcase_add_test(c, a_second_saver_is_refused);
	tcase_add_test(c, makes_room);
	tcase_add_test(c, the_tokenizers_files_are_saved);
	tcase_add_test(c, directories_that_cannot_be_written_are_refused);
	tcase_add_test(c, links_in_the_way_go_themselves);
	tcase_add_test(c, links_of_others);
	tcase_add_test(c, link_to_save);
	tcase_add_test(c, refuses_direct);
	tcase_add_test(c, failed_copies);
	suite_add_tcase(s, c);
	c = tcase_create("faults");
	tcase_add_loop_test(c, every_call_may_fail_and_the_run_is_told, 0, 5);
	tcase_add_loop_test(c, a_link_swapped_in_leads_nowhere, 0, 2);
#ifndef __SANITIZE_THREAD__
	tcase_add_loop_test(c, every_call_may_be_the_last, 0, 3);
#endif
	suite_add_tcase(s, c);
	return s;
}
