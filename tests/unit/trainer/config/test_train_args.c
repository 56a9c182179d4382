/*
 * Command lines and YAML files of mcorefs-train (trainer/config): all values against what
 * Megatron's own parser and validate_args() make of the same lines (tests/fixtures/train_args), the
 * table of flags, what is refused and with which message, and the Namespace of checkpoints.
 */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "tests/unit/unit.h"
#include "trainer/config/adopt.h"
#include "trainer/config/flags_source.h"
#include "trainer/config/batch_schedule.h"
#include "trainer/config/help/foreign.h"
#include "trainer/config/help/help.h"
#include "trainer/config/run_namespace.h"
#include "trainer/config/parse/parse.h"
#include "trainer/config/recipe_words.h"
#include "trainer/config/refuse.h"
#include "trainer/config/settle/settle.h"
#include "trainer/config/value.h"
#include "trainer/config/parse/yaml.h"

#define SMALL                                                                                      \
	"--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 16 "                  \
	"--max-position-embeddings 16 --micro-batch-size 1 --train-iters 3 --lr 0.1 "              \
	"--tokenizer-type NullTokenizer --vocab-size 100 "
/* The same, as long as its samples are. */
#define BY_SAMPLES                                                                                 \
	"--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 16 "                  \
	"--max-position-embeddings 16 --micro-batch-size 1 --train-samples 60 --lr 0.1 "           \
	"--tokenizer-type NullTokenizer --vocab-size 100 "
#define MAX_WORDS 128

static struct mfs_error err;

/* Words of a line, with spaces between. The line is changed. */
static size_t cut(char *line, const char **words)
{
	char *rest = NULL;
	size_t count = 0;

	for (char *w = strtok_r(line, " \n", &rest); w; w = strtok_r(NULL, " \n", &rest)) {
		ck_assert_uint_lt(count, MAX_WORDS);
		words[count++] = w;
	}
	return count;
}

static int read_line(const char *line, struct mft_train_config *c)
{
	const char *words[MAX_WORDS];
	char *copy = strdup(line);
	int r;

	memset(&err, 0, sizeof(err));
	r = mft_train_config_parse_words(words, cut(copy, words), c, &err);
	free(copy);
	if (r)
		return r;
	r = mft_train_config_settle(c, &err);
	if (r)
		mft_train_config_release(c);
	return r;
}

static void read_ok(const char *line, struct mft_train_config *c)
{
	unit_ok(read_line(line, c), &err);
}

static void fails(const char *line, int want, const char *part)
{
	struct mft_train_config c;

	unit_fails(read_line(line, &c), &err, want, part);
}

static char *shown(const struct mft_flag_value *v)
{
	struct mfs_buf text = {0};

	mft_flag_value_show(v, &text);
	ck_assert(!text.failed);
	return text.data;
}

/* ---- Megatron's own values ---- */

static const char *expected_of(char *const *lines, size_t count, const struct mft_flag *f)
{
	const size_t len = strlen(f->dest);

	for (size_t i = 0; i < count; i++)
		if (!strncmp(lines[i], f->dest, len) && !strncmp(lines[i] + len, " = ", 3))
			return lines[i] + len + 3;
	return f->initial;
}

static void check_case(const char *path)
{
	size_t len, count = 0, checked = 0;
	char *text = (char *)unit_slurp(path, &len), *lines[1024], *rest = NULL;
	struct mft_train_config c;

	text = realloc(text, len + 1);
	text[len] = '\0';
	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		lines[count++] = l;
	read_ok(lines[0] + 2, &c);
	for (size_t i = 0; i < mft_flag_count(); i++) {
		const struct mft_flag *f = mft_flag_at(i);
		const char *want = expected_of(lines + 1, count - 1, f);
		char *found;

		/* training.py changes these; a run that begins does not know them. */
		if (f->gone || mfs_str_is(f->dest, "do_train") || mfs_str_is(f->dest, "yaml_cfg"))
			continue;
		found = shown(&c.values->at[i]);
		ck_assert_msg(!strcmp(found, mfs_str_is(want, "'auto'")	     ? "AttnBackend.auto"
					     : mfs_str_is(want, "'SIGTERM'") ? "Signals.SIGTERM"
									     : want),
			      "%s: %s is %s, Megatron has %s", path, f->dest, found, want);
		free(found);
		checked++;
	}
	ck_assert_uint_gt(checked, 840);
	/* Nothing that Megatron has is missing. */
	for (size_t i = 1; i < count; i++) {
		*strchr(lines[i], ' ') = '\0';
		ck_assert_msg(mft_flag_of_dest(lines[i]) != SIZE_MAX, "%s: no %s", path, lines[i]);
	}
	mft_train_config_release(&c);
	free(text);
}

START_TEST(command_lines_read_as_megatron_reads_them)
{
	glob_t found;

	ck_assert_int_eq(glob(unit_fixture("train_args/*.txt"), 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 9);
	for (size_t i = 0; i < found.gl_pathc; i++)
		check_case(found.gl_pathv[i]);
	globfree(&found);
}
END_TEST

/* ---- the table ---- */

static void check_row(const struct mft_flag *f, size_t number)
{
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	ck_assert_msg(mft_flag_of_dest(f->dest) == number, "%s is there twice", f->dest);
	for (unsigned k = 0; mft_flag_spelling(f, k, spelling, &on); k++) {
		ck_assert_msg(mft_flag_of_spelling(spelling, strlen(spelling), &on) == number,
			      "%s is there twice", spelling);
		ck_assert_uint_lt(strlen(spelling), MFT_FLAG_SPELLING - 1);
	}
	ck_assert_msg(f->use != MFT_FLAG_REFUSED || f->instead, "%s: refused without a word",
		      f->dest);
	ck_assert_msg(f->kind != MFT_FLAG_ENUM || f->of, "%s has no enum", f->dest);
	ck_assert_msg(f->as == MFT_AS_NONE || f->use == MFT_FLAG_USED, "%s", f->dest);
}

START_TEST(every_flag_has_a_use_and_a_type)
{
	size_t used = 0, unused = 0, refused = 0;

	for (size_t i = 0; i < mft_flag_count(); i++) {
		const struct mft_flag *f = mft_flag_at(i);

		check_row(f, i);
		used += f->use == MFT_FLAG_USED;
		unused += f->use == MFT_FLAG_UNUSED;
		refused += f->use == MFT_FLAG_REFUSED;
	}
	ck_assert_uint_gt(used, 180);
	ck_assert_uint_gt(unused + used, 675); /* one that gets an effect is used */
	ck_assert_uint_eq(refused, 72);	       /* who builds one counts it here */
	ck_assert_ptr_null(mft_flag_at(mft_flag_count()));
}
END_TEST

/* Defaults are what nobody has to say: none of them is refused. */
START_TEST(defaults_are_supported)
{
	struct mft_train_config c;

	read_ok(SMALL, &c);
	ck_assert_int_eq(c.params_dtype, MFS_F32);
	ck_assert_int_eq(c.lr_decay_style, MFT_LR_LINEAR);
	ck_assert_double_eq(c.lr_warmup_fraction, -1);
	ck_assert_double_eq(c.decoupled_lr, -1);
	ck_assert_double_eq(c.decoupled_min_lr, -1);
	ck_assert_double_eq(c.exit_duration_in_mins, -1);
	ck_assert_int_eq(c.exit_interval, MFS_ABSENT);
	ck_assert_int_eq(c.eval_interval, MFS_ABSENT);
	ck_assert(!c.no_data_sharding && !c.no_load_optim);
	ck_assert(c.save_tokenizer_assets && c.decoupled_weight_decay);
	ck_assert_int_eq(c.eod, 99);
	ck_assert_int_eq(c.model.padded_vocab_size, 128);
	ck_assert_int_eq(c.model.vocab_size, 100);
	ck_assert_ptr_null(c.load);
	ck_assert_ptr_null(c.recompute_modules.list);
	mft_train_config_release(&c);
}
END_TEST

START_TEST(several_aux_losses)
{
	struct mft_train_config c;

	read_ok(SMALL "--num-experts 4 --moe-router-load-balancing-type seq_aux_loss none "
		      "global_aux_loss --moe-aux-loss-coeff 0.5 0.25 2",
		&c);
	ck_assert(c.moe_aux_loss_coeffs[MFT_AUX_LOSS] == 0 && !c.moe_logs_aux_loss[MFT_AUX_LOSS]);
	ck_assert(c.moe_aux_loss_coeffs[MFT_SEQ_AUX_LOSS] == 0.5);
	ck_assert(c.moe_aux_loss_coeffs[MFT_GLOBAL_AUX_LOSS] == 2);
	ck_assert(c.moe_logs_aux_loss[MFT_GLOBAL_AUX_LOSS]);
	mft_train_config_release(&c);
}
END_TEST

START_TEST(flags_become_fields)
{
	struct mft_train_config c;

	read_ok(SMALL "--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16 "
		      "--exp-avg-dtype bf16 --lr-decay-style WSD --lr-wsd-decay-style minus_sqrt "
		      "--lr-wsd-decay-iters=2 --no-data-sharding --recompute-granularity full "
		      "--recompute-method block --recompute-num-layers 1 --data-path 0.3 a 0.7 b "
		      "--exit-duration-in-mins 5 --loss-scale 128 --seed -7 --weight-decay -1e-3 "
		      "--moe-z-loss-coeff 1e-3 --use-rope-scaling --rope-scaling-factor 32 "
		      "--device 3 --save-keep-last 2 --dry-run --eod-id 5 "
		      "--num-experts 4 --moe-router-load-balancing-type seq_aux_loss "
		      "--moe-aux-loss-coeff 0.5",
		&c);
	ck_assert(c.moe_aux_loss_coeffs[MFT_SEQ_AUX_LOSS] == 0.5);
	ck_assert(c.moe_aux_loss_coeffs[MFT_AUX_LOSS] == 0 && c.moe_logs_aux_loss[MFT_AUX_LOSS]);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert_int_eq(c.main_grads_dtype, MFS_BF16);
	ck_assert_int_eq(c.exp_avg_dtype, MFS_BF16);
	ck_assert_int_eq(c.exp_avg_sq_dtype, MFS_F32);
	ck_assert_int_eq(c.lr_decay_style, MFT_LR_WSD);
	ck_assert_int_eq(c.lr_wsd_decay_style, MFT_WSD_MINUS_SQRT);
	ck_assert_int_eq(c.lr_wsd_decay_iters, 2);
	ck_assert(c.no_data_sharding && c.dry_run);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_FULL);
	ck_assert_str_eq(c.recompute_method, "block");
	ck_assert_uint_eq(c.data_path.count, 4);
	ck_assert_str_eq(c.data_path.list[3], "b");
	ck_assert_double_eq(c.exit_duration_in_mins, 5);
	ck_assert_double_eq(c.loss_scale, 128);
	ck_assert_int_eq(c.seed, -7);
	ck_assert_double_eq(c.weight_decay, -1e-3);
	ck_assert_double_eq(c.moe_z_loss_coeff, 1e-3);
	ck_assert_double_eq(c.model.rope_scaling_factor, 32);
	ck_assert_int_eq(c.device, 3);
	ck_assert_int_eq(c.save_keep_last, 2);
	ck_assert_int_eq(c.eod, 5);
	mft_train_config_release(&c);
	read_ok(SMALL "--bf16 --grad-reduce-in-bf16", &c);
	ck_assert_int_eq(c.main_grads_dtype, MFS_BF16);
	mft_train_config_release(&c);
	read_ok(SMALL "--bf16", &c);
	ck_assert_int_eq(c.main_grads_dtype, MFS_F32);
	mft_train_config_release(&c);
	read_ok(SMALL "--fp16", &c);
	ck_assert_int_eq(c.main_grads_dtype, MFS_F16);
	mft_train_config_release(&c);
	read_ok(SMALL "--fp16 --accumulate-allreduce-grads-in-fp32", &c);
	ck_assert_int_eq(c.main_grads_dtype, MFS_F32);
	mft_train_config_release(&c);
}
END_TEST

/* Batches that are not --global-batch-size. */
START_TEST(other_batches)
{
	struct mft_train_config c;

	read_ok(BY_SAMPLES "--rampup-batch-size 2 3 30 --global-batch-size 8", &c);
	ck_assert_uint_eq(c.rampup_samples, 30);
	ck_assert_uint_eq(c.batch_step_count, 3);
	ck_assert_uint_eq(c.batch_steps[1].threshold, 15);
	ck_assert_uint_eq(c.batch_steps[1].batch, 5);
	ck_assert_int_eq(c.eval_global_batch_size, 8);
	mft_train_config_release(&c);
	read_ok(SMALL "--global-batch-size 7 --micro-batch-size 2 --decrease-batch-size-if-needed "
		      "--iterations-to-skip 3 5 --exit-signal SIGUSR2 --start-eval-at-iter 4",
		&c);
	ck_assert_uint_eq(mft_schedule_batch(&c, 0), 6);
	ck_assert_uint_eq(mft_schedule_global_batch(&c, 0), 7);
	ck_assert_int_eq(c.eval_global_batch_size, 6);
	ck_assert(mft_schedule_skips(&c, 3) && mft_schedule_skips(&c, 5));
	ck_assert(!mft_schedule_skips(&c, 4) && !mft_schedule_skips(&c, 0));
	ck_assert_int_eq(c.exit_signal, SIGUSR2);
	ck_assert_int_eq(c.start_eval_at_iter, 4);
	mft_train_config_release(&c);
	read_ok(SMALL "--global-batch-size 8 --eval-global-batch-size 4", &c);
	ck_assert_int_eq(c.eval_global_batch_size, 4);
	ck_assert_int_eq(c.exit_signal, SIGTERM);
	mft_train_config_release(&c);
	read_ok(SMALL "--full-validation --multiple-validation-sets --validation-set-names a b",
		&c);
	ck_assert(c.full_validation && c.multiple_validation_sets);
	ck_assert_uint_eq(c.validation_set_names.count, 2);
	ck_assert_str_eq(c.validation_set_names.list[1], "b");
	mft_train_config_release(&c);
	fails(SMALL "--multiple-validation-sets", -EINVAL,
	      "--multiple-validation-sets needs --full-validation");
	fails(SMALL "--full-validation --validation-set-names a", -EINVAL,
	      "--validation-set-names needs --multiple-validation-sets");
	fails(SMALL "--rampup-batch-size 1 1 8 --global-batch-size 8", -EINVAL,
	      "--train-iters and --rampup-batch-size exclude");
	fails(BY_SAMPLES "--rampup-batch-size 2 4 8 --global-batch-size 8", -EINVAL,
	      "expected increments of 4 that lead from 2 to --global-batch-size 8");
	fails(BY_SAMPLES "--rampup-batch-size 0 4 8 --global-batch-size 8", -EINVAL,
	      "all positive, found 0 4 8");
	fails(BY_SAMPLES "--rampup-batch-size 1 1 8 --global-batch-size 9000", -EINVAL,
	      "at most 8192 increments");
	fails(BY_SAMPLES "--rampup-batch-size 2 3 8 --global-batch-size 8 --micro-batch-size 2",
	      -EINVAL, "--rampup-batch-size: expected a multiple of --micro-batch-size 2, found 5");
	fails(BY_SAMPLES "--rampup-batch-size 2 2 8 --step-batch-size-schedule 0:8", -EINVAL,
	      "--rampup-batch-size and --step-batch-size-schedule exclude each other");
	fails(SMALL "--step-batch-size-schedule 0:8 --decrease-batch-size-if-needed", -EINVAL,
	      "exclude each other");
	fails(SMALL "--micro-batch-size 3 --global-batch-size 2 --decrease-batch-size-if-needed",
	      -EINVAL, "at least --micro-batch-size 3, found 2");
	fails(SMALL "--eval-global-batch-size 7 --micro-batch-size 2", -EINVAL,
	      "expected a multiple of --eval-micro-batch-size 2, found 7");
	fails(SMALL "--eval-global-batch-size 6 --micro-batch-size 4 --eval-micro-batch-size 2",
	      -EINVAL, "expected a multiple of --micro-batch-size 4, found 6");
}
END_TEST

START_TEST(batch_steps)
{
	struct mft_train_config c;

	read_ok(SMALL "--step-batch-size-schedule 1.5K:8,0:4,1M:16", &c);
	ck_assert_uint_eq(c.batch_step_count, 3);
	ck_assert_uint_eq(c.batch_steps[0].threshold, 0);
	ck_assert_uint_eq(c.batch_steps[1].threshold, 1500 / 16);
	ck_assert_uint_eq(c.batch_steps[1].batch, 8);
	ck_assert_uint_eq(c.batch_steps[2].threshold, 1000000 / 16);
	mft_train_config_release(&c);
	fails(SMALL "--step-batch-size-schedule 50:8", -EINVAL, "first threshold of 0");
	fails(SMALL "--step-batch-size-schedule 0:8,1:9", -EINVAL, "0 samples twice");
	fails(SMALL "--step-batch-size-schedule 0:8x", -EINVAL, "THRESHOLD:BATCH");
	fails(SMALL "--micro-batch-size 3 --step-batch-size-schedule 0:6,160:8", -EINVAL,
	      "a multiple of --micro-batch-size 3, found 8");
	fails(SMALL "--step-batch-size-schedule 0:8 --global-batch-size 8", -EINVAL,
	      "exclude each other");
}
END_TEST

/* ---- wrong lines ---- */

