/* Learning rate, weight decay, batch sizes, loss scale: trainer/optim/schedule.h,
 * trainer/config/batch_schedule.h. tests/interop/test_train.py compares with megatron-core's
 * own. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/megatron_args.h"
#include "formats/base/array.h"
#include "trainer/config/settle/batch_steps.h"
#include "trainer/optim/schedule.h"

#define POINTS 16
#define STEP   24 /* samples from one point to the next */

static struct mfs_error err;

/* 40 iterations of 8 samples, of which 5 warm up, as of the fixtures. */
static struct mft_train_config run(void)
{
	return (struct mft_train_config){
		.params_dtype = MFS_BF16,
		.train_iters = 40,
		.train_samples = MFS_ABSENT,
		.global_batch_size = 8,
		.lr = 1e-3,
		.min_lr = 1e-4,
		.lr_decay_style = MFT_LR_COSINE,
		.lr_decay_iters = MFS_ABSENT,
		.lr_decay_samples = MFS_ABSENT,
		.lr_wsd_decay_iters = MFS_ABSENT,
		.lr_wsd_decay_samples = MFS_ABSENT,
		.lr_warmup_iters = 5,
		.lr_warmup_fraction = -1,
		.decoupled_lr = -1,
		.decoupled_min_lr = -1,
		.weight_decay = 0.1,
		.start_weight_decay = 0.1,
		.end_weight_decay = 0.1,
	};
}

typedef double value_of(const struct mft_schedule *s);

static void follows(const struct mft_train_config *c, value_of *value, const double *want)
{
	struct mft_schedule s;

	unit_ok(mft_schedule_init(c, &s, &err), &err);
	ck_assert_uint_eq(s.num_steps, 0);
	for (int i = 0; i < POINTS; i++, mft_schedule_step(&s, STEP)) {
		const double got = value(&s);

		ck_assert_msg(fabs(got - want[i]) <= 1e-14 * want[i] + 1e-18,
			      "after %d samples: %.17g, not %.17g", i * STEP, got, want[i]);
	}
}

/* What OptimizerParamScheduler of megatron-core 0.20.0 sets after 0, 24, 48, ... 360 samples. */
static const double linear[POINTS] = {0.0,
				      0.0006000000000000001,
				      0.0009742857142857143,
				      0.0008971428571428571,
				      0.0008200000000000001,
				      0.0007428571428571429,
				      0.0006657142857142858,
				      0.0005885714285714286,
				      0.0005114285714285714,
				      0.00043428571428571426,
				      0.0003571428571428571,
				      0.00028,
				      0.0002028571428571429,
				      0.00012571428571428572,
				      0.0001,
				      0.0001};
static const double cosine[POINTS] = {0.0,
				      0.0006000000000000001,
				      0.0009981884322978576,
				      0.0009713056917878818,
				      0.0009140576474687263,
				      0.0008305704108364302,
				      0.0007268612642442657,
				      0.000610404969617945,
				      0.0004895950303820552,
				      0.0003731387357557344,
				      0.00026942958916356994,
				      0.00018594235253127368,
				      0.00012869430821211826,
				      0.00010181156770214242,
				      0.0001,
				      0.0001};
static const double constant[POINTS] = {0.0,   0.0006000000000000001,
					0.001, 0.001,
					0.001, 0.001,
					0.001, 0.001,
					0.001, 0.001,
					0.001, 0.001,
					0.001, 0.001,
					0.001, 0.001};
static const double root[POINTS] = {0.0,
				    0.0006000000000000001,
				    0.000912870929175277,
				    0.00074535599249993,
				    0.0006454972243679029,
				    0.0005773502691896258,
				    0.0005270462766947299,
				    0.0004879500364742666,
				    0.0004564354645876385,
				    0.0004303314829119352,
				    0.00040824829046386303,
				    0.00038924947208076146,
				    0.000372677996249965,
				    0.0003580574370197164,
				    0.0001,
				    0.0001};
static const double root_at_once[POINTS] = {0.001,
					    0.00020412414523193154,
					    0.00014433756729740645,
					    0.00011785113019775794,
					    0.00010206207261596577,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001,
					    0.0001};
static const double wsd_exponential[POINTS] = {0.0,
					       0.0006000000000000001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.001,
					       0.0006620543134412241,
					       0.00038755711969560474,
					       0.00016459611628266382,
					       0.0001,
					       0.0001};
