/*
 * Makes a plan from a person's options, the mount's options and the checkpoint's arguments, in this
 * order of precedence.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/args/megatron_args.h"
#include "fs/cli/commands.h"
#include "fs/sample/sample.h"

/* The arguments of a run that has saved none. */
static const struct mfs_megatron_data_args nothing = {
	.seed = MFS_ABSENT,
	.seq_length = MFS_ABSENT,
	.train_iters = MFS_ABSENT,
	.train_samples = MFS_ABSENT,
	.global_batch_size = MFS_ABSENT,
	.micro_batch_size = MFS_ABSENT,
	.data_parallel_size = MFS_ABSENT,
	.consumed_train_samples = MFS_ABSENT,
	.iteration = MFS_ABSENT,
	.surplus = -1,
};

const struct mfs_sample_options mfs_sample_none_given = {
	.step = MFS_ABSENT_U64,
	.seq_length = MFS_ABSENT_U64,
	.seed = MFS_ABSENT_U64,
	.train_samples = MFS_ABSENT_U64,
	.train_iters = MFS_ABSENT_U64,
	.global_batch_size = MFS_ABSENT_U64,
	.micro_batch_size = MFS_ABSENT_U64,
	.data_parallel_size = MFS_ABSENT_U64,
	.rank = MFS_ABSENT_U64,
	.consumed_samples = MFS_ABSENT_U64,
	.eod = MFS_ABSENT_U64,
	.pad = MFS_ABSENT_U64,
};

struct planner {
	const struct mfs_sample_options *o;
	const struct mfs_data_options *mount;
	const struct mfs_megatron_data_args *args;
	const struct mfs_data *data;
	struct mfs_sample_plan *plan;
};

/* The first of two numbers that was given, or MFS_ABSENT_U64. */
static uint64_t either(uint64_t given, int64_t saved)
{
	return given != MFS_ABSENT_U64 ? given : saved >= 0 ? (uint64_t)saved : MFS_ABSENT_U64;
}

static const char *first_text(const char *a, const char *b, const char *c)
{
	return a ? a : b ? b : c;
}

/* A number that must be there and is not 0. */
static int need(const char *option, uint64_t value, uint64_t most)
{
	if (value == MFS_ABSENT_U64)
		return mfs_usage_error("sample: %s is needed", option);
	if (!value || value > most)
		return mfs_usage_error("sample: %s cannot be %llu", option,
				       (unsigned long long)value);
	return MFS_EXIT_OK;
}

/* ---- datasets ---- */

static int take_words(const struct mfs_arg_words *words, struct mfs_data_run *r,
		      struct mfs_error *err)
{
	r->run.blend = &r->all;
	return mfs_blend_args_parse(words->list, words->count, &r->all, err);
}

static int take_saved(const struct planner *p, struct mfs_error *err)
{
	const struct mfs_megatron_data_args *a = p->args;
	struct mfs_data_run *r = &p->plan->words;
	const struct mfs_data_words file = {.data_args_path = a->data_args_path};
	const struct mfs_data_words per_split = {.per_split_data_args_path =
							 a->per_split_data_args_path};
	int rc;

	*r = (struct mfs_data_run){0};
	if (a->data_path.count)
		return take_words(&a->data_path, r, err);
	if (a->data_args_path)
		return mfs_data_run_parse(&file, r, err);
	if (a->split_data_path[MFS_TRAIN].count) {
		rc = take_words(&a->split_data_path[MFS_TRAIN], r, err);
		r->run.per_split[MFS_TRAIN] = r->run.blend;
		r->run.blend = NULL;
		return rc;
	}
	if (a->per_split_data_args_path)
		return mfs_data_run_parse(&per_split, r, err);
	return -ENODATA;
}

/* Where no words were given, takes the only dataset that there is. */
static int take_only(const struct planner *p, struct mfs_error *err)
{
	struct mfs_dataset *d = NULL;

	if (p->data && mfs_data_count(p->data) == 1)
		d = mfs_data_at(p->data, 0);
	if (d)
		return mfs_data_run_single(mfs_dataset_name(d), &p->plan->words, err);
	return mfs_fail(err, -ENODATA, "%s: name one with --data-path",
			p->data ? "there are several datasets" : "no dataset was named");
}

static bool given_paths(const struct mfs_data_words *words)
{
	return words->data_path || words->split_data_path[MFS_TRAIN] || words->data_args_path;
}

static const char *text_of(const struct mfs_buf *b)
{
	return b->len ? b->data : NULL;
}