START_TEST(a_wrong_flag_is_told_the_nearest)
{
	fails("--num-layer 2", -EINVAL, "did you mean '--num-layers'?");
	fails("--num_layers 2", -EINVAL,
	      "unknown flag '--num_layers'; did you mean '--num-layers'");
	/* By meaning, by words, by letters; and not by letters alone. */
	fails("--dp_comm_overlap_bucket_size 2", -EINVAL, "did you mean '--ddp-bucket-size'?");
	fails("--cpu-offload-optimizer", -EINVAL, "did you mean '--optimizer-cpu-offload'?");
	fails("--enable-straggler-detection", -EINVAL, "did you mean '--log-straggler'?");
	fails("--learning-rate 1", -EINVAL, "did you mean '--lr'?");
	fails("--numlayers 2", -EINVAL, "did you mean '--num-layers'?");
	fails("--tensor-model-paralel-size 2", -EINVAL, "'--tensor-model-parallel-size'?");
	fails("--use-mpj", -EINVAL, "unknown flag '--use-mpj'");
	ck_assert_ptr_null(strstr(err.msg, "mup"));
	fails("2", -EINVAL, "expected a flag, found '2'");
	fails("--num-layers", -EINVAL, "--num-layers: expected one value, found 0");
	fails("--num-layers 2.5", -EINVAL, "expected an integer, found '2.5'");
	fails("--lr x", -EINVAL, "expected a number, found 'x'");
	fails("--bf16=1", -EINVAL, "takes no value");
	fails("--lr-decay-style Cosine", -EINVAL, "expected one of constant|linear|cosine");
	fails("--rampup-batch-size 1 2", -EINVAL, "three values");
	fails("--data-path --bf16", -ENODATA,
	      "--num-layers, --hidden-size, --num-attention-heads, --seq-length, "
	      "--max-position-embeddings, --micro-batch-size, --train-iters, --lr are missing");
	fails("--load x --lr 1", -ENODATA, "are missing; --use-checkpoint-args takes the model's");
	fails(SMALL "--tokenizer-type GPT2BPETokenizer --vocab-file /nowhere", -ENOENT,
	      "--vocab-file /nowhere: No such file");
	fails("--moe-layer-freq [1,0", -EINVAL, "a closing ]");
	fails("--moe-layer-freq [1]*999999999", -EINVAL, "a list and a number");
	fails("--moe-layer-freq __import__", -EINVAL, "a list as");
	fails("--window-size 1,x", -EINVAL, "integers with commas");
	fails(SMALL "--fp16 --bf16", -EINVAL, "exclude");
	fails(SMALL "--train-samples 3", -EINVAL, "--train-iters and --train-samples");
	fails(SMALL "--lr-warmup-samples 3", -EINVAL, "--lr-warmup-samples and --train-iters");
	fails(SMALL "--num-attention-heads 3", -EINVAL, "--kv-channels");
	fails(SMALL "--seq-length 32", -EINVAL, "--max-position-embeddings");
	fails(SMALL "--global-batch-size 4 --micro-batch-size 3", -EINVAL, "multiple of");
	fails(SMALL "--save x", -ENODATA, "--save-interval is missing");
	fails(SMALL "--min-lr 1", -EINVAL, "--min-lr: expected at most");
	fails(SMALL "--start-weight-decay 1", -EINVAL, "--weight-decay-incr-style");
	fails(SMALL "--weight-decay-incr-style linear --end-weight-decay 1", -ENODATA,
	      "--start-weight-decay is missing");
	fails(SMALL "--mock-data --data-path a", -EINVAL, "exclude each other");
	fails(SMALL "--sft-packing first_fit_decreasing", -EINVAL,
	      "--sft-packing first_fit_decreasing needs --sft");
	fails(SMALL "--recompute-granularity full", -ENODATA, "--recompute-method");
	fails(SMALL "--exp-avg-dtype bf16", -EINVAL, "--use-precision-aware-optimizer");
	fails(SMALL "--optimizer-cpu-offload", -EINVAL, "--use-precision-aware-optimizer");
	fails(SMALL "--optimizer-cpu-offload --use-precision-aware-optimizer "
		    "--optimizer-offload-fraction 1.5",
	      -EINVAL, "--optimizer-offload-fraction: expected 0 to 1, found 1.5");
	fails(SMALL "--hidden-size -8", -EINVAL, "a positive number");
	fails(SMALL "--padded-vocab-size 64", -EINVAL, "at least the 100 tokens");
	fails(SMALL "--tokenizer-type HuggingFaceTokenizer --tokenizer-model /nowhere "
		    "--eod-mask-loss",
	      -ENODATA, "--eod-id");
	fails("--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 16 "
	      "--max-position-embeddings 16 --micro-batch-size 1 --train-iters 3 --lr 0.1",
	      -ENODATA, "vocabulary is not known");
}
END_TEST

/* Numbers as Python reads them. Those that fp32 does not hold end as NaN in a step. */
START_TEST(numbers_are_read_as_python_reads_them)
{
	static const char *const spaced[] = {"--save-interval", " 2_000 ", "--lr", " +1_0.5e-2"};
	struct mft_train_config c;
	char line[512];

	read_ok(SMALL "--save-interval 2_000 --lr 1_0.5 --seed +5 --ddp-bucket-size 10000000000 "
		      "--weight-decay -1_0.5 --timing-log-level +1",
		&c);
	ck_assert_int_eq(c.save_interval, 2000);
	ck_assert_double_eq(c.lr, 10.5);
	ck_assert_int_eq(c.seed, 5);
	ck_assert_int_eq(c.ddp_bucket_size, 10000000000);
	ck_assert_double_eq(c.weight_decay, -10.5);
	mft_train_config_release(&c);
	unit_ok(mft_train_config_parse_words(spaced, 4, &c, &err), &err);
	ck_assert_int_eq(c.save_interval, 2000);
	ck_assert_double_eq(c.lr, 0.105);
	mft_train_config_release(&c);
	fails(SMALL "--save-interval 2__0", -EINVAL, "expected an integer, found '2__0'");
	fails(SMALL "--save-interval 2_", -EINVAL, "expected an integer, found '2_'");
	fails(SMALL "--save-interval _2", -EINVAL, "expected an integer, found '_2'");
	fails(SMALL "--save-interval 0x10", -EINVAL, "expected an integer, found '0x10'");
	fails(SMALL "--save-interval 9223372036854775808", -EINVAL, "an integer of 64 bits");
	fails(SMALL "--ddp-bucket-size 0", -EINVAL, "expected a positive number, found 0");
	fails(SMALL "--lr 0x1p3", -EINVAL, "--lr: expected a number, found '0x1p3'");
	fails(SMALL "--lr 1e400", -EINVAL, "--lr: expected a number of at most 3.4e38, found");
	fails(SMALL "--lr 1e39", -EINVAL, "--lr: expected a number of at most 3.4e38, found");
	fails(SMALL "--lr -1", -EINVAL, "--lr: expected 0 or more, found -1");
	fails(SMALL "--min-lr -1", -EINVAL, "--min-lr: expected 0 or more, found -1");
	fails(SMALL "--swiglu", -ENODATA, "--ffn-hidden-size is missing: of --hidden-size 8");
	fails(SMALL "--hidden-size 1000000000", -EINVAL, "--hidden-size: expected a smaller one");
	/* A few digits ask for no work of minutes. */
	fails(SMALL "--num-experts 1000000000", -EINVAL, "1000000000 experts: a model of more");
	fails(SMALL "--num-experts 200000", -EINVAL, "200000 experts: a model of more than 400000");
	fails(SMALL "--num-layers 100000", -EINVAL, "100000 layers and 0 experts: a model of more");
	/* Every flag that takes a real. */
	for (size_t i = 0; i < mft_flag_count(); i++) {
		static const char *const infinite[] = {"inf", "-Infinity", "nan", "-1e400"};
		const struct mft_flag *f = mft_flag_at(i);
		char spelling[MFT_FLAG_SPELLING];
		bool on;

		if (f->kind != MFT_FLAG_REAL && f->kind != MFT_FLAG_REALS)
			continue;
		mft_flag_spelling(f, 0, spelling, &on);
		snprintf(line, sizeof(line), "%s %s", spelling, infinite[i % 4]);
		fails(line, -EINVAL, i % 4 == 3 ? "at most 3.4e38" : "a finite number");
	}
}
END_TEST

/* Groups of experts that a dense model says it has. */
START_TEST(no_experts)
{
	struct mft_train_config c;

	read_ok(SMALL "--dry-run --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 "
		      "--expert-model-parallel-size 1 --padded-vocab-size 128",
		&c);
	ck_assert_int_eq(mft_flag_number(c.values, "expert_tensor_parallel_size", 0), 1);
	ck_assert_int_eq(c.model.expert_tensor_parallel_size, 2);
	mft_train_config_release(&c);
	fails(SMALL "--dry-run --expert-model-parallel-size 2", -EINVAL,
	      "--expert-model-parallel-size: expected 1, as there is no --num-experts; found 2");
	/* As Megatron's own tests say: eight processes, whose experts would be divided by four. */
	read_ok(SMALL "--dry-run --tensor-model-parallel-size 2 --context-parallel-size 2 "
		      "--expert-tensor-parallel-size 4 --padded-vocab-size 128",
		&c);
	ck_assert_int_eq(c.model.expert_tensor_parallel_size, 2);
	ck_assert_int_eq(c.data_parallel_size, 1);
	mft_train_config_release(&c);
}
END_TEST

/* ---- of other programs, and of Megatron before ---- */

static void notes(const char *line, const char *want)
{
	struct mft_train_config c;
	struct mfs_buf out = {0};

	read_ok(line, &c);
	mft_help_notes(&c, &out);
	ck_assert_msg(out.data && strstr(out.data, want), "%s: '%s' has no '%s'", line,
		      out.data ? out.data : "", want);
	mfs_buf_release(&out);
	mft_train_config_release(&c);
}

/* A flag has the last word over SECTION.NAME=VALUE, and says so where they differ. */
START_TEST(a_flag_has_the_last_word_over_an_override)
{
	struct mft_train_config c;
	struct mfs_buf out = {0};

	notes(SMALL "--clip-grad 2 optimizer.clip_grad=0.5",
	      "optimizer.clip_grad=0.5 was given, and --clip-grad, which is 2.0, has the last "
	      "word\n");
	notes(SMALL "--bf16 megatron.bf16=false", "megatron.bf16=false was given, and --bf16");
	read_ok(SMALL "--clip-grad 0.5 optimizer.clip_grad=0.5 model.num_layers=2 "
		      "optimizer.adam_eps=1e-3",
		&c);
	mft_help_notes(&c, &out);
	ck_assert(!out.data || !strstr(out.data, "last word"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
}
END_TEST

/* What flags say by other names is the same run. */
static void same(const char *line, const char *as)
{
	struct mft_train_config a, b;

	read_ok(line, &a);
	read_ok(as, &b);
	for (size_t i = 0; i < mft_flag_count(); i++)
		ck_assert_msg(mft_flag_value_same(&a.values->at[i], &b.values->at[i]), "%s: %s",
			      line, mft_flag_at(i)->dest);
	mft_train_config_release(&a);
	mft_train_config_release(&b);
}

START_TEST(foreign_table)
{
	char line[1024], word[64];

	for (size_t i = 0; i < mft_foreign_count; i++) {
		const struct mft_foreign *f = &mft_foreign_table[i];
		const size_t len = strcspn(f->name, "*");
		bool on;

		snprintf(word, sizeof(word), "%.*s", f->values ? (int)strcspn(f->values, "|") : 63,
			 f->values			 ? f->values
			 : f->use == MFT_FOREIGN_REFUSED ? "7"
							 : "1");
		/* A row is found, and hides no flag of Megatron's. */
		ck_assert_msg(mft_foreign_find(f->name, len, word) == f, "%s is hidden", f->name);
		ck_assert_msg(f->values || mft_flag_of_spelling(f->name, len, &on) == SIZE_MAX,
			      "%s is Megatron's, too", f->name);
		ck_assert((f->use == MFT_FOREIGN_BECOMES) == !!f->becomes);
		ck_assert((f->use == MFT_FOREIGN_REFUSED) == !!f->say);
		if (strstr(f->name, "method"))
			snprintf(word, sizeof(word), "uniform");
		if (strstr(f->name, "granularity"))
			snprintf(word, sizeof(word), "selective");
		snprintf(line, sizeof(line), SMALL "--swiglu --hidden-size 64 --dry-run %.*s %s",
			 (int)len, f->name, f->words == '0' ? "" : word);
		if (f->use == MFT_FOREIGN_REFUSED)
			fails(line, -ENOTSUP, f->say);
		else if (!strstr(line, "offset"))
			notes(line, f->use == MFT_FOREIGN_BECOMES ? "is taken as" : f->whose);
		if (f->words == '1' && !f->values && f->use != MFT_FOREIGN_REFUSED) {
			snprintf(line, sizeof(line), SMALL "%s", f->name);
			fails(line, -EINVAL, "expected one value, found 0");
		}
	}
}
END_TEST

/* Numbers of layers in 8 bits of six, and of one of MTP after them; a bit each. */
static unsigned eight_bit_layers(const char *line)
{
	struct mft_train_config c;
	unsigned layers = 0;

	read_ok(line, &c);
	for (int i = 0; i < 7; i++)
		layers |= mft_layer_has_eight_bits(&c, i) ? 1u << i : 0;
	mft_train_config_release(&c);
	return layers;
}

START_TEST(first_and_last_layers_stay_as_they_are)
{
#define EIGHT SMALL "--num-layers 6 --bf16 --fp8-format hybrid --fp8-recipe "
	ck_assert_uint_eq(eight_bit_layers(SMALL "--num-layers 6 --bf16"), 0);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "blockwise"), 0);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "delayed"), 0x7f);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "tensorwise"), 0x7f);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "tensorwise --num-layers-at-start-in-bf16 2"),
			  0x7f);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "tensorwise --first-last-layers-bf16"), 0x5e);
	ck_assert_uint_eq(eight_bit_layers(EIGHT "tensorwise --first-last-layers-bf16 "
						 "--num-layers-at-start-in-bf16 2 "
						 "--num-layers-at-end-in-bf16 0"),
			  0x7c);
#undef EIGHT
}
END_TEST

START_TEST(flags_of_other_programs_are_taken_or_told)
{
	struct mft_train_config c;

	notes(SMALL "--use-mpi --DDP-impl local", "--use-mpi (LLM-jp, Swallow), --DDP-impl (");
	notes(SMALL "--sliding-window 9",
	      "--sliding-window (Pai-Megatron-Patch) is taken as --window-size 8,0");
	notes(SMALL "--fp8-hybrid --fp8-recipe blockwise --bf16",
	      "--fp8-format hybrid: products are computed in bf16");
	notes(SMALL "--fp8-format e4m3 --fp16", "--fp8-format e4m3: products are computed in fp16");
	notes(SMALL "--fp8-format e4m3 --fp8-recipe tensorwise",
	      "not in 8 bits: with --bf16 and --fp8-recipe tensorwise or delayed they are");
	notes(SMALL "--fp8-format e4m3 --fp8-recipe tensorwise --bf16 --no-fp8-wgrad",
	      "--no-fp8-wgrad: gradients of weights are computed in bf16");
	same(SMALL "--sliding-window 9", SMALL "--window-size 8,0");
	same(SMALL "--normalization rmsnorm", SMALL "--normalization RMSNorm");
	same(SMALL "--lr-wsd-decay-style 1-sqrt", SMALL "--lr-wsd-decay-style minus_sqrt");
	same(SMALL "--attention-head-type multiquery",
	     SMALL "--group-query-attention --num-query-groups 1");
	same(SMALL "--checkpoint-activations --checkpoint-num-layers 2",
	     SMALL "--recompute-granularity full --recompute-method uniform "
		   "--recompute-num-layers 2");
	same(SMALL "--checkpoint-num-layers=2 --checkpoint-activations",
	     SMALL "--recompute-granularity full --recompute-method uniform "
		   "--recompute-num-layers 2");
	/* Of two the later one counts. */
	same(SMALL "--min-scale 2 --min-loss-scale 3", SMALL "--min-loss-scale 3");
	same(SMALL "--min-loss-scale 3 --min-scale 2", SMALL "--min-loss-scale 2");
	fails(SMALL "--min-scale x", -EINVAL, "--min-scale: expected a number, found 'x'");
	fails(SMALL "--use-mpi 1", -EINVAL, "expected a flag, found '1'");
	fails(SMALL "--use-mpi=1", -EINVAL, "--use-mpi (LLM-jp, Swallow): takes no value");
	fails(SMALL "--use_z_loss", -ENOTSUP, "--use_z_loss (LLM-jp) is not supported; leave it");
	fails(SMALL "--norm-init-weight 0.5", -ENOTSUP, "norms begin at 1");
	fails(SMALL "--dataset JSON-SFT", -ENOTSUP, "--dataset (Pai-Megatron-Patch) is not");
	fails(SMALL "--fp8-param-gather", -EINVAL, "expected --fp8-format with it");
	fails(SMALL "--fp8-format hybrid --fp8-param-gather", -EINVAL,
	      "--use-distributed-optimizer");
	fails(SMALL "--fp8-format hybrid --first-last-layers-bf16", -EINVAL, "than delayed");
	fails(SMALL "--fp8-format hybrid --recompute-granularity selective "
		    "--recompute-modules core_attn layernorm",
	      -EINVAL, "--recompute-modules layernorm: expected another --fp8-recipe than delayed");
	fails(SMALL "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather "
		    "--use-distributed-optimizer --optimizer-cpu-offload "
		    "--use-precision-aware-optimizer",
	      -EINVAL, "expected --fp8-recipe delayed with them, found tensorwise");
	fails(SMALL "--fp8-format hybrid --fp8-output-proj", -EINVAL, "mxfp8 with it");
	fails(SMALL "--fp8-format hybrid --fp8-recipe custom", -ENODATA, "--fp8-quantizer-factory");
	fails(SMALL "--num-layers 4 --fp8-format hybrid --fp8-recipe tensorwise --bf16 "
		    "--pipeline-model-parallel-size 2 --first-last-layers-bf16 "
		    "--num-layers-at-end-in-bf16 3",
	      -EINVAL, "--num-layers-at-end-in-bf16: expected 0 to 2, found 3");
	fails(SMALL "--fp8-format hybrid --fp8-recipe mxfp8", -ENOTSUP,
	      "--fp8-recipe mxfp8 is not supported: it needs a GPU of compute capability 10.0");
	fails(SMALL "--fp8-format hybrid --bf16 --fp8-amax-history-len 0", -EINVAL, "1 to 65536");
	fails(SMALL "--fp8-format hybrid --bf16 --fp8-margin 65", -EINVAL, "-64 to 64, found 65");
	fails(SMALL "--fp4-format e2m1", -ENOTSUP, "--fp4-format e2m1 is not supported");
	/* Rows of the embedding as Pai counts them, and equal shares of them. */
	read_ok(SMALL "--dry-run --extra-vocab-size 27 --tensor-model-parallel-size 2", &c);
	ck_assert_int_eq(mft_flag_number(c.values, "padded_vocab_size", 0), 128);
	mft_train_config_release(&c);
	/* Llama's MLP. */
	read_ok(SMALL "--dry-run --hidden-size 4096 --swiglu --multiple-of 256", &c);
	ck_assert_int_eq(mft_flag_number(c.values, "ffn_hidden_size", 0), 11008);
	mft_train_config_release(&c);
	read_ok(SMALL "--dry-run --hidden-size 8192 --swiglu --multiple-of 4096 "
		      "--hidden-dim-multiplier 1.3",
		&c);
	ck_assert_int_eq(mft_flag_number(c.values, "ffn_hidden_size", 0), 28672);
	mft_train_config_release(&c);
	/* Words of CUDA graphs that are no modules any longer. */
	read_ok(SMALL "--cuda-graph-scope full_iteration --cuda-graph-modules attn "
		      "full_iteration_inference",
		&c);
	ck_assert_uint_eq(mft_flag_get(c.values, "cuda_graph_modules")->count, 1);
	mft_train_config_release(&c);
	fails(SMALL "--cuda-graph-modules all", -EINVAL, "a member of CudaGraphModule");
}
END_TEST

