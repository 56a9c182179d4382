#include "trainer/loop/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "trainer/loop/dry_run.h"
#include "trainer/loop/trainer_i.h"

/* What a run has done since it was started. */
struct mfs_train_run {
	struct mfs_trainer t;
	uint64_t began_ns;
	uint64_t batch;		   /* of the last iteration; 0: there was none */
	enum mfs_report_stop stop; /* why it ends before its last iteration */
	enum mfs_train_exit exit;  /* of a run that fails */
	bool agreed;		   /* all processes fail, for one reason */
	bool silent;		   /* another process says it */
};

static int fail(const struct mfs_launch *launch, const struct mfs_error *err,
		enum mfs_train_exit exit)
{
	char who[MFS_LAUNCH_WHO];

	fprintf(stderr, "mcorefs-train: %s%s\n", mfs_launch_who(launch, who), err->msg);
	return exit;
}

static bool is_time(int64_t interval, uint64_t iteration)
{
	return interval > 0 && iteration % (uint64_t)interval == 0;
}

/* ---- the loop ---- */

/* training.py: checkpoint_and_decide_exit, in its order. What one process has a reason for, all do.
 */
static int decide_exit(struct mfs_train_run *r, struct mfs_error *err)
{
	const struct mfs_train_config *c = r->t.config;
	const uint64_t iteration = r->t.progress.iteration;
	const double minutes = (double)(mfs_now_ns() - r->began_ns) / 60e9;
	double reasons[] = {mfs_stop_signal(),
			    c->exit_duration_in_mins >= 0 && minutes > c->exit_duration_in_mins};
	const int rc = mfs_parallel_sum(&r->t.parallel, MFS_GROUP_WORLD, reasons, 2, err);

	if (rc)
		return rc;
	if (reasons[0] > 0)
		r->stop = MFS_STOP_SIGNAL;
	else if (reasons[1] > 0)
		r->stop = MFS_STOP_MINUTES;
	else if (is_time(c->exit_interval, iteration))
		r->stop = MFS_STOP_INTERVAL;
	if (r->t.saver && (r->stop || is_time(c->save_interval, iteration)))
		mfs_saves_begin(&r->t, MFS_SAVE_PERSISTENT);
	else if (r->t.saver && is_time(c->non_persistent_save_interval, iteration))
		mfs_saves_begin(&r->t, MFS_SAVE_NON_PERSISTENT);
	return 0;
}

/* The state before the step is whole, and what has not been saved of it is saved. Megatron saves
 * nothing where its state machine is disabled. */
static int reject(struct mfs_train_run *r, struct mfs_error *err)
{
	const uint64_t iteration = r->t.progress.iteration;
	const bool disabled = mfs_str_is(r->t.config->rerun_mode, "disabled");

	r->agreed = true;
	r->silent = !r->t.check.why[0];
	if (!disabled)
		r->exit = MFS_TRAIN_REJECTED;
	if (r->t.saver && !disabled && iteration > r->t.saves.last)
		mfs_saves_begin(&r->t, MFS_SAVE_PERSISTENT);
	return mfs_fail(err, -ERANGE,
			"%s; nothing was updated, and --no-check-for-nan-in-loss-and-grad goes on",
			r->t.check.why);
}

static int evaluate_set(struct mfs_train_run *r, enum mfs_split split, uint32_t set, bool last,
			struct mfs_error *err)
{
	char name[MFS_SET_NAME];
	double loss;
	const int rc = mfs_trainer_evaluate(&r->t, split, set, &loss, err);

	if (rc)
		return rc;
	mfs_log_evaluation(&r->t, split, set, last, loss);
	if (!r->t.config->check_for_nan_in_loss_and_grad || isfinite(loss))
		return 0;
	r->agreed = true;
	r->silent = !r->t.speaks;
	return mfs_fail(err, -ERANGE,
			"iteration %llu: the validation%s loss is not finite; "
			"--no-check-for-nan-in-loss-and-grad goes on",
			(unsigned long long)r->t.progress.iteration,
			mfs_log_set(&r->t, split, set, name));
}

static int evaluate(struct mfs_train_run *r, enum mfs_split split, bool last, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();
	int rc = 0;

	for (uint32_t set = 0; !rc && set < r->t.data[split].count; set++)
		rc = evaluate_set(r, split, set, last, err);
	r->t.window.began_ns += mfs_now_ns() - from; /* no time of an iteration */
	return rc;
}

static bool is_evaluated(const struct mfs_train_run *r)
{
	const struct mfs_train_config *c = r->t.config;
	const uint64_t iteration = r->t.progress.iteration;

	return is_time(c->eval_interval, iteration) && iteration >= (uint64_t)c->start_eval_at_iter;
}

