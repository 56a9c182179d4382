/* Batches, and the length of the run. */
#include "trainer/config/settle/batch_steps.h"
#include "trainer/config/settle/settle_i.h"

static int check_divided(struct settle *s, enum mft_dest dest, enum mft_dest by)
{
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	return number(s, dest) % number(s, by)
		       ? mfs_fail(s->err, -EINVAL, "%s: expected a multiple of %s %lld, found %lld",
				  flag(dest, a), flag(by, b), (long long)number(s, by),
				  (long long)number(s, dest))
		       : 0;
}

/* A batch is some microbatches of each process (num_microbatches_calculator.py). decreases: of a
 * greater batch the rest is left out. */
static int check_batch(const struct settle *s, const char *name, uint64_t batch, bool decreases)
{
	const uint64_t micro = (uint64_t)number(s, MICRO_BATCH_SIZE);
	const uint64_t processes = (uint64_t)number(s, DATA_PARALLEL_SIZE);
	const uint64_t least = micro * processes;

	if (decreases ? batch >= least : batch % least == 0)
		return mft_settle_microbatches(s, name, batch / least);
	if (processes > 1)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected %s --micro-batch-size %llu times %llu processes, "
				"found %llu",
				name, decreases ? "at least" : "a multiple of",
				(unsigned long long)micro, (unsigned long long)processes,
				(unsigned long long)batch);
	return mfs_fail(s->err, -EINVAL, "%s: expected %s --micro-batch-size %llu, found %llu",
			name, decreases ? "at least" : "a multiple of", (unsigned long long)micro,
			(unsigned long long)batch);
}

/* training.py: build_train_valid_test_data_loaders, evaluate_and_print_results. */
static int check_sets(const struct settle *s)
{
	const bool apart = is(s, MULTIPLE_VALIDATION_SETS);

	if (apart && !is(s, FULL_VALIDATION))
		return mfs_fail(s->err, -EINVAL,
				"--multiple-validation-sets needs --full-validation, as it does in "
				"Megatron");
	if (!apart && has(s, VALIDATION_SET_NAMES))
		return mfs_fail(s->err, -EINVAL,
				"--validation-set-names needs --multiple-validation-sets");
	return 0;
}

static int settle_evaluation(struct settle *s)
{
	const int64_t micro = number(s, MICRO_BATCH_SIZE);
	const int64_t least = micro * number(s, DATA_PARALLEL_SIZE);
	int r;

	otherwise(s, EVAL_GLOBAL_BATCH_SIZE, number(s, GLOBAL_BATCH_SIZE) / least * least);
	otherwise(s, EVAL_MICRO_BATCH_SIZE, micro);
	r = at_least(s, EVAL_GLOBAL_BATCH_SIZE, 1);
	if (!r)
		r = at_least(s, EVAL_MICRO_BATCH_SIZE, 1);
	if (!r)
		r = from_to(s, START_EVAL_AT_ITER, 0, INT64_MAX);
	if (!r)
		r = check_divided(s, EVAL_GLOBAL_BATCH_SIZE, EVAL_MICRO_BATCH_SIZE);
	if (!r)
		r = check_sets(s);
	if (r || (number(s, EVAL_ITERS) <= 0 && !is(s, FULL_VALIDATION)))
		return r;
	return check_batch(s, "--eval-global-batch-size",
			   (uint64_t)number(s, EVAL_GLOBAL_BATCH_SIZE), false);
}

int mft_settle_batches(struct settle *s)
{
	const bool given = has(s, GLOBAL_BATCH_SIZE);
	const bool decreases = is(s, DECREASE_BATCH_SIZE_IF_NEEDED);
	int r = require(s, MICRO_BATCH_SIZE);

	if (!r)
		r = at_least(s, MICRO_BATCH_SIZE, 1);
	if (!r)
		r = at_least(s, GLOBAL_BATCH_SIZE, 1);
	if (!r)
		r = exclude(s, STEP_BATCH_SIZE_SCHEDULE, GLOBAL_BATCH_SIZE);
	if (!r && decreases)
		r = exclude(s, STEP_BATCH_SIZE_SCHEDULE, DECREASE_BATCH_SIZE_IF_NEEDED);
	if (r)
		return r;
	mft_flag_set_truth(s->v, name_of(_IS_GLOBAL_BATCH_SIZE_EXPLICITLY_SPECIFIED), given);
	otherwise(s, GLOBAL_BATCH_SIZE,
		  number(s, MICRO_BATCH_SIZE) * number(s, DATA_PARALLEL_SIZE));
	/* With a schedule the argument is one microbatch of each process, as it is in Megatron, and
	 * no step has it: mft_settle_batch_steps() checks those that steps have. */
	if (!has(s, STEP_BATCH_SIZE_SCHEDULE))
		r = check_batch(s, "--global-batch-size", (uint64_t)number(s, GLOBAL_BATCH_SIZE),
				decreases);
	return r ? r : settle_evaluation(s);
}

