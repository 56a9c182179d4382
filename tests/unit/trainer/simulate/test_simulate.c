/* What a machine takes for recorded work (trainer/simulate), compared with what is known of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/unit.h"
#include "trainer/parallel/pipeline.h"
#include "trainer/simulate/timeline.h"

static struct mfs_error err;

/* A second for each 1000 bytes of memory, and for each 1000 bytes between processes. */
static const struct mft_machine plain = {
	.units = 1,
	.bandwidth = 1000,
	.other_share = 1,
	.host_bandwidth = 1000,
	.gpus_per_host = 1000,
	.link = 1000,
	.network = 100,
	.network_latency = 3,
};

/* ---- records ---- */

struct script {
	struct mfk_work list[4096];
	struct mfk_record_message messages[4096];
	struct mfk_record record;
};

static struct mfk_comm *const comms[] = {(void *)&comms[0], (void *)&comms[1]};

static void add(struct script *s, struct mfk_work w)
{
	ck_assert_uint_lt(s->record.count, 4096);
	w.name = "";
	s->list[s->record.count++] = w;
	s->record.list = s->list;
	s->record.messages = s->messages;
}

static void works(struct script *s, unsigned stream, uint64_t bytes)
{
	add(s, (struct mfk_work){.kind = MFK_WORK_MEMORY, .stream = stream, .bytes = bytes});
}

static void says(struct script *s, bool receive, unsigned peer, uint64_t bytes)
{
	s->messages[s->record.message_count++] = (struct mfk_record_message){receive, peer, bytes};
}

/* The messages since the last exchange. */
static void exchanges(struct script *s, unsigned stream, uint64_t bytes)
{
	unsigned from = 0;

	for (uint64_t i = 0; i < s->record.count; i++)
		if (s->list[i].kind == MFK_WORK_EXCHANGE)
			from = s->list[i].first_message + s->list[i].messages;
	add(s, (struct mfk_work){.kind = MFK_WORK_EXCHANGE,
				 .stream = stream,
				 .comm = comms[0],
				 .bytes = bytes,
				 .first_message = from,
				 .messages = (unsigned)s->record.message_count - from});
}

static struct mft_timeline_stage stage_of(const struct script *s, uint32_t size)
{
	return (struct mft_timeline_stage){
		.record = &s->record,
		.groups = {{.comm = comms[0], .machine = {size, size}, .stages = true},
			   {.comm = comms[1], .machine = {2, 2}}}};
}

static double time_on(const struct mft_machine *m, const struct script *scripts, uint32_t count,
		      unsigned free)
{
	struct mft_timeline_stage stages[8];
	struct mft_timeline t;

	for (uint32_t i = 0; i < count; i++)
		stages[i] = stage_of(&scripts[i], count);
	unit_ok(mft_timeline_run(m, stages, count, free, &t, &err), &err);
	return t.step;
}

static double time_of(const struct script *scripts, uint32_t count, unsigned free)
{
	return time_on(&plain, scripts, count, free);
}

/* ---- streams, events and the host ---- */

START_TEST(streams_run_in_parallel)
{
	static struct script s;

	s = (struct script){0};
	works(&s, 0, 2000);
	add(&s, (struct mfk_work){.kind = MFK_WORK_RECORD, .stream = 0, .event = 5});
	works(&s, 0, 4000);
	works(&s, 1, 1000);
	add(&s, (struct mfk_work){.kind = MFK_WORK_WAIT, .stream = 1, .event = 5});
	works(&s, 1, 1000); /* from 2 s on */
	ck_assert_double_eq_tol(time_of(&s, 1, MFT_TIMELINE_GROUPS), 6, 1e-9);
	add(&s, (struct mfk_work){.kind = MFK_WORK_SYNC, .stream = 0});
	works(&s, 1, 1000); /* from 6 s on */
	ck_assert_double_eq_tol(time_of(&s, 1, MFT_TIMELINE_GROUPS), 7, 1e-9);
	add(&s, (struct mfk_work){.kind = MFK_WORK_EVENT_SYNC, .event = 5});
	add(&s, (struct mfk_work){.kind = MFK_WORK_MEETING, .comm = comms[1]});
	works(&s, 0, 500);
	ck_assert_double_eq_tol(time_of(&s, 1, MFT_TIMELINE_GROUPS), 7, 1e-9);
}
END_TEST