/* training.py: train() saves where the batch size changes. */
static void save_before_change(struct mfs_train_run *r)
{
	const struct mfs_progress *p = &r->t.progress;
	const uint64_t batch = mfs_schedule_batch(r->t.config, p->consumed_train_samples);

	if (r->t.saver && r->batch && batch != r->batch && p->iteration > r->t.saves.last)
		mfs_saves_begin(&r->t, MFS_SAVE_PERSISTENT);
	r->batch = batch;
}

/* Runs an iteration, and what comes after it. r->stop: the run ends. */
static int iterate(struct mfs_train_run *r, struct mfs_error *err)
{
	struct mfs_step step;
	int rc = mfs_trainer_step(&r->t, &step, err);

	if (!rc && r->t.check.verdict == MFS_REJECTED)
		rc = reject(r, err);
	if (rc)
		return rc;
	if (r->t.check.verdict == MFS_SUSPECT)
		mfs_log_suspect(&r->t);
	mfs_log_step(&r->t, &step);
	rc = mfs_straggler_step(&r->t, &step, err);
	if (rc)
		return rc;
	mfs_saves_look(&r->t, false);
	if (is_evaluated(r))
		rc = evaluate(r, MFS_VALID, false, err);
	return rc ? rc : decide_exit(r, err);
}

static int train(struct mfs_train_run *r, struct mfs_error *err)
{
	const struct mfs_train_config *c = r->t.config;
	struct mfs_watch *watch = r->t.parallel.watch;
	int rc = 0;

	while (!rc && !r->stop && r->t.progress.iteration < r->t.iterations) {
		save_before_change(r);
		if (mfs_schedule_skips(c, r->t.progress.iteration + 1))
			rc = mfs_trainer_skip(&r->t, err);
		else
			rc = iterate(r, err);
		/* training.py: train() */
		if (c->distributed_timeout_seconds_after_init > 0)
			mfs_watch_limit(watch, c->distributed_timeout_seconds_after_init);
	}
	return rc;
}

/* What Megatron does after the last iteration: a save, if that iteration had none; validation and
 * test. */
static int finish(struct mfs_train_run *r, struct mfs_error *err)
{
	const struct mfs_train_config *c = r->t.config;
	int rc = 0;

	mfs_watch_phase(r->t.parallel.watch, "behind the last iteration");
	if (r->stop)
		return 0;
	if (r->t.saver && !c->skip_train && r->t.progress.iteration &&
	    !is_time(c->save_interval, r->t.progress.iteration))
		mfs_saves_begin(&r->t, MFS_SAVE_PERSISTENT);
	for (int split = MFS_VALID; !rc && split <= MFS_TEST; split++)
		rc = evaluate(r, (enum mfs_split)split, true, err);
	return rc;
}

/* A launcher ends the others after the first process that fails, and one may still save. */
static void wait_for_others(const struct mfs_trainer *t)
{
	struct mfs_error err;
	double none = 0;

	mfs_parallel_sum(&t->parallel, MFS_GROUP_WORLD, &none, 1, &err);
}

int mfs_train(struct mfs_train_config *config, const struct mfs_launch *launch)
{
	struct mfs_train_run r = {.began_ns = mfs_now_ns(), .exit = MFS_TRAIN_FAILED};
	struct mfs_error err = {0};
	bool saved = true;
	int rc;

	if (config->dry_run)
		return mfs_dry_run(config, launch);
	mfs_stop_on(SIGTERM);
	mfs_stop_on(SIGINT);
	rc = mfs_trainer_open(config, launch, NULL, &r.t, &err);
	if (rc && config->refused)
		r.exit = MFS_TRAIN_USAGE;
	if (rc)
		goto out;
	mfs_stop_on((int)config->exit_signal);
	mfs_log_begin(&r.t);
	rc = mfs_straggler_new(&r.t, &err);
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
	mfs_saves_look(&r.t, true);
	mfs_log_end(&r.t, r.stop, r.began_ns);
	saved = mfs_saves_end(&r.t);
	if (rc && r.agreed)
		wait_for_others(&r.t);
out:
	if (rc && !r.silent)
		fail(launch, &err, r.exit);
	/* The others would wait for a process that fails alone. */
	if (rc && !r.agreed)
		mfs_parallel_end_all(&r.t.parallel, (int)r.exit);
	if (mfs_trainer_close(&r.t, &err) && !rc)
		return fail(launch, &err, MFS_TRAIN_FAILED);
	if (rc)
		return r.exit;
	return saved ? MFS_TRAIN_OK : MFS_TRAIN_FAILED;
}
