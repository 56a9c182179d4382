/* What a run says: trainer/report. TensorBoard itself reads event files in tests/interop. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "formats/base/crc32c.h"
#include "trainer/report/events.h"
#include "trainer/report/flops.h"
#include "trainer/report/lines.h"
#include "trainer/report/offline.h"
#include "trainer/report/straggler_line.h"
#include "trainer/report/terminal.h"

static struct mfs_error err;

/* ---- operations ---- */

static struct mfs_megatron_args llama3_8b(void)
{
	return (struct mfs_megatron_args){
		.num_layers = 32,
		.hidden_size = 4096,
		.ffn_hidden_size = 14336,
		.num_attention_heads = 32,
		.num_query_groups = 8,
		.kv_channels = 128,
		.swiglu = true,
		.moe_ffn_hidden_size = MFS_ABSENT,
		.moe_shared_expert_intermediate_size = MFS_ABSENT,
		.moe_router_topk = 2,
		.q_lora_rank = MFS_ABSENT,
		.qk_head_dim = 128,
		.qk_pos_emb_head_dim = 64,
		.v_head_dim = 128,
	};
}

static void counts(const struct mfs_megatron_args *m, uint64_t seq, uint64_t vocab, uint64_t batch,
		   double want)
{
	const double got = mft_flops(m, seq, vocab, batch);

	ck_assert_msg(fabs(got - want) <= 1e-13 * want, "%.17g, not %.17g", got, want);
}

/* Counts are what num_floating_point_operations of megatron-core 0.20.0's training.py returns. */

START_TEST(operations_of_dense_models_are_megatrons)
{
	struct mfs_megatron_args m = llama3_8b();

	counts(&m, 4096, 128256, 1, 197628625158144.0);
	counts(&m, 4096, 128256, 512, 1.0118585608096973e+17);

	m.num_layers = 48;
	m.hidden_size = 1600;
	m.ffn_hidden_size = 6400;
	m.num_attention_heads = m.num_query_groups = 25;
	m.kv_channels = 64;
	m.swiglu = false;
	counts(&m, 1024, 50304, 8, 80299111219200.0);

	m = llama3_8b();
	m.num_layers = 28;
	m.hidden_size = 1024;
	m.ffn_hidden_size = 3072;
	m.num_attention_heads = 16;
	m.attention_output_gate = true;
	counts(&m, 4096, 151936, 3, 65587371835392.0);
}
END_TEST

START_TEST(operations_of_experts_are_megatrons)
{
	struct mfs_megatron_args m = llama3_8b();
	uint8_t moe[32];

	memset(moe, 1, sizeof(moe));
	m.moe_layers = moe;
	m.moe_ffn_hidden_size = 14336;
	counts(&m, 4096, 32000, 16, 5223642304610304.0);
}
END_TEST

/* Latent attention, shared experts, dense layers first. */
START_TEST(operations_of_deepseeks_models_are_megatrons)
{
	struct mfs_megatron_args m = llama3_8b();
	uint8_t moe[61];

	memset(moe, 1, sizeof(moe));
	moe[0] = 0;
	m.moe_layers = moe;
	m.multi_latent_attention = true;
	m.num_layers = 4;
	m.hidden_size = 2048;
	m.ffn_hidden_size = 10944;
	m.moe_ffn_hidden_size = 1408;
	m.moe_router_topk = 6;
	m.moe_shared_expert_intermediate_size = 2816;
	m.num_attention_heads = 16;
	m.kv_lora_rank = 512;
	counts(&m, 4096, 102400, 16, 228682044014592.0);

	moe[1] = moe[2] = 0;
	m.num_layers = 61;
	m.hidden_size = 7168;
	m.ffn_hidden_size = 18432;
	m.moe_ffn_hidden_size = m.moe_shared_expert_intermediate_size = 2048;
	m.moe_router_topk = 8;
	m.num_attention_heads = 128;
	m.q_lora_rank = 1536;
	m.mtp_num_layers = 1;
	counts(&m, 4096, 129280, 7, 7454517884878848.0);
}
END_TEST