/* ---- the length ---- */

static int expect_zero(struct settle *s, enum mft_dest dest, enum mft_dest with)
{
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	return number(s, dest) > 0 ? mfs_fail(s->err, -EINVAL, "%s and %s exclude each other",
					      flag(dest, a), flag(with, b))
				   : 0;
}

int mft_settle_length(struct settle *s)
{
	const bool by_iterations = number(s, TRAIN_ITERS) > 0;
	const bool by_samples = number(s, TRAIN_SAMPLES) > 0;
	int r = 0;

	if (is(s, SKIP_TRAIN))
		mft_flag_set_truth(s->v, name_of(NO_LOAD_OPTIM), true);
	if (by_iterations && has(s, RAMPUP_BATCH_SIZE))
		return exclude(s, TRAIN_ITERS, RAMPUP_BATCH_SIZE);
	if (by_iterations && by_samples)
		return exclude(s, TRAIN_ITERS, TRAIN_SAMPLES);
	if (!by_iterations && !by_samples && !is(s, SKIP_TRAIN) && !s->c->dry_run)
		return mfs_fail(s->err, -ENODATA, "--train-iters or --train-samples is missing");
	if (is(s, SKIP_TRAIN))
		return 0;
	if (by_iterations) {
		r = exclude(s, TRAIN_ITERS, LR_DECAY_SAMPLES);
		if (!r)
			r = expect_zero(s, LR_WARMUP_SAMPLES, TRAIN_ITERS);
		if (!r && has(s, LR_WARMUP_FRACTION))
			r = expect_zero(s, LR_WARMUP_ITERS, LR_WARMUP_FRACTION);
		otherwise(s, LR_DECAY_ITERS, number(s, TRAIN_ITERS));
	} else if (by_samples) {
		r = exclude(s, TRAIN_SAMPLES, LR_DECAY_ITERS);
		if (!r)
			r = expect_zero(s, LR_WARMUP_ITERS, TRAIN_SAMPLES);
		if (!r && has(s, LR_WARMUP_FRACTION))
			r = expect_zero(s, LR_WARMUP_SAMPLES, LR_WARMUP_FRACTION);
		otherwise(s, LR_DECAY_SAMPLES, number(s, TRAIN_SAMPLES));
	}
	return r;
}

/* ---- batches that grow ---- */

static int check_batch_steps(const struct settle *s, const char *name)
{
	const struct mft_train_config *c = s->c;
	int r = 0;

	for (uint32_t i = 0; i < c->batch_step_count && !r; i++)
		r = check_batch(s, name, c->batch_steps[i].batch, c->decrease_batch_size_if_needed);
	return r;
}

static int fill_ramp(struct settle *s)
{
	const struct mft_flag_value *v = mft_flag_get(s->v, name_of(RAMPUP_BATCH_SIZE));
	struct mft_train_config *c = s->c;
	int r;

	if (v->type != MFT_IS_LIST)
		return 0;
	r = exclude(s, RAMPUP_BATCH_SIZE, STEP_BATCH_SIZE_SCHEDULE);
	if (!r)
		r = mft_batch_ramp_steps(&(struct mft_batch_ramp){.start = v->items[0].number,
								  .increment = v->items[1].number,
								  .samples = v->items[2].number,
								  .end = c->global_batch_size},
					 &c->arena, &c->batch_steps, &c->batch_step_count, s->err);
	if (r)
		return r;
	c->rampup_samples = (uint64_t)v->items[2].number;
	return check_batch_steps(s, "--rampup-batch-size");
}

int mft_settle_batch_steps(struct settle *s)
{
	struct mft_train_config *c = s->c;
	int r = mft_batch_steps_parse(text(s, STEP_BATCH_SIZE_SCHEDULE), c->seq_length, &c->arena,
				      &c->batch_steps, &c->batch_step_count, s->err);

	if (!r)
		r = check_batch_steps(s, "--step-batch-size-schedule");
	return r ? r : fill_ramp(s);
}
