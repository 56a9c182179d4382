/* Batches, and the length of the run. */
#include "trainer/config/settle/batch_steps.h"
#include "trainer/config/settle/settle_i.h"

static int check_divided(struct settle *s, const char *dest, const char *by)
{
	char a[MFS_FLAG_SPELLING], b[MFS_FLAG_SPELLING];

	return number(s, dest) % number(s, by)
		       ? mfs_fail(s->err, -EINVAL, "%s: expected a multiple of %s %lld, found %lld",
				  flag(dest, a), flag(by, b), (long long)number(s, by),
				  (long long)number(s, dest))
		       : 0;
}

/* A batch is some microbatches of each process (num_microbatches_calculator.py). decreases: of a
 * greater batch the rest is left out. */
static int check_batch(const struct settle *s, const char *said, uint64_t batch, bool decreases)
{
	const uint64_t micro = (uint64_t)number(s, "micro_batch_size");
	const uint64_t processes = (uint64_t)number(s, "data_parallel_size");
	const uint64_t least = micro * processes;

	if (decreases ? batch >= least : batch % least == 0)
		return mfs_settle_microbatches(s, said, batch / least);
	if (processes > 1)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected %s --micro-batch-size %llu times %llu processes, "
				"found %llu",
				said, decreases ? "at least" : "a multiple of",
				(unsigned long long)micro, (unsigned long long)processes,
				(unsigned long long)batch);
	return mfs_fail(s->err, -EINVAL, "%s: expected %s --micro-batch-size %llu, found %llu",
			said, decreases ? "at least" : "a multiple of", (unsigned long long)micro,
			(unsigned long long)batch);
}

/* training.py: build_train_valid_test_data_loaders, evaluate_and_print_results. */
static int check_sets(const struct settle *s)
{
	const bool apart = is(s, "multiple_validation_sets");

	if (apart && !is(s, "full_validation"))
		return mfs_fail(s->err, -EINVAL,
				"--multiple-validation-sets needs --full-validation, as it does in "
				"Megatron");
	if (!apart && has(s, "validation_set_names"))
		return mfs_fail(s->err, -EINVAL,
				"--validation-set-names needs --multiple-validation-sets");
	return 0;
}

static int settle_evaluation(struct settle *s)
{
	const int64_t micro = number(s, "micro_batch_size");
	const int64_t least = micro * number(s, "data_parallel_size");
	int r;

	otherwise(s, "eval_global_batch_size", number(s, "global_batch_size") / least * least);
	otherwise(s, "eval_micro_batch_size", micro);
	r = at_least(s, "eval_global_batch_size", 1);
	if (!r)
		r = at_least(s, "eval_micro_batch_size", 1);
	if (!r)
		r = from_to(s, "start_eval_at_iter", 0, INT64_MAX);
	if (!r)
		r = check_divided(s, "eval_global_batch_size", "eval_micro_batch_size");
	if (!r)
		r = check_sets(s);
	if (r || (number(s, "eval_iters") <= 0 && !is(s, "full_validation")))
		return r;
	return check_batch(s, "--eval-global-batch-size",
			   (uint64_t)number(s, "eval_global_batch_size"), false);
}

int mfs_settle_batches(struct settle *s)
{
	const bool given = has(s, "global_batch_size");
	const bool decreases = is(s, "decrease_batch_size_if_needed");
	int r = require(s, "micro_batch_size");

	if (!r)
		r = at_least(s, "micro_batch_size", 1);
	if (!r)
		r = at_least(s, "global_batch_size", 1);
	if (!r)
		r = exclude(s, "step_batch_size_schedule", "global_batch_size");
	if (!r && decreases)
		r = exclude(s, "step_batch_size_schedule", "decrease_batch_size_if_needed");
	if (r)
		return r;
	mfs_flag_set_truth(s->v, "_is_global_batch_size_explicitly_specified", given);
	otherwise(s, "global_batch_size",
		  number(s, "micro_batch_size") * number(s, "data_parallel_size"));
	/* With a schedule the argument is one microbatch of each process, as it is in Megatron, and
	 * no step has it: mfs_settle_batch_steps() checks those that steps have. */
	if (!has(s, "step_batch_size_schedule"))
		r = check_batch(s, "--global-batch-size", (uint64_t)number(s, "global_batch_size"),
				decreases);
	return r ? r : settle_evaluation(s);
}