START_TEST(operations_of_mtp_layers_are_those_of_the_last_layers_kind)
{
	struct mfs_megatron_args m = llama3_8b();
	uint8_t moe[] = {1, 0, 1, 0, 1};

	m.moe_layers = moe;
	m.num_layers = 5;
	m.mtp_num_layers = 2;
	m.hidden_size = 64;
	m.ffn_hidden_size = 176;
	m.num_attention_heads = 4;
	m.num_query_groups = 2;
	m.kv_channels = 16;
	m.moe_ffn_hidden_size = 100;
	counts(&m, 128, 1024, 5, 2366668800.0);
	m.num_layers = 4;
	m.moe_ffn_hidden_size = MFS_ABSENT;
	counts(&m, 128, 1024, 5, 2329313280.0);
}
END_TEST

/* Three of four layers have one. */
START_TEST(operations_of_gated_delta_nets_are_megatrons)
{
	struct mfs_megatron_args m = llama3_8b();
	uint8_t linear[48];

	m.num_layers = 48;
	m.hidden_size = 2048;
	m.ffn_hidden_size = 5632;
	m.num_attention_heads = 16;
	m.num_query_groups = 2;
	m.kv_channels = 256;
	m.attention_output_gate = true;
	m.linear_conv_kernel_dim = 4;
	m.linear_key_head_dim = m.linear_value_head_dim = 128;
	m.linear_num_key_heads = 16;
	m.linear_num_value_heads = 32;
	for (int64_t i = 0; i < m.num_layers; i++)
		linear[i] = i % 4 != 3;
	m.linear_layers = linear;
	counts(&m, 4096, 151936, 2, 186283469045760.0);
}
END_TEST

START_TEST(a_share_of_the_peak_needs_a_peak_and_a_time)
{
	ck_assert(mft_flops_share(400e12, 1, 800e12) == 0.5);
	ck_assert(mft_flops_share(400e12, 1, 0) == 0 && mft_flops_share(1, 0, 1) == 0);
}
END_TEST

/* ---- lines ---- */

static void says(struct mfs_buf *b, const char *want)
{
	ck_assert(!b->failed);
	ck_assert_str_eq(b->data, want);
	mfs_buf_release(b);
	*b = (struct mfs_buf){0};
}

/* Lines as the format strings of training.py give them. */
START_TEST(lines_are_megatrons)
{
	const struct mft_report_loss losses[] = {{"lm loss", 6.928516, false},
						 {"load_balancing_loss", 1.0625, false},
						 {"z_loss", -1, false}};
	struct mft_report_iteration r = {
		.now = {1753000000, 42},
		.iteration = 21,
		.iterations = 40,
		.consumed_samples = 168,
		.seconds = 0.1234,
		.throughput = MFS_ABSENT,
		.sol = MFS_ABSENT,
		.learning_rate = 6.3817e-4,
		.batch = 8,
		.losses = losses,
		.loss_count = 3,
		.loss_scale = 1,
		.grad_norm = 1.2345,
		.zeros = MFS_ABSENT,
		.params_norm = MFS_ABSENT,
	};
	struct mfs_buf b = {0};

	setenv("TZ", "UTC", 1);
	tzset();
	mft_report_iteration(&b, &r);
	says(&b, " [2025-07-20 08:26:40.000042] iteration       21/      40 | consumed samples:    "
		 "      168 | elapsed time per iteration (ms): 123.4 | learning rate: 6.381700E-04 "
		 "| global batch size:     8 | lm loss: 6.928516E+00 | load_balancing_loss: "
		 "1.062500E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped "
		 "iterations:   0 | number of nan iterations:   0 |\n");
	r.throughput = 512.66;
	r.sol = 0.64944;
	r.skipped_samples = 16;
	r.loss_count = 0;
	r.loss_scale = 4294967296;
	r.grad_norm = -(double)NAN;
	r.zeros = 17;
	r.params_norm = 99.5;
	r.skipped = 2;
	r.not_finite = 1;
	mft_report_iteration(&b, &r);
	says(&b, " [2025-07-20 08:26:40.000042] iteration       21/      40 | consumed samples:    "
		 "      168 | skipped samples:           16 | elapsed time per iteration (ms): "
		 "123.4 | throughput per GPU (TFLOP/s/GPU): 512.7 | sol: 64.9% | learning rate: "
		 "6.381700E-04 | global batch size:     8 | loss scale: 4294967296.0 | grad "
		 "norm: nan | num zeros: 17.0 | params norm: 99.500 | number of skipped "
		 "iterations:   2 | number of nan iterations:   1 |\n");

	mft_report_evaluation(&b, "", "iteration 20", losses, 1);
	says(&b, "----------------------------------------------------------------------"
		 "------------------------\n"
		 " validation loss at iteration 20 | lm loss value: 6.928516E+00 | lm loss PPL: "
		 "1.020978E+03 | \n"
		 "----------------------------------------------------------------------"
		 "------------------------\n");
	mft_report_evaluation(&b, "-books", "iteration 20 on validation set", losses, 1);
	says(&b, "----------------------------------------------------------------------"
		 "------------------------------------------------\n"
		 " validation-books loss at iteration 20 on validation set | lm loss value: "
		 "6.928516E+00 | lm loss PPL: 1.020978E+03 | \n"
		 "----------------------------------------------------------------------"
		 "------------------------------------------------\n");
	ck_assert(mft_report_perplexity(30) == exp(20));
	mft_report_saved(
		&b, &(struct mft_report_save){
			    .now = r.now, .iteration = 20, .dir = "/runs/a", .tp = 2, .pp = 4});
	says(&b, "  [2025-07-20 08:26:40.000042] successfully saved checkpoint from iteration      "
		 "20 to /runs/a [ t 1/2, gtp_remat 1/1, p 1/4 ]\n");
}
END_TEST

