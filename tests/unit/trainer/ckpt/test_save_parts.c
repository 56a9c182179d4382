/*
 * A save of many processes (trainer/ckpt/save.h): each writes its part, and together they are the
 * whole, byte for byte, at any layout; if one of them fails, all forget the save, and the next one
 * is whole. Processes are threads here, which meet where processes would talk: this test also runs
 * under ThreadSanitizer (pthread_create()).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/integrity.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/ckpt/rng.h"
#include "formats/ckpt/target.h"
#include "formats/megatron/tracker.h"
#include "formats/optim/read/optim_open.h"
#include "formats/plan/vfile.h"
#include "tests/unit/run_of.h"
#include "tests/unit/run_command.h"
#include "trainer/ckpt/save_i.h"

#define MOST 8 /* processes */

static struct mfs_error err;

/* ---- threads that talk as processes do ---- */

struct meeting {
	pthread_barrier_t barrier;
	const void *from[MOST];
	uint32_t size;
};

struct mfk_comm {
	struct meeting *meeting;
	uint32_t rank;
};

static int gather(struct mfk_comm *g, void *to, const void *from, size_t bytes, char *why)
{
	(void)why;
	g->meeting->from[g->rank] = from;
	pthread_barrier_wait(&g->meeting->barrier);
	for (uint32_t i = 0; i < g->meeting->size; i++)
		memcpy((unsigned char *)to + i * bytes, g->meeting->from[i], bytes);
	pthread_barrier_wait(&g->meeting->barrier);
	return 0;
}

static int sum(struct mfk_comm *g, double *values, unsigned count, char *why)
{
	double all[MOST];

	ck_assert_uint_eq(count, 1);
	gather(g, all, values, sizeof(*values), why);
	*values = 0;
	for (uint32_t i = 0; i < g->meeting->size; i++)
		*values += all[i];
	return 0;
}

static const struct mfk_comm_ops ops = {.name = "threads", .host_sum = sum, .host_gather = gather};

/* ---- what is in memory ---- */

/* Numbers that say which element of the whole they are. */
static uint32_t pattern(enum mfs_state state, uint32_t tensor, uint64_t element, unsigned round)
{
	uint64_t x = element * 0x9e3779b97f4a7c15 + tensor * 0xd6e8feb86659fd93 +
		     state * 0xbf58476d1ce4e5b9 + round * 77777;

	x ^= x >> 29;
	x *= 0x94d049bb133111eb;
	return (uint32_t)(x >> 32) & 0x3fffffff; /* a finite float */
}

static void put(void *to, enum mfs_dtype type, uint32_t bits)
{
	const uint16_t half = (uint16_t)(bits >> 16 & 0x3bff);

	if (type == MFS_F32)
		memcpy(to, &bits, sizeof(bits));
	else
		memcpy(to, &half, sizeof(half));
}

struct filling {
	const struct mft_params *params;
	const struct mft_param *param;
	unsigned round;
};

static uint32_t number_of(const struct mft_params *p, const struct mfs_global_tensor *t)
{
	return (uint32_t)(t - mfs_ckpt_at(p->ckpt, 0));
}

/* Elements [first, first + count) of the flat buffers, which follow each other in a state's and are
 * [whole, whole + count) of the parameter. */
static void fill_state(const struct filling *f, enum mfs_state state, uint64_t first,
		       uint64_t count, uint64_t whole)
{
	const struct mft_flat to = mft_params_flat(f->params, state, first);
	const uint32_t tensor = number_of(f->params, f->param->tensor);
	const size_t size = mfs_dtype_size(to.type);

	for (uint64_t i = 0; to.at && i < count; i++)
		put((unsigned char *)to.at + i * size, to.type,
		    pattern(state, tensor, whole + i, f->round));
}