/* ---- the length ---- */

static int expect_zero(struct settle *s, const char *dest, const char *with)
{
	char a[MFS_FLAG_SPELLING], b[MFS_FLAG_SPELLING];

	return number(s, dest) > 0 ? mfs_fail(s->err, -EINVAL, "%s and %s exclude each other",
					      flag(dest, a), flag(with, b))
				   : 0;
}

int mfs_settle_length(struct settle *s)
{
	const bool by_iterations = number(s, "train_iters") > 0;
	const bool by_samples = number(s, "train_samples") > 0;
	int r = 0;

	if (is(s, "skip_train"))
		mfs_flag_set_truth(s->v, "no_load_optim", true);
	if (by_iterations && has(s, "rampup_batch_size"))
		return exclude(s, "train_iters", "rampup_batch_size");
	if (by_iterations && by_samples)
		return exclude(s, "train_iters", "train_samples");
	if (!by_iterations && !by_samples && !is(s, "skip_train") && !s->c->dry_run)
		return mfs_fail(s->err, -ENODATA, "--train-iters or --train-samples is missing");
	if (is(s, "skip_train"))
		return 0;
	if (by_iterations) {
		r = exclude(s, "train_iters", "lr_decay_samples");
		if (!r)
			r = expect_zero(s, "lr_warmup_samples", "train_iters");
		if (!r && has(s, "lr_warmup_fraction"))
			r = expect_zero(s, "lr_warmup_iters", "lr_warmup_fraction");
		otherwise(s, "lr_decay_iters", number(s, "train_iters"));
	} else if (by_samples) {
		r = exclude(s, "train_samples", "lr_decay_iters");
		if (!r)
			r = expect_zero(s, "lr_warmup_iters", "train_samples");
		if (!r && has(s, "lr_warmup_fraction"))
			r = expect_zero(s, "lr_warmup_samples", "lr_warmup_fraction");
		otherwise(s, "lr_decay_samples", number(s, "train_samples"));
	}
	return r;
}

/* ---- batches that grow ---- */

static int check_batch_steps(const struct settle *s, const char *said)
{
	const struct mfs_train_config *c = s->c;
	int r = 0;

	for (uint32_t i = 0; i < c->batch_step_count && !r; i++)
		r = check_batch(s, said, c->batch_steps[i].batch, c->decrease_batch_size_if_needed);
	return r;
}

static int fill_ramp(struct settle *s)
{
	const struct mfs_flag_value *v = mfs_flag_get(s->v, "rampup_batch_size");
	struct mfs_train_config *c = s->c;
	int r;

	if (v->type != MFS_IS_LIST)
		return 0;
	r = exclude(s, "rampup_batch_size", "step_batch_size_schedule");
	if (!r)
		r = mfs_batch_ramp_steps(&(struct mfs_batch_ramp){.start = v->items[0].number,
								  .increment = v->items[1].number,
								  .samples = v->items[2].number,
								  .end = c->global_batch_size},
					 &c->arena, &c->batch_steps, &c->batch_step_count, s->err);
	if (r)
		return r;
	c->rampup_samples = (uint64_t)v->items[2].number;
	return check_batch_steps(s, "--rampup-batch-size");
}

int mfs_settle_batch_steps(struct settle *s)
{
	struct mfs_train_config *c = s->c;
	int r = mfs_batch_steps_parse(text(s, "step_batch_size_schedule"), c->seq_length, &c->arena,
				      &c->batch_steps, &c->batch_step_count, s->err);

	if (!r)
		r = check_batch_steps(s, "--step-batch-size-schedule");
	return r ? r : fill_ramp(s);
}