static int take_datasets(const struct planner *p, struct mfs_error *err)
{
	const struct mfs_data_words given = {.data_path = text_of(&p->o->data_path),
					     .split_data_path = {text_of(&p->o->train_data_path)},
					     .data_args_path = p->o->data_args_path};
	const struct mfs_data_words mount = {
		.data_path = p->mount->data_path,
		.split_data_path = {p->mount->split_data_path[MFS_TRAIN]},
		.data_args_path = p->mount->data_args_path};
	int rc;

	if (p->args->other_data)
		return mfs_fail(err, -ENOTSUP,
				"the run does not read indexed datasets: it has '%s'",
				p->args->other_data);
	if (given_paths(&given))
		return mfs_data_run_parse(&given, &p->plan->words, err);
	if (given_paths(&mount))
		return mfs_data_run_parse(&mount, &p->plan->words, err);
	err->msg[0] = '\0';
	rc = take_saved(p, err);
	return rc == -ENODATA && !*err->msg ? take_only(p, err) : rc;
}

/* ---- order ---- */

static int take_rules(const struct planner *p, struct mfs_error *err)
{
	const char *version = first_text(p->o->megatron, p->mount->megatron, p->args->version);
	struct mfs_run *run = &p->plan->words.run;
	char *end;
	int rc;

	run->rules = mfs_dataset_rules_default();
	rc = version ? mfs_dataset_rules_of(version, &run->rules, err) : 0;
	if (rc)
		return rc;
	run->rules.renormalize =
		p->args->renormalize && run->rules.surplus_rule == MFS_SURPLUS_WITHIN;
	if (p->args->surplus >= 0)
		run->rules.surplus = p->args->surplus;
	if (!p->o->surplus)
		return 0;
	if (run->rules.surplus_rule == MFS_SURPLUS_WITHIN)
		return mfs_fail(err, -EINVAL, "Megatron %s has no --mid-level-dataset-surplus",
				version);
	run->rules.surplus = strtod(p->o->surplus, &end);
	if (*end || end == p->o->surplus || !isfinite(run->rules.surplus) || run->rules.surplus < 0)
		return mfs_fail(err, -EINVAL, "a surplus of '%s' is impossible", p->o->surplus);
	return 0;
}

static int take_order(const struct planner *p, struct mfs_error *err)
{
	struct mfs_run *run = &p->plan->words.run;
	const uint64_t length = either(p->o->seq_length, p->args->seq_length);
	uint64_t seed = either(p->o->seed, p->args->seed);
	int exit_code = need("--seq-length", length, INT32_MAX - 1);

	if (exit_code)
		return exit_code;
	if (seed == MFS_ABSENT_U64)
		seed = MFS_RUN_SEED;
	if (seed > UINT32_MAX)
		return mfs_usage_error("sample: --seed goes up to 2^32 - 1");
	run->seq_length = (uint32_t)length;
	run->seed = (uint32_t)seed;
	if (!run->blend && p->o->split)
		return mfs_usage_error(
			"sample: --split divides what --data-path names; the training split has a "
			"data path of its own");
	if (run->blend)
		run->split = first_text(p->o->split, p->mount->split, p->args->split);
	return take_rules(p, err) ? mfs_command_failed("%s", err->msg) : MFS_EXIT_OK;
}

/* ---- lengths ---- */

/* How many samples the run asks for, which decides their order. */
static int take_samples(const struct planner *p, struct mfs_error *err)
{
	const bool given =
		p->o->train_samples != MFS_ABSENT_U64 || p->o->train_iters != MFS_ABSENT_U64;
	struct mfs_run_length length = {.global_batch_size = p->plan->batch, .eval_interval = 1};
	uint64_t samples = p->o->train_samples, iters = p->o->train_iters;

	if (!given) {
		samples = either(MFS_ABSENT_U64, p->args->train_samples);
		iters = either(MFS_ABSENT_U64, p->args->train_iters);
	}
	length.train_samples = samples == MFS_ABSENT_U64 ? 0 : samples;
	length.train_iters = iters == MFS_ABSENT_U64 ? 0 : iters;
	if (!length.train_samples && !length.train_iters)
		return mfs_usage_error("sample: --train-iters or --train-samples is needed: the "
				       "order of samples depends on it");
	if (mfs_run_samples(&length, p->plan->words.run.samples, err))
		return mfs_command_failed("%s", err->msg);
	return MFS_EXIT_OK;
}

static void add_missing(struct mfs_buf *list, bool missing, const char *option)
{
	if (missing)
		mfs_buf_printf(list, "%s%s", list->len ? ", " : "", option);
}

