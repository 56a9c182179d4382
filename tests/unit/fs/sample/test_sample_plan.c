/* What `mcorefs sample` makes of a command line and of a checkpoint's arguments:
 * fs/sample/sample_plan.c. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/args/megatron_args.h"
#include "fs/cli/commands.h"
#include "fs/sample/sample.h"

static const char *const two[] = {"0.7", "a", "0.3", "b"};

static struct mfs_sample_options o;
static struct mfs_megatron_data_args args;
static struct mfs_sample_plan plan;

/* No options, and a run of 40 steps of 8 samples, of which 20 have been made. */
static void reset(void)
{
	o = mfs_sample_none_given;
	args = (struct mfs_megatron_data_args){.data_path = {two, 4},
					       .split = "90,10,0",
					       .seed = 1234,
					       .seq_length = 128,
					       .train_iters = 40,
					       .train_samples = MFS_ABSENT,
					       .global_batch_size = 8,
					       .micro_batch_size = 2,
					       .data_parallel_size = 1,
					       .consumed_train_samples = 160,
					       .iteration = 20,
					       .surplus = 0.005};
}

/* Returns the exit code; what was printed goes to text. */
static int make(char *text, size_t size)
{
	static const struct mfs_data_options mount;
	FILE *given = tmpfile();
	const int err = dup(STDERR_FILENO);
	size_t len;
	int code;

	ck_assert(given && err >= 0 && dup2(fileno(given), STDERR_FILENO) >= 0);
	code = mfs_sample_make_plan(&o, &mount, &args, NULL, &plan);
	fflush(stderr);
	dup2(err, STDERR_FILENO);
	close(err);
	rewind(given);
	len = fread(text, 1, size - 1, given);
	text[len] = '\0';
	fclose(given);
	return code;
}

static void makes(void)
{
	char text[1024];
	const int code = make(text, sizeof(text));

	ck_assert_msg(code == MFS_EXIT_OK, "exit code %d: %s", code, text);
}

static void refused(int want, const char *part)
{
	char text[1024];
	const int code = make(text, sizeof(text));

	ck_assert_int_eq(code, want);
	ck_assert_msg(strstr(text, part) && strchr(text, '\n') == text + strlen(text) - 1, "%s",
		      text);
}

static void consumed(uint64_t step, uint64_t want)
{
	o.step = step;
	makes();
	ck_assert_uint_eq(plan.sampler.consumed, want);
	mfs_sample_plan_release(&plan);
}

START_TEST(a_step_follows_the_samples_before_it)
{
	reset();
	consumed(MFS_ABSENT_U64, 160);
	consumed(1, 0);
	consumed(40, 312);
	o.step = 41;
	refused(MFS_EXIT_FAILED, "no step 41: the run has 40");
	o.step = UINT64_MAX >> 11;
	refused(MFS_EXIT_FAILED, "the run has 40");
	/* Saved before samples were counted, or converted: Megatron counts iterations then. */
	args.consumed_train_samples = 0;
	consumed(MFS_ABSENT_U64, 160);
	args.consumed_train_samples = MFS_ABSENT;
	consumed(30, 232);
	/* Where the place is given, too, the run has an end; a cyclic loader's epochs have none. */
	o.consumed_samples = 312;
	consumed(41, 312);
	o.consumed_samples = 320;
	refused(MFS_EXIT_FAILED, "no step 41: the run has 40");
	o.dataloader_type = "cyclic";
	consumed(41, 320);
}
END_TEST

/* Batches of 4 once, of 8 now: the run of 320 samples ends with step 50. */
START_TEST(smaller_batches)
{
	reset();
	args.consumed_train_samples = 80;
	args.train_samples = 320;
	consumed(21, 80);
	consumed(50, 312);
	o.step = 51;
	refused(MFS_EXIT_FAILED, "no step 51: the run has 50");
	o.step = 20;
	refused(MFS_EXIT_FAILED, "--consumed-samples must say");
	args.consumed_train_samples = 400;
	o.step = 21;
	refused(MFS_EXIT_FAILED, "no step 21: the run has 20");
}
END_TEST

START_TEST(a_batch_size_that_varied_has_to_be_given)
{
	reset();
	args.varies = "phase_transition_iterations";
	refused(MFS_EXIT_FAILED, "'phase_transition_iterations'");
	o.consumed_samples = 80;
	refused(MFS_EXIT_FAILED, "--train-samples");
	o.train_samples = 160;
	refused(MFS_EXIT_FAILED, "--global-batch-size");
	/* Small batches make more steps than 160 / 8. */
	o.global_batch_size = 8;
	consumed(35, 80);
}
END_TEST

/* Rules are those of the Megatron that ran, unless another is asked for. */
START_TEST(rules_are_those_of_the_megatron_that_ran)
{
	reset();
	makes();
	ck_assert_int_eq(plan.words.run.rules.surplus_rule, MFS_SURPLUS_ON_TOP);
	mfs_sample_plan_release(&plan);
	args.version = "0.10";
	makes();
	ck_assert_int_eq(plan.words.run.rules.surplus_rule, MFS_SURPLUS_WITHIN);
	ck_assert(!plan.words.run.rules.renormalize);
	mfs_sample_plan_release(&plan);
	o.surplus = "0.1";
	refused(MFS_EXIT_FAILED, "0.10 has no --mid-level-dataset-surplus");
	o.surplus = NULL;
	args.renormalize = true;
	makes();
	ck_assert(plan.words.run.rules.renormalize);
	mfs_sample_plan_release(&plan);
	o.megatron = "0.16";
	makes();
	ck_assert_int_eq(plan.words.run.rules.surplus_rule, MFS_SURPLUS_ON_TOP);
	ck_assert(!plan.words.run.rules.renormalize);
	mfs_sample_plan_release(&plan);
}
END_TEST

/* What makes other samples of the same files, wherever these are. */
START_TEST(data_that_change_samples_are_refused)
{
	reset();
	args.other_data = "fim_data";
	refused(MFS_EXIT_FAILED, "'fim_data'");
	mfs_buf_adds(&o.data_path, "elsewhere");
	refused(MFS_EXIT_FAILED, "'fim_data'");
	args.other_data = NULL;
	makes();
	mfs_sample_plan_release(&plan);
	mfs_buf_release(&o.data_path);
}
END_TEST

START_TEST(split_of_its_own)
{
	reset();
	mfs_buf_adds(&o.train_data_path, "a");
	makes();
	ck_assert_ptr_null(plan.words.run.split);
	mfs_sample_plan_release(&plan);
	o.split = "90,10,0";
	refused(MFS_EXIT_USAGE, "--split");
	mfs_buf_release(&o.train_data_path);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sample_plan");

	unit_case(s, "consumed", a_step_follows_the_samples_before_it);
	unit_case(s, "smaller batches", smaller_batches);
	unit_case(s, "variation", a_batch_size_that_varied_has_to_be_given);
	unit_case(s, "rules", rules_are_those_of_the_megatron_that_ran);
	unit_case(s, "other data", data_that_change_samples_are_refused);
	unit_case(s, "a split of its own", split_of_its_own);
	return s;
}
