/* What a checkpoint's arguments say of its run's data: formats/args/megatron_data_args.h. */
#include "tests/unit/unit.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/args/megatron_data_args.h"

static struct mfs_error err;
static struct mfs_arena arena;
static struct mfs_megatron_data_args args;

/* ---- the fixtures' run, as its README tells ---- */

static void check_run(const struct mfs_megatron_data_args *a, int64_t iteration)
{
	static const char *const words[] = {"0.7", "/tmp/g/tales_text_document", "0.3",
					    "/tmp/g/notes_text_document"};

	ck_assert_uint_eq(a->data_path.count, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_str_eq(a->data_path.list[i], words[i]);
	ck_assert_uint_eq(a->split_data_path[0].count, 0);
	ck_assert_ptr_null(a->data_args_path);
	ck_assert_str_eq(a->split, "90,10,0");
	ck_assert_str_eq(a->dataloader_type, "single");
	ck_assert_int_eq(a->seed, 1234);
	ck_assert_int_eq(a->seq_length, 128);
	ck_assert_int_eq(a->train_iters, 40);
	ck_assert_int_eq(a->train_samples, -1);
	ck_assert_int_eq(a->eval_iters, 1);
	ck_assert_int_eq(a->eval_interval, 20);
	ck_assert_int_eq(a->global_batch_size, 8);
	ck_assert_int_eq(a->micro_batch_size, 2);
	ck_assert_int_eq(a->consumed_train_samples, 8 * iteration);
	ck_assert_int_eq(a->iteration, iteration);
	ck_assert(a->surplus == 0.005);
	ck_assert_ptr_null(a->version);
	ck_assert(!a->renormalize);
	ck_assert(!a->full_validation && !a->no_data_sharding && !a->eod_mask_loss);
	ck_assert_ptr_null(a->varies);
	ck_assert_ptr_null(a->other_data);
}

START_TEST(fixtures_have_the_arguments_of_their_runs)
{
	static const struct {
		const char *dir;
		int64_t iteration, ranks;
	} cases[] = {{"resume/llama-torch-tp2-pp2/iter_0000020", 20, 1},
		     {"resume/llama-torch_dist-tp2-pp2/iter_0000040", 40, 1},
		     {"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020", 20, 2}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const struct mfs_ckpt_common *state;
		struct mfs_ckpt *ckpt;

		unit_ok(mfs_ckpt_open(unit_fixture(cases[i].dir), MFS_CKPT_COMMON, &ckpt, &err),
			&err);
		state = mfs_ckpt_common(ckpt);
		unit_ok(mfs_megatron_data_args_read(state->archive.doc, state->root, &arena, &args,
						    &err),
			&err);
		check_run(&args, cases[i].iteration);
		ck_assert_int_eq(args.data_parallel_size, cases[i].ranks);
		mfs_ckpt_free(ckpt);
	}
	mfs_arena_release(&arena);
}
END_TEST

/* ---- others, pickled here: {'args': Namespace(KEY=VALUE)} ---- */

static struct mfs_buf stream;

static void add_text(const char *s)
{
	const uint32_t len = (uint32_t)strlen(s);

	mfs_buf_adds(&stream, "X");
	mfs_buf_add(&stream, &len, 4);
	mfs_buf_adds(&stream, s);
}

/* value: an opcode sequence, or a text in quotes. */
static int read_one(const char *key, const char *value, size_t len)
{
	struct mfs_pickle *doc;
	int rc;

	stream.len = 0;
	mfs_buf_add(&stream, "\x80\x02}", 3);
	add_text("args");
	mfs_buf_adds(&stream, "cargparse\nNamespace\n)");
	mfs_buf_add(&stream, "\x81}", 2);
	add_text(key);
	if (*value == '"')
		add_text(value + 1);
	else
		mfs_buf_add(&stream, value, len);
	mfs_buf_adds(&stream, "sbs.");
	unit_ok(mfs_pickle_parse(stream.data, stream.len, "args", NULL, &doc, &err), &err);
	rc = mfs_megatron_data_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err);
	mfs_pickle_free(doc);
	mfs_buf_release(&stream);
	return rc;
}

#define READ(key, opcodes) read_one(key, opcodes, sizeof(opcodes) - 1)

