#include "trainer/loop/layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/config/settle/settle.h"
#include "trainer/config/value.h"
#include "trainer/loop/dry_run.h"
#include "trainer/loop/train.h"

#define GIB   ((double)(UINT64_C(1) << 30))
#define SHOWN 8 /* layouts */

/* ---- what is tried ---- */

/* Flags, and the numbers that they are tried with. */
enum knob { TP, PP, CHUNKS, CP, EP, MICRO, AGAIN, KNOBS };

#define MOST 5

enum { NOTHING_AGAIN, LAYERS_AGAIN, EXPERTS_AGAIN }; /* values of AGAIN */

static const struct {
	const char *dest, *flag;
	int64_t usual; /* is not shown */
	int64_t values[MOST];
	int count;
} knobs[KNOBS] = {
	[TP] = {"tensor_model_parallel_size", "--tensor-model-parallel-size", 1, {1, 2, 4, 8}, 4},
	[PP] = {"pipeline_model_parallel_size",
		"--pipeline-model-parallel-size",
		1,
		{1, 2, 4, 8, 16},
		5},
	[CHUNKS] = {"num_virtual_stages_per_pipeline_rank",
		    "--num-virtual-stages-per-pipeline-rank",
		    1,
		    {1, 2, 4},
		    3},
	[CP] = {"context_parallel_size", "--context-parallel-size", 1, {1, 2, 4, 8}, 4},
	[EP] = {"expert_model_parallel_size",
		"--expert-model-parallel-size",
		1,
		{1, 2, 4, 8, 16},
		5},
	[MICRO] = {"micro_batch_size", "--micro-batch-size", -1, {1, 2, 4, 8}, 4},
	/* Layers or experts are run again in backward: where a layout does not fit without. */
	[AGAIN] = {"recompute_granularity", NULL, NOTHING_AGAIN, {NOTHING_AGAIN}, 1},
};

static const char *const again[] = {
	[LAYERS_AGAIN] = "--recompute-granularity full --recompute-method uniform "
			 "--recompute-num-layers 1",
	[EXPERTS_AGAIN] = "--recompute-granularity selective --recompute-modules moe",
};

struct layout {
	int64_t at[KNOBS]; /* MFS_ABSENT: as it was given */
	/* of its plan */
	bool possible, fits;
	bool of_experts; /* experts' rows are the largest part of a stage */
	char why[256];	 /* it is not possible */
	double bytes;
	double step, tokens; /* seconds, and tokens a second: of what fits */
};

struct search {
	struct mft_train_config *config;
	const struct mft_launch *launch;
	struct mft_machine machine;
	struct layout *list; /* the processes that plan them share it */
	size_t count, most;
};

/* Long sequences alone are divided, and experts where there are some. */
static bool is_tried(const struct search *s, enum knob k, int64_t value)
{
	const struct mft_flag_values *v = s->config->values;

	if (k == CP)
		return value == 1 || mft_flag_number(v, "seq_length", 0) / value >= 8192;
	if (k == EP)
		return value == 1 || !mft_flag_is_none(v, "num_experts");
	if (k == TP)
		return value <= s->machine.gpus_per_host;
	return true;
}

static int values_of(const struct search *s, enum knob k, int64_t ret[MOST])
{
	int count = 0;

	if (mft_flag_is_given(s->config->values, knobs[k].dest)) {
		ret[0] = MFS_ABSENT;
		return 1;
	}
	for (int i = 0; i < knobs[k].count; i++)
		if (is_tried(s, k, knobs[k].values[i]))
			ret[count++] = knobs[k].values[i];
	return count;
}

/* All combinations; chunks are of pipelines alone. */
static size_t combine(const struct search *s, struct layout *list)
{
	int64_t values[KNOBS][MOST];
	int counts[KNOBS], at[KNOBS] = {0}, k = 0;
	size_t count = 0;

	for (int i = 0; i < KNOBS; i++)
		counts[i] = values_of(s, (enum knob)i, values[i]);
	while (k < KNOBS) {
		const bool alone = values[PP][at[PP]] == 1 && values[CHUNKS][at[CHUNKS]] > 1;

		for (int i = 0; i < KNOBS && list && !alone; i++)
			list[count].at[i] = values[i][at[i]];
		count += !alone;
		for (k = 0; k < KNOBS && ++at[k] == counts[k]; k++)
			at[k] = 0;
	}
	return count;
}

/* ---- one layout, in a process of its own ---- */

static int run_again(struct mft_train_config *c, int64_t what, struct mfs_error *err)
{
	struct mft_flag_values *v = c->values;
	const char *modules = "moe";

	if (what == LAYERS_AGAIN) {
		mft_flag_set_text(v, "recompute_granularity", "full");
		mft_flag_set_text(v, "recompute_method", "uniform");
		mft_flag_set_number(v, "recompute_num_layers", 1);
	}
	if (what != EXPERTS_AGAIN)
		return 0;
	mft_flag_set_text(v, "recompute_granularity", "selective");
	return mft_flag_value_parse(mft_flag_at(mft_flag_of_dest("recompute_modules")),
				    "--recompute-modules", &modules, 1, &c->arena,
				    mft_flag_slot(v, "recompute_modules"), err);
}

static void apply(struct mft_flag_values *v, const struct layout *l)
{
	for (int k = 0; k < AGAIN; k++)
		if (l->at[k] > 0 && (k != CHUNKS || l->at[k] > 1))
			mft_flag_set_number(v, knobs[k].dest, l->at[k]);
	if (l->at[TP] > 1)
		mft_flag_set_truth(v, "sequence_parallel", true);
}

