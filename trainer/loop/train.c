#include "trainer/loop/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/loop/dry_run.h"
#include "trainer/loop/rl.h"
#include "trainer/loop/trainer_i.h"

/* What a run has done since it was started. */
struct mft_train_run {
	struct mft_trainer t;
	uint64_t began_ns;
	uint64_t batch;		   /* of the last iteration; 0: there was none */
	enum mft_stop_reason stop; /* why it ends before its last iteration */
	enum mft_train_exit exit;  /* of a run that fails */
	bool agreed;		   /* all processes fail, for one reason */
	bool silent;		   /* another process says it */
};

static int fail(const struct mft_launch *launch, const struct mfs_error *err,
		enum mft_train_exit exit)
{
	char who[MFT_LAUNCH_WHO];

	fprintf(stderr, "mcorefs-train: %s%s\n", mft_launch_who(launch, who), err->msg);
	return exit;
}

static bool is_time(int64_t interval, uint64_t iteration)
{
	return interval > 0 && iteration % (uint64_t)interval == 0;
}

/* ---- the loop ---- */

/* training.py: checkpoint_and_decide_exit, in its order. What one process has a reason for, all do.
 */
static int decide_exit(struct mft_train_run *r, struct mfs_error *err)
{
	const struct mft_train_config *c = r->t.config;
	const uint64_t iteration = r->t.progress.iteration;
	const double minutes = (double)(mfs_now_ns() - r->began_ns) / 60e9;
	double reasons[] = {mft_stop_signal(),
			    c->exit_duration_in_mins >= 0 && minutes > c->exit_duration_in_mins};
	const int rc = mft_parallel_sum(&r->t.parallel, MFT_GROUP_WORLD, reasons, 2, err);

	if (rc)
		return rc;
	/* A rollout that has steps left is not saved. */
	if (mft_rl_is_within(&r->t))
		return 0;
	if (reasons[0] > 0)
		r->stop = MFT_STOP_SIGNAL;
	else if (reasons[1] > 0)
		r->stop = MFT_STOP_MINUTES;
	else if (is_time(c->exit_interval, iteration))
		r->stop = MFT_STOP_INTERVAL;
	if (r->t.saver && (r->stop || is_time(c->save_interval, iteration)))
		mft_saves_begin(&r->t, MFT_SAVE_PERSISTENT);
	else if (r->t.saver && is_time(c->non_persistent_save_interval, iteration))
		mft_saves_begin(&r->t, MFT_SAVE_NON_PERSISTENT);
	return 0;
}

/* The state before the step is whole, and what has not been saved of it is saved. Megatron saves
 * nothing where its state machine is disabled. */
static int reject(struct mft_train_run *r, struct mfs_error *err)
{
	const uint64_t iteration = r->t.progress.iteration;
	const bool disabled = mfs_str_is(r->t.config->rerun_mode, "disabled");

	r->agreed = true;
	r->silent = !r->t.check.why[0];
	if (!disabled)
		r->exit = MFT_TRAIN_REJECTED;
	if (r->t.saver && !disabled && iteration > r->t.saves.last && !mft_rl_is_between(&r->t))
		mft_saves_begin(&r->t, MFT_SAVE_PERSISTENT);
	return mfs_fail(err, -ERANGE,
			"%s; nothing was updated, and --no-check-for-nan-in-loss-and-grad goes on",
			r->t.check.why);
}

static int evaluate_set(struct mft_train_run *r, enum mfs_split split, uint32_t set, bool last,
			struct mfs_error *err)
{
	char name[MFT_SET_NAME];
	double loss;
	const int rc = mft_trainer_evaluate(&r->t, split, set, &loss, err);

	if (rc)
		return rc;
	mft_log_evaluation(&r->t, split, set, last, loss);
	if (!r->t.config->check_for_nan_in_loss_and_grad || isfinite(loss))
		return 0;
	r->agreed = true;
	r->silent = !r->t.speaks;
	return mfs_fail(err, -ERANGE,
			"iteration %llu: the validation%s loss is not finite; "
			"--no-check-for-nan-in-loss-and-grad goes on",
			(unsigned long long)r->t.progress.iteration,
			mft_log_set(&r->t, split, set, name));
}

static int evaluate(struct mft_train_run *r, enum mfs_split split, bool last, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();
	int rc = 0;

	MFT_RANGE_BEGIN("evaluation");
	for (uint32_t set = 0; !rc && set < r->t.data[split].count; set++)
		rc = evaluate_set(r, split, set, last, err);
	MFT_RANGE_END();
	r->t.window.began_ns += mfs_now_ns() - from; /* no time of an iteration */
	return rc;
}

static bool is_evaluated(const struct mft_train_run *r)
{
	const struct mft_train_config *c = r->t.config;
	const uint64_t iteration = r->t.progress.iteration;

	return is_time(c->eval_interval, iteration) && iteration >= (uint64_t)c->start_eval_at_iter;
}

/* training.py: train() saves where the batch size changes. */
static void save_before_change(struct mft_train_run *r)
{
	const struct mft_progress *p = &r->t.progress;
	const uint64_t batch = mft_schedule_batch(r->t.config, p->consumed_train_samples);

	if (r->t.saver && r->batch && batch != r->batch && p->iteration > r->t.saves.last)
		mft_saves_begin(&r->t, MFT_SAVE_PERSISTENT);
	r->batch = batch;
}