/* Programs that read logs look for Megatron's line (training.py: checkpoint_and_decide_exit). */
START_TEST(the_last_lines_say_why_it_ended)
{
	struct mft_report_end e = {
		.now = {1753000000, 42}, .why = MFT_STOP_INTERVAL, .iteration = 20};
	struct mfs_buf b = {0};

	mft_report_end(&b, &e);
	says(&b, "[exiting program at iteration 20] datetime: 2025-07-20 08:26:40.000042 \n"
		 "exiting at iteration 20: --exit-interval has come\n");
	e.why = MFT_STOP_MINUTES;
	e.minutes = 1.5;
	mft_report_end(&b, &e);
	says(&b, "[exiting program after 1.5 minutes] datetime: 2025-07-20 08:26:40.000042 \n"
		 "exiting at iteration 20: --exit-duration-in-mins is over\n");
	e.why = MFT_STOP_SIGNAL;
	mft_report_end(&b, &e);
	says(&b, "[exiting program after receiving SIGTERM.] datetime: "
		 "2025-07-20 08:26:40.000042 \nexiting at iteration 20: a signal asked for it\n");
}
END_TEST

START_TEST(nothing_is_written_to_what_is_no_terminal)
{
	struct mft_terminal t;
	FILE *to = tmpfile();
	char text[80];

	mft_terminal_rate(text, sizeof(text), 2.5, 1489, 524288);
	ck_assert_str_eq(text, "209.7 k tokens/s, 1:02:03 left");
	mft_terminal_begin(&t, to, 0); /* no terminal */
	mft_terminal_show(&t, 1, 2, 3);
	mft_terminal_clear(&t);
	ck_assert_int_eq(ftell(to), 0);
	fclose(to);
}
END_TEST

/* ---- events ---- */

START_TEST(sums_are_those_of_the_rfc)
{
	uint8_t zeros[32] = {0};

	/* RFC 3720, B.4 */
	ck_assert_uint_eq(mfs_crc32c(zeros, sizeof(zeros)), 0x8a9136aa);
	ck_assert_uint_eq(mfs_crc32c("123456789", 9), 0xe3069283);
}
END_TEST