/* Its memory; and its time, if it fits. */
static int plan(const struct search *s, struct layout *l, struct mfs_error *err)
{
	const bool waits = s->config->load || s->config->pretrained_checkpoint;
	struct mft_plan p = {0};
	int rc;

	apply(s->config->values, l);
	rc = run_again(s->config, l->at[AGAIN], err);
	if (!rc && !waits)
		rc = mft_train_config_settle(s->config, err);
	if (!rc)
		rc = mft_plan_run(s->config, s->launch, NULL, false, &p, err);
	if (rc)
		return rc;
	l->possible = true;
	l->bytes = (double)p.most;
	for (uint32_t i = 0; i < p.stage_count; i++)
		l->of_experts |= p.stages[i].of_experts;
	mft_plan_release(&p);
	if (l->bytes > s->machine.memory)
		return 0;
	rc = mft_plan_run(s->config, s->launch, &s->machine, false, &p, err);
	if (rc)
		return rc;
	l->step = p.time.step;
	l->tokens = p.tokens / p.time.step;
	l->fits = true;
	return 0;
}

/* What a plan allocates and changes goes with its process. A layout that is refused is none. */
static void plan_all(struct search *s, size_t from)
{
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	struct mfs_error refused;
	long running = 0;

	for (size_t i = from; i < s->count; i++) {
		const pid_t child = fork();

		if (child == 0) {
			if (plan(s, &s->list[i], &refused))
				snprintf(s->list[i].why, sizeof(s->list[i].why), "%s", refused.msg);
			_exit(0);
		}
		running += child > 0;
		while (running > 0 && (running >= processors || child < 0) && wait(NULL) > 0)
			running--;
	}
	while (running > 0 && wait(NULL) > 0)
		running--;
}

static void add_again(struct search *s, const struct layout *l, int64_t what)
{
	struct layout *more = &s->list[s->count++];

	*more = *l;
	more->at[AGAIN] = what;
	more->possible = false;
}

/* What does not fit is tried once more with layers run again; and with experts alone, which takes
 * less time, where what these keep is the most. */
static void plan_again(struct search *s)
{
	const struct mft_flag_values *v = s->config->values;
	const size_t tried = s->count;

	if (mft_flag_is_given(v, knobs[AGAIN].dest))
		return;
	for (size_t i = 0; i < tried; i++) {
		const struct layout *l = &s->list[i];

		if (!l->possible || l->fits)
			continue;
		add_again(s, l, LAYERS_AGAIN);
		if (l->of_experts && !mft_flag_is_given(v, "recompute_modules"))
			add_again(s, l, EXPERTS_AGAIN);
	}
	plan_all(s, tried);
}

/* ---- the fastest ---- */

static int compare(const void *a, const void *b)
{
	const struct layout *x = a, *y = b;

	if (x->fits != y->fits)
		return y->fits - x->fits;
	return (x->tokens < y->tokens) - (x->tokens > y->tokens);
}

static void say_layout(const struct layout *l)
{
	printf("%10.1f ms, %10.0f tokens/s, %7.1f GiB ", 1e3 * l->step, l->tokens, l->bytes / GIB);
	for (int k = 0; k < AGAIN; k++)
		if (l->at[k] >= 0 && l->at[k] != knobs[k].usual)
			printf(" %s %lld", knobs[k].flag, (long long)l->at[k]);
	if (l->at[AGAIN] > NOTHING_AGAIN)
		printf(" %s", again[l->at[AGAIN]]);
	printf("%s\n", l->at[TP] > 1 ? " --sequence-parallel" : "");
}

static int say(const struct search *s)
{
	size_t possible = 0, fit = 0;

	for (size_t i = 0; i < s->count; i++) {
		possible += s->list[i].possible;
		fit += s->list[i].fits;
	}
	if (!possible) {
		fprintf(stderr, "mcorefs-train: no layout is possible; the first: %s\n",
			s->list[0].why);
		return MFT_TRAIN_FAILED;
	}
	qsort(s->list, s->count, sizeof(*s->list), compare);
	printf("%zu layouts are possible on %lld of %s, and %zu fit%s\n", possible,
	       (long long)s->config->gpus, s->machine.name, fit,
	       fit ? "; the fastest, with --use-distributed-optimizer --overlap-grad-reduce "
		     "--overlap-param-gather:"
		   : "");
	for (size_t i = 0; i < fit && i < SHOWN; i++)
		say_layout(&s->list[i]);
	return fit ? MFT_TRAIN_OK : MFT_TRAIN_FAILED;
}

/* ---- all of it ---- */

static int prepare(struct search *s, struct mfs_error *err)
{
	struct mft_flag_values *v = s->config->values;
	int rc = mft_dry_run_machine(s->config, &s->machine, err);

	if (rc)
		return rc;
	s->count = combine(s, NULL);
	s->most = 3 * s->count; /* plan_again() */
	s->list = mmap(NULL, s->most * sizeof(*s->list), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->list == MAP_FAILED)
		return mfs_fail_nomem(err);
	combine(s, s->list);
	/* What a layout would be tried with and without is always better with. */
	mft_flag_set_truth(v, "use_distributed_optimizer", true);
	mft_flag_set_truth(v, "overlap_grad_reduce", true);
	mft_flag_set_truth(v, "overlap_param_gather", true);
	return 0;
}

int mft_suggest_layout(struct mft_train_config *config, const struct mft_launch *launch)
{
	struct search s = {.config = config, .launch = launch};
	struct mfs_error err = {0};
	int code;

	if (prepare(&s, &err)) {
		fprintf(stderr, "mcorefs-train: %s\n", err.msg);
		return MFT_TRAIN_FAILED;
	}
	fflush(stdout);
	plan_all(&s, 0);
	plan_again(&s);
	code = say(&s);
	munmap(s.list, s.most * sizeof(*s.list));
	return code;
}