/* The process has all weights of its part of the model, and what it owns of the other states. */
static int fill_run(void *arg, const struct mft_param_run *run)
{
	const struct filling *f = arg;
	const uint64_t first = f->param->start + run->first, end = first + run->count;

	fill_state(f, MFS_STATE_MODEL, first, run->count, run->whole_first);
	for (int state = 0; state < MFS_STATE_COUNT; state++) {
		uint64_t at = first, count;

		for (; state != MFS_STATE_MODEL && (count = mft_params_owned(f->params, &at, end));
		     at += count)
			fill_state(f, (enum mfs_state)state, at, count,
				   run->whole_first + at - first);
	}
	return 0;
}

static void fill(const struct mft_params *p, unsigned round)
{
	for (uint32_t i = 0; i < p->count; i++) {
		struct filling f = {p, &p->list[i], round};

		mft_param_runs(f.param, 0, f.param->elements, fill_run, &f);
	}
	for (uint32_t i = 0; i < p->buffer_count; i++) {
		const struct mft_model_buffer *b = &p->buffer_list[i];

		for (uint64_t k = 0; k < b->elements; k++)
			put(&p->buffers[b->start + k], MFS_F32,
			    pattern(MFS_STATE_MODEL, number_of(p, b->tensor), k, round));
	}
}

/* ---- what is on disk ---- */

static void same_tensor(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *want,
			uint32_t number, unsigned round)
{
	const enum mfs_state state = (enum mfs_state)want->state;
	const struct mfs_global_tensor *t =
		mfs_ckpt_find_state(ckpt, state, want->name, want->layer, want->expert);
	struct mfs_whole_target target;
	struct mfs_vfile *f;
	unsigned char *found, *expected;
	size_t len, size;

	ck_assert_msg(t != NULL, "state %d of %s is missing", state, want->name);
	ck_assert_int_eq(t->dtype, want->dtype);
	ck_assert(!memcmp(t->shape, want->shape, sizeof(t->shape)));
	size = mfs_dtype_size(t->dtype);
	mfs_whole_target_init(&target, ckpt, t);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &target.base, &err), &err);
	found = malloc(target.base.bytes);
	expected = malloc(target.base.bytes);
	unit_ok(mfs_vfile_pread(f, 0, found, target.base.bytes, &len, &err), &err);
	for (uint64_t i = 0; i < target.base.bytes / size; i++)
		put(expected + i * size, t->dtype, pattern(state, number, i, round));
	if (memcmp(found, expected, target.base.bytes)) {
		size_t i = 0;

		while (found[i] == expected[i])
			i++;
		ck_abort_msg("state %d of %s %d: element %zu", state, want->name, want->layer,
			     i / size);
	}
	free(expected);
	free(found);
	mfs_vfile_free(f);
}

static void bad_file(void *arg, const struct mfs_error *e)
{
	(void)arg;
	ck_abort_msg("%s", e->msg);
}