#define STAGES "--dry-run --pipeline-model-parallel-size 2 --num-layers 8 "
#define CHUNKS STAGES "--num-virtual-stages-per-pipeline-rank 2 "

START_TEST(pipelines_have_chunks_and_groups_that_fit)
{
	struct mft_train_config c;

	read_ok(SMALL STAGES "--num-layers-per-virtual-pipeline-stage 2 --global-batch-size 4", &c);
	ck_assert_int_eq(c.model.virtual_pipeline_model_parallel_size, 2);
	mft_train_config_release(&c);
	read_ok(SMALL CHUNKS "--global-batch-size 5 --decoder-first-pipeline-num-layers 2 "
			     "--microbatch-group-size-per-virtual-pipeline-stage 3",
		&c);
	ck_assert_int_eq(c.model.virtual_pipeline_model_parallel_size, 2);
	ck_assert_int_eq(c.model.first_stage_layers, 2);
	ck_assert_int_eq(c.microbatch_group_size, 3);
	mft_train_config_release(&c);
	read_ok(SMALL STAGES "--num-virtual-stages-per-pipeline-rank 1 --global-batch-size 3", &c);
	ck_assert_int_eq(c.model.virtual_pipeline_model_parallel_size, 1);
	mft_train_config_release(&c);

	fails(SMALL STAGES "--num-layers-per-virtual-pipeline-stage 3", -EINVAL,
	      "a divisor of the layers of a stage, 8 by 2; found 3");
	fails(SMALL STAGES "--num-layers-per-virtual-pipeline-stage 2 "
			   "--decoder-last-pipeline-num-layers 2",
	      -EINVAL, "exclude each other; use --num-virtual-stages-per-pipeline-rank");
	fails(SMALL CHUNKS "--num-layers-per-virtual-pipeline-stage 2", -EINVAL, "exclude each");
	fails(SMALL "--num-virtual-stages-per-pipeline-rank 2", -EINVAL,
	      "--num-virtual-stages-per-pipeline-rank: expected --pipeline-model-parallel-size");
	fails(SMALL CHUNKS "--account-for-loss-in-pipeline-split", -EINVAL,
	      "can be divided among 4 model chunks; found 9");
	fails(SMALL STAGES "--account-for-embedding-in-pipeline-split "
			   "--decoder-first-pipeline-num-layers 3",
	      -EINVAL, "exclude each other");
	fails(SMALL CHUNKS "--global-batch-size 1", -EINVAL,
	      "expected 2, the number of stages, to 1, the microbatches of --global-batch-size");
	fails(SMALL CHUNKS "--global-batch-size 3", -EINVAL, "last group of 2 has 2");
	fails(SMALL CHUNKS "--global-batch-size 4 --eval-global-batch-size 3", -EINVAL,
	      "--eval-global-batch-size: expected microbatches");
}
END_TEST

/* Layers of each model chunk; a space ends the list. */
static void divides(const char *line, const char *want)
{
	char got[256] = "", *at = got;
	struct mft_train_config c;

	read_ok(line, &c);
	ck_assert_ptr_nonnull(c.chunk_layers);
	for (int64_t i = 0; i < c.model.pipeline_model_parallel_size *
					c.model.virtual_pipeline_model_parallel_size;
	     i++)
		at += sprintf(at, "%u ", c.chunk_layers[i]);
	ck_assert_str_eq(got, want);
	mft_train_config_release(&c);
}

/* A HybridModel whose pattern is a GPTModel's: flags count sublayers, the model blocks. */
START_TEST(patterns_of_blocks)
{
	struct mft_train_config c;

	read_ok(SMALL "--hybrid-layer-pattern *-*E/*E --num-experts 4 --spec "
		      "megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec",
		&c);
	ck_assert(c.model.hybrid_form && !c.is_hybrid_model && c.model.num_layers == 2);
	ck_assert_int_eq(c.model.mtp_num_layers, 1);
	ck_assert_mem_eq(c.model.moe_layers, "\0\1", 2);
	ck_assert_int_eq(mft_flag_number(c.values, "num_layers", 0), 4);
	mft_train_config_release(&c);
	read_ok(SMALL "--hybrid-override-pattern +-+- --is-hybrid-model", &c);
	ck_assert(c.model.multi_latent_attention && c.is_hybrid_model);
	ck_assert(mft_flag_is_none(c.values, "hybrid_override_pattern"));
	mft_train_config_release(&c);
	divides(SMALL STAGES "--hybrid-layer-pattern *-*-|*-", "2 1 ");
	divides(SMALL STAGES "--global-batch-size 8 --hybrid-layer-pattern *-|*-*-|*-|*-",
		"1 2 1 1 ");
	fails(SMALL "--hybrid-layer-pattern M-*-", -ENOTSUP, "take turns");
	fails(SMALL "--hybrid-layer-pattern *-x-", -EINVAL, "expected letters of");
	fails(SMALL "--hybrid-layer-pattern *E*E", -EINVAL, "num_experts");
	fails(SMALL STAGES "--hybrid-layer-pattern *-*|-*-", -ENOTSUP, "between attention and");
	fails(SMALL STAGES "--hybrid-layer-pattern *-*-*-", -ENOTSUP, "between attention and");
	fails(SMALL STAGES "--hybrid-layer-pattern *-|*-|*-", -EINVAL, "a multiple of");
	fails(SMALL STAGES "--hybrid-layer-pattern *-||*-|*-", -EINVAL, "none in part 1");
	fails(SMALL STAGES "--hybrid-layer-pattern *-*- --num-virtual-stages-per-pipeline-rank 2",
	      -EINVAL, "use | in the pattern");
	fails(SMALL STAGES "--hybrid-layer-pattern *-|*- --decoder-first-pipeline-num-layers 2",
	      -EINVAL, "exclude each other");
	fails(SMALL "--hybrid-layer-pattern *- --hybrid-override-pattern *-", -EINVAL,
	      "exclude each other");
	fails(SMALL "--hybrid-layer-pattern *- --spec my.layers spec", -ENOTSUP, "--spec is not");
	fails(SMALL "--is-hybrid-model", -EINVAL, "needs --hybrid-layer-pattern");
}
END_TEST

#define TURNS STAGES "--num-virtual-stages-per-pipeline-rank 2 "

/* Model chunks take turns with the microbatches of the steps that there are, and of evaluations
 * that there are; the argument --global-batch-size is one microbatch, as Megatron leaves it. */
START_TEST(batch_steps_of_chunks)
{
	struct mft_train_config c;

	read_ok(SMALL TURNS "--step-batch-size-schedule 0:4,160:6 --eval-global-batch-size 2", &c);
	ck_assert_int_eq(c.global_batch_size, 1);
	mft_train_config_release(&c);
	read_ok(SMALL TURNS "--step-batch-size-schedule 0:4,160:6 --eval-iters 0", &c);
	mft_train_config_release(&c);
	fails(SMALL TURNS "--step-batch-size-schedule 0:4,160:1 --eval-iters 0", -EINVAL,
	      "to 1, the microbatches of --step-batch-size-schedule; found 2");
	fails(SMALL TURNS "--step-batch-size-schedule 0:4", -EINVAL,
	      "to 1, the microbatches of --eval-global-batch-size; found 2");
}
END_TEST

#define LAYOUT	    "--global-batch-size 4 --pipeline-model-parallel-layout "
#define ONE_E_ONE_L "expected one E, at the beginning, and one L, at the end"

START_TEST(pipeline_layouts)
{
	divides(SMALL STAGES LAYOUT "Et*3|tt|t,t|tL", "3 2 2 1 ");
	divides(SMALL STAGES LAYOUT "E|(tt|)*4L", "0 2 2 2 2 0 ");
	divides(SMALL STAGES LAYOUT "Et*5|tttL", "5 3 ");
	divides(SMALL STAGES LAYOUT "E(t|t)*3ttL", "1 2 2 3 ");
	divides(SMALL STAGES LAYOUT "Et*8||t*0|L", "8 0 0 0 ");
	divides(SMALL CHUNKS "--global-batch-size 4 --num-layers 10 "
			     "--account-for-embedding-in-pipeline-split "
			     "--account-for-loss-in-pipeline-split",
		"2 3 3 2 ");
	divides(SMALL STAGES "--global-batch-size 4 --num-layers 7 "
			     "--num-layers-per-virtual-pipeline-stage 1 "
			     "--account-for-loss-in-pipeline-split",
		"1 1 1 1 1 1 1 0 ");

	fails(SMALL STAGES LAYOUT "Et*8|L|", -EINVAL, ONE_E_ONE_L);
	fails(SMALL STAGES LAYOUT "|Et*8L", -EINVAL, ONE_E_ONE_L);
	fails(SMALL STAGES LAYOUT "Et*4E|t*4L", -EINVAL, ONE_E_ONE_L);
	fails(SMALL STAGES LAYOUT "L*2", -EINVAL, ONE_E_ONE_L);
	fails(SMALL STAGES LAYOUT "Et*4|t*3L", -EINVAL, "expected --num-layers 8 times t, found 7");
	fails(SMALL STAGES LAYOUT "Et*4|t*3|tL", -EINVAL, "2 model chunks, found 3");
	fails(SMALL STAGES LAYOUT "Et*4|t*4mL", -EINVAL, "expected 0 m, as many as");
	fails(SMALL STAGES LAYOUT "Et*4|t*4L --mtp-num-layers 1", -EINVAL, "expected 1 m");
	fails(SMALL STAGES LAYOUT "Et*4m|t*4L --mtp-num-layers 1", -EINVAL, "before L");
	fails(SMALL STAGES LAYOUT "E(t*4|t*4L", -EINVAL,
	      "expected E, t, m, L and |, t*3 and (tt|)*3");
	fails(SMALL STAGES LAYOUT "E()*2t*4|t*4L", -EINVAL, "t*3 and (tt|)*3");
	fails(SMALL STAGES LAYOUT "Et*2*2|t*4L", -EINVAL, "t*3 and (tt|)*3");
	fails(SMALL STAGES LAYOUT "Et*99999999999999999999|L", -EINVAL, "expected fewer layers");
	fails(SMALL STAGES LAYOUT "E(t*999999|)*9999|L", -EINVAL, "expected fewer layers");
	fails(SMALL STAGES LAYOUT "Et*8|L --num-virtual-stages-per-pipeline-rank 1", -EINVAL,
	      "exclude each other");
	fails(SMALL STAGES LAYOUT "Et*8|L --account-for-loss-in-pipeline-split", -EINVAL,
	      "exclude each other");
	fails(SMALL "--pipeline-model-parallel-layout Et|tL", -EINVAL,
	      "--pipeline-model-parallel-layout: expected --pipeline-model-parallel-size of 2");
	fails(SMALL "--dry-run --pipeline-model-parallel-size 3 --num-layers 8 " LAYOUT
		    "Et*4||t*4L",
	      -EINVAL, "stage 1 has no layers");
}
END_TEST

#define LEVELS "--dry-run --context-parallel-size 4 --cp-comm-type a2a+p2p "

/* Neighbours that exchange heads, and rings of them: arguments.py: validate_args. */
START_TEST(context_levels)
{
	struct mft_train_config c;

	read_ok(SMALL LEVELS "--hierarchical-context-parallel-sizes 2 2", &c);
	ck_assert_int_eq(c.context_neighbours, 2);
	mft_train_config_release(&c);
	/* No layer asks for them. */
	read_ok(SMALL "--dry-run --context-parallel-size 8 "
		      "--hierarchical-context-parallel-sizes 2 2 2",
		&c);
	ck_assert_int_eq(c.context_neighbours, 0);
	mft_train_config_release(&c);

	fails(SMALL LEVELS, -EINVAL,
	      "--cp-comm-type a2a+p2p: expected --hierarchical-context-parallel-sizes with it");
	fails(SMALL LEVELS "--hierarchical-context-parallel-sizes 2 3", -EINVAL,
	      "positive numbers whose product is --context-parallel-size 4");
	fails(SMALL LEVELS "--hierarchical-context-parallel-sizes -2 -2", -EINVAL,
	      "positive numbers whose product is --context-parallel-size 4");
	fails(SMALL LEVELS "--hierarchical-context-parallel-sizes 4 4294967296 4294967296", -EINVAL,
	      "positive numbers whose product is --context-parallel-size 4");
	fails(SMALL LEVELS "--hierarchical-context-parallel-sizes 2 2 1", -EINVAL,
	      "expected two of --hierarchical-context-parallel-sizes, found 3");
	fails(SMALL "--hierarchical-context-parallel-sizes 2 1", -EINVAL,
	      "positive numbers whose product is --context-parallel-size 1");
	fails(SMALL "--dry-run --context-parallel-size 4 --cp-comm-type a2a+a2a", -ENOTSUP,
	      "--cp-comm-type a2a+a2a is not supported; use p2p, all_gather, a2a or a2a+p2p");
}
END_TEST

START_TEST(what_changes_results_is_refused)
{
	struct mft_train_config c;

	/* A plan is of memory and time, which fill-in-the-middle does not change. */
	fails(SMALL "--data-path a --fim-data", -ENOTSUP,
	      "--fim-data: it cuts documents between characters and tokenizes the pieces again");
	read_ok(SMALL "--data-path a --fim-data --dry-run", &c);
	mft_train_config_release(&c);
	read_ok(SMALL "--mock-data --fim-data", &c); /* Megatron takes its mock data then */
	mft_train_config_release(&c);
	fails(SMALL "--expert-tensor-parallel-size 2 --num-experts 4 --disable-bias-linear",
	      -EINVAL, "1 processes: expected a multiple of --expert-tensor-parallel-size 2");
	fails(SMALL "--num-attention-heads 12 --kv-channels 8 --group-query-attention "
		    "--num-query-groups 4 --tensor-model-parallel-size 6",
	      -EINVAL, "expected a multiple or divisor of --tensor-model-parallel-size 6, found 4");
	fails(SMALL "--optimizer soap", -ENOTSUP,
	      "--optimizer soap is not supported; use adam or muon");
	fails(SMALL "--qk-clip --use-distributed-optimizer", -ENOTSUP,
	      "--qk-clip and --use-distributed-optimizer exclude each other");
	fails(SMALL "--qk-clip --qk-clip-alpha 1", -EINVAL,
	      "--qk-clip-alpha: expected a number between 0 and 1, found 1");
	fails(SMALL "--qk-clip --qk-clip-threshold 0", -EINVAL,
	      "--qk-clip-threshold: expected a number above 0, found 0");
	fails(SMALL "--optimizer muon --fp16", -ENOTSUP,
	      "--fp16: expected --optimizer adam with it, found muon");
	fails(SMALL "--optimizer dist_muon --use-megatron-fsdp", -ENOTSUP,
	      "--use-megatron-fsdp: expected --optimizer adam with it, found muon");
	fails(SMALL "--optimizer dist_muon --ckpt-format torch --context-parallel-size 2", -ENOTSUP,
	      "--ckpt-format torch: expected torch_dist with --optimizer dist_muon and");
	fails(SMALL "--optimizer muon --muon-coefficient-type custom", -ENOTSUP,
	      "--muon-coefficient-type custom is not supported; use simple, quintic");
	fails(SMALL "--optimizer muon --muon-num-ns-steps 0", -EINVAL,
	      "--muon-num-ns-steps: expected 1 to 100, found 0");
	fails(SMALL "--optimizer muon --muon-momentum 2", -EINVAL,
	      "--muon-momentum: expected 0 to 1, found 2");
	fails(SMALL "--optimizer muon --muon-fp32-matmul-prec low", -ENOTSUP,
	      "--muon-fp32-matmul-prec low is not supported; use medium or high");
	/* The distributed optimizer of Muon divides whole parameters. */
	read_ok(SMALL "--optimizer muon --use-distributed-optimizer --overlap-grad-reduce "
		      "--overlap-param-gather --muon-use-nesterov --muon-no-split-qkv",
		&c);
	ck_assert_str_eq(c.optimizer, "dist_muon");
	ck_assert_int_eq(c.sharding, MFT_SHARD_NONE);
	ck_assert(c.muon.nesterov && !c.muon.split_qkv && c.muon.num_ns_steps == 5);
	mft_train_config_release(&c);
	fails(SMALL "--optimizer sgd --use-distributed-optimizer", -ENOTSUP,
	      "--use-distributed-optimizer: expected --optimizer adam with it, found sgd");
	fails(SMALL "--optimizer sgd --use-megatron-fsdp", -ENOTSUP,
	      "--use-megatron-fsdp: expected --optimizer adam with it, found sgd");
	fails(SMALL "--optimizer sgd --use-precision-aware-optimizer --optimizer-cpu-offload",
	      -ENOTSUP, "--use-precision-aware-optimizer: expected --optimizer adam with it");
	fails(SMALL "--optimizer sgd --optimizer-cpu-offload", -ENOTSUP,
	      "--optimizer-cpu-offload: expected --optimizer adam with it, found sgd");
	fails(SMALL "--optimizer sgd --sgd-momentum -1", -EINVAL,
	      "--sgd-momentum: expected 0 or more, found -1");
	fails(SMALL "--ckpt-format torch2", -EINVAL, "--ckpt-format");
	fails(SMALL "--use-mup --mtp-num-layers 1 --position-embedding-type rope", -ENOTSUP,
	      "--use-mup with --mtp-num-layers is not supported");
	fails(SMALL "--exit-signal SIGKILL", -ENOTSUP, "--exit-signal SIGKILL is not");
	fails(SMALL "--exp-avg-dtype fp8 --use-precision-aware-optimizer", -ENOTSUP, "fp8");
	fails(SMALL "--exp-avg-sq-dtype fp16 --use-precision-aware-optimizer", -ENOTSUP,
	      "--exp-avg-sq-dtype fp16 is not supported; use bf16");
	fails(SMALL "--rerun-mode report_stats", -ENOTSUP, "steps are not run again");
	fails(SMALL "--non-persistent-ckpt-type local", -ENOTSUP, "local is not supported; use gl");
	fails(SMALL "--non-persistent-save-interval 5", -ENODATA, "--non-persistent-ckpt-type is");
	fails(SMALL "--position-embedding-type yarn", -ENOTSUP, "yarn is not supported; use rope");
}
END_TEST