START_TEST(a_group_is_as_slow_as_its_link)
{
	static struct script s;

	s = (struct script){0};
	works(&s, 0, 1000);
	add(&s, (struct mfk_work){
			.kind = MFK_WORK_ALL_REDUCE, .stream = 1, .comm = comms[1], .bytes = 4000});
	/* 2 * 4000 / 2 bytes */
	ck_assert_double_eq_tol(time_of(&s, 1, MFT_TIMELINE_GROUPS), 4, 1e-9);
	ck_assert_double_eq_tol(time_of(&s, 1, 1), 1, 1e-9);
}
END_TEST

/* Half of its time. Passes that wait meanwhile lose nothing, and their own communication is not in
 * parallel with them. */
START_TEST(communication_slows_what_runs_with_it)
{
	const struct mfk_work sum = {
		.kind = MFK_WORK_ALL_REDUCE, .stream = 1, .comm = comms[1], .bytes = 4000};
	struct mft_machine m = plain;
	struct mfk_work own = sum;
	static struct script s;

	m.busy_link = 0.5;
	s = (struct script){0};
	add(&s, sum); /* to 4 s */
	works(&s, 0, 3000);
	ck_assert_double_eq_tol(time_on(&m, &s, 1, MFT_TIMELINE_GROUPS), 5, 1e-9);
	works(&s, 0, 1000); /* nothing more is lost */
	ck_assert_double_eq_tol(time_on(&m, &s, 1, MFT_TIMELINE_GROUPS), 6, 1e-9);
	ck_assert_double_eq_tol(time_on(&m, &s, 1, 1), 4, 1e-9);

	s = (struct script){0};
	add(&s, sum);
	works(&s, 0, 1000); /* to 2 s */
	add(&s, (struct mfk_work){.kind = MFK_WORK_RECORD, .stream = 1, .event = 1});
	add(&s, (struct mfk_work){.kind = MFK_WORK_WAIT, .stream = 0, .event = 1});
	works(&s, 0, 1000);
	ck_assert_double_eq_tol(time_on(&m, &s, 1, MFT_TIMELINE_GROUPS), 5, 1e-9);

	s = (struct script){0};
	own.stream = 0;
	add(&s, own);
	works(&s, 0, 1000);
	ck_assert_double_eq_tol(time_on(&m, &s, 1, MFT_TIMELINE_GROUPS), 5, 1e-9);
}
END_TEST

START_TEST(between_hosts)
{
	const struct mfk_work gather = {.kind = MFK_WORK_ALL_GATHER, .bytes = 16000};
	const struct mfk_work messages = {.kind = MFK_WORK_EXCHANGE, .bytes = 15000};
	const struct mft_machine_group near = {16, 16}, far = {16, 4};

	ck_assert_double_eq_tol(mft_machine_time(&plain, &gather, &near), 15, 1e-9);
	/* Four links of 100 bytes a second. */
	ck_assert_double_eq_tol(mft_machine_time(&plain, &gather, &far), 15000.0 / 400 + 3 * 4,
				1e-9);
	/* 12 of 15 others are elsewhere. */
	ck_assert_double_eq_tol(mft_machine_time(&plain, &messages, &far), 12000.0 / 100 + 3, 1e-9);
}
END_TEST

/* ---- products ---- */

/* 1000 operations a second, and memory as fast as plain's. */
static struct mft_machine multiplies(void)
{
	struct mft_machine m = plain;

	m.products[MFK_BF16] = 1000;
	m.groups_of_products = 0.5;
	return m;
}