static void check_save(const char *path, uint64_t iteration, const struct mft_params *p,
		       unsigned round)
{
	const struct mft_params *whole = p;
	struct mfs_ckpt *ckpt;
	uint32_t checked;
	char dir[512];

	snprintf(dir, sizeof(dir), "%s/iter_%07llu", path, (unsigned long long)iteration);
	unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	ck_assert_uint_eq(mfs_ckpt_count_all(ckpt), mfs_ckpt_count_all(whole->ckpt));
	for (uint32_t i = 0; i < mfs_ckpt_count_all(whole->ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(whole->ckpt, i);

		same_tensor(
			ckpt, t,
			number_of(whole, mfs_ckpt_find(whole->ckpt, t->name, t->layer, t->expert)),
			round);
	}
	mfs_ckpt_free(ckpt);
	unit_ok(mfs_integrity_check(dir, bad_file, NULL, &checked, &err), &err);
	ck_assert_uint_gt(checked, 3);
}

static bool is_clean(const char *path)
{
	DIR *dir = opendir(path);
	bool clean = true;
	struct dirent *d;

	ck_assert_ptr_nonnull(dir);
	while ((d = readdir(dir)))
		clean &= !strstr(d->d_name, ".tmp");
	closedir(dir);
	return clean;
}

static int64_t latest(const char *path)
{
	struct mfs_tracker t = {0};

	mfs_tracker_read(path, &t);
	return t.kind == MFS_TRACKER_NUMBER ? t.number : -1;
}

/* ---- a run ---- */

struct process {
	struct mft_parallel parallel;
	struct mfk_comm comm;
	struct mft_params *params;
	struct run run;
	struct mft_save_system_ops system;
	struct mft_saver *saver;
	struct mft_save_result result;
	uint64_t bytes; /* of its files */
	const struct team *team;
	pthread_t thread;
};

struct team {
	struct mft_train_config config;
	struct mft_parallel_sizes sizes;
	struct meeting meeting;
	struct process list[MOST];
	uint32_t size;
	char dir[256];
	uint64_t iteration;
	bool waits; /* in mft_saver_ended() */
};

static const struct model {
	const char *dir, *more; /* of the command line */
} models[] = {
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", "--bf16"},
	{"resume/llama-torch_dist-tp2-pp2/iter_0000020", ""},
	{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020", "--bf16 --use-distributed-optimizer"},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040", "--bf16 --transformer-impl local"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040", "--bf16"},
	{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040", "--bf16 --use-distributed-optimizer"},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040", "--bf16"},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040", "--bf16 --use-distributed-optimizer"},
};

#define MODELS MFS_ARRAY_SIZE(models)

static void configure(struct team *t, const struct model *m)
{
	struct run_words w = {0};
	struct mfs_ckpt *ckpt;

	memset(t, 0, sizeof(*t));
	snprintf(t->dir, sizeof(t->dir), "%s/run", unit_tmpdir());
	unit_ok(mfs_ckpt_open(unit_fixture(m->dir), 0, &ckpt, &err), &err);
	run_say_model(&w, ckpt);
	run_say(&w, "--save %s --save-interval 10 %s", t->dir, m->more);
	mfs_ckpt_free(ckpt);
	run_parse(&w, &t->config);
}

static void places(const struct team *t, uint32_t rank, struct mft_parallel *ret)
{
	const struct mft_launch launch = {.rank = rank, .size = t->size, .local_size = t->size};

	mft_parallel_places(&launch, &t->sizes, ret);
}

/* False: the model cannot be divided so. */
static bool set_sizes(struct team *t, const struct mft_parallel_sizes *sizes, uint32_t vpp)
{
	const uint32_t each = sizes->tp * sizes->cp * sizes->dp;
	struct mft_parallel parallel;
	struct mft_params *p;

	t->sizes = *sizes;
	if (t->config.model.num_experts <= 0)
		t->sizes.etp = sizes->tp; /* as Megatron has it */
	t->size = each * sizes->pp;
	if (t->size > MOST || each % (t->sizes.etp * sizes->ep) || sizes->tp % t->sizes.etp)
		return false;
	t->sizes.edp = each / (t->sizes.etp * sizes->ep);
	if (sizes->instances &&
	    (sizes->cp * sizes->dp % sizes->instances || t->sizes.edp % sizes->instances))
		return false;
	t->config.model.virtual_pipeline_model_parallel_size = vpp > 1 ? (int64_t)vpp : MFS_ABSENT;
	places(t, 0, &parallel);
	if (mft_params_new(&t->config, &parallel, &p, &err))
		return false;
	mft_params_free(p);
	return true;
}

static void begin(struct team *t)
{
	t->meeting.size = t->size;
	pthread_barrier_init(&t->meeting.barrier, NULL, t->size);
	for (uint32_t i = 0; i < t->size; i++) {
		struct process *p = &t->list[i];

		*p = (struct process){
			.team = t, .comm = {&t->meeting, i}, .system = mft_save_system};
		places(t, i, &p->parallel);
		p->parallel.ops = t->size > 1 ? &ops : NULL;
		p->parallel.group[MFT_GROUP_WORLD].comm = t->size > 1 ? &p->comm : NULL;
		run_new_at(&p->run, &t->config, &p->parallel);
		p->params = p->run.params;
		fill(p->params, 1);
	}
}

static void end(struct team *t)
{
	for (uint32_t i = 0; i < t->size; i++)
		run_free(&t->list[i].run);
	pthread_barrier_destroy(&t->meeting.barrier);
}

/* One save, as the run's thread of a process makes it. */
static void *save(void *arg)
{
	struct process *p = arg;
	const struct team *t = p->team;
	const struct mft_progress progress = {.iteration = t->iteration};
	struct mfs_error e = {0};

	unit_ok(mft_saver_new_with(&p->system, &t->config, p->params, &p->parallel, &mfk_cpu,
				   p->run.device, NULL, 2 * MFT_SAVE_SLOT, &p->saver, &e),
		&e);
	unit_ok(mft_saver_start(p->saver, p->run.ctx, MFT_SAVE_PERSISTENT, &progress, &e), &e);
	mft_saver_fence(p->saver, p->run.ctx, 0, p->params->elements);
	fill(p->params, 2); /* the next update does not wait for others */
	while (!mft_saver_ended(p->saver, t->waits, &p->result))
		usleep(200);
	ck_assert(!mft_saver_ended(p->saver, true, &p->result));
	p->bytes = p->saver->plan.bytes;
	mft_saver_free(p->saver);
	return NULL;
}

static void save_all(struct team *t, uint64_t iteration)
{
	t->iteration = iteration;
	for (uint32_t i = 0; i < t->size; i++)
		ck_assert(!pthread_create(&t->list[i].thread, NULL, save, &t->list[i]));
	for (uint32_t i = 0; i < t->size; i++)
		pthread_join(t->list[i].thread, NULL);
}

/* ---- tests ---- */

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(*seed >> 33) % below;
}

static bool draw_sizes(struct team *t, uint64_t *seed)
{
	static const uint32_t some[] = {1, 1, 2, 2, 3, 4};
	const bool experts = t->config.model.num_experts > 0;
	const bool divided = t->config.use_distributed_optimizer;
	const struct mft_parallel_sizes sizes = {.tp = 1u << draw(seed, 3),
						 .cp = 1 + !draw(seed, 4),
						 .dp = some[draw(seed, 6)],
						 .pp = 1u << draw(seed, 3),
						 .etp = 1u << draw(seed, 2),
						 .ep = experts ? 1u << draw(seed, 3) : 1,
						 .instances = divided ? draw(seed, 4) : 0};

	return set_sizes(t, &sizes, 1 + draw(seed, 2));
}

/* Item of each stage and tensor-parallel place. */
static void check_rng(const struct team *t, uint64_t iteration)
{
	struct mfs_ckpt *ckpt;
	char dir[512];

	snprintf(dir, sizeof(dir), "%s/iter_%07llu", t->dir, (unsigned long long)iteration);
	unit_ok(mfs_ckpt_open(dir, MFS_CKPT_COMMON, &ckpt, &err), &err);
	for (uint32_t pp = 0; pp < t->sizes.pp; pp++)
		for (uint32_t tp = 0; tp < t->sizes.tp; tp++) {
			struct mfs_rng rng;

			unit_ok(mfs_rng_open(ckpt, tp, pp, 0, &rng, &err), &err);
			mfs_rng_release(&rng);
		}
	mfs_ckpt_free(ckpt);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LAYOUTS 2
#else
#define LAYOUTS 3
#endif

/* Any layout: the whole is what all have. */
START_TEST(any_layouts_parts_are_the_whole)
{
	uint64_t seed = 20260723 + (uint64_t)_i;
	struct team t;

	configure(&t, &models[_i]);
	for (uint64_t n = 1; n <= LAYOUTS; n++) {
		while (!draw_sizes(&t, &seed) || t.size == 1)
			;
		t.waits = n % 2;
		begin(&t);
		save_all(&t, n);
		for (uint32_t i = 0; i < t.size; i++)
			ck_assert_msg(!t.list[i].result.failed, "%s", t.list[i].result.why);
		check_save(t.dir, n, t.list[0].params, 1);
		check_rng(&t, n);
		ck_assert(is_clean(t.dir));
		ck_assert_int_eq(latest(t.dir), (int64_t)n);
		end(&t);
	}
	mft_train_config_release(&t.config);
}
END_TEST

/* Replicas divide the work evenly, and so do instances of the distributed optimizer. */
START_TEST(replicas_divide_the_work_evenly)
{
	const bool instances = _i == 4;
	const struct mft_parallel_sizes sizes = {.tp = 1,
						 .cp = 1,
						 .dp = 4,
						 .pp = 1,
						 .etp = 1,
						 .ep = 1,
						 .instances = instances ? 2 : 0};
	uint64_t least = UINT64_MAX, most = 0;
	struct team t;

	configure(&t, &models[instances ? 2 : _i]);
	ck_assert(set_sizes(&t, &sizes, 1));
	begin(&t);
	save_all(&t, 10);
	for (uint32_t i = 0; i < t.size; i++) {
		least = t.list[i].bytes < least ? t.list[i].bytes : least;
		most = t.list[i].bytes > most ? t.list[i].bytes : most;
	}
	ck_assert_msg(most - least < least / 5, "%llu to %llu bytes", (unsigned long long)least,
		      (unsigned long long)most);
	end(&t);
	mft_train_config_release(&t.config);
}
END_TEST

static int no_space(void *arg, int fd, uint64_t size)
{
	(void)arg, (void)fd, (void)size;
	return -ENOSPC;
}

/* The disk of one process is full: all hear of it, nothing is left, and the next save is whole. */
START_TEST(one_fails)
{
	const struct mft_parallel_sizes sizes = {
		.tp = 2, .cp = 1, .dp = 2, .pp = 1, .etp = 1, .ep = 1};
	char rank[32];
	struct team t;

	configure(&t, &models[0]);
	ck_assert(set_sizes(&t, &sizes, 1));
	t.waits = _i % 2;
	begin(&t);
	save_all(&t, 10);
	check_save(t.dir, 10, t.list[0].params, 1);
	t.list[_i].system.allocate = no_space;
	save_all(&t, 20);
	for (uint32_t i = 0; i < t.size; i++)
		ck_assert(t.list[i].result.failed);
	snprintf(rank, sizeof(rank), "rank %d on ", _i);
	ck_assert_msg(strstr(t.list[0].result.why, rank) &&
			      strstr(t.list[0].result.why, "No space left on device"),
		      "%s", t.list[0].result.why);
	ck_assert(is_clean(t.dir));
	ck_assert_int_eq(latest(t.dir), 10);
	check_save(t.dir, 10, t.list[0].params, 1);
	t.list[_i].system.allocate = mft_save_system.allocate;
	save_all(&t, 30);
	ck_assert(!t.list[0].result.failed);
	check_save(t.dir, 30, t.list[0].params, 2);
	end(&t);
	mft_train_config_release(&t.config);
}
END_TEST

/* What a process has written is not where the first one looks. */
static int elsewhere(void *arg, int dirfd, const char *path, int *ret)
{
	const int rc = mft_save_system.open(arg, dirfd, path, ret);

	return rc ? rc : unlinkat(dirfd, path, 0);
}

START_TEST(not_shared)
{
	const struct mft_parallel_sizes sizes = {
		.tp = 1, .cp = 1, .dp = 2, .pp = 1, .etp = 1, .ep = 1};
	struct team t;

	configure(&t, &models[0]);
	ck_assert(set_sizes(&t, &sizes, 1));
	begin(&t);
	t.list[1].system.open = elsewhere;
	save_all(&t, 10);
	ck_assert(t.list[0].result.failed && t.list[1].result.failed);
	unit_sentence(t.list[0].result.why, "expected a directory that all processes share");
	ck_assert_int_eq(latest(t.dir), -1);
	ck_assert(is_clean(t.dir));
	end(&t);
	mft_train_config_release(&t.config);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("save_parts");
	TCase *c = tcase_create("parts");

	tcase_add_loop_test(c, any_layouts_parts_are_the_whole, 0, MODELS);
	tcase_add_loop_test(c, replicas_divide_the_work_evenly, 0, 5);
	tcase_add_loop_test(c, one_fails, 0, 4);
	tcase_add_test(c, not_shared);
	suite_add_tcase(s, c);
	return s;
}