START_TEST(refused_of_experts)
{
	fails(SMALL "--num-experts 4 --moe-expert-capacity-factor 0", -EINVAL, "above 0");
	fails(SMALL "--num-experts 4 --moe-expert-capacity-factor -1 "
		    "--moe-pad-expert-input-to-capacity",
	      -EINVAL, "expected --moe-expert-capacity-factor with it");
	fails(SMALL "--moe-router-load-balancing-type quantile_balancing", -ENOTSUP,
	      "use aux_loss");
	fails(SMALL "--num-experts 4 --moe-router-load-balancing-type aux_loss sinkhorn "
		    "--moe-aux-loss-coeff 0.1 0",
	      -EINVAL, "expected sinkhorn alone, found 2 words");
	fails(SMALL "--num-experts 4 --moe-router-load-balancing-type sinkhorn "
		    "--moe-aux-loss-coeff 0.1",
	      -EINVAL, "Sinkhorn routing does not support aux loss");
	fails(SMALL "--num-experts 4 --moe-shared-expert-overlap", -EINVAL,
	      "--moe-token-dispatcher-type alltoall or flex with it, found allgather");
	fails(SMALL "--dry-run --num-experts 4 --tensor-model-parallel-size 2", -EINVAL,
	      "Bias in Moe is only supported when ETP==1");
	fails(SMALL "--num-experts 4 --moe-shared-expert-intermediate-size 8", -EINVAL,
	      "bias is not supported in the shared experts");
	fails(SMALL "--num-experts 4 --moe-router-load-balancing-type aux_loss global_aux_loss "
		    "--moe-aux-loss-coeff 0.1",
	      -EINVAL, "--moe-router-load-balancing-type has words, 2, found 1");
}
END_TEST

START_TEST(refused_sharding)
{
	fails(SMALL "--overlap-param-gather", -EINVAL, "expected --use-distributed-optimizer with");
	fails(SMALL "--overlap-param-gather --use-distributed-optimizer", -EINVAL,
	      "expected --overlap-grad-reduce with it");
	fails(SMALL "--num-distributed-optimizer-instances 2", -EINVAL,
	      "--num-distributed-optimizer-instances 2: expected --use-distributed-optimizer");
	fails(SMALL "--num-distributed-optimizer-instances 0", -EINVAL, "a positive number");
	fails(SMALL "--num-distributed-optimizer-instances 2 --use-megatron-fsdp", -ENOTSUP,
	      "-instances 2 is not supported with --use-megatron-fsdp; use 1");
	fails(SMALL "--num-distributed-optimizer-instances 2 --use-distributed-optimizer", -EINVAL,
	      "a divisor of the 1 processes that have the same parameters, found 2");
	fails(SMALL "--num-distributed-optimizer-instances 2 --use-distributed-optimizer --dry-run "
		    "--num-experts 4 --expert-model-parallel-size 4 --gpus 4",
	      -EINVAL, "a divisor of the 1 processes that have the same experts, found 2");
	fails(SMALL "--num-distributed-optimizer-instances 2 --use-distributed-optimizer "
		    "--ddp-reduce-scatter-with-fp32-accumulation",
	      -EINVAL, "exclude each other");
	fails(SMALL "--use-torch-fsdp2 --use-megatron-fsdp", -EINVAL, "exclude each other");
	fails(SMALL "--use-torch-fsdp2 --use-distributed-optimizer", -EINVAL, "exclude each");
	fails(SMALL "--use-torch-fsdp2 --expert-model-parallel-size 2 --num-experts 4 --dry-run",
	      -EINVAL, "--use-torch-fsdp2: expected --expert-model-parallel-size 1, found 2");
	fails(SMALL "--use-megatron-fsdp --megatron-fsdp-version 2", -ENOTSUP, "use 1");
	fails(SMALL "--use-megatron-fsdp --outer-dp-sharding-strategy optim", -ENOTSUP,
	      "--outer-dp-sharding-strategy optim is not supported; use no_shard");
	fails(SMALL "--use-megatron-fsdp --enable-full-sharding-in-hsdp", -ENOTSUP,
	      "--enable-full-sharding-in-hsdp is not supported; leave it out");
	fails(SMALL "--bf16 --grad-reduce-in-bf16 --ddp-reduce-scatter-with-fp32-accumulation",
	      -ENOTSUP, "expected fp32 gradients");
	fails(SMALL "--use-megatron-fsdp --bf16 --megatron-fsdp-main-grads-dtype bf16 "
		    "--ddp-reduce-scatter-with-fp32-accumulation",
	      -ENOTSUP, "expected fp32 gradients");
	fails(SMALL "--use-megatron-fsdp --bf16 --megatron-fsdp-main-params-dtype auto", -ENOTSUP,
	      "only fp32 is supported");
	fails(SMALL "--use-megatron-fsdp --bf16 --megatron-fsdp-main-grads-dtype fp16", -ENOTSUP,
	      "expected fp32 or the parameters' type");
	fails(SMALL "--use-megatron-fsdp --bf16 --megatron-fsdp-grad-comm-dtype bf16", -ENOTSUP,
	      "expected auto or the type of the main gradients");
	fails(SMALL "--ddp-bucket-size 0", -EINVAL, "expected a positive number");
	fails(SMALL "--ddp-bucket-size 1 --ddp-num-buckets 2", -EINVAL, "exclude each other");
}
END_TEST

/* Who divides what: arguments.py: validate_args. */
START_TEST(sharding_follows_optimizer_and_fsdp)
{
	static const struct {
		const char *line;
		enum mft_sharding divided;
		enum mfs_dtype grads;
	} cases[] = {
		{"--bf16", MFT_SHARD_NONE, MFS_F32},
		{"--bf16 --use-distributed-optimizer", MFT_SHARD_STATE, MFS_F32},
		/* It says nothing by itself. */
		{"--bf16 --data-parallel-sharding-strategy optim_grads", MFT_SHARD_NONE, MFS_F32},
		{"--bf16 --use-megatron-fsdp", MFT_SHARD_WEIGHTS, MFS_F32},
		{"--use-megatron-fsdp --data-parallel-sharding-strategy no_shard", MFT_SHARD_NONE,
		 MFS_F32},
		{"--use-megatron-fsdp --data-parallel-sharding-strategy optim", MFT_SHARD_STATE,
		 MFS_F32},
		{"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
		 MFT_SHARD_GRADS, MFS_F32},
		{"--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype bf16 "
		 "--megatron-fsdp-grad-comm-dtype bf16",
		 MFT_SHARD_WEIGHTS, MFS_BF16},
		/* It has Megatron's distributed optimizer. */
		{"--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather",
		 MFT_SHARD_WEIGHTS, MFS_F32},
		{"--use-torch-fsdp2", MFT_SHARD_WEIGHTS, MFS_F32},
		{"--use-torch-fsdp2 --fp16", MFT_SHARD_WEIGHTS, MFS_F16},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		struct mft_train_config c;
		char line[512];

		snprintf(line, sizeof(line), SMALL "%s", cases[i].line);
		read_ok(line, &c);
		ck_assert_msg(c.sharding == cases[i].divided &&
				      c.main_grads_dtype == cases[i].grads,
			      "%s: divides %d, gradients %d", cases[i].line, c.sharding,
			      c.main_grads_dtype);
		mft_train_config_release(&c);
	}
}
END_TEST

/* A plan is of as many processes as instances need, of experts, too. */
START_TEST(instances_divide_the_processes)
{
	struct mft_train_config c;

	read_ok(SMALL "--num-distributed-optimizer-instances 2 --use-distributed-optimizer "
		      "--dry-run --context-parallel-size 2",
		&c);
	ck_assert_int_eq(c.num_distributed_optimizer_instances, 2);
	ck_assert_int_eq(c.data_parallel_size, 1);
	mft_train_config_release(&c);
	read_ok(SMALL "--num-distributed-optimizer-instances 2 --use-distributed-optimizer "
		      "--dry-run --num-experts 4 --expert-model-parallel-size 4 "
		      "--disable-bias-linear --global-batch-size 16",
		&c);
	ck_assert_int_eq(c.data_parallel_size, 8);
	mft_train_config_release(&c);
}
END_TEST

/* What is the default, or means the same, is no reason to refuse. */
/* --ckpt-format, together with flags that public scripts give. */
START_TEST(each_format_of_checkpoints_is_accepted)
{
	static const char *const all[] = {"torch", "torch_dist", "torch_dcp", "fsdp_dtensor",
					  "zarr"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		const bool torch = !i, given = i > 1;
		struct mft_train_config c;
		struct mfs_buf notes = {0};
		char line[600];

		snprintf(line, sizeof(line),
			 SMALL "--ckpt-format %s --save /x --save-interval 5 --no-save-optim "
			       "--no-save-rng --use-dist-ckpt --dist-ckpt-format torch_dist "
			       "--auto-detect-ckpt-format --async-save --decoupled-lr 1e-3 "
			       "--use-distributed-optimizer --overlap-grad-reduce "
			       "--overlap-param-gather --ckpt-fully-parallel-load",
			 all[i]);
		read_ok(line, &c);
		ck_assert_int_eq(c.saves_torch, torch);
		ck_assert_str_eq(mft_flag_text(c.values, "ckpt_format"),
				 torch ? "torch" : "torch_dist");
		ck_assert_int_eq(mft_flag_truth(c.values, "use_dist_ckpt"), !torch);
		mft_help_notes(&c, &notes);
		mfs_buf_add(&notes, "", 1);
		snprintf(line, sizeof(line), "--ckpt-format %s: saves are torch_dist; ", all[i]);
		ck_assert_int_eq(strstr(notes.data, line) != NULL, given);
		mfs_buf_release(&notes);
		mft_train_config_release(&c);
	}
}
END_TEST

START_TEST(a_default_that_is_spelt_out_is_no_reason_to_refuse)
{
	struct mft_train_config c;
	struct mfs_buf unused = {0};

	read_ok(SMALL
		"--tensor-model-parallel-size 1 --expert-tensor-parallel-size 1 "
		"--glu-linear-offset 0 --softmax-type vanilla --num-experts 0 "
		"--mtp-num-layers 0 --ddp-average-in-collective --no-rope-fusion --cp-comm-type "
		"p2p --outer-dp-sharding-strategy no_shard "
		"--ddp-reduce-scatter-with-fp32-accumulation",
		&c);
	ck_assert_int_eq(c.model.num_experts, MFS_ABSENT);
	mft_flags_unused(c.values, &unused);
	ck_assert_str_eq(unused.data, "--no-rope-fusion, --ddp-average-in-collective");
	mfs_buf_release(&unused);
	mft_train_config_release(&c);
}
END_TEST

/* ---- checkpoints ---- */

/* extra: NULL: a run that has not begun. */
static struct mfs_pickle *pickled(const struct mft_train_config *c,
				  const struct mft_namespace_extra *extra, struct mfs_buf *bytes)
{
	struct mfs_pickle_writer w;
	struct mfs_pickle *doc;

	mfs_pickle_begin(&w, bytes, 2);
	ck_assert_int_eq(mft_train_namespace_write(&w, c, extra), 0);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_pickle_parse(bytes->data, bytes->len, "args", NULL, &doc, &err), &err);
	return doc;
}

START_TEST(the_namespace_of_a_save_has_the_arguments)
{
	const struct mft_namespace_extra x = {20, 160, 8, 0, 7, INT64_MAX};
	struct mft_train_config c;
	struct mfs_buf bytes = {0};
	struct mfs_pickle *doc;
	mfs_value root, v;
	int64_t number;
	double real;
	bool truth;

	read_ok(SMALL "--bf16 --lr 1 --swiglu --ffn-hidden-size 64 --data-path 0.5 a 0.5 b "
		      "--moe-layer-freq [0,1] "
		      "--num-experts 2",
		&c);
	doc = pickled(&c, &x, &bytes);
	root = mfs_pickle_root(doc);
	ck_assert(mfs_value_is_object_of(doc, root, "Namespace"));
	for (size_t i = 0; i < mft_flag_count(); i++)
		ck_assert_msg(mfs_value_has(doc, mfs_value_state(doc, root),
					    mft_flag_at(i)->dest) == !mft_flag_at(i)->gone,
			      "%s", mft_flag_at(i)->dest);
	ck_assert(mfs_value_is_global(doc, mfs_value_attr(doc, root, "params_dtype"), "torch",
				      "bfloat16"));
	ck_assert(mfs_value_is_none(doc, mfs_value_attr(doc, root, "vocab_file")));
	ck_assert(mfs_value_bool(doc, mfs_value_attr(doc, root, "swiglu"), &truth) && truth);
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, root, "num_layers"), &number));
	ck_assert_int_eq(number, 2);
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, root, "sft_samples"), &number));
	ck_assert_int_eq(number, 7);
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, root, "sft_order"), &number));
	ck_assert_int_eq(number, INT64_MAX);
	/* --lr 1 is a float in Python. */
	v = mfs_value_attr(doc, root, "lr");
	ck_assert_int_eq(mfs_value_type(doc, v), MFS_V_FLOAT);
	ck_assert(mfs_value_float(doc, v, &real) && real == 1);
	ck_assert_uint_eq(mfs_value_count(doc, mfs_value_attr(doc, root, "data_path")), 4);
	ck_assert_uint_eq(mfs_value_count(doc, mfs_value_attr(doc, root, "moe_layer_freq")), 2);
	v = mfs_value_attr(doc, root, "attention_backend");
	ck_assert(mfs_value_is_global(doc, mfs_value_callable(doc, v),
				      "megatron.core.transformer.enums", "AttnBackend"));
	ck_assert(mfs_value_int(doc, mfs_value_at(doc, mfs_value_args(doc, v), 0), &number));
	ck_assert_int_eq(number, 5);
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, root, "consumed_train_samples"), &number));
	ck_assert_int_eq(number, 160);
	ck_assert(mfs_value_int(doc, mfs_value_attr(doc, root, "curr_iteration"), &number));
	ck_assert_int_eq(number, 19);
	mfs_pickle_free(doc);
	mfs_buf_release(&bytes);
	mft_train_config_release(&c);
}
END_TEST

/* ---- what is saved reads as what was trained ---- */

static void check_same_value(const struct mfs_args_source *given, struct mfs_arg a,
			     const struct mfs_args_source *saved, struct mfs_arg b,
			     const char *dest)
{
	ck_assert_msg(a.type == b.type && a.count == b.count, "%s", dest);
	if (a.type == MFS_ARG_BOOL)
		ck_assert_msg(a.truth == b.truth, "%s", dest);
	else if (a.type == MFS_ARG_INT)
		ck_assert_msg(a.number == b.number, "%s", dest);
	else if (a.type == MFS_ARG_REAL)
		ck_assert_msg(a.real == b.real, "%s", dest);
	else if (a.type != MFS_ARG_NONE)
		ck_assert_msg(a.len == b.len &&
				      !memcmp(a.text ? a.text : "", b.text ? b.text : "", a.len),
			      "%s", dest);
	for (uint32_t i = 0; i < a.count; i++)
		check_same_value(given, mfs_args_item(given, a, i), saved,
				 mfs_args_item(saved, b, i), dest);
}

static void check_same_member(const struct mfs_args_field *f, const struct mfs_megatron_args *a,
			      const struct mfs_megatron_args *b)
{
	const void *x = mfs_args_at(a, f), *y = mfs_args_at(b, f);
	bool same = true;

	switch (f->type) {
	case MFS_ARGS_INT:
		same = *(const int64_t *)x == *(const int64_t *)y;
		break;
	case MFS_ARGS_REAL:
		same = *(const double *)x == *(const double *)y;
		break;
	case MFS_ARGS_FLAG:
		same = *(const bool *)x == *(const bool *)y;
		break;
	case MFS_ARGS_TEXT:
		x = *(const char *const *)x;
		y = *(const char *const *)y;
		same = x == y || (x && y && !strcmp(x, y));
		break;
	case MFS_ARGS_LAYERS:
		x = *(const uint8_t *const *)x;
		y = *(const uint8_t *const *)y;
		same = x == y || (x && y && !memcmp(x, y, (size_t)a->num_layers));
		break;
	case MFS_ARGS_TEXTS:
	case MFS_ARGS_PAIR:
	case MFS_ARGS_MUP:
		break;
	}
	ck_assert_msg(same, "%s", f->member);
}

/* A save has what the model was made of: every flag as a source gives it and as it is pickled, and
 * every argument that is read of the one and of the other. */