static const double wsd_linear[POINTS] = {0.0,	   0.0006000000000000001,
					  0.001,   0.001,
					  0.001,   0.001,
					  0.001,   0.001,
					  0.001,   0.001,
					  0.001,   0.00073,
					  0.00046, 0.00018999999999999998,
					  0.0001,  0.0001};
static const double wsd_cosine[POINTS] = {0.0,
					  0.0006000000000000001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.001,
					  0.000814503363531613,
					  0.0004109423525312737,
					  0.00012202456766718092,
					  0.0001,
					  0.0001};
static const double wsd_root[POINTS] = {0.0,
					0.0006000000000000001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.001,
					0.0005070496982453505,
					0.00030286299768266493,
					0.00014618503175453762,
					0.0001,
					0.0001};
static const double fraction[POINTS] = {1e-05,
					0.0006136585365853659,
					0.0009978968414098934,
					0.0009702938555358696,
					0.0009125356681793524,
					0.0008287663079861539,
					0.000724996050627482,
					0.0006086701941426128,
					0.0004881348744403196,
					0.0003720382475750019,
					0.0002687100027116321,
					0.0001855637244212111,
					0.0001285649835569468,
					0.00010180332007373294,
					0.0001,
					0.0001};
static const double decoupled[POINTS] = {0.0,
					 0.003,
					 0.0048577142857142855,
					 0.004430857142857143,
					 0.004004000000000001,
					 0.0035771428571428573,
					 0.0031502857142857144,
					 0.002723428571428572,
					 0.002296571428571429,
					 0.0018697142857142857,
					 0.0014428571428571429,
					 0.0010159999999999998,
					 0.0005891428571428574,
					 0.00016228571428571434,
					 2e-05,
					 2e-05};
static const double decay_linear[POINTS] = {0.01,
					    0.02425,
					    0.0385,
					    0.052750000000000005,
					    0.06699999999999999,
					    0.08125,
					    0.0955,
					    0.10975,
					    0.12399999999999999,
					    0.13825,
					    0.15250000000000002,
					    0.16675,
					    0.18100000000000002,
					    0.19525,
					    0.2,
					    0.2};
static const double decay_cosine[POINTS] = {0.01,
					    0.012624857562220728,
					    0.02035438020210506,
					    0.03276143326799706,
					    0.04916040103221506,
					    0.06864507392531648,
					    0.09013872582117805,
					    0.11245361409414527,
					    0.13435661446562,
					    0.1546373636480152,
					    0.172175144212722,
					    0.18600081561363876,
					    0.1953503690480396,
					    0.19970714670464718,
					    0.2,
					    0.2};

START_TEST(learning_rates_follow_their_styles)
{
	struct mft_train_config c = run();

	follows(&c, mft_schedule_lr, cosine);
	follows(&c, mft_schedule_decoupled_lr, cosine); /* there is none */
	c.lr_decay_style = MFT_LR_LINEAR;
	follows(&c, mft_schedule_lr, linear);
	c.decoupled_lr = 5e-3;
	c.decoupled_min_lr = 2e-5;
	follows(&c, mft_schedule_lr, linear);
	follows(&c, mft_schedule_decoupled_lr, decoupled);
	c.lr_decay_style = MFT_LR_CONSTANT;
	follows(&c, mft_schedule_lr, constant);
	c.lr_decay_style = MFT_LR_INVERSE_SQUARE_ROOT;
	follows(&c, mft_schedule_lr, root);
	c.lr_warmup_iters = 0;
	follows(&c, mft_schedule_lr, root_at_once);
}
END_TEST

START_TEST(wsd_decays_at_its_end)
{
	static const struct {
		enum mft_wsd_decay_style style;
		const double *want;
	} cases[] = {{MFT_WSD_EXPONENTIAL, wsd_exponential},
		     {MFT_WSD_LINEAR, wsd_linear},
		     {MFT_WSD_COSINE, wsd_cosine},
		     {MFT_WSD_MINUS_SQRT, wsd_root}};
	struct mft_train_config c = run();

	c.lr_decay_style = MFT_LR_WSD;
	c.lr_wsd_decay_iters = 10;
	for (int i = 0; i < 4; i++) {
		c.lr_wsd_decay_style = cases[i].style;
		follows(&c, mft_schedule_lr, cases[i].want);
	}
}
END_TEST