/* A product that writes for 1 s while its 3 s of operations run, or adds to the same. */
START_TEST(what_is_added_to_comes_after_a_product)
{
	struct mfk_work w = {.kind = MFK_WORK_GEMM,
			     .dtype = MFK_BF16,
			     .m = 128,
			     .n = 256,
			     .groups = 1,
			     .flops = 3000,
			     .bytes = 2000};
	const struct mft_machine m = multiplies();

	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 3, 1e-9);
	w.added = 2000;
	w.bytes += 1000;
	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 5, 1e-9);
	w.bytes += 5000;
	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 8, 1e-9);
}
END_TEST

/* A gradient of weights [6, 4] of 10 rows, as it is written down: of one matrix, and of three of a
 * group each. Operands of 8 bits have rows along the sum. */
static struct mfk_work recorded(enum mfk_dtype type, int64_t groups, float beta)
{
	const bool eight = mfk_is_scaled(type);
	const struct mfk_gemm_grouped g = {.base = {.m = 6,
						    .n = 4,
						    .k = 10,
						    .trans_a = !eight,
						    .trans_b = eight,
						    .dtype_a = type,
						    .dtype_b = type,
						    .dtype_c = MFK_F32,
						    .beta = beta},
					   .along_k = eight,
					   .groups = groups};
	const struct mfk_device_ops *dev = mfk_recorder.device;
	struct mfk_device *device;
	struct mfk_record record;
	struct mfk_work work;
	struct mfk_ctx *ctx;
	char why[MFK_WHY];

	ck_assert_int_eq(dev->open(0, 1, &device, why), 0);
	ck_assert_int_eq(dev->ctx_new(device, false, &ctx, why), 0);
	if (groups > 1)
		mfk_recorder.ops->gemm_grouped(ctx, &g);
	else
		mfk_recorder.ops->gemm(ctx, &g.base);
	mfk_record_take(device, &record);
	ck_assert_uint_eq(record.count, 1);
	work = record.list[0];
	mfk_record_release(&record);
	dev->ctx_free(ctx);
	dev->close(device);
	return work;
}

START_TEST(gradients_of_weights_are_added_to)
{
	const uint64_t matrix = 6 * 4 * 4;

	for (int i = 0; i < 4; i++) {
		const enum mfk_dtype type = i < 2 ? MFK_BF16 : MFK_E4M3;
		const int64_t groups = i % 2 ? 3 : 1;
		const uint64_t read = (6 + 4) * 10 * mfk_dtype_size(type);
		const struct mfk_work first = recorded(type, groups, 0);
		const struct mfk_work next = recorded(type, groups, 1);

		ck_assert_uint_eq(first.bytes, read + groups * matrix);
		ck_assert_int_eq(first.m, 6);
		ck_assert_uint_eq(first.added, 0);
		ck_assert_uint_eq(next.bytes, read + 2 * groups * matrix);
		ck_assert_uint_eq(next.added, 2 * groups * matrix);
		ck_assert_double_eq(next.flops, 2 * 6 * 4 * 10);
	}
}
END_TEST

/* Groups have pairs of tiles, of 512 columns: 256 are half of one, and all of another product's. */
START_TEST(groups_fill_pairs_of_tiles)
{
	struct mfk_work w = {.kind = MFK_WORK_GEMM,
			     .dtype = MFK_BF16,
			     .m = 128,
			     .n = 512,
			     .groups = 2,
			     .flops = 3000};
	const struct mft_machine m = multiplies();

	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 6, 1e-9);
	w.m = 64; /* half of the tiles */
	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 12, 1e-9);
	w.m = 128;
	w.n = 256;
	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 12, 1e-9);
	w.groups = 1;
	ck_assert_double_eq_tol(mft_machine_time(&m, &w, NULL), 3, 1e-9);
}
END_TEST

/* ---- pipelines ---- */

enum { PASSES, BESIDE }; /* streams */