/* Reports all that is missing at once. */
static int need_all(const struct planner *p)
{
	const struct mfs_sample_options *o = p->o;
	const struct mfs_megatron_data_args *a = p->args;
	const bool has_iters = o->train_samples != MFS_ABSENT_U64 ||
			       o->train_iters != MFS_ABSENT_U64 ||
			       either(MFS_ABSENT_U64, a->train_samples) != MFS_ABSENT_U64 ||
			       either(MFS_ABSENT_U64, a->train_iters) != MFS_ABSENT_U64;
	struct mfs_buf list = {0};
	int exit_code = MFS_EXIT_OK;

	add_missing(&list, o->step == MFS_ABSENT_U64 && a->iteration < 0, "--step");
	add_missing(&list, either(o->seq_length, a->seq_length) == MFS_ABSENT_U64, "--seq-length");
	add_missing(&list, either(o->global_batch_size, a->global_batch_size) == MFS_ABSENT_U64,
		    "--global-batch-size");
	add_missing(&list, !has_iters,
		    "--train-iters or --train-samples (the order of samples depends on it)");
	if (list.failed)
		exit_code = mfs_command_failed("out of memory");
	else if (list.len)
		exit_code = mfs_usage_error("sample: needed: %s", list.data);
	mfs_buf_release(&list);
	return exit_code;
}

static int take_step(const struct planner *p)
{
	const uint64_t after =
		p->args->iteration >= 0 ? (uint64_t)p->args->iteration + 1 : MFS_ABSENT_U64;
	struct mfs_sample_plan *plan = p->plan;
	int exit_code;

	plan->step = p->o->step != MFS_ABSENT_U64 ? p->o->step : after;
	plan->batch = either(p->o->global_batch_size, p->args->global_batch_size);
	exit_code = need("--step", plan->step, (uint64_t)1 << 53);
	return exit_code ? exit_code : need("--global-batch-size", plan->batch, (uint64_t)1 << 31);
}

/* Where batches or data change while the run goes on, nothing tells which step had what. */
static int check_constant(const struct planner *p)
{
	const struct mfs_sample_options *o = p->o;

	if (!p->args->varies ||
	    (o->consumed_samples != MFS_ABSENT_U64 && o->global_batch_size != MFS_ABSENT_U64 &&
	     (o->train_samples != MFS_ABSENT_U64 || o->train_iters != MFS_ABSENT_U64)))
		return MFS_EXIT_OK;
	return mfs_command_failed("the run has '%s': --consumed-samples, --global-batch-size and "
				  "--train-samples must say where it was at step %llu",
				  p->args->varies, (unsigned long long)p->plan->step);
}

/* The sample so many whole batches after a sample of the run. */
static int go_on(const struct planner *p, uint64_t sample, uint64_t batches, uint64_t *ret)
{
	const uint64_t samples = p->plan->words.run.samples[MFS_TRAIN], step = p->plan->step;
	const uint64_t left = samples > sample ? (samples - sample) / p->plan->batch : 0;

	if (batches >= left)
		return mfs_command_failed("there is no step %llu: the run has %llu",
					  (unsigned long long)step,
					  (unsigned long long)(step - 1 - batches + left));
	*ret = sample + batches * p->plan->batch;
	return MFS_EXIT_OK;
}

/* Samples before the step. What the checkpoint has consumed counts, as batches may once have been
 * smaller; if that is nothing after some iterations it was not counted (training.py:
 * build_train_valid_test_data_loaders). */
static int take_consumed(const struct planner *p, uint64_t *ret)
{
	const struct mfs_megatron_data_args *a = p->args;
	const uint64_t before = p->plan->step - 1, batch = p->plan->batch;
	const bool known = a->iteration >= 0 && a->consumed_train_samples > 0;
	const uint64_t iteration = known ? (uint64_t)a->iteration : 0;
	const uint64_t consumed = known ? (uint64_t)a->consumed_train_samples : 0;

	if (p->o->consumed_samples != MFS_ABSENT_U64) {
		*ret = p->o->consumed_samples;
		/* A cyclic loader counts epochs that may have been another run's. */
		return p->plan->sampler.type == MFS_SAMPLER_CYCLIC ? MFS_EXIT_OK
								   : go_on(p, *ret, 0, ret);
	}
	if (before >= iteration)
		return go_on(p, consumed, before - iteration, ret);
	if (consumed % batch || consumed / batch != iteration)
		return mfs_command_failed(
			"at iteration %llu the run had consumed %llu samples, which are not whole "
			"batches of %llu: --consumed-samples must say how many it had before step "
			"%llu",
			(unsigned long long)iteration, (unsigned long long)consumed,
			(unsigned long long)batch, (unsigned long long)p->plan->step);
	return go_on(p, 0, before, ret);
}

/* ---- ranks ---- */