/* Lengths in samples, and a warm-up that ends between two samples. */
START_TEST(lengths_may_be_in_samples)
{
	struct mft_train_config c = run();

	c.train_iters = MFS_ABSENT;
	c.train_samples = 320;
	c.lr_warmup_iters = 0;
	c.lr_warmup_samples = 40;
	follows(&c, mft_schedule_lr, cosine);
	c.lr_decay_style = MFT_LR_WSD;
	c.lr_wsd_decay_samples = 80;
	follows(&c, mft_schedule_lr, wsd_exponential);
	c = run();
	c.lr_warmup_iters = 0;
	c.lr_warmup_fraction = 0.123;
	c.lr_warmup_init = 1e-5;
	follows(&c, mft_schedule_lr, fraction);
}
END_TEST

START_TEST(weight_decay_follows_its_style)
{
	struct mft_train_config c = run();

	c.start_weight_decay = 0.01;
	c.end_weight_decay = 0.2;
	c.weight_decay_incr_style = MFT_WD_LINEAR;
	follows(&c, mft_schedule_weight_decay, decay_linear);
	c.weight_decay_incr_style = MFT_WD_COSINE;
	follows(&c, mft_schedule_weight_decay, decay_cosine);
}
END_TEST

/* The learning rates that Megatron logged: each is that of the next update. */
START_TEST(rates_are_those_that_megatron_logged)
{
	struct mft_train_config c = run();
	struct mft_schedule s;
	char *text, *line, *rest;
	size_t len;
	int lines = 0;

	unit_ok(mft_schedule_init(&c, &s, &err), &err);
	text = (char *)unit_slurp(unit_fixture("resume/llama-torch-tp2-pp2/loss.csv"), &len);
	line = strtok_r(text, "\n", &rest);
	while ((line = strtok_r(NULL, "\n", &rest)) && ++lines <= 40) {
		unsigned long long iteration, consumed;
		double rate;

		ck_assert_int_eq(sscanf(line, "%llu,%llu,%lf", &iteration, &consumed, &rate), 3);
		mft_schedule_step(&s, 8);
		ck_assert_uint_eq(s.num_steps, consumed);
		/* It was an fp32 number, and is written with seven digits. */
		ck_assert_msg(fabs((float)mft_schedule_lr(&s) - rate) <= 6e-7 * rate,
			      "iteration %llu: %.9e, not %.6e", iteration, mft_schedule_lr(&s),
			      rate);
	}
	ck_assert_int_ge(lines, 40);
	free(text);
}
END_TEST

START_TEST(schedules_that_cannot_be_are_refused)
{
	struct mft_schedule s;
	struct mft_train_config c = run();

	c.lr_warmup_iters = 40;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "warms up");
	c = run();
	c.min_lr = 2e-3;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "--min-lr");
	c = run();
	c.lr_warmup_init = 2e-3;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "--lr-warmup-init");
	c = run();
	c.lr_decay_style = MFT_LR_WSD;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "--lr-wsd-decay-iters");
	c = run();
	c.end_weight_decay = 0.01;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "--end-weight-decay");
	c = run();
	c.train_iters = MFS_ABSENT;
	unit_fails(mft_schedule_init(&c, &s, &err), &err, -EINVAL, "--train-iters");
}
END_TEST

START_TEST(batch_sizes_follow_their_steps)
{
	static const struct mft_batch_step steps[] = {{0, 8}, {100, 16}, {200, 64}};
	struct mft_train_config c = run();

	ck_assert_uint_eq(mft_schedule_batch(&c, 1000), 8);
	ck_assert_uint_eq(mft_schedule_iterations(&c), 40);
	c.batch_steps = steps;
	c.batch_step_count = 3;
	ck_assert_uint_eq(mft_schedule_batch(&c, 0), 8);
	ck_assert_uint_eq(mft_schedule_batch(&c, 99), 8);
	ck_assert_uint_eq(mft_schedule_batch(&c, 100), 16);
	ck_assert_uint_eq(mft_schedule_batch(&c, 1 << 30), 64);
	c.train_iters = MFS_ABSENT;
	for (c.train_samples = 1; c.train_samples < 1000; c.train_samples++) {
		uint64_t iterations = 0, consumed = 0;

		/* training.py: update_train_iters */
		while (consumed < (uint64_t)c.train_samples) {
			consumed += mft_schedule_batch(&c, consumed);
			iterations++;
		}
		ck_assert_uint_eq(mft_schedule_iterations(&c), iterations);
	}
	c.batch_step_count = 0;
	c.train_samples = 87;
	ck_assert_uint_eq(mft_schedule_iterations(&c), 10);
}
END_TEST