static void waits(struct script *s, unsigned stream, unsigned event)
{
	add(s, (struct mfk_work){.kind = MFK_WORK_WAIT, .stream = stream, .event = event});
}

static void marks(struct script *s, unsigned stream, unsigned event)
{
	add(s, (struct mfk_work){.kind = MFK_WORK_RECORD, .stream = stream, .event = event});
}

static void script_exchange(const struct mft_pipeline *p, const struct mft_pipeline_step *x,
			    struct script *s)
{
	for (uint32_t k = 0; k < x->message_count; k++)
		says(s, x->message[k].receive, x->message[k].stage, 0);
	marks(s, PASSES, p->exchanges);
	waits(s, BESIDE, p->exchanges);
	exchanges(s, BESIDE, 0);
	marks(s, BESIDE, (unsigned)(x->number % p->exchanges));
}

/* Forward takes 1 s and backward 2; messages cost nothing. */
static void script_of(const struct mft_pipeline *p, struct script *s)
{
	*s = (struct script){0};
	for (uint64_t i = 0; i < p->count; i++) {
		const struct mft_pipeline_step *x = &p->steps[i];

		if (x->kind == MFT_PIPELINE_EXCHANGE) {
			script_exchange(p, x, s);
			continue;
		}
		if (x->after)
			waits(s, PASSES, (unsigned)((x->after - 1) % p->exchanges));
		works(s, PASSES, x->kind == MFT_PIPELINE_FORWARD ? 1000 : 2000);
	}
}

static double pipeline_time(uint32_t stages, uint32_t chunks, uint64_t microbatches)
{
	const struct mft_pipeline_shape shape = {stages, chunks, chunks > 1 ? stages : 1,
						 microbatches, true};
	static struct script scripts[8];

	for (uint32_t i = 0; i < stages; i++) {
		struct mft_pipeline p;

		unit_ok(mft_pipeline_new(&shape, i, &p, &err), &err);
		script_of(&p, &scripts[i]);
		mft_pipeline_release(&p);
	}
	return time_of(scripts, stages, MFT_TIMELINE_GROUPS);
}

/* Narayanan and others (SC 2021), 2.2: the bubble is (stages - 1) (forward + backward) of a stage,
 * or of a chunk. Among eight stages and more some wait for exchanges of others: 2 % of the time. */
START_TEST(a_pipeline_has_its_bubble)
{
	for (uint32_t stages = 1; stages <= 8; stages++)
		for (uint32_t chunks = 1; chunks <= (stages > 1 ? 4u : 1u); chunks++)
			for (uint64_t m = stages; m <= 4 * stages; m += stages) {
				const double ideal = 3.0 * (double)(chunks * m + stages - 1);
				const double found = pipeline_time(stages, chunks, m);
				const double more = stages < 8 || chunks == 1 ? 0 : 0.02 * ideal;

				ck_assert_msg(found >= ideal - 1e-9 && found <= ideal + more + 1e-9,
					      "%u stages, %u chunks, %zu microbatches: %g, not %g",
					      stages, chunks, (size_t)m, found, ideal);
			}
}
END_TEST

START_TEST(stages_that_wait_for_ever_are_found)
{
	static struct script s[2];
	struct mft_timeline_stage stages[2];
	struct mft_timeline t;

	for (int i = 0; i < 2; i++) {
		s[i] = (struct script){0};
		says(&s[i], true, 1 - i, 10);
		exchanges(&s[i], 0, 10);
		says(&s[i], false, 1 - i, 10);
		exchanges(&s[i], 0, 10);
		stages[i] = stage_of(&s[i], 2);
	}
	ck_assert_int_eq(mft_timeline_run(&plain, stages, 2, MFT_TIMELINE_GROUPS, &t, &err),
			 -EDEADLK);
}
END_TEST

/* ---- files ---- */