/* How a step is divided; without a microbatch it is not, and one rank takes all of it at once. */
static int take_ranks(const struct planner *p)
{
	struct mfs_sample_plan *plan = p->plan;
	const uint64_t micro = either(p->o->micro_batch_size, p->args->micro_batch_size);
	uint64_t ranks = either(p->o->data_parallel_size, p->args->data_parallel_size);

	if (ranks == MFS_ABSENT_U64)
		ranks = 1;
	plan->has_ranks = micro != MFS_ABSENT_U64;
	if (!plan->has_ranks &&
	    (p->o->rank != MFS_ABSENT_U64 || plan->sampler.type == MFS_SAMPLER_CYCLIC))
		return mfs_usage_error("sample: --micro-batch-size is needed");
	if (plan->has_ranks && (!micro || !ranks || micro > plan->batch || plan->batch % micro ||
				plan->batch / micro % ranks))
		return mfs_usage_error(
			"sample: a batch of %llu is not a whole number of microbatches of %llu for "
			"each of %llu ranks",
			(unsigned long long)plan->batch, (unsigned long long)micro,
			(unsigned long long)ranks);
	plan->sampler.micro_batch = (uint32_t)(plan->has_ranks ? micro : plan->batch);
	plan->sampler.ranks = (uint32_t)(plan->has_ranks ? ranks : 1);
	plan->rank = p->o->rank;
	if (plan->rank != MFS_ABSENT_U64 && plan->rank >= ranks)
		return mfs_usage_error("sample: there is no rank %llu of %llu",
				       (unsigned long long)plan->rank, (unsigned long long)ranks);
	return MFS_EXIT_OK;
}

/* A cyclic loader begins with the run, and goes through its epochs, unless a person gives the place
 * where it was resumed. */
static int take_sampler(const struct planner *p, struct mfs_error *err)
{
	const char *type = first_text(p->o->dataloader_type, p->args->dataloader_type, "single");
	struct mfs_sample_plan *plan = p->plan;
	uint64_t consumed = 0, stride;
	int exit_code;

	if (mfs_sampler_type_of(type, &plan->sampler.type, err))
		return mfs_command_failed("%s", err->msg);
	exit_code = take_ranks(p);
	if (!exit_code)
		exit_code = take_consumed(p, &consumed);
	if (exit_code)
		return exit_code;
	stride = (uint64_t)plan->sampler.micro_batch * plan->sampler.ranks;
	plan->sampler.no_sharding = p->o->no_data_sharding || p->args->no_data_sharding;
	plan->sampler.consumed = consumed;
	if (plan->sampler.type == MFS_SAMPLER_CYCLIC && p->o->consumed_samples == MFS_ABSENT_U64) {
		if (consumed % stride)
			return mfs_command_failed(
				"%llu consumed samples are not whole microbatches",
				(unsigned long long)consumed);
		plan->microbatch = consumed / stride;
		plan->sampler.consumed = 0;
	}
	return MFS_EXIT_OK;
}

static int take_mask(const struct planner *p)
{
	const bool eod =
		p->o->eod_mask_loss || (p->args->eod_mask_loss && p->o->eod != MFS_ABSENT_U64);
	const bool pad = p->o->pad != MFS_ABSENT_U64;

	if (eod && p->o->eod > INT64_MAX)
		return mfs_usage_error("sample: --eod-mask-loss needs --eod ID");
	if (pad && p->o->pad > INT64_MAX)
		return mfs_usage_error("sample: --pad takes a token's id");
	p->plan->loss_mask = eod || pad;
	p->plan->eod = eod ? (int64_t)p->o->eod : -1;
	p->plan->pad = pad ? (int64_t)p->o->pad : -1;
	return MFS_EXIT_OK;
}

static int fill(const struct planner *p)
{
	struct mfs_error err = {0};
	int exit_code = need_all(p);

	if (!exit_code)
		exit_code = take_step(p);
	if (!exit_code)
		exit_code = check_constant(p);
	if (!exit_code && take_datasets(p, &err))
		exit_code = mfs_command_failed("%s", err.msg);
	if (!exit_code)
		exit_code = take_order(p, &err);
	if (!exit_code)
		exit_code = take_samples(p, &err);
	if (!exit_code)
		exit_code = take_sampler(p, &err);
	return exit_code ? exit_code : take_mask(p);
}

int mfs_sample_make_plan(const struct mfs_sample_options *o, const struct mfs_data_options *mount,
			 const struct mfs_megatron_data_args *args, const struct mfs_data *data,
			 struct mfs_sample_plan *ret)
{
	struct planner p = {o, mount, args ? args : &nothing, data, ret};
	int exit_code;

	*ret = (struct mfs_sample_plan){0};
	exit_code = fill(&p);
	if (exit_code)
		mfs_sample_plan_release(ret);
	return exit_code;
}

void mfs_sample_plan_release(struct mfs_sample_plan *plan)
{
	mfs_data_run_release(&plan->words);
}