/* core 0.12: RampupBatchsizeNumMicroBatchesCalculator.update() */
static uint64_t ramped(const struct mft_batch_ramp *r, uint64_t consumed)
{
	const double increments = (double)((r->end - r->start) / r->increment);

	if (consumed > (uint64_t)r->samples || r->end == r->start)
		return (uint64_t)r->end;
	return (uint64_t)r->start +
	       (uint64_t)((double)consumed / ((double)r->samples / increments)) *
		       (uint64_t)r->increment;
}

/* core 0.12, training.py: update_train_iters() */
static uint64_t ramped_iterations(const struct mft_batch_ramp *r, uint64_t samples)
{
	uint64_t iterations = 0, consumed = 0;

	for (; consumed <= (uint64_t)r->samples && consumed <= samples; iterations++)
		consumed += ramped(r, consumed);
	if (samples > consumed)
		iterations += (samples - consumed) / (uint64_t)r->end;
	return iterations;
}

START_TEST(a_ramp_ends_after_its_samples)
{
	static const struct mft_batch_ramp ramps[] = {
		{16, 8, 1000, 1024}, {2, 2, 12, 8},  {32, 32, 977, 192}, {1, 1, 7, 64},
		{5, 7, 1, 19},	     {8, 1, 100, 8}, {3, 3, 299, 30},	 {1, 1, 4999, 50},
	};
	struct mfs_arena arena = {0};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ramps); i++) {
		struct mft_train_config c = run();

		c.global_batch_size = ramps[i].end;
		c.train_iters = MFS_ABSENT;
		c.rampup_samples = (uint64_t)ramps[i].samples;
		unit_ok(mft_batch_ramp_steps(&ramps[i], &arena, &c.batch_steps, &c.batch_step_count,
					     &err),
			&err);
		for (uint64_t n = 0; n < 6000; n++)
			ck_assert_uint_eq(mft_schedule_global_batch(&c, n), ramped(&ramps[i], n));
		for (c.train_samples = 1; c.train_samples < 6000; c.train_samples += 13)
			ck_assert_uint_eq(mft_schedule_iterations(&c),
					  ramped_iterations(&ramps[i], (uint64_t)c.train_samples));
	}
	mfs_arena_release(&arena);
}
END_TEST

static void after(struct mft_loss_scaler *s, bool found_inf, double want)
{
	mft_loss_scaler_update(s, found_inf);
	ck_assert_msg(s->scale == want, "%g, not %g", s->scale, want);
}

START_TEST(the_loss_scale_follows_overflows)
{
	struct mft_train_config c = run();
	struct mft_loss_scaler s;

	mft_loss_scaler_init(&c, &s); /* bf16 */
	after(&s, true, 1);
	c.params_dtype = MFS_F16;
	c.loss_scale = 128;
	mft_loss_scaler_init(&c, &s);
	after(&s, true, 128);
	c.loss_scale = 0;
	c.initial_loss_scale = 16;
	c.min_loss_scale = 3;
	c.loss_scale_window = 3;
	c.hysteresis = 2;
	mft_loss_scaler_init(&c, &s);
	/* What two overflows leave stays so until the scale grows. */
	after(&s, true, 16);
	after(&s, false, 16);
	after(&s, true, 8);
	after(&s, true, 4);
	after(&s, true, 3);
	after(&s, false, 3);
	after(&s, false, 3);
	after(&s, false, 6);
	after(&s, true, 6);
	after(&s, false, 6);
	after(&s, false, 6);
	after(&s, true, 3);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("schedule");
	TCase *c = unit_case(s, "rates", learning_rates_follow_their_styles);

	tcase_add_test(c, wsd_decays_at_its_end);
	tcase_add_test(c, lengths_may_be_in_samples);
	tcase_add_test(c, weight_decay_follows_its_style);
	tcase_add_test(c, rates_are_those_that_megatron_logged);
	tcase_add_test(c, schedules_that_cannot_be_are_refused);
	c = unit_case(s, "batches", batch_sizes_follow_their_steps);
	tcase_add_test(c, a_ramp_ends_after_its_samples);
	tcase_add_test(c, the_loss_scale_follows_overflows);
	return s;
}