static void read_machine(const char *path, struct mft_machine *ret)
{
	char bytes[8192];
	FILE *f = fopen(path, "r");
	size_t len;

	ck_assert_ptr_nonnull(f);
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	unit_ok(mft_machine_parse(path, bytes, len, ret, &err), &err);
}

START_TEST(machines_that_are_known)
{
	const struct mfk_work square = {.kind = MFK_WORK_GEMM,
					.dtype = MFK_BF16,
					.m = 8448, /* 66 * 32 tiles: 16 waves */
					.n = 8192,
					.k = 8192,
					.groups = 1,
					.flops = 2.0 * 8448 * 8192 * 8192,
					.bytes = 1};
	struct mft_machine m;

	read_machine("configs/machines/h100.yaml", &m);
	ck_assert_str_eq(m.name, "NVIDIA H100");
	read_machine("configs/machines/h200.yaml", &m);
	ck_assert_str_eq(m.name, "NVIDIA H200");
	ck_assert_uint_eq(m.gpus_per_host, 8);
	ck_assert(m.products[MFK_E4M3] == 1230e12 && m.products[MFK_E5M2] == 1230e12);
	ck_assert_double_eq_tol(square.flops / mft_machine_time(&m, &square, NULL) / 705e12, 1,
				0.002);
}
END_TEST

/* Each line of the file that is left out, or says no number, is missed. */
START_TEST(files_that_are_no_machine)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "expected a mapping"},
		{"- 1", "expected a mapping"},
		{"name: [1]", "line 1: expected a name"},
		{"memory_gib: -1", "line 1: expected a number above 0"},
		{"memory_gib: nan", "line 1: expected a number above 0"},
		{"memory_gib: 1e999", "line 1: expected a number above 0"},
		{"memory_tb_per_s: 1e300", "line 1: expected a number above 0"},
		{"launch_us: 0x10", "line 1: expected a number above 0"},
		{"memory_gib: '1'", "line 1: expected a number above 0"},
		{"products_tflops: {bf16: 1}", "line 1: expected fp32, bf16 and fp16"},
		{"products_tflops: {int8: 1}", "line 1: expected fp32, bf16 and fp16"},
		{"attention_tflops: []", "line 1: expected a list of one to eight"},
		{"attention_tflops: {a: 1}", "line 1: expected a list of one to eight"},
		{"attention_tflops: [[1, 2, 3]]", "line 1: expected a list of one to eight"},
		{"attention_tflops: [[1, 2, 3, 4, 5]]", "line 1: expected a list of one to eight"},
		{"shares: {norm: 1}", "line 1: expected a share of other"},
		{"shares: 1", "line 1: expected shares"},
		{"gpus_per_host: 1.5", "line 1: expected a number from 1 to 1024"},
		{"busy_link: 1", "line 1: expected a share of 1"},
		{"speed: 1", "line 1: 'speed' is nothing that a machine has"},
		{"name: x", "'memory_gib' is missing"},
	};
	struct mft_machine m;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(mft_machine_parse("m", bad[i].text, strlen(bad[i].text), &m, &err),
				 -EINVAL);
		ck_assert_msg(strstr(err.msg, bad[i].why), "%s: %s", bad[i].text, err.msg);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("simulate");
	TCase *c = tcase_create("timeline");

	tcase_add_test(c, streams_run_in_parallel);
	tcase_add_test(c, a_group_is_as_slow_as_its_link);
	tcase_add_test(c, communication_slows_what_runs_with_it);
	tcase_add_test(c, between_hosts);
	tcase_add_test(c, what_is_added_to_comes_after_a_product);
	tcase_add_test(c, gradients_of_weights_are_added_to);
	tcase_add_test(c, groups_fill_pairs_of_tiles);
	tcase_add_test(c, a_pipeline_has_its_bubble);
	tcase_add_test(c, stages_that_wait_for_ever_are_found);
	tcase_add_test(c, machines_that_are_known);
	tcase_add_test(c, files_that_are_no_machine);
	suite_add_tcase(s, c);
	return s;
}