static void check_saved(const char *line)
{
	struct mfs_megatron_args trained, read;
	struct mfs_args_source given, saved;
	struct mfs_arena arena = {0};
	struct mfs_buf bytes = {0};
	struct mft_train_config c;
	struct mfs_pickle *doc;

	read_ok(line, &c);
	doc = pickled(&c, NULL, &bytes);
	given = mft_args_of_flags(c.values);
	saved = mfs_args_of_pickle(doc, mfs_pickle_root(doc));
	for (size_t i = 0; i < mft_flag_count(); i++) {
		const char *dest = mft_flag_at(i)->dest;

		ck_assert_msg(mfs_args_has(&given, dest) == mfs_args_has(&saved, dest), "%s", dest);
		check_same_value(&given, mfs_args_get(&given, dest), &saved,
				 mfs_args_get(&saved, dest), dest);
	}
	ck_assert(!mfs_args_has(&given, "no_such_argument"));
	unit_ok(mfs_args_read(&given, &arena, &trained, &err), &err);
	unit_ok(mfs_args_read(&saved, &arena, &read, &err), &err);
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++)
		check_same_member(f, &trained, &read);
	ck_assert_int_eq(trained.num_layers, c.model.num_layers);
	ck_assert_int_eq(trained.window_size, c.model.window_size);
	mfs_pickle_free(doc);
	mfs_arena_release(&arena);
	mfs_buf_release(&bytes);
	mft_train_config_release(&c);
}

START_TEST(saved_is_trained)
{
	check_saved(SMALL);
	check_saved(
		SMALL
		"--bf16 --swiglu --ffn-hidden-size 64 --group-query-attention --num-query-groups 1 "
		"--normalization RMSNorm --untie-embeddings-and-output-weights "
		"--position-embedding-type rope --rotary-percent 0.5 --window-size 8,0 "
		"--data-path 0.5 a 0.5 b");
	check_saved(SMALL "--num-experts 4 --moe-layer-freq [0,1] --moe-router-topk 1 "
			  "--moe-router-score-function sigmoid --disable-bias-linear "
			  "--moe-shared-expert-intermediate-size 16 --mtp-num-layers 1");
	check_saved(SMALL "--use-mup --mup-base-hidden-size 4 --squared-relu --qk-layernorm");
}
END_TEST

/* A command line without a model takes that of a checkpoint; what it then writes is read as the
 * same model. */
static void check_adopted(const char *fixture)
{
	const struct mfs_megatron_args *m, *n;
	const char *words[] = {"--use-checkpoint-args",
			       "--micro-batch-size",
			       "2",
			       "--train-iters",
			       "40",
			       "--lr",
			       "1e-3",
			       "--bf16",
			       "--tokenizer-model",
			       "/nowhere"};
	struct mft_adopted from;
	struct mft_train_config c;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_ckpt_open(unit_fixture(fixture), MFS_CKPT_COMMON, &ckpt, &err), &err);
	unit_ok(mft_train_config_parse_words(words, 10, &c, &err), &err);
	ck_assert(c.use_checkpoint_args);
	m = mfs_ckpt_args(ckpt);
	from = (struct mft_adopted){.model = m, .doc = mfs_ckpt_common(ckpt)->archive.doc};
	from.args = mfs_value_get(from.doc, mfs_ckpt_common(ckpt)->root, "args");
	unit_ok(mft_train_config_adopt(&c, &from, &err), &err);
	unit_ok(mft_train_config_settle(&c, &err), &err);
	n = &c.model;
	ck_assert_int_eq(n->num_layers, m->num_layers);
	ck_assert_int_eq(n->hidden_size, m->hidden_size);
	ck_assert_int_eq(n->ffn_hidden_size, m->ffn_hidden_size);
	ck_assert_int_eq(n->num_query_groups, m->num_query_groups);
	ck_assert_int_eq(n->kv_channels, m->kv_channels);
	ck_assert_int_eq(n->seq_length, m->seq_length);
	ck_assert_int_eq(n->max_position_embeddings, m->max_position_embeddings);
	ck_assert_int_eq(n->padded_vocab_size, m->padded_vocab_size);
	ck_assert_int_eq(n->layernorm, m->layernorm);
	ck_assert_int_eq(n->swiglu, m->swiglu);
	ck_assert_int_eq(n->exact_gelu, m->exact_gelu);
	ck_assert_int_eq(n->tied, m->tied);
	ck_assert_int_eq(n->add_qkv_bias, m->add_qkv_bias);
	ck_assert_int_eq(n->qk_layernorm, m->qk_layernorm);
	ck_assert_int_eq(n->num_experts, m->num_experts);
	ck_assert_int_eq(n->multi_latent_attention, m->multi_latent_attention);
	ck_assert_int_eq(n->q_lora_rank, m->q_lora_rank);
	ck_assert_int_eq(n->moe_layer_freq_listed, m->moe_layer_freq_listed);
	ck_assert_int_eq(n->first_dense_layers, m->first_dense_layers);
	ck_assert_double_eq(n->rotary_base, m->rotary_base);
	ck_assert_double_eq(n->norm_epsilon, m->norm_epsilon);
	ck_assert_str_eq(n->position_embedding_type, m->position_embedding_type);
	ck_assert_str_eq(n->rope_type, m->rope_type);
	ck_assert_double_eq(c.attention_dropout, 0);
	ck_assert_int_eq(n->local_spec, true);
	mft_train_config_release(&c);
	mfs_ckpt_free(ckpt);
}