START_TEST(each_form_of_a_value_is_read)
{
	unit_ok(READ("data_path", "\"alone"), &err);
	ck_assert_uint_eq(args.data_path.count, 1);
	ck_assert_str_eq(args.data_path.list[0], "alone");
	ck_assert_int_eq(args.seed, -1);
	ck_assert_int_eq(args.iteration, -1);
	ck_assert(args.surplus < 0);
	unit_ok(READ("data_path", "]"), &err);
	ck_assert_uint_eq(args.data_path.count, 0);
	unit_ok(READ("train_data_path", "](U\1aU\1be"), &err);
	ck_assert_uint_eq(args.split_data_path[0].count, 2);
	ck_assert_str_eq(args.split_data_path[0].list[1], "b");
	/* What --multiple-validation-sets leaves: batches of each set. */
	unit_ok(READ("eval_iters", "](K\1K\2e"), &err);
	ck_assert_int_eq(args.eval_iters, MFS_ABSENT);
	unit_ok(READ("data_sharding", "\x89"), &err);
	ck_assert(args.no_data_sharding);
	unit_ok(READ("rampup_batch_size", "](K\1K\1K\1e"), &err);
	ck_assert_str_eq(args.varies, "rampup_batch_size");
	unit_ok(READ("mock_data", "\x88"), &err);
	ck_assert_str_eq(args.other_data, "mock_data");
	unit_ok(READ("perform_rl_step", "\x88"), &err);
	ck_assert_str_eq(args.other_data, "perform_rl_step");
	unit_ok(READ("mock_data", "\x89"), &err);
	ck_assert_ptr_null(args.other_data);
	mfs_arena_release(&arena);
}
END_TEST

/* Which arguments there are tells whose rules the run had, be they None or False. */
START_TEST(arguments_tell_the_release_that_ran)
{
	unit_ok(READ("renormalize_blend_weights", "\x89"), &err);
	ck_assert_str_eq(args.version, "0.10");
	ck_assert(!args.renormalize);
	unit_ok(READ("renormalize_blend_weights", "\x88"), &err);
	ck_assert(args.renormalize);
	unit_ok(READ("per_split_data_args_path", "N"), &err);
	ck_assert_str_eq(args.version, "0.12");
	unit_ok(READ("mmap_warmup", "\x89"), &err);
	ck_assert_str_eq(args.version, "2.6");
	unit_ok(READ("data_path", "N"), &err);
	ck_assert_str_eq(args.version, "0.8");
	unit_ok(READ("mid_level_dataset_surplus", "N"), &err);
	ck_assert_ptr_null(args.version);
	unit_ok(READ("seed", "K\1"), &err);
	ck_assert_ptr_null(args.version);
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(values_of_a_wrong_type_are_refused)
{
	unit_fails(READ("seed", "\"1234"), &err, -EINVAL, "'seed'");
	unit_fails(READ("seed", "J\xff\xff\xff\xff"), &err, -EINVAL, "'seed'");
	unit_fails(READ("eval_iters", "\x88"), &err, -EINVAL, "'eval_iters'");
	unit_fails(READ("train_iters", "](K\1K\2e"), &err, -EINVAL, "'train_iters'");
	unit_fails(READ("split", "K\1"), &err, -EINVAL, "'split'");
	unit_fails(READ("data_path", "K\1"), &err, -EINVAL, "'data_path'");
	unit_fails(READ("data_path", "](K\1K\2e"), &err, -EINVAL, "'data_path'");
	unit_fails(READ("data_path", "](Ne"), &err, -EINVAL, "'data_path'");
	unit_fails(READ("full_validation", "K\7"), &err, -EINVAL, "'full_validation'");
	unit_fails(READ("mid_level_dataset_surplus", "\"x"), &err, -EINVAL, "surplus");
	mfs_arena_release(&arena);
}
END_TEST

/* A few bytes that refer to one text a hundred times ask for more than they hold. */
START_TEST(one_text_many_times)
{
	static const char again[] = "h\1h\1h\1h\1h\1h\1h\1h\1h\1h\1";
	struct mfs_buf b = {0};

	mfs_buf_adds(&b, "](U\x20/data/a_text_document-0123456789q\1");
	for (int i = 0; i < 10; i++)
		mfs_buf_adds(&b, again);
	mfs_buf_adds(&b, "e");
	unit_fails(read_one("data_path", (const char *)b.data, b.len), &err, -EINVAL,
		   "again and again");
	mfs_buf_release(&b);
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(no_args)
{
	struct mfs_pickle *doc;

	unit_ok(mfs_pickle_parse("\x80\x02}.", 4, "state", NULL, &doc, &err), &err);
	unit_fails(mfs_megatron_data_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err),
		   &err, -ENODATA, "arguments");
	mfs_pickle_free(doc);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("megatron_data_args");

	unit_case(s, "fixtures", fixtures_have_the_arguments_of_their_runs);
	unit_case(s, "values", each_form_of_a_value_is_read);
	unit_case(s, "versions", arguments_tell_the_release_that_ran);
	unit_case(s, "refused", values_of_a_wrong_type_are_refused);
	unit_case(s, "no args", no_args);
	unit_case(s, "one text", one_text_many_times);
	return s;
}