static uint32_t masked(const void *bytes, size_t len)
{
	const uint32_t crc = mfs_crc32c(bytes, len);

	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The record at *at; its bytes are in *ret. */
static size_t next_record(const uint8_t *bytes, size_t len, size_t *at, const uint8_t **ret)
{
	const uint64_t size = mfs_le64(bytes + *at);

	ck_assert_uint_le(*at + 16 + size, len);
	ck_assert_uint_eq(mfs_le32(bytes + *at + 8), masked(bytes + *at, 8));
	*ret = bytes + *at + 12;
	ck_assert_uint_eq(mfs_le32(*ret + size), masked(*ret, size));
	*at += 16 + size;
	return size;
}

START_TEST(events_are_written_as_tensorboard_reads_them)
{
	struct mft_events *e, *other;
	char dir[400];
	const uint8_t *record;
	uint8_t *bytes;
	size_t len, at = 0;

	snprintf(dir, sizeof(dir), "%s/a/b", unit_tmpdir());
	unit_ok(mft_events_open(dir, &e, &err), &err);
	unit_ok(mft_events_open(dir, &other, &err), &err);
	ck_assert_str_ne(mft_events_path(e), mft_events_path(other));
	ck_assert_ptr_nonnull(strstr(mft_events_path(e), "/a/b/events.out.tfevents."));
	mft_events_close(other);
	mft_events_both(e, "lm loss", 2.5, 300, 2400);
	unit_ok(mft_events_flush(e, &err), &err);
	mft_events_scalar(e, "kept", 1, 1);
	bytes = unit_slurp(mft_events_path(e), &len);
	ck_assert_uint_eq(next_record(bytes, len, &at, &record), 9 + 15);
	ck_assert_mem_eq(record + 9,
			 "\x1a\x0d"
			 "brain.Event:2",
			 15);
	next_record(bytes, len, &at, &record);
	ck_assert_uint_eq(record[0], 1 << 3 | 1); /* wall_time, a double */
	ck_assert_mem_eq(record + 9, "\x10\xac\x02\x2a\x10\x0a\x0e\x0a\x07lm loss\x15\0\0\x20\x40",
			 26 - 5 + 0);
	next_record(bytes, len, &at, &record);
	ck_assert_mem_eq(record + 9, "\x10\xe0\x12", 3); /* 2400 */
	ck_assert_mem_eq(record + 18, "lm loss vs samples", 18);
	ck_assert_uint_eq(at, len); /* what is not flushed is not there */
	free(bytes);
	mft_events_close(e);
}
END_TEST

/* A disk that is full: the sentence names the file, and no half record stays. */
START_TEST(events_fail)
{
	struct rlimit before, limit;
	struct mft_events *e;
	uint8_t *bytes;
	const uint8_t *record;
	size_t len, at = 0;
	char dir[400];
	int rc;

	snprintf(dir, sizeof(dir), "%s/full", unit_tmpdir());
	unit_ok(mft_events_open(dir, &e, &err), &err);
	mft_events_scalar(e, "first", 1, 1);
	unit_ok(mft_events_flush(e, &err), &err);
	signal(SIGXFSZ, SIG_IGN);
	for (int i = 0; i < 20; i++)
		mft_events_scalar(e, "more", i, 2);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 300;
	setrlimit(RLIMIT_FSIZE, &limit);
	rc = mft_events_flush(e, &err);
	setrlimit(RLIMIT_FSIZE, &before);
	ck_assert_int_eq(rc, -EFBIG);
	unit_sentence(err.msg, "tfevents");
	bytes = unit_slurp(mft_events_path(e), &len);
	next_record(bytes, len, &at, &record);
	next_record(bytes, len, &at, &record);
	ck_assert_uint_eq(at, len);
	free(bytes);
	mft_events_close(e);
	unit_fails(mft_events_open("/dev/null/x", &e, &err), &err, -ENOTDIR, "/dev/null");
}
END_TEST

/* What is sent to Weights & Biases later: values of a step in one line. */
START_TEST(values_of_a_step_are_one_line)
{
	static const char want[] = "\"log\": {\"lm loss\": 2.5, \"a \\\"b\\\"\": \"NaN\"}}\n";
	static const char first[] = "{\"init\": {\"project\": \"p\"}}\n{\"step\": 300, \"time\": ";
	struct mfs_buf init = {0};
	struct mft_offline *o;
	char dir[400], *text, *line;
	size_t len;

	snprintf(dir, sizeof(dir), "%s/c/d", unit_tmpdir());
	mfs_buf_adds(&init, "{\"project\": \"p\"}");
	unit_ok(mft_offline_open(dir, NULL, &init, &o, &err), &err);
	mft_offline_value(o, "lm loss", 2.5, 300);
	mft_offline_value(o, "a \"b\"", NAN, 300);
	mft_offline_value(o, "lm loss", -INFINITY, 301);
	unit_ok(mft_offline_flush(o, &err), &err);
	mft_offline_value(o, "kept", 1, 302);
	text = (char *)unit_slurp(mft_offline_path(o), &len);
	text = realloc(text, len + 1);
	text[len] = '\0';
	ck_assert(!strncmp(text, first, sizeof(first) - 1));
	line = strchr(text, '\n') + 1;
	ck_assert(!strncmp(strstr(line, "\"log\""), want, sizeof(want) - 1));
	line = strchr(line, '\n') + 1;
	ck_assert_ptr_eq(strstr(line, "{\"step\": 301, "), line);
	ck_assert_ptr_nonnull(strstr(line, "{\"lm loss\": \"-Infinity\"}}\n"));
	ck_assert_ptr_null(strstr(line, "kept"));
	free(text);
	mft_offline_close(o);
	/* The directory that a run makes in another one is no link. */
	snprintf(dir, sizeof(dir), "%s/wandb", unit_tmpdir());
	ck_assert_int_eq(symlink("/", dir), 0);
	unit_fails(mft_offline_open(unit_tmpdir(), "wandb", &init, &o, &err), &err, -ENOTDIR,
		   "wandb");
	unit_fails(mft_offline_open("/dev/null/x", NULL, &init, &o, &err), &err, -ENOTDIR,
		   "/dev/null");
	mfs_buf_release(&init);
}
END_TEST

/* The line of Megatron's README_STRAGGLER.md; of equal ranks the first is named. */
START_TEST(the_line_of_stragglers_is_megatrons)
{
	static const struct mft_straggler_rank all[] = {
		{3468.2, 20, 600, 52, 97, 1980, 296.02},
		{3460, 14.27, 500, 65, 100, 1950, 297.32},
		{3453.08, 34.65, 700, 52, 97, 1950, 297.28},
		{3460, 20, 600, 60, 98, 1960, 297.28},
	};
	struct mfs_buf b = {0};

	setenv("TZ", "UTC", 1);
	ck_assert(mft_report_straggler(&b, 1710457676, all, 4, 2) && !b.failed);
	mfs_buf_add(&b, "", 1);
	ck_assert_str_eq(
		b.data,
		"INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/2 | "
		"MxRtt/Rnk: 3468.20ms/0 | MnPwr/Rnk: 500.00W/1 | MxPwr/Rnk: 700.00W/2 | "
		"MnTmp/Rnk: 52.00C/0 | MxTmp/Rnk: 65.00C/1 | MnUtl/Rnk: 97.00%/0 | MxUtl/Rnk: "
		"100.00%/1 | MnClk/Rnk: 1950.00MHz/1 | MxClk/Rnk: 1980.00MHz/0 | MnDRtt/Rnk: "
		"14.27ms/1 | MxDRtt/Rnk: 34.65ms/2 | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: "
		"297.32TF/1\n"
		"INFO:megatron.core.utils:^^^^ Bottom 2 Ranks with lowest  Etpt(TF): 296.02/0, "
		"297.28/2,\n"
		"INFO:megatron.core.utils:^^^^ Top    2 Ranks with highest Etpt(TF): 297.28/3, "
		"297.32/1,\n");
	mfs_buf_release(&b);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("report");
	TCase *c = unit_case(s, "lines", lines_are_megatrons);

	tcase_add_test(c, operations_of_dense_models_are_megatrons);
	tcase_add_test(c, operations_of_experts_are_megatrons);
	tcase_add_test(c, operations_of_deepseeks_models_are_megatrons);
	tcase_add_test(c, operations_of_mtp_layers_are_those_of_the_last_layers_kind);
	tcase_add_test(c, operations_of_gated_delta_nets_are_megatrons);
	tcase_add_test(c, a_share_of_the_peak_needs_a_peak_and_a_time);
	tcase_add_test(c, the_last_lines_say_why_it_ended);
	tcase_add_test(c, nothing_is_written_to_what_is_no_terminal);
	tcase_add_test(c, the_line_of_stragglers_is_megatrons);
	c = unit_case(s, "events", events_are_written_as_tensorboard_reads_them);
	tcase_add_test(c, sums_are_those_of_the_rfc);
	tcase_add_test(c, events_fail);
	tcase_add_test(c, values_of_a_step_are_one_line);
	return s;
}