START_TEST(a_checkpoints_arguments_are_adopted)
{
	static const char *const fixtures[] = {
		"weights/llama-torch-tp2-pp2/iter_0000040",
		"weights/gpt2-torch-tp2-pp2/iter_0000040",
		"weights/qwen3-torch_dist-tp4/iter_0000040",
		"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
		"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
		"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(fixtures); i++)
		check_adopted(fixtures[i]);
}
END_TEST

/* Of what was given, on the command line and in YAML, a line says what does not count. */
START_TEST(adopted_over_given)
{
	static const char line[] = "--use-checkpoint-args --micro-batch-size 2 --train-iters 40 "
				   "--lr 1e-3 --seq-length 128 --rotary-base 500000 "
				   "--hidden-dropout 0.3 --num-experts 4 --moe-layer-freq 1 ";
	static const char text[] = "megatron:\n  normalization: LayerNorm\n  swiglu: true\n";
	const char *words[MAX_WORDS];
	char *copy = strdup(line);
	struct mft_adopted from;
	struct mft_train_config c;
	struct mfs_ckpt *ckpt;
	struct mfs_buf out = {0};

	unit_ok(mfs_ckpt_open(unit_fixture("weights/mixtral-torch_dist-pp2-ep2/iter_0000040"),
			      MFS_CKPT_COMMON, &ckpt, &err),
		&err);
	ck_assert_int_eq(mft_train_config_parse_words(words, cut(copy, words), &c, &err), 0);
	free(copy);
	unit_ok(mft_yaml_parse("run.yaml", text, strlen(text), c.values, &c.arena, &err), &err);
	from = (struct mft_adopted){.model = mfs_ckpt_args(ckpt),
				    .doc = mfs_ckpt_common(ckpt)->archive.doc};
	from.args = mfs_value_get(from.doc, mfs_ckpt_common(ckpt)->root, "args");
	unit_ok(mft_train_config_adopt(&c, &from, &err), &err);
	mft_help_notes(&c, &out);
	ck_assert_ptr_nonnull(out.data);
	ck_assert_ptr_nonnull(strstr(out.data, "--rotary-base: 500000 was given, and 1"));
	ck_assert_ptr_nonnull(strstr(out.data, "--hidden-dropout: 0.3 was given, and 0.0 is"));
	ck_assert_ptr_nonnull(strstr(out.data, "--normalization: 'LayerNorm' was given, and 'RMS"));
	/* Those that say what the checkpoint says are no news. */
	ck_assert_ptr_null(strstr(out.data, "swiglu"));
	ck_assert_ptr_null(strstr(out.data, "moe-layer-freq"));
	ck_assert_int_eq(mft_flag_number(c.values, "num_experts", 0) == 4,
			 !strstr(out.data, "--num-experts"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* What a checkpoint says and the trainer cannot compute is refused as on a command line. */
START_TEST(adopted_and_refused)
{
	const char *words[] = {"--use-checkpoint-args",
			       "--micro-batch-size",
			       "2",
			       "--train-iters",
			       "40",
			       "--lr",
			       "1e-3",
			       "--tokenizer-model",
			       "/nowhere"};
	struct mfs_megatron_args args;
	struct mft_adopted from = {.model = &args};
	struct mft_train_config c;
	struct mfs_ckpt *ckpt;
	int r;

	unit_ok(mfs_ckpt_open(unit_fixture("weights/llama-torch-tp2-pp2/iter_0000040"),
			      MFS_CKPT_COMMON, &ckpt, &err),
		&err);
	unit_ok(mft_train_config_parse_words(words, 9, &c, &err), &err);
	args = *mfs_ckpt_args(ckpt);
	args.window_size = 8;
	args.window_layers = (const uint8_t *)"\1\0\1\0";
	from.doc = mfs_ckpt_common(ckpt)->archive.doc;
	from.args = mfs_value_get(from.doc, mfs_ckpt_common(ckpt)->root, "args");
	r = mft_train_config_adopt(&c, &from, &err);
	if (!r)
		r = mft_train_config_settle(&c, &err);
	unit_fails(r, &err, -ENOTSUP, "--window-attn-skip-freq");
	mft_train_config_release(&c);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* transformer_config.py: __post_init__. */
START_TEST(mup_scales_width_output_and_attention)
{
	struct mft_train_config c;

	read_ok(SMALL, &c);
	ck_assert(!c.model.mup.on && c.model.mup.width == 1 && c.model.mup.output == 1);
	mft_train_config_release(&c);
	read_ok(SMALL "--use-mup --mup-base-hidden-size 16 --kv-channels 16", &c);
	ck_assert(c.model.mup.on);
	ck_assert_double_eq(c.model.mup.width, (double)c.model.hidden_size / 16);
	ck_assert_double_eq(c.model.mup.output, 16 / (double)c.model.hidden_size);
	ck_assert_double_eq(c.model.mup.embedding, 1);
	ck_assert_double_eq(c.model.mup.attention, 1.0 / 16);
	mft_train_config_release(&c);
	read_ok(SMALL "--use-mup --kv-channels 16 --mup-base-head-dim 4 --mup-attn-scale-power 0.5 "
		      "--mup-output-mult 3 --mup-embedding-mult 2",
		&c);
	ck_assert_double_eq(c.model.mup.width, 1);
	ck_assert_double_eq(c.model.mup.output, 3);
	ck_assert_double_eq(c.model.mup.embedding, 2);
	ck_assert_double_eq(c.model.mup.attention, 0.5);
	mft_train_config_release(&c);
	fails(SMALL "--use-mup --mup-base-hidden-size 0", -EINVAL, "mup_base_hidden_size");
}
END_TEST

/* ---- tokenizers ---- */

START_TEST(the_tokenizer_sizes_the_vocabulary)
{
	struct mft_train_config c;
	char line[1024];

	snprintf(line, sizeof(line),
		 SMALL "--tokenizer-type HuggingFaceTokenizer "
		       "--tokenizer-model %s --eod-mask-loss",
		 unit_fixture("data/tokenizer"));
	read_ok(line, &c);
	ck_assert_int_eq(c.model.vocab_size, 1000);
	ck_assert_int_eq(c.model.padded_vocab_size, 1024);
	ck_assert_int_ge(c.eod, 0);
	mft_train_config_release(&c);
	read_ok(SMALL "--padded-vocab-size 100 --null-tokenizer-eod-id 7", &c);
	ck_assert_int_eq(c.model.padded_vocab_size, 100);
	ck_assert_int_eq(c.eod, 7);
	mft_train_config_release(&c);
	read_ok(SMALL "--no-pad-vocab-size", &c);
	ck_assert_int_eq(c.model.padded_vocab_size, 100);
	mft_train_config_release(&c);
}
END_TEST

/* Whether the beginning of a run says that no token is known to end documents. */
static bool lacks_eod(const char *line)
{
	struct mft_train_config c;
	struct mfs_buf out = {0};
	bool says;

	read_ok(line, &c);
	mft_help_notes(&c, &out);
	says = out.data && strstr(out.data, "no files of a tokenizer are at 'org/name' here: no "
					    "token is known to end documents");
	mfs_buf_release(&out);
	mft_train_config_release(&c);
	return says;
}

static void pads(const char *line, int64_t pad, bool unknown, bool ambiguous)
{
	struct mft_train_config c;

	read_ok(line, &c);
	ck_assert_msg(c.pad == pad && c.pad_unknown == unknown && c.pad_ambiguous == ambiguous,
		      "%s: pad %lld", line, (long long)c.pad);
	mft_train_config_release(&c);
}

/* core/datasets/megatron_dataset.py: a pad token that is another special one, too, is none. */
START_TEST(pad_tokens)
{
	char line[1024];

	pads(SMALL, MFS_ABSENT, false, false);
	pads(SMALL "--null-tokenizer-pad-id 7", 7, false, false);
	pads(SMALL "--null-tokenizer-pad-id 99", MFS_ABSENT, false, true); /* it ends documents */
	pads(SMALL "--null-tokenizer-pad-id 99 --allow-ambiguous-pad-tokens", 99, false, false);
	pads(SMALL "--null-tokenizer-pad-id 99 --eod-id 3", MFS_ABSENT, false, true);
	pads(SMALL "--pad-id 0", 0, false, false);
	pads(SMALL "--pad-id 4 --eod-id 4", MFS_ABSENT, false, true);
	pads(SMALL "--tokenizer-type HuggingFaceTokenizer --tokenizer-model some/where", MFS_ABSENT,
	     true, false);
	pads(SMALL "--tokenizer-type HuggingFaceTokenizer --tokenizer-model some/where --pad-id -1",
	     MFS_ABSENT, false, false);
	snprintf(line, sizeof(line),
		 SMALL "--tokenizer-type HuggingFaceTokenizer --tokenizer-model %s",
		 unit_fixture("data/tokenizer"));
	pads(line, MFS_ABSENT, false, false);
	ck_assert(!lacks_eod(line));
	ck_assert(!lacks_eod(SMALL));
	ck_assert(lacks_eod(SMALL "--tokenizer-type HuggingFaceTokenizer "
				  "--tokenizer-model org/name"));
	ck_assert(!lacks_eod(SMALL "--tokenizer-type HuggingFaceTokenizer "
				   "--tokenizer-model org/name --eod-id 3"));
}
END_TEST

#define MODELS	 "--tokenizer-model tests/fuzz/corpus/sentencepiece/"
#define TIKTOKEN "--tokenizer-type TikTokenizer --tiktoken-num-special-tokens 10 --tokenizer-model "

/* Tokenizers whose model is one file. */
START_TEST(tokenizer_models)
{
	static const char *const types[] = {"SentencePieceTokenizer", "GPTSentencePieceTokenizer",
					    "Llama2Tokenizer"};
	struct mft_train_config c;
	char line[1024], path[256];
	const char *dir = unit_tmpdir();

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		snprintf(line, sizeof(line),
			 SMALL MODELS "ok-eos-last --eod-mask-loss --tokenizer-type %s", types[i]);
		read_ok(line, &c);
		ck_assert_int_eq(c.model.vocab_size, 100);
		ck_assert_int_eq(c.model.padded_vocab_size, 128);
		ck_assert_int_eq(c.eod, 5);
		ck_assert_int_eq(c.pad, 3);
		mft_train_config_release(&c);
	}
	pads(SMALL MODELS "ok-eos-last --tokenizer-type Llama2Tokenizer "
			  "--tokenizer-sentencepiece-legacy",
	     MFS_ABSENT, false, false);
	fails(SMALL MODELS "ok-no-eos --eod-mask-loss --tokenizer-type Llama2Tokenizer", -ENODATA,
	      "--eod-id");
	fails(SMALL "--tokenizer-model tests/fuzz/reject/sentencepiece/json --tokenizer-type "
		    "Llama2Tokenizer",
	      -EINVAL, "expected a SentencePiece model");
	/* Without the file, as ever. */
	read_ok(SMALL "--tokenizer-model none.model --tokenizer-type Llama2Tokenizer", &c);
	ck_assert_int_eq(c.model.vocab_size, 100);
	mft_train_config_release(&c);
	unit_write(dir, "vocab.json", "[{}, {}, {}, {}]", 16);
	snprintf(path, sizeof(path), "%s/vocab.json", dir);
	snprintf(line, sizeof(line), SMALL TIKTOKEN "%s --vocab-size 14 --eod-mask-loss", path);
	read_ok(line, &c);
	ck_assert_int_eq(c.model.vocab_size, 14);
	ck_assert_int_eq(c.eod, 2);
	ck_assert_int_eq(c.pad, 4);
	mft_train_config_release(&c);
	snprintf(line, sizeof(line), SMALL TIKTOKEN "%s --vocab-size 15", path);
	fails(line, -EINVAL, "expected 5 tokens besides the 10 special ones, found 4");
	snprintf(line, sizeof(line), SMALL TIKTOKEN "%s --vocab-size 10", path);
	fails(line, -EINVAL, "--tiktoken-num-special-tokens: expected 7 or more, and fewer than");
}
END_TEST

/* ---- YAML ---- */

static int yaml(const char *line, const char *text, struct mft_train_config *c)
{
	const char *words[MAX_WORDS];
	char *copy = strdup(line);
	int r;

	memset(&err, 0, sizeof(err));
	unit_ok(mft_train_config_parse_words(words, cut(copy, words), c, &err), &err);
	free(copy);
	r = mft_yaml_parse("run.yaml", text, strlen(text), c->values, &c->arena, &err);
	if (!r)
		r = mft_train_config_settle(c, &err);
	if (r)
		mft_train_config_release(c);
	return r;
}

static void yaml_fails(const char *text, const char *part)
{
	struct mft_train_config c;

	unit_fails(yaml(SMALL, text, &c), &err, -EINVAL, part);
}

START_TEST(yaml_megatron)
{
	struct mft_train_config c;

	unit_ok(yaml(SMALL,
		     "megatron:\n  num_layers: 7 # the command line wins\n  --min-lr: 1e-3\n"
		     "  norm-epsilon: 1.0e-6\n  bf16: true\n  disable_bias_linear: true\n"
		     "  data_path: [0.5, a, 0.5, b]\n  moe_layer_freq: [0, 1]\n  num_experts: 2\n"
		     "  window_size: [3, 0]\n  split: '9,1,0'\n  load: null\n",
		     &c),
		&err);
	ck_assert_int_eq(c.model.num_layers, 2);
	ck_assert_double_eq(c.min_lr, 1e-3);
	ck_assert_double_eq(c.model.norm_epsilon, 1e-6);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert(!c.model.add_bias_linear);
	ck_assert_uint_eq(c.data_path.count, 4);
	ck_assert_int_eq(c.model.first_dense_layers, 1);
	ck_assert_int_eq(c.model.window_size, 4);
	ck_assert_str_eq(c.split, "9,1,0");
	mft_train_config_release(&c);
	/* Flags of other programs. */
	unit_ok(yaml(SMALL,
		     "megatron:\n  use-mpi: true\n  normalization: rmsnorm\n"
		     "  min_scale: 2\n  use_z_loss: false\n  --save-interval: 2_000\n",
		     &c),
		&err);
	ck_assert(!c.model.layernorm);
	ck_assert_double_eq(c.min_loss_scale, 2);
	ck_assert_int_eq(c.save_interval, 2000);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--min-loss-scale 3 ", "megatron: {min_scale: 2}\n", &c), &err);
	ck_assert_double_eq(c.min_loss_scale, 3);
	mft_train_config_release(&c);
	unit_fails(yaml(SMALL, "megatron:\n  use_z_loss: true\n", &c), &err, -ENOTSUP,
		   "line 2: use_z_loss (LLM-jp) is not supported");
	unit_fails(yaml(SMALL, "megatron: {use_mpi: x}\n", &c), &err, -EINVAL, "true or false");
	unit_fails(yaml(SMALL, "megatron: {lr: inf}\n", &c), &err, -EINVAL, "a finite number");
	unit_fails(yaml(SMALL, "megatron: {lr: 1e400}\n", &c), &err, -EINVAL, "at most 3.4e38");
}
END_TEST

/* Oumi's groups within megatron:, Accelerate's file, and names with points on a command line. */
START_TEST(yaml_of_others)
{
	static const char accelerate[] =
		"compute_environment: LOCAL_MACHINE\ndistributed_type: MEGATRON_LM\n"
		"megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 1\n"
		"  megatron_lm_sequence_parallelism: true\n"
		"  megatron_lm_gradient_clipping: 0.5\n"
		"  megatron_lm_use_distributed_optimizer: true\n"
		"  megatron_lm_num_micro_batches: 2\nmixed_precision: bf16\nnum_processes: 2\n";
	struct mft_train_config c;

	unit_ok(yaml(SMALL,
		     "megatron:\n  num_experts: 2\n"
		     "  ddp_config: {overlap_grad_reduce: true}\n"
		     "  optimizer_config: {clip_grad: 0.5, use_distributed_optimizer: true}\n"
		     "  transformer_config: {layernorm_epsilon: 1.0e-6}\n"
		     "  checkpoint_config: {save_interval: 7}\n",
		     &c),
		&err);
	ck_assert(c.overlap_grad_reduce && c.use_distributed_optimizer);
	ck_assert_double_eq(c.clip_grad, 0.5);
	ck_assert_double_eq(c.model.norm_epsilon, 1e-6);
	ck_assert_int_eq(c.save_interval, 7);
	mft_train_config_release(&c);
	yaml_fails("megatron:\n  ddp_config:\n    overlap_grad_reduc: true\n",
		   "overlap_grad_reduce");
	unit_ok(yaml(SMALL "--dry-run --global-batch-size 8 ", accelerate, &c), &err);
	ck_assert_int_eq(c.model.tensor_model_parallel_size, 2);
	ck_assert(c.sequence_parallel && c.use_distributed_optimizer);
	ck_assert_double_eq(c.clip_grad, 0.5);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	mft_train_config_release(&c);
	unit_fails(yaml(SMALL, accelerate, &c), &err, -ENOTSUP, "give --global-batch-size");
	yaml_fails("megatron_lm_config: {megatron_lm_tp_degre: 2}\n", "unknown name");
	read_ok(SMALL "megatron.save_interval=5 optimizer.clip_grad=0.25 --seed 3", &c);
	ck_assert_int_eq(c.save_interval, 5);
	ck_assert_double_eq(c.clip_grad, 0.25);
	mft_train_config_release(&c);
	read_ok(SMALL "megatron.clip_grad=0.25 --clip-grad 0.75 --save a.b=c --save-interval 2",
		&c);
	ck_assert_str_eq(c.save, "a.b=c");
	ck_assert_double_eq(c.clip_grad, 0.75);
	mft_train_config_release(&c);
	fails(SMALL "optimizer.clip_grat=1", -EINVAL, "the command line: line 2: unknown name");
}
END_TEST

#define NEMO_RL(model, optimizer)                                                                  \
	"defaults: other.yaml\ngrpo: {num_prompts_per_step: 64}\npolicy:\n"                        \
	"  model_name: org/name\n  precision: bfloat16\n  max_grad_norm: 0.5\n"                    \
	"  megatron_cfg:\n    enabled: true\n    empty_unused_memory_level: 1\n" model             \
	"    pipeline_dtype: ${policy.precision}\n    peft: {enabled: false, dim: 8}\n"            \
	"    optimizer:\n      lr: 3.0e-7\n      min_lr: 3.0e-8\n      weight_decay: 0.02\n"       \
	"      bf16: true\n      params_dtype: float32\n" optimizer "    scheduler:\n"             \
	"      start_weight_decay: ${policy.megatron_cfg.optimizer.weight_decay}\n"                \
	"      end_weight_decay: ${policy.megatron_cfg.optimizer.weight_decay}\n"                  \
	"      lr_decay_style: constant\n"                                                         \
	"    distributed_data_parallel_config: {overlap_grad_reduce: true}\n"

/* Whole files of NeMo-RL and of Oumi. */
START_TEST(yaml_whole_files)
{
	struct mft_train_config c;
	struct mfs_buf out = {0};

	unit_ok(yaml("--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 "
		     "--max-position-embeddings 8 --micro-batch-size 1 --train-iters 1 "
		     "--tokenizer-type NullTokenizer --vocab-size 99 --mock-data",
		     NEMO_RL("    sequence_parallel: false\n    recompute_granularity: full\n",
			     "      clip_grad: ${policy.max_grad_norm}\n"
			     "      use_distributed_optimizer: true\n"),
		     &c),
		&err);
	ck_assert(c.params_dtype == MFS_BF16);
	ck_assert_double_eq(c.lr, 3e-7);
	ck_assert_double_eq(c.clip_grad, 0.5);
	ck_assert_double_eq(c.start_weight_decay, 0.02);
	ck_assert(c.use_distributed_optimizer && c.overlap_grad_reduce);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_NONE);
	mft_help_notes(&c, &out);
	ck_assert(strstr(out.data, "the file that defaults names, all of NeMo-RL's file but "
				   "policy.megatron_cfg"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL, NEMO_RL("    activation_checkpointing: true\n", ""), &c), &err);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_FULL);
	mft_train_config_release(&c);
	unit_fails(yaml(SMALL, NEMO_RL("", "      clip_grad: ${policy.none}\n"), &c), &err, -EINVAL,
		   "expected a value that this file has, found '${policy.none}'");
	unit_fails(yaml(SMALL, NEMO_RL("    peft2: 1\n", ""), &c), &err, -EINVAL,
		   "unknown name 'peft2' in model");
	yaml_fails("policy: {a: '${policy.a}', megatron_cfg: {seed: '${policy.a}'}}\n",
		   "found '${policy.a}'");
	yaml_fails("policy: {megatron_cfg: {seed: '${policy'}}\n", "found '${policy'");
	mfs_buf_adds(&out, "policy: {a: 1, megatron_cfg: {no: [");
	for (int i = 0; i < 201; i++)
		mfs_buf_adds(&out, "'${policy.a}',");
	mfs_buf_adds(&out, "]}}\n");
	yaml_fails(out.data, "expected fewer values that name others");
	mfs_buf_release(&out);
	for (int i = 0; i < 2; i++) {
		unit_ok(yaml(SMALL,
			     i ? "model: {model_name: org/name}\ntraining:\n  max_steps: 5\n"
				 "  megatron:\n    ddp_config: {overlap_grad_reduce: true}\n"
			       : "model: {model_name: org/name}\ntraining: {max_steps: 5}\n"
				 "megatron:\n  ddp_config: {overlap_grad_reduce: true}\n",
			     &c),
			&err);
		ck_assert(c.overlap_grad_reduce);
		mft_help_notes(&c, &out);
		ck_assert(strstr(out.data,
				 "without effect here: model.model_name, training.max_steps\n"));
		mfs_buf_release(&out);
		mft_train_config_release(&c);
	}
	yaml_fails("model: {model_name: a}\nmegatron: {num_layer: 4}\n",
		   "unknown name 'num_layer'");
}
END_TEST

/* What a file of a program that trains policies leaves open; without and with its prompts. */
#define POLICY_ALONE                                                                               \
	"--num-layers 2 --hidden-size 8 --num-attention-heads 2 --max-position-embeddings 4096 "   \
	"--tokenizer-type NullTokenizer --vocab-size 100 --rl-reward match --train-iters 4 "       \
	"--lr 0.1 "
#define POLICY POLICY_ALONE "--rl-prompt-data p.jsonl "

/* A whole run. */
#define RL                                                                                         \
	POLICY "--seq-length 64 --micro-batch-size 1 --perform-rl-step --grpo-iterations 1 "       \
	       "--hidden-dropout 0 --attention-dropout 0 "

/* What is expected of a file. */
struct policy {
	int64_t prompts, group, batch, passes, micro, length, response;
	double lower, upper, dual, kl, temperature;
	const char *advantage, *aggregation, *loss;
};

static void expect_policy(const struct mft_train_config *c, const struct policy *what)
{
	ck_assert(c->perform_rl_step);
	ck_assert_int_eq(c->grpo_prompts_per_step, what->prompts);
	ck_assert_int_eq(c->grpo_group_size, what->group);
	ck_assert_int_eq(c->global_batch_size, what->batch);
	ck_assert_int_eq(c->grpo_iterations, what->passes);
	ck_assert_int_eq(c->micro_batch_size, what->micro);
	ck_assert_int_eq(c->seq_length, what->length);
	ck_assert_int_eq(c->rl_max_response_length, what->response);
	ck_assert_double_eq(c->grpo_clamp_eps_lower, what->lower);
	ck_assert_double_eq(c->grpo_clamp_eps_upper, what->upper);
	ck_assert_double_eq(c->rl_dual_clip, what->dual);
	ck_assert_double_eq(c->grpo_kl_beta, what->kl);
	ck_assert_double_eq(c->rl_default_temperature, what->temperature);
	ck_assert_str_eq(c->rl_advantage_norm, what->advantage);
	ck_assert_str_eq(c->rl_loss_aggregation, what->aggregation);
	ck_assert_str_eq(c->rl_loss, what->loss);
}

#define OUMI(grpo, megatron)                                                                       \
	"model: {model_name: org/name}\ndata:\n  train: {datasets: [{dataset_name: a}]}\n"         \
	"training:\n  trainer_type: MEGATRON_GRPO\n  max_steps: 6\n  learning_rate: 2.0e-6\n"      \
	"  per_device_train_batch_size: 2\n  gradient_accumulation_steps: 4\n"                     \
	"  output_dir: out\n  save_steps: 3\n  lr_scheduler_type: cosine\n"                        \
	"  grpo:\n    num_generations: 4\n    max_completion_length: 100\n"                        \
	"    max_prompt_length: 28\n    use_vllm: true\n" grpo "megatron:\n"                       \
	"  global_batch_size: 32\n  enable_sequence_packing: true\n"                               \
	"  weight_sync_method: checkpoint\n  inference_backend: vllm\n"                            \
	"  ddp_config: {overlap_grad_reduce: true}\n"                                              \
	"  transformer_config: {recompute_granularity: selective}\n" megatron

START_TEST(yaml_oumi_grpo)
{
	static const struct policy what = {8,	4, 32,	1,   2,	     128,	   100,	  0.1,
					   0.1, 0, 0.5, 0.9, "none", "token-mean", "clip"};
	struct mft_train_config c;
	struct mfs_buf out = {0};

	unit_ok(yaml(POLICY,
		     OUMI("    epsilon: 0.1\n",
			  "  grpo_config: {kl_beta: 0.5, normalize_advantages: false}\n"),
		     &c),
		&err);
	expect_policy(&c, &what);
	/* the command line wins */
	ck_assert_int_eq(c.train_iters, 4);
	ck_assert_double_eq(c.lr, 0.1);
	ck_assert_str_eq(c.save, "out");
	ck_assert_int_eq(c.save_interval, 3);
	ck_assert(c.rl_use_sequence_packing && c.overlap_grad_reduce);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_SELECTIVE);
	mft_help_notes(&c, &out);
	ck_assert(strstr(out.data, "grpo.use_vllm"));
	ck_assert(strstr(out.data, "megatron.inference_backend"));
	ck_assert(strstr(out.data, "model.model_name"));
	ck_assert(!strstr(out.data, "weight_sync_method"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
	unit_fails(yaml(POLICY, OUMI("    epsilom: 0.1\n", ""), &c), &err, -EINVAL,
		   "unknown name 'grpo.epsilom' in a file of Oumi; did you mean 'grpo.epsilon'?");
	unit_fails(yaml(POLICY, OUMI("    repetition_penalty: 1.2\n", ""), &c), &err, -ENOTSUP,
		   "grpo.repetition_penalty '1.2' is not supported; expected 1");
	unit_fails(yaml(POLICY, OUMI("    rollout_function: a.b\n", ""), &c), &err, -ENOTSUP,
		   "grpo.rollout_function 'a.b' is not supported; expected null");
	unit_fails(yaml(POLICY, OUMI("", "  num_layer: 3\n"), &c), &err, -EINVAL,
		   "unknown name 'num_layer' in megatron");
	unit_fails(yaml(POLICY, OUMI("", "grpo: {num_generations: 3}\n"), &c), &err, -EINVAL,
		   "it stands in training and at the top: 'grpo'");
	unit_fails(yaml(POLICY "--grpo-group-size 3 ", OUMI("", ""), &c), &err, -EINVAL,
		   "expected a multiple of the 3 responses to a prompt, found 32");
	unit_fails(yaml(POLICY, "training: {trainer_type: MEGATRON_GRPO}\n", &c), &err, -EINVAL,
		   "expected megatron.global_batch_size, or --global-batch-size");
}
END_TEST

#define VERL(actor, rest)                                                                          \
	"data:\n  train_files: [~/gsm8k/train.parquet]\n  val_files: b\n  train_batch_size: 16\n"  \
	"  max_prompt_length: 200\n  max_response_length: 300\n"                                   \
	"actor_rollout_ref:\n  model: {path: a, use_remove_padding: true}\n  actor:\n"             \
	"    ppo_mini_batch_size: 8\n    ppo_micro_batch_size_per_gpu: 2\n"                        \
	"    optim: {lr: 1e-6, lr_warmup_steps: 5, betas: [0.8, 0.95]}\n"                          \
	"    megatron:\n      tensor_model_parallel_size: 1\n"                                     \
	"      override_transformer_config: {recompute_granularity: selective}\n" actor            \
	"  rollout: {name: vllm, n: 4, temperature: 0.7, gpu_memory_utilization: 0.6}\n"           \
	"trainer: {total_training_steps: 10, save_freq: 3, default_local_dir: out, "               \
	"logger: [console]}\n" rest

/* Batches of prompts are so many responses, and a step of verl is a rollout. */
START_TEST(yaml_verl)
{
	static const struct policy as_it_is = {16,  4,	 32, 1,	  2,	 500,	       300,   0.2,
					       0.2, 3.0, 0,  0.7, "std", "token-mean", "clip"},
				   changed = {16,     4,
					      32,     1,
					      2,      500,
					      300,    0.2,
					      0.28,   3,
					      0.01,   0.7,
					      "none", "seq-mean-token-sum-norm",
					      "gspo"};
	struct mft_train_config c;
	struct mfs_buf out = {0};

	unit_ok(yaml(POLICY, VERL("", ""), &c), &err);
	expect_policy(&c, &as_it_is);
	ck_assert_int_eq(c.save_interval, 6);
	ck_assert_int_eq(c.lr_warmup_iters, 10);
	ck_assert_double_eq(c.adam_beta2, 0.95);
	ck_assert(c.rl_use_sequence_packing && !c.rl_inference_logprobs_is_correction);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_SELECTIVE);
	mft_help_notes(&c, &out);
	ck_assert_str_eq(c.rl_prompt_data, "p.jsonl");
	ck_assert(strstr(out.data, "data.val_files"));
	ck_assert(strstr(out.data, "actor_rollout_ref.rollout.gpu_memory_utilization"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
	unit_ok(yaml(POLICY,
		     VERL("    clip_ratio_high: 0.28\n    use_kl_loss: true\n"
			  "    kl_loss_coef: 0.01\n    kl_loss_type: low_var_kl\n"
			  "    loss_agg_mode: seq-mean-token-sum-norm\n"
			  "    policy_loss: {loss_mode: gspo}\n",
			  "algorithm:\n  norm_adv_by_std_in_grpo: False\n"
			  "  rollout_correction: {rollout_is: token, rollout_is_threshold: 1.5}\n"),
		     &c),
		&err);
	expect_policy(&c, &changed);
	ck_assert(c.rl_inference_logprobs_is_correction);
	ck_assert_double_eq(c.rl_importance_sampling_truncation_coef, 1.5);
	mft_train_config_release(&c);
	unit_fails(yaml(POLICY, VERL("    cliprange: 0.1\n", ""), &c), &err, -EINVAL,
		   "unknown name 'actor_rollout_ref.actor.cliprange' in a file of verl");
	unit_fails(yaml(POLICY, VERL("", "algorithm: {adv_estimator: gae}\n"), &c), &err, -ENOTSUP,
		   "algorithm.adv_estimator 'gae' is not supported; expected grpo, rloo");
	unit_fails(yaml(POLICY, VERL("    loss_agg_mode: [a]\n", ""), &c), &err, -ENOTSUP,
		   "loss_agg_mode 'a list or a mapping' is not supported");
	unit_fails(yaml(POLICY, VERL("", "algorithm: {use_kl_in_reward: true}\n"), &c), &err,
		   -ENOTSUP, "use_kl_in_reward 'true' is not supported; expected false");
	unit_fails(yaml(POLICY, VERL("", "algorithm: 3\n"), &c), &err, -EINVAL,
		   "expected names with values under 'algorithm'");
	unit_fails(yaml(POLICY, "actor_rollout_ref: {rollout: {n: 9000000000}}\n", &c), &err,
		   -EINVAL, "too large for");
	ck_assert(!setenv("HOME", "/home/a", 1));
	unit_ok(yaml(POLICY_ALONE, VERL("", ""), &c), &err);
	ck_assert_str_eq(c.rl_prompt_data, "/home/a/gsm8k/train.parquet");
	mft_train_config_release(&c);
	unit_fails(yaml(POLICY_ALONE, "actor_rollout_ref: {}\ndata: {train_files: [a, b]}\n", &c),
		   &err, -EINVAL, "expected one path under 'data.train_files'");
}
END_TEST

START_TEST(yaml_skyrl_and_nemo)
{
	static const struct policy sky = {16,	 4,   32,  2,	 1,   128,   100,
					  0.2,	 0.2, 0.0, 0.02, 1.0, "std", "seq-mean-token-mean",
					  "clip"},
				   nemo = {8,	4, 32,	 1,   1,      64,	    32,	   0.2,
					   0.2, 0, 0.01, 0.6, "rloo", "token-mean", "clip"};
	struct mft_train_config c;

	unit_ok(yaml(POLICY,
		     "trainer:\n  train_batch_size: 16\n  policy_mini_batch_size: 8\n"
		     "  update_epochs_per_batch: 2\n  micro_train_batch_size_per_gpu: 1\n"
		     "  max_prompt_length: 28\n  ckpt_interval: 2\n  ckpt_path: out\n"
		     "  strategy: megatron\n"
		     "  algorithm: {loss_reduction: sequence_mean, kl_loss_coef: 0.02}\n"
		     "  policy:\n    model: {path: a}\n    megatron_config:\n"
		     "      transformer_config_kwargs: {recompute_granularity: selective}\n"
		     "generator:\n  n_samples_per_prompt: 4\n  backend: vllm\n"
		     "  sampling_params: {max_generate_length: 100}\n",
		     &c),
		&err);
	expect_policy(&c, &sky);
	ck_assert_int_eq(c.save_interval, 8);
	ck_assert_int_eq(c.recompute_granularity, MFT_RECOMPUTE_SELECTIVE);
	mft_train_config_release(&c);
	unit_ok(yaml(POLICY_ALONE,
		     "trainer: {train_batch_size: 4, policy_mini_batch_size: 4,\n"
		     "  micro_train_batch_size_per_gpu: 1}\ngenerator: {n_samples_per_prompt: 4}\n"
		     "data: {train_data: [c.parquet], val_data: [b]}\n",
		     &c),
		&err);
	ck_assert_str_eq(c.rl_prompt_data, "c.parquet");
	mft_train_config_release(&c);
	unit_fails(yaml(POLICY, "trainer: {epoch: 1}\ngenerator: {a: 1}\n", &c), &err, -EINVAL,
		   "unknown name 'trainer.epoch' in a file of SkyRL");
	unit_ok(yaml(POLICY "--perform-rl-step ",
		     "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4,\n"
		     "  normalize_rewards: false, max_num_epochs: 1}\n"
		     "loss_fn: {token_level_loss: true}\npolicy:\n  train_global_batch_size: 32\n"
		     "  train_micro_batch_size: 1\n  max_total_sequence_length: 64\n"
		     "  generation: {temperature: 0.6, max_new_tokens: 32}\n"
		     "  megatron_cfg: {enabled: true}\n",
		     &c),
		&err);
	expect_policy(&c, &nemo);
	mft_train_config_release(&c);
	unit_fails(yaml(POLICY "--perform-rl-step ",
			"loss_fn: {ratio_clip: 1}\npolicy: {megatron_cfg: {enabled: true}}\n", &c),
		   &err, -EINVAL, "unknown name 'loss_fn.ratio_clip' in a file of NeMo-RL");
	/* slime has flags */
	read_ok(RL "--rollout-batch-size 8 --n-samples-per-prompt 4 --global-batch-size 32 "
		   "--eps-clip 0.2 --advantage-estimator gspo --use-tis --tis-clip 3",
		&c);
	ck_assert_int_eq(c.grpo_prompts_per_step * c.grpo_group_size, 32);
	ck_assert_double_eq(c.grpo_clamp_eps_upper, 0.2);
	ck_assert_str_eq(c.rl_advantage_norm, "std");
	ck_assert_str_eq(c.rl_loss, "gspo");
	ck_assert_double_eq(c.rl_importance_sampling_truncation_coef, 3);
	mft_train_config_release(&c);
	fails(POLICY "--rollout-num-gpus 8", -ENOTSUP, "engines are started by themselves");
	fails(SMALL "actor_rollout_ref.rollout.n=2", -EINVAL,
	      "names of verl are read of a file, --config FILE");
}
END_TEST

/* What no kind of reward that is asked for would read. */
START_TEST(rewards)
{
	static const struct {
		const char *given, *sentence;
	} cases[] = {
		{"--rl-reward-pattern a", "--rl-reward-pattern needs --rl-reward regex"},
		{"--rl-reward-url a", "--rl-reward-url needs --rl-reward url"},
		{"--rl-reward-command a", "--rl-reward-command needs --rl-reward command"},
		{"--rl-reward-key a", "--rl-reward-key needs --rl-reward command or url"},
		{"--rl-reward-seconds 2", "--rl-reward-seconds needs --rl-reward command or url"},
		{"--rl-overlong-buffer 2", "--rl-overlong-buffer needs --rl-reward length"},
		{"--rl-overlong-factor 2", "--rl-overlong-factor needs --rl-reward length"},
	};
	struct mft_train_config c;
	char line[600];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(line, sizeof(line), "%s %s", RL, cases[i].given);
		fails(line, -EINVAL, cases[i].sentence);
	}
	fails(RL "--rl-inference-url a --rl-mount m --rl-sync-dir s --save s --save-interval 4",
	      -EINVAL, "--rl-sync-dir: expected another directory than that of --save, found 's'");
	fails(RL "--rl-inference-url a --rl-mount m --rl-sync-dir /tmp --load /tmp/", -EINVAL,
	      "--rl-sync-dir: expected another directory than that of --load, found '/tmp'");
	read_ok(RL "--grpo-prompts-per-step 8 --grpo-group-size 4 --global-batch-size 32 "
		   "--rl-reward regex url length --rl-reward-pattern a --rl-reward-url a "
		   "--rl-reward-key k --rl-overlong-buffer 2 --rl-overlong-factor 2",
		&c);
	mft_train_config_release(&c);
}
END_TEST

START_TEST(yaml_bridge)
{
	struct mft_train_config c;

	unit_ok(yaml("--lr 1e-3",
		     "mixed_precision: bf16_mixed\n"
		     "model:\n  _target_: a.GPTModelProvider\n  num_layers: 4\n  hidden_size: 64\n"
		     "  num_attention_heads: 4\n  num_query_groups: 2\n  seq_length: 128\n"
		     "  max_position_embeddings: 128\n  gated_linear_unit: true\n"
		     "  activation_func: torch.nn.functional.silu\n  add_bias_linear: false\n"
		     "  share_embeddings_and_output_weights: false\n  normalization: RMSNorm\n"
		     "  layernorm_epsilon: 1e-6\n  position_embedding_type: rope\n"
		     "train:\n  train_iters: 5\n  micro_batch_size: 2\n  global_batch_size: 8\n"
		     "optimizer:\n  lr: 5\n  weight_decay: 0.1\n"
		     "scheduler:\n  start_weight_decay: 0.1\n  end_weight_decay: 0.1\n"
		     "  weight_decay_incr_style: constant\n"
		     "dataset:\n  blend: [[a, b], [1, 2]]\n  sequence_length: 128\n"
		     "  random_seed: 5\n  split: 9,1,0\n"
		     "checkpoint:\n  save: out\n  save_interval: 5\n  load_optim: false\n"
		     "logger:\n  log_interval: 1\nrng:\n  seed: 5\n"
		     "tokenizer:\n  tokenizer_type: NullTokenizer\n  vocab_size: 1000\n"
		     "ddp:\n  grad_reduce_in_fp32: true\n",
		     &c),
		&err);
	ck_assert(c.model.swiglu && !c.model.tied && !c.model.layernorm);
	ck_assert_int_eq(c.model.num_query_groups, 2);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert_double_eq(c.lr, 1e-3);
	ck_assert_double_eq(c.end_weight_decay, 0.1);
	ck_assert_int_eq(c.seed, 5);
	ck_assert(c.no_load_optim);
	ck_assert_uint_eq(c.data_path.count, 4);
	ck_assert_str_eq(c.data_path.list[2], "2");
	ck_assert_str_eq(c.data_path.list[3], "b");
	mft_train_config_release(&c);
}
END_TEST

START_TEST(yaml_wrong)
{
	yaml_fails("megatron:\n  num_layer: 4\n",
		   "run.yaml: line 2: unknown name 'num_layer' in megatron; did you mean");
	yaml_fails("modle: {}\n", "line 1: expected megatron, or a section of Megatron-Bridge");
	yaml_fails("modle: {}\n", "NeMo-RL (policy.megatron_cfg), Oumi");
	yaml_fails("megatron:\n  lr: 1\n  lr: 2\n", "line 3: a second 'lr'");
	yaml_fails("megatron:\n  seed: [1, 2]\n", "line 2");
	yaml_fails("megatron:\n  seed: x\n", "expected an integer");
	yaml_fails("megatron:\n  bf16: 3\n", "true or false");
	yaml_fails("megatron:\n  bf16: {a: 1}\n", "a mapping");
	yaml_fails("a: &x 1\nb: *x\n", "aliases");
	yaml_fails("megatron: !!python/object {}\n", "aliases, anchors and tags");
	yaml_fails("--- {}\n--- {}\n", "a second document");
	yaml_fails("[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", "more than 16 levels");
	yaml_fails("megatron:\n - 1\n", "names with values");
	yaml_fails("- 1\n", "expected sections");
	yaml_fails("megatron: [\n", "run.yaml: line");
	yaml_fails("megatron:\n\tlr: 1\n", "line 2: found a tab; YAML takes blanks, not tabs");
	yaml_fails("megatron:\n  lr: 1\n\tseed: 2\n", "line 3: found a tab");
	yaml_fails("megatron:\n  lr: 1\n  \tseed: 2\n", "line 3: found a tab");
	yaml_fails("megatron: {lr: 1, @}\n", "cannot start any token");
	yaml_fails("? [a]\n: 1\n", "a key is no text");
	yaml_fails("dataset:\n  blend: [[a, b], [1]]\n", "a weight for each prefix");
}
END_TEST

/* A model section, and the sizes of SMALL on the command line before it. */
static int model_yaml(const char *fields, struct mft_train_config *c)
{
	struct mfs_buf text = {0};
	int r;

	mfs_buf_printf(&text, "model:\n  ffn_hidden_size: 16\n%s", fields);
	ck_assert(!text.failed);
	r = yaml(SMALL, text.data, c);
	mfs_buf_release(&text);
	return r;
}

/* Both keys choose the activation, whatever their order. */
START_TEST(yaml_activation)
{
	static const struct {
		const char *gated, *function, *more;
		bool swiglu, quick, squared, erf;
	} had[] = {
		{"true", "torch.nn.functional.silu", "", true, false, false, false},
		{"true", "{_call_: false, _target_: torch.nn.functional.silu}",
		 "  bias_activation_fusion: true\n", true, false, false, false},
		{"true", "a.quick_gelu", "", false, true, false, false},
		{"false", "megatron.core.activations.squared_relu", "", false, false, true, false},
		{"false", "torch._C._nn.gelu", "", false, false, false, true},
		{"null", "torch._C._nn.gelu", "  bias_activation_fusion: true\n", false, false,
		 false, false},
		{"false", "a.fast_gelu", "", false, false, false, false},
		{"false", "{_partial_: true, _target_: torch._C._nn.gelu, approximate: tanh}", "",
		 false, false, false, false},
	};
	static const char *const refused[] = {
		"  gated_linear_unit: true\n  activation_func: torch.nn.functional.gelu\n",
		"  activation_func: torch.nn.functional.gelu\n  gated_linear_unit: true\n",
		"  gated_linear_unit: false\n  activation_func: silu\n",
		"  activation_func: {_target_: torch.nn.functional.silu, _call_: false}\n",
		"  gated_linear_unit: true\n",
		"  gated_linear_unit: true\n  activation_func: fast_gelu\n",
		"  gated_linear_unit: true\n  activation_func: squared_relu\n",
		"  activation_func: relu\n",
		"  activation_func: fast_gelu\n  add_bias_linear: false\n",
	};
	struct mft_train_config c;
	char text[512];

	for (size_t i = 0; i < 2 * MFS_ARRAY_SIZE(had); i++) {
		const char *order = i % 2 ? "  gated_linear_unit: %s\n  activation_func: %s\n%s"
					  : "%3$s  activation_func: %2$s\n"
					    "  gated_linear_unit: %1$s\n";

		snprintf(text, sizeof(text), order, had[i / 2].gated, had[i / 2].function,
			 had[i / 2].more);
		unit_ok(model_yaml(text, &c), &err);
		ck_assert_msg(c.model.swiglu == had[i / 2].swiglu &&
				      c.model.quick_geglu == had[i / 2].quick &&
				      c.model.squared_relu == had[i / 2].squared,
			      "%s", text);
		if (!c.model.swiglu && !c.model.quick_geglu && !c.model.squared_relu)
			ck_assert_msg(c.model.exact_gelu == had[i / 2].erf, "%s", text);
		mft_train_config_release(&c);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(refused); i++)
		unit_fails(model_yaml(refused[i], &c), &err, -ENOTSUP, "activation_func '");
	unit_fails(model_yaml("  gated_linear_unit: 3\n", &c), &err, -EINVAL, "true or false");
	unit_fails(model_yaml("  activation_func: [a]\n", &c), &err, -EINVAL, "the name of a");
	/* The command line has the last word. */
	unit_ok(yaml(SMALL "--swiglu --ffn-hidden-size 16", "model:\n  activation_func: gelu\n",
		     &c),
		&err);
	ck_assert(c.model.swiglu && !c.model.squared_relu);
	mft_train_config_release(&c);
	/* Fields that say nothing of it leave it to others. */
	unit_ok(yaml(SMALL,
		     "megatron:\n  swiglu: true\n  ffn_hidden_size: 16\nmodel:\n  num_layers: 2\n",
		     &c),
		&err);
	ck_assert(c.model.swiglu);
	mft_train_config_release(&c);
}
END_TEST

static int saved_yaml(const char *line, const char *path, struct mft_train_config *c)
{
	size_t len;
	char *text = (char *)unit_slurp(path, &len);
	int r;

	text = realloc(text, len + 1);
	text[len] = '\0';
	r = yaml(line, text, c);
	free(text);
	return r;
}

#define SAVED_BY_BRIDGE "tests/fuzz/corpus/train_yaml/ok-saved-*"
#define DATA_OF_NONE                                                                               \
	"--mock-data --micro-batch-size 1 --global-batch-size 2 --train-iters 3 --lr 0.1 "

/* What Bridge has saved itself, as it is. */
START_TEST(yaml_saved)
{
	struct mft_train_config c;
	struct mfs_buf unused = {0};
	glob_t found;

	unit_ok(saved_yaml(DATA_OF_NONE, unit_fixture("bridge/llama/iter_0000000/run_config.yaml"),
			   &c),
		&err);
	ck_assert(c.model.swiglu && !c.model.tied && !c.model.layernorm);
	ck_assert_int_eq(c.model.num_layers, 2);
	ck_assert_int_eq(c.model.num_query_groups, 1);
	ck_assert_int_eq(c.model.max_position_embeddings, 32);
	ck_assert_int_eq(c.model.padded_vocab_size, 48);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert_int_eq(c.main_grads_dtype, MFS_F32);
	ck_assert(c.no_save_optim && c.no_save_rng && !c.no_load_optim);
	ck_assert_str_eq(c.save, "llama");
	ck_assert_int_gt(c.save_interval, 1 << 30);
	mft_flags_unused(c.values, &unused);
	ck_assert(strstr(unused.data, "--no-rope-fusion"));
	ck_assert(strstr(unused.data, "model.transformer_layer_spec"));
	ck_assert_ptr_null(strstr(unused.data, "--no-load-rng"));
	ck_assert_ptr_null(strstr(unused.data, "persist_layer_norm"));
	ck_assert_ptr_null(strstr(unused.data, "--mamba"));
	mfs_buf_release(&unused);
	mft_train_config_release(&c);
	ck_assert_int_eq(glob(SAVED_BY_BRIDGE, 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 3);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		unit_ok(saved_yaml(DATA_OF_NONE "--expert-model-parallel-size 1", found.gl_pathv[i],
				   &c),
			&err);
		mft_train_config_release(&c);
	}
	globfree(&found);
}
END_TEST

static void model_ok(const char *fields, struct mft_train_config *c)
{
	unit_ok(model_yaml(fields, c), &err);
}

/* Bridge's names for Megatron's arguments, and its forms of values. */
START_TEST(yaml_bridge_forms)
{
	static const char chunks[] = "model:\n  virtual_pipeline_model_parallel_size: 1\n"
				     "  pipeline_model_parallel_layout: 'Et|tL'\n";
	struct mft_train_config c;

	model_ok("  rotary_base: 500000.0\n  rope_scaling: true\n  rope_scaling_factor: 32.0\n"
		 "  position_embedding_type: rope\n  seq_len_interpolation_factor: 2.0\n"
		 "  recompute_modules: []\n  softmax_scale: null\n  moe_layer_freq: 1\n"
		 "  attention_backend: {_args_: [5], _call_: true, _target_: a.AttnBackend}\n"
		 "  init_method_std: 0.01\n"
		 "  init_method: {_partial_: true, _target_: torch.nn.init.normal_, mean: 0.0, "
		 "std: 0.01}\n  _pg_collection: {a: 1}\n",
		 &c);
	ck_assert_double_eq(c.model.rotary_base, 500000);
	ck_assert(c.model.use_rope_scaling);
	ck_assert_double_eq(c.model.rope_scaling_factor, 32);
	ck_assert_double_eq(c.model.rotary_seq_len_interpolation_factor, 2);
	mft_train_config_release(&c);
	model_ok("  _target_: megatron.bridge.models.hybrid.HybridModelConfig\n"
		 "  _builder_: megatron.bridge.models.hybrid.HybridModelBuilder\n"
		 "  hybrid_layer_pattern: '*-*-'\n  hybrid_stack_spec: null\n"
		 "  transformer:\n    _target_: megatron.core.transformer.TransformerConfig\n"
		 "    num_layers: 4\n",
		 &c);
	ck_assert(c.model.hybrid_form && c.model.num_layers == 2);
	mft_train_config_release(&c);
	/* Llama 3.1 in Bridge 0.2 */
	model_ok("  scale_factor: 8.0\n  low_freq_factor: 1.0\n  old_context_len: 8192\n", &c);
	ck_assert(c.model.use_rope_scaling);
	mft_train_config_release(&c);
	/* newer ones have TransformerConfig apart */
	model_ok("  transformer:\n    layernorm_epsilon: 1.0e-6\n    gated_linear_unit: true\n"
		 "    activation_func: silu\n    persist_layer_norm: true\n",
		 &c);
	ck_assert_double_eq(c.model.norm_epsilon, 1e-6);
	ck_assert(c.model.swiglu);
	ck_assert_ptr_nonnull(c.values->others);
	ck_assert_str_eq(c.values->others->name, "model.persist_layer_norm");
	mft_train_config_release(&c);
	/* as many groups as heads are what latent attention has */
	model_ok("  multi_latent_attention: true\n  num_query_groups: 2\n", &c);
	ck_assert(c.model.multi_latent_attention);
	mft_train_config_release(&c);
	/* rows of the embedding, with padding and without */
	model_ok("  vocab_size: 50\n  should_pad_vocab: false\n", &c);
	mft_train_config_release(&c);
	unit_ok(yaml("--num-layers 2 --hidden-size 8 --num-attention-heads 2 "
		     "--micro-batch-size 1 --lr 0.1 --train-iters 3 --mock-data",
		     "model:\n  vocab_size: 50\n  should_pad_vocab: true\n  seq_length: 8\n"
		     "  make_vocab_size_divisible_by: 16\n"
		     "tokenizer:\n  tokenizer_type: NullTokenizer\n  vocab_size: 40\n",
		     &c),
		&err);
	ck_assert_int_eq(c.model.padded_vocab_size, 64);
	ck_assert_int_eq(c.model.vocab_size, 40);
	ck_assert_int_eq(c.model.max_position_embeddings, 8);
	mft_train_config_release(&c);
	/* the layout counts model chunks by itself */
	unit_ok(mft_train_config_parse_words(NULL, 0, &c, &err), &err);
	unit_ok(mft_yaml_parse("run.yaml", chunks, strlen(chunks), c.values, &c.arena, &err), &err);
	ck_assert_str_eq(mft_flag_text(c.values, "pipeline_model_parallel_layout"), "Et|tL");
	ck_assert(!mft_flag_is_given(c.values, "num_virtual_stages_per_pipeline_rank"));
	mft_train_config_release(&c);
}
END_TEST

/* What Bridge has next to the model, in other forms than arguments. */
START_TEST(yaml_bridge_training)
{
	struct mft_train_config c;

	unit_ok(yaml(SMALL,
		     "mixed_precision:\n  _target_: a.MixedPrecisionConfig\n  bf16: true\n"
		     "  params_dtype: {_target_: torch.bfloat16, _call_: false}\n"
		     "  grad_reduce_in_fp32: false\n  fp8: null\n  num_layers_at_start_in_bf16: 0\n"
		     "model:\n  bf16: false\n  fp16: false\n  params_dtype: torch.float32\n"
		     "ddp:\n  grad_reduce_in_fp32: true\n  use_distributed_optimizer: true\n"
		     "optimizer:\n  bf16: false\n  use_distributed_optimizer: false\n"
		     "  weight_decay: 0.1\n  main_grads_dtype: {_target_: torch.float32, "
		     "_call_: false}\n"
		     "scheduler:\n  start_weight_decay: 0.033\n  end_weight_decay: 0.033\n"
		     "  wd_incr_steps: 100\n"
		     "train:\n  exit_signal: {_args_: [10], _call_: true, _target_: a.Signals}\n"
		     "  manual_gc_eval: 100\n  iterations_to_skip: []\n"
		     "checkpoint:\n  most_recent_k: 3\n  save: out\n"
		     "dataset:\n  _target_: a.MockGPTDatasetConfig\n"
		     "comm_overlap: {_target_: a.CommOverlapConfig, tp_comm_overlap: true}\n"
		     "optimizer_config_override_provider:\n"
		     "  _target_: a.OptimizerConfigOverrideProvider\npeft: null\nft: null\n",
		     &c),
		&err);
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert_int_eq(c.main_grads_dtype, MFS_BF16);
	ck_assert(c.use_distributed_optimizer && c.mock_data);
	ck_assert_double_eq(c.weight_decay, 0.033);
	ck_assert_int_eq(c.exit_signal, SIGUSR1);
	ck_assert_int_eq(c.save_keep_last, 3);
	ck_assert_str_eq(c.values->others->name, "train.manual_gc_eval");
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--bf16", "ddp:\n  grad_reduce_in_fp32: true\n", &c), &err);
	ck_assert_int_eq(c.main_grads_dtype, MFS_F32);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL, "mixed_precision: fp16-mixed\nmodel:\n  bf16: true\n", &c), &err);
	ck_assert_int_eq(c.params_dtype, MFS_F16);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--data-path x --weight-decay 0.5",
		     "dataset:\n  mock: true\n"
		     "scheduler:\n  start_weight_decay: 0.033\n  end_weight_decay: 0.033\n",
		     &c),
		&err);
	ck_assert(!c.mock_data);
	ck_assert_double_eq(c.weight_decay, 0.5);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL, "dataset:\n  blend_per_split: [[[a], null], [[b, c], [1, 2]], null]\n",
		     &c),
		&err);
	ck_assert_uint_eq(c.split_data_path[0].count, 1);
	ck_assert_uint_eq(c.split_data_path[1].count, 4);
	ck_assert_uint_eq(c.split_data_path[2].count, 0);
	mft_train_config_release(&c);
}
END_TEST