/* The run ends before a rollout's first step, with what it has trained. */
static void drop(struct mft_train_run *r)
{
	r->stop = MFT_STOP_SIGNAL;
	if (r->t.saver && r->t.progress.iteration > r->t.saves.last)
		mft_saves_begin(&r->t, MFT_SAVE_PERSISTENT);
}

/* Runs an iteration, and what comes after it. r->stop: the run ends. */
static int iterate(struct mft_train_run *r, struct mfs_error *err)
{
	struct mft_step step;
	int rc;

	MFT_RANGE_BEGIN("iteration %llu", (unsigned long long)r->t.progress.iteration + 1);
	rc = mft_trainer_step(&r->t, &step, err);
	MFT_RANGE_END();
	if (!rc && r->t.check.verdict == MFT_REJECTED)
		rc = reject(r, err);
	if (rc)
		return rc;
	if (mft_rl_is_dropped(&r->t)) {
		drop(r);
		return 0;
	}
	if (r->t.check.verdict == MFT_SUSPECT)
		mft_log_suspect(&r->t);
	mft_log_step(&r->t, &step);
	rc = mft_straggler_step(&r->t, &step, err);
	if (rc)
		return rc;
	mft_saves_look(&r->t, false);
	if (is_evaluated(r))
		rc = evaluate(r, MFS_VALID, false, err);
	return rc ? rc : decide_exit(r, err);
}

static int train(struct mft_train_run *r, struct mfs_error *err)
{
	const struct mft_train_config *c = r->t.config;
	struct mft_watch *watch = r->t.parallel.watch;
	int rc = 0;

	while (!rc && !r->stop && r->t.progress.iteration < r->t.iterations) {
		save_before_change(r);
		if (mft_schedule_skips(c, r->t.progress.iteration + 1))
			rc = mft_trainer_skip(&r->t, err);
		else
			rc = iterate(r, err);
		/* training.py: train() */
		if (c->distributed_timeout_seconds_after_init > 0)
			mft_watch_limit(watch, c->distributed_timeout_seconds_after_init);
	}
	return rc;
}

/* What Megatron does after the last iteration: a save, if that iteration had none; validation and
 * test. */
static int finish(struct mft_train_run *r, struct mfs_error *err)
{
	const struct mft_train_config *c = r->t.config;
	int rc = 0;

	mft_watch_phase(r->t.parallel.watch, "after the last iteration");
	if (r->stop)
		return 0;
	if (r->t.saver && !c->skip_train && r->t.progress.iteration &&
	    !is_time(c->save_interval, r->t.progress.iteration))
		mft_saves_begin(&r->t, MFT_SAVE_PERSISTENT);
	for (int split = MFS_VALID; !rc && split <= MFS_TEST; split++)
		rc = evaluate(r, (enum mfs_split)split, true, err);
	return rc;
}

/* A launcher ends the others after the first process that fails, and one may still save. */
static void wait_for_others(const struct mft_trainer *t)
{
	struct mfs_error err;
	double none = 0;

	mft_parallel_sum(&t->parallel, MFT_GROUP_WORLD, &none, 1, &err);
}

int mft_train(struct mft_train_config *config, const struct mft_launch *launch)
{
	struct mft_train_run r = {.began_ns = mfs_now_ns(), .exit = MFT_TRAIN_FAILED};
	struct mfs_error err = {0};
	bool saved = true;
	int rc;

	if (config->dry_run)
		return mft_dry_run(config, launch);
	mft_ranges_open(config->nvtx_ranges);
	mft_stop_on(SIGTERM);
	mft_stop_on(SIGINT);
	rc = mft_trainer_open(config, launch, NULL, &r.t, &err);
	if (rc && config->refused)
		r.exit = MFT_TRAIN_USAGE;
	if (rc)
		goto out;
	mft_stop_on((int)config->exit_signal);
	mft_log_begin(&r.t);
	rc = mft_straggler_new(&r.t, &err);
	if (rc)
		goto out;
	r.t.saves.last = r.t.progress.iteration;
	if (!config->skip_train)
		rc = train(&r, &err);
	if (!rc)
		rc = finish(&r, &err);
	/* The others do not come to where this process fails alone. */
	if (rc && !r.agreed && launch->size > 1)
		goto out;
	mft_saves_look(&r.t, true);
	mft_log_end(&r.t, r.stop, r.began_ns);
	saved = mft_saves_end(&r.t);
	if (rc && r.agreed)
		wait_for_others(&r.t);
out:
	if (rc && !r.silent)
		fail(launch, &err, r.exit);
	/* The others would wait for a process that fails alone. */
	if (rc && !r.agreed)
		mft_parallel_end_all(&r.t.parallel, (int)r.exit);
	if (mft_trainer_close(&r.t, &err) && !rc)
		return fail(launch, &err, MFT_TRAIN_FAILED);
	if (rc)
		return r.exit;
	return saved ? MFT_TRAIN_OK : MFT_TRAIN_FAILED;
}