START_TEST(yaml_bridge_eight_bits)
{
	struct mft_train_config c;

	unit_ok(yaml(SMALL "--num-layers 4",
		     "mixed_precision: bf16_with_fp8_current_scaling_mixed\n", &c),
		&err);
	ck_assert_str_eq(c.fp8, "hybrid");
	ck_assert_str_eq(c.fp8_recipe, "tensorwise");
	ck_assert_int_eq(c.params_dtype, MFS_BF16);
	ck_assert(c.first_last_layers_bf16 && c.num_layers_at_end_in_bf16 == 1);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--fp8-amax-history-len 8",
		     "mixed_precision: bf16-with-fp8-delayed-scaling-mixed\n", &c),
		&err);
	ck_assert_str_eq(c.fp8_recipe, "delayed");
	ck_assert_str_eq(c.fp8_amax_compute_algo, "max");
	ck_assert(c.fp8_amax_history_len == 8 && !c.first_last_layers_bf16);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL,
		     "mixed_precision:\n  bf16: true\n  fp8: e4m3\n"
		     "  fp8_recipe: tensorwise\n",
		     &c),
		&err);
	ck_assert_str_eq(c.fp8_recipe, "tensorwise");
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--num-layers 4",
		     "mixed_precision:\n  bf16: true\n  fp8: hybrid\n"
		     "  first_last_layers_bf16: true\n  num_layers_at_end_in_bf16: 2\n",
		     &c),
		&err);
	ck_assert_str_eq(c.fp8_recipe, "tensorwise");
	ck_assert_int_eq(c.num_layers_at_start_in_bf16, 0);
	ck_assert_int_eq(c.num_layers_at_end_in_bf16, 2);
	mft_train_config_release(&c);
	unit_ok(yaml(SMALL "--fp8-recipe delayed",
		     "mixed_precision:\n  bf16: true\n  fp8: hybrid\n", &c),
		&err);
	ck_assert_str_eq(c.fp8_recipe, "delayed");
	mft_train_config_release(&c);
}
END_TEST

/* What would change results is refused by its name; names that nobody knows still are. */
START_TEST(yaml_bridge_refused)
{
	static const char *const refused[][2] = {
		{"model:\n  softmax_scale: 0.5\n", "model.softmax_scale '0.5' is not supported"},
		{"model:\n  fp8_param: true\n", "model.fp8_param 'true'"},
		{"model:\n  beta_fast: 16\n", "model.beta_fast '16' is not supported; expected 32"},
		{"model:\n  moe_token_dropping: true\n", "model.moe_token_dropping"},
		{"model:\n  _target_: a.GemmaModelProvider\n", "model._target_ 'a.Gemma"},
		{"model:\n  _target_: a.Gemma2ModelProvider2B\n", "model._target_ 'a.Gemma2"},
		{"model:\n  init_method: {_target_: torch.nn.init.xavier_uniform_}\n",
		 "init_method is not supported"},
		{"model:\n  num_layers: 2\n  output_layer_init_method: {_target_: "
		 "torch.nn.init.normal_, mean: 0.0, std: 0.02}\n",
		 "std 0.01, or null"},
		{"optimizer:\n  decoupled_weight_decay: false\n", "optimizer.decoupled_weight"},
		{"dataset:\n  _target_: a.FinetuningDatasetConfig\n", "dataset._target_"},
		{"dataset:\n  add_extra_token_to_sequence: false\n", "dataset.add_extra"},
		{"dataset:\n  random_seed: 1\nrng:\n  seed: 2\n", "is not rng.seed 2"},
		{"tokenizer:\n  legacy_tokenizer: true\n", "tokenizer.legacy_tokenizer"},
		{"peft: {_target_: a.LoRA}\n", "adapters are not trained"},
		{"tensor_inspect:\n  enabled: true\n", "tensor_inspect.enabled"},
		{"optimizer_config_override_provider: {_target_: a.Mine}\n", "_target_ 'a.Mine'"},
		{"mixed_precision:\n  fp8_param: true\n", "mixed_precision.fp8_param"},
	};
	struct mft_train_config c;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(refused); i++)
		unit_fails(yaml(SMALL, refused[i][0], &c), &err, -ENOTSUP, refused[i][1]);
	unit_fails(yaml("", "dataset:\n  sequence_length: 8\nmodel:\n  seq_length: 16\n", &c), &err,
		   -ENOTSUP, "dataset.sequence_length 8 is not model.seq_length 16");
	yaml_fails("model:\n  rope_scalling: true\n",
		   "unknown name 'rope_scalling' in model; did you mean 'rope_scaling'?");
	yaml_fails("logger:\n  filter_warning: true\n", "did you mean 'filter_warnings'?");
	yaml_fails("model:\n  rotary_base: 10000.5\n", "expected an integer");
	yaml_fails("model:\n  attention_backend: 9\n", "expected a member of AttnBackend");
	yaml_fails("model:\n  seed: {a: 1}\n", "a mapping");
	yaml_fails("ddp:\n  grad_reduce_in_fp32: 3\n", "true or false");
	yaml_fails("checkpoint:\n  most_recent_k: x\n", "expected an integer");
	yaml_fails("dataset:\n  blend_per_split: [null]\n", "three blends");
	/* Only what Bridge has saved may have aliases, and they are counted. */
	yaml_fails("model: {num_layers: &x 1}\n", "aliases");
	unit_ok(yaml(SMALL, "_target_: a\nmodel: {num_layers: &x 2, hidden_size: 8, seed: *x}\n",
		     &c),
		&err);
	mft_train_config_release(&c);
}
END_TEST

/* The examples that are installed. */
START_TEST(the_examples_are_accepted)
{
	struct mft_train_config c;
	glob_t found;

	ck_assert_int_eq(glob("configs/train/*.yaml", 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 3);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char line[512];

		snprintf(line, sizeof(line), "--config %s --padded-vocab-size 200000",
			 found.gl_pathv[i]);
		read_ok(line, &c);
		ck_assert_int_gt(c.train_iters, 0);
		mft_train_config_release(&c);
	}
	globfree(&found);
}
END_TEST

/* ---- help ---- */

START_TEST(help_is_by_topics)
{
	struct mft_train_config c;
	struct mfs_buf out = {0};

	mft_help_flags(&out);
	ck_assert(!out.failed && strstr(out.data, "--num-layers N"));
	ck_assert(strstr(out.data, "\nlearning rate and weight decay:\n"));
	mfs_buf_release(&out);
	unit_ok(mft_help_topic("used", &out, &err), &err);
	ck_assert(strstr(out.data, "--num-layers N") && strstr(out.data, "--lr X"));
	ck_assert_ptr_null(strstr(out.data, "without effect"));
	ck_assert_ptr_null(strstr(out.data, "--no-rope-fusion"));
	mfs_buf_release(&out);
	unit_ok(mft_help_topic("MoE", &out, &err), &err);
	ck_assert(strstr(out.data, "--moe-router-topk N") && !strstr(out.data, "--num-layers N"));
	mfs_buf_release(&out);
	unit_ok(mft_help_topic("learning-rate", &out, &err), &err);
	ck_assert(strstr(out.data, "--weight-decay-incr-style") &&
		  !strstr(out.data, "--num-layers N"));
	mfs_buf_release(&out);
	unit_ok(mft_help_topic("expert", &out, &err), &err);
	ck_assert(strstr(out.data, "--num-experts N") && !strstr(out.data, "--lr X"));
	mfs_buf_release(&out);
	unit_ok(mft_help_topic("other programs", &out, &err), &err);
	ck_assert(strstr(out.data, "--use-mpi") && !strstr(out.data, "--lr X"));
	mfs_buf_release(&out);
	unit_fails(mft_help_topic("xpert", &out, &err), &err, -EINVAL, "'xpert'; expected used, ");
	unit_fails(mft_help_topic("", &out, &err), &err, -EINVAL, "--help topics");
	unit_ok(mft_help_topic("topics", &out, &err), &err);
	ck_assert(strstr(out.data, "used\n") && strstr(out.data, "\nmixed precision\n"));
	mfs_buf_release(&out);
	/* What is refused is not offered. */
	for (int i = 0; i < 2; i++) {
		unit_ok(mft_help_completions(i ? "zsh" : "bash", &out, &err), &err);
		ck_assert(!out.failed && strstr(out.data, "--pipeline-model-parallel-layout"));
		ck_assert(strstr(out.data,
				 i ? "(constant linear cosine)" : "'constant linear cosine'"));
		ck_assert_ptr_null(strstr(out.data, "--tensor-parallel-num-weight-shards"));
		mfs_buf_release(&out);
	}
	unit_fails(mft_help_completions("fish", &out, &err), &err, -EINVAL, "bash or zsh");
	read_ok(SMALL "--bf16 --no-rope-fusion", &c);
	mft_help_notes(&c, &out);
	ck_assert_str_eq(out.data, "without effect here: --no-rope-fusion\n");
	mfs_buf_release(&out);
	mft_help_arguments(&c, &out);
	ck_assert(strstr(out.data, "  params_dtype .................................... "
				   "torch.bfloat16\n"));
	mfs_buf_release(&out);
	mft_train_config_release(&c);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("train_args");
	TCase *c = unit_case(s, "values", command_lines_read_as_megatron_reads_them);

	tcase_add_test(c, defaults_are_supported);
	tcase_add_test(c, flags_become_fields);
	tcase_add_test(c, numbers_are_read_as_python_reads_them);
	tcase_add_test(c, no_experts);
	tcase_add_test(c, foreign_table);
	tcase_add_test(c, first_and_last_layers_stay_as_they_are);
	tcase_add_test(c, flags_of_other_programs_are_taken_or_told);
	tcase_add_test(c, several_aux_losses);
	tcase_add_test(c, batch_steps);
	tcase_add_test(c, a_flag_has_the_last_word_over_an_override);
	tcase_add_test(c, batch_steps_of_chunks);
	tcase_add_test(c, other_batches);
	tcase_add_test(c, mup_scales_width_output_and_attention);
	tcase_add_test(c, the_tokenizer_sizes_the_vocabulary);
	tcase_add_test(c, pad_tokens);
	tcase_add_test(c, tokenizer_models);
	c = unit_case(s, "table", every_flag_has_a_use_and_a_type);
	tcase_add_test(c, help_is_by_topics);
	c = unit_case(s, "wrong", a_wrong_flag_is_told_the_nearest);
	tcase_add_test(c, pipelines_have_chunks_and_groups_that_fit);
	tcase_add_test(c, patterns_of_blocks);
	tcase_add_test(c, pipeline_layouts);
	tcase_add_test(c, context_levels);
	tcase_add_test(c, what_changes_results_is_refused);
	tcase_add_test(c, refused_of_experts);
	tcase_add_test(c, refused_sharding);
	tcase_add_test(c, sharding_follows_optimizer_and_fsdp);
	tcase_add_test(c, instances_divide_the_processes);
	tcase_add_test(c, each_format_of_checkpoints_is_accepted);
	tcase_add_test(c, a_default_that_is_spelt_out_is_no_reason_to_refuse);
	c = unit_case(s, "checkpoints", the_namespace_of_a_save_has_the_arguments);
	tcase_add_test(c, saved_is_trained);
	tcase_add_test(c, a_checkpoints_arguments_are_adopted);
	tcase_add_test(c, adopted_and_refused);
	tcase_add_test(c, adopted_over_given);
	c = unit_case(s, "yaml", yaml_megatron);
	tcase_add_test(c, yaml_bridge);
	tcase_add_test(c, yaml_of_others);
	tcase_add_test(c, yaml_whole_files);
	tcase_add_test(c, yaml_oumi_grpo);
	tcase_add_test(c, yaml_verl);
	tcase_add_test(c, yaml_skyrl_and_nemo);
	tcase_add_test(c, rewards);
	tcase_add_test(c, yaml_activation);
	tcase_add_test(c, yaml_saved);
	tcase_add_test(c, yaml_bridge_forms);
	tcase_add_test(c, yaml_bridge_training);
	tcase_add_test(c, yaml_bridge_eight_bits);
	tcase_add_test(c, yaml_bridge_refused);
	tcase_add_test(c, yaml_wrong);
	tcase_add_test(c, the_examples_are_accepted);
	return s;
}
