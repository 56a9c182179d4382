/* Iterations of a root, complete and not: fs/source/root.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"
#include "formats/megatron/tracker.h"
#include "fs/source/iteration.h"
#include "fs/source/root.h"
#include "tests/unit/fake_views.h"

#define TRACKER "latest_checkpointed_iteration.txt"
#define DIST	"resume/llama-torch_dist-tp2-pp2/iter_0000020"
#define TORCH	"weights/llama-torch-tp2-pp2/iter_0000040"

static const struct mfs_view_options no_options;
static struct mfs_root *root;
static char base[300];

static const char *at(const char *name)
{
	static char paths[4][600];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", base, name);
	return path;
}

static void run(const char *fmt, const char *a, const char *b)
{
	char command[2000];

	snprintf(command, sizeof(command), fmt, a, b);
	ck_assert_msg(!system(command), "%s", command);
}

static void add(const char *name, const char *fixture)
{
	run("cp -r '%s' '%s'", unit_fixture(fixture), at(name));
}

static void set_tracker(const char *text)
{
	unit_write(base, TRACKER, text, strlen(text));
}

static void set_up(void)
{
	snprintf(base, sizeof(base), "%s", unit_tmpdir());
	root = NULL;
}

static void tear_down(void)
{
	mfs_root_free(root);
}

static const struct mfs_root_snapshot *look(void)
{
	struct mfs_error err;

	if (!root)
		unit_ok(mfs_root_open(base, &no_options, &root, &err), &err);
	else
		unit_ok(mfs_root_refresh(root, true, &err), &err);
	return mfs_root_snapshot(root);
}

static struct mfs_iteration *named(const struct mfs_root_snapshot *s, const char *name)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (!strcmp(mfs_iteration_name(s->iterations[i]), name))
			return s->iterations[i];
	ck_abort_msg("no iteration %s", name);
	return NULL;
}

static void check_latest(const struct mfs_root_snapshot *s, const char *name)
{
	ck_assert_msg(s->latest != NULL, "no latest: %s", s->latest_reason);
	ck_assert_str_eq(mfs_iteration_name(s->latest), name);
	ck_assert_ptr_null(s->latest_reason);
}

static void check_no_latest(const struct mfs_root_snapshot *s, const char *why)
{
	ck_assert_ptr_null(s->latest);
	ck_assert_ptr_nonnull(s->latest_reason);
	ck_assert_msg(strstr(s->latest_reason, why) != NULL, "%s", s->latest_reason);
}

/* What happens between the reading of the tracker and the listing that follows it, once each time:
 * another name for what stands under from, and what the tracker says then. */
static struct overtaking {
	const char *from, *to, *tracker;
} overtakings[12];
static unsigned next_overtaking;

/* Instead of libc's, in the library, too. */
DIR *opendir(const char *name)
{
	static DIR *(*next)(const char *name);
	struct overtaking *o = &overtakings[next_overtaking];

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "opendir");
	if (o->from && !strcmp(name, base)) {
		next_overtaking++;
		ck_assert_int_eq(rename(at(o->from), at(o->to)), 0);
		set_tracker(o->tracker);
	}
	return next(name);
}

/* A run that keeps its last save alone has made another, and deleted the one before. */
START_TEST(tracker_is_overtaken)
{
	memset(overtakings, 0, sizeof(overtakings));
	next_overtaking = 0;
	add("iter_0000020", DIST);
	set_tracker("20");
	check_latest(look(), "iter_0000020");
	overtakings[0] = (struct overtaking){"iter_0000020", "iter_0000040", "40"};
	overtakings[1] = (struct overtaking){"iter_0000040", "iter_0000060", "60"};
	check_latest(look(), "iter_0000060");
	ck_assert_uint_eq(next_overtaking, 2);
	ck_assert_uint_eq(look()->count, 1);
}
END_TEST

/* Looking ends, whatever the run does. */
START_TEST(tracker_is_always_overtaken)
{
	static char names[12][2][32], numbers[12][8];

	memset(overtakings, 0, sizeof(overtakings));
	next_overtaking = 0;
	add("iter_0000000", DIST);
	set_tracker("0");
	check_latest(look(), "iter_0000000");
	for (int i = 0; i < 11; i++) {
		snprintf(names[i][0], sizeof(names[i][0]), "iter_%07d", i);
		snprintf(names[i][1], sizeof(names[i][1]), "iter_%07d", i + 1);
		snprintf(numbers[i], sizeof(numbers[i]), "%d", i + 1);
		overtakings[i] = (struct overtaking){names[i][0], names[i][1], numbers[i]};
	}
	check_no_latest(look(), "there is no directory iter_0000009");
	ck_assert_uint_eq(next_overtaking, 10);
	check_latest(look(), "iter_0000011");
}
END_TEST

START_TEST(tracker_is_followed)
{
	const struct mfs_root_snapshot *s;

	add("iter_0000020", DIST);
	add("iter_0000040", TORCH);
	set_tracker(" 40\n");
	s = look();
	ck_assert_uint_eq(s->count, 2);
	check_latest(s, "iter_0000040");
	ck_assert_str_eq(s->tracker, "40");
	ck_assert_str_eq(mfs_iteration_name(s->iterations[0]), "iter_0000020");
	ck_assert_str_eq(mfs_iteration_format(s->iterations[0]), "torch_dist");
	ck_assert_str_eq(mfs_iteration_format(s->iterations[1]), "torch");
	ck_assert_ptr_null(mfs_iteration_reason(s->iterations[0]));
	ck_assert_int_gt(mfs_iteration_mtime(s->iterations[0]), 0);
}
END_TEST

START_TEST(beyond_the_tracker_is_held)
{
	const struct mfs_root_snapshot *s;
	struct mfs_ckpt *ckpt;
	struct mfs_error err;

	add("iter_0000020", DIST);
	add("iter_0000040", DIST);
	set_tracker("20");
	s = look();
	check_latest(s, "iter_0000020");
	unit_sentence(mfs_iteration_reason(s->iterations[1]),
		      "newer than the tracker (iteration 20)");
	unit_fails(mfs_iteration_ckpt(s->iterations[1], &ckpt, &err), &err, -ENODATA,
		   "iter_0000040");
	set_tracker("40");
	s = look();
	check_latest(s, "iter_0000040");
	ck_assert_ptr_null(mfs_iteration_reason(s->iterations[1]));
}
END_TEST

START_TEST(without_tracker_the_newest_complete)
{
	const struct mfs_root_snapshot *s;

	add("iter_0000009", DIST);
	add("iter_0000100", DIST);
	add("iter_0001000", DIST);
	ck_assert_int_eq(unlink(at("iter_0001000/metadata.json")), 0);
	s = look();
	ck_assert_uint_eq(s->count, 3);
	check_latest(s, "iter_0000100");
	ck_assert_ptr_null(s->tracker);
	ck_assert_ptr_nonnull(mfs_iteration_reason(s->iterations[2]));
}
END_TEST

/* Megatron-Bridge's own tracker, which says 0 here, where there is no other. */
START_TEST(train_state_as_tracker)
{
	const struct mfs_root_snapshot *s;

	add("iter_0000000", TORCH);
	add("iter_0000040", TORCH);
	add("latest_train_state.pt", "bridge/llama/latest_train_state.pt");
	s = look();
	check_latest(s, "iter_0000000");
	ck_assert_str_eq(s->tracker, "0");
	unit_sentence(mfs_iteration_reason(named(s, "iter_0000040")),
		      "newer than the tracker (iteration 0)");
	unit_write(base, "latest_train_state.pt", "PK", 2);
	check_latest(look(), "iter_0000000");
	set_tracker("40");
	check_latest(look(), "iter_0000040");
	ck_assert_int_eq(unlink(at(TRACKER)), 0);
	ck_assert_int_eq(unlink(at("latest_train_state.pt")), 0);
	s = look();
	check_latest(s, "iter_0000040");
	ck_assert_ptr_null(s->tracker);
}
END_TEST

/* A number of a train state may be any. */
START_TEST(numbers_of_iterations)
{
	static const double none[] = {-1, -0.5, 40.7, 1e15, 1e300, INFINITY, -INFINITY, NAN};
	int64_t n = -7;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(none); i++)
		ck_assert_msg(!mfs_tracker_iteration(none[i], &n) && n == -7, "%g", none[i]);
	ck_assert(mfs_tracker_iteration(0, &n) && n == 0);
	ck_assert(mfs_tracker_iteration(999999999999999, &n) && n == 999999999999999);
}
END_TEST

START_TEST(tracker_that_names_nothing)
{
	add("iter_0000020", DIST);
	set_tracker("60");
	check_no_latest(look(), "no directory iter_0000060");
	ck_assert_uint_eq(mfs_root_snapshot(root)->count, 1);
	set_tracker("soon");
	check_no_latest(look(), "'soon'");
	set_tracker("-5");
	check_no_latest(look(), "'-5'");
	set_tracker("99999999999999999999999999");
	check_no_latest(look(), "neither a number");
	set_tracker("20");
	ck_assert_int_eq(unlink(at("iter_0000020/metadata.json")), 0);
	check_no_latest(look(), "iter_0000020, which the tracker names, is incomplete");
}
END_TEST

START_TEST(a_release_is_the_latest_until_a_number_is_tracked)
{
	const struct mfs_root_snapshot *s;

	add("release", TORCH);
	add("iter_0000020", DIST);
	set_tracker("release\n");
	s = look();
	check_latest(s, "release");
	ck_assert_uint_eq(s->count, 2);
	ck_assert_ptr_eq(s->iterations[0], s->latest);
	ck_assert_ptr_null(mfs_iteration_reason(s->iterations[1]));
	/* A numbered tracker is followed past it. */
	set_tracker("20");
	check_latest(look(), "iter_0000020");
	ck_assert_int_eq(unlink(at(TRACKER)), 0);
	check_latest(look(), "iter_0000020");
}
END_TEST

START_TEST(other_names_are_no_iterations)
{
	static const char *const names[] = {"iter_40",	   "iter_00000040", "iter_000004x",
					    "iter_",	   "iter_-000001",  "release2",
					    "Iter_0000040"};
	const struct mfs_root_snapshot *s;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		ck_assert_int_eq(mkdir(at(names[i]), 0755), 0);
	unit_write(base, "iter_0000007", "a file", 6);
	add("iter_12345678", DIST);
	s = look();
	ck_assert_uint_eq(s->count, 1);
	check_latest(s, "iter_12345678");
}
END_TEST

START_TEST(one_iteration_as_source)
{
	const struct mfs_root_snapshot *s;
	struct mfs_error err;

	add("iter_0000040", DIST);
	/* The tracker in the parent has no say: a person named this iteration. */
	set_tracker("20");
	unit_ok(mfs_root_open(at("iter_0000040/"), &no_options, &root, &err), &err);
	s = mfs_root_snapshot(root);
	ck_assert_uint_eq(s->count, 1);
	check_latest(s, "iter_0000040");
	mfs_root_free(root);
	root = NULL;
	ck_assert_int_eq(rename(at("iter_0000040"), at("my run")), 0);
	unit_ok(mfs_root_open(at("my run"), &no_options, &root, &err), &err);
	check_latest(mfs_root_snapshot(root), "my run");
}
END_TEST

START_TEST(incomplete_iteration_as_source)
{
	struct mfs_error err;

	ck_assert_int_eq(mkdir(at("iter_0000001"), 0755), 0);
	unit_ok(mfs_root_open(at("iter_0000001"), &no_options, &root, &err), &err);
	check_no_latest(mfs_root_snapshot(root), "iter_0000001 is incomplete");
	run("cp -r '%s'/. '%s'", unit_fixture(TORCH), at("iter_0000001"));
	unit_ok(mfs_root_refresh(root, true, &err), &err);
	check_latest(mfs_root_snapshot(root), "iter_0000001");
}
END_TEST

START_TEST(what_is_no_checkpoint)
{
	struct mfs_error err;

	unit_write(base, "file", "x", 1);
	unit_fails(mfs_root_open(base, &no_options, &root, &err), &err, -ENODATA, TRACKER);
	unit_fails(mfs_root_open(at("file"), &no_options, &root, &err), &err, -ENOTDIR,
		   "directory");
	unit_fails(mfs_root_open(at("none"), &no_options, &root, &err), &err, -ENOENT, "none");
	/* Of verl this is no save of Megatron's. */
	run("mkdir -p '%s'%s", at("of/actor/huggingface"), "");
	unit_write(at("of/actor/huggingface"), "config.json", "{}", 2);
	unit_fails(mfs_root_open(at("of"), &no_options, &root, &err), &err, -ENODATA,
		   "verl has saved no actor/dist_ckpt here");
	unit_fails(mfs_root_open(at("of/actor"), &no_options, &root, &err), &err, -ENODATA,
		   "verl has saved no dist_ckpt here");
	unit_write(base, "pytorch_model_tp_0_pp_0.bin", "x", 1);
	unit_fails(mfs_root_open(base, &no_options, &root, &err), &err, -ENOTSUP,
		   "pytorch_model_tp_0_pp_0.bin is a rank's part of a transformers model");
	ck_assert_ptr_null(root);
	run("mkdir '%s' '%s'", at("iter_0000003"), at("iter_0000004"));
	unit_ok(mfs_root_open(base, &no_options, &root, &err), &err);
}
END_TEST

static const char llama[] =
	"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 176, "
	"\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
	"\"vocab_size\": 1024}";

/* verl's run: the step, its actor, and a save whose config comes last. */
START_TEST(verls_steps_are_iterations)
{
	const struct mfs_root_snapshot *s;
	struct mfs_error err;

	run("mkdir -p '%s' '%s'", at("global_step_5/actor"),
	    at("global_step_20/actor/huggingface"));
	add("global_step_5/actor/dist_ckpt", DIST);
	add("global_step_20/actor/dist_ckpt", DIST);
	run("mkdir '%s' '%s'", at("global_step_007"), at("global_step_x"));
	unit_write(at("global_step_20/actor/huggingface"), "config.json", llama, strlen(llama));
	set_tracker("5");
	s = look();
	ck_assert_uint_eq(s->count, 2);
	check_no_latest(s, "global_step_5, which the tracker names, is incomplete: actor/"
			   "huggingface/config.json is missing");
	unit_sentence(mfs_iteration_reason(s->iterations[1]), "newer than the tracker");
	run("mkdir '%s'%s", at("global_step_5/actor/huggingface"), "");
	unit_write(at("global_step_5/actor/huggingface"), "config.json", "{", 1);
	check_no_latest(look(), "actor/huggingface/config.json");
	unit_write(at("global_step_5/actor/huggingface"), "config.json", llama, strlen(llama));
	check_latest(look(), "global_step_5");
	set_tracker("20");
	check_latest(look(), "global_step_20");
	set_tracker("21");
	check_no_latest(look(), "the tracker says '21', but there is no directory iter_0000021");
	mfs_root_free(root);
	unit_ok(mfs_root_open(at("global_step_20"), &no_options, &root, &err), &err);
	check_latest(mfs_root_snapshot(root), "global_step_20");
	mfs_root_free(root);
	unit_ok(mfs_root_open(at("global_step_20/actor"), &no_options, &root, &err), &err);
	check_latest(mfs_root_snapshot(root), "actor");
}
END_TEST

/* What slime and Accelerate write next to Megatron's iterations. */
START_TEST(files_next_to_iterations)
{
	const struct mfs_root_snapshot *s;

	add("iter_0000040", TORCH);
	run("mkdir '%s' '%s'", at("rollout"), at("pytorch_model"));
	unit_write(at("rollout"), "global_dataset_state_dict_40.pt", "x", 1);
	unit_write(base, "random_states_0.pkl", "x", 1);
	unit_write(base, "custom_checkpoint_0.pkl", "x", 1);
	set_tracker("40");
	s = look();
	ck_assert_uint_eq(s->count, 1);
	check_latest(s, "iter_0000040");
}
END_TEST

START_TEST(incomplete_is_looked_at_again)
{
	const struct mfs_root_snapshot *s;

	add("iter_0000020", TORCH);
	add("iter_0000040", TORCH);
	ck_assert_int_eq(rename(at("iter_0000040/mp_rank_01_001"), at("kept")), 0);
	s = look();
	check_latest(s, "iter_0000020");
	unit_sentence(mfs_iteration_reason(s->iterations[1]), "mp_rank_01_001");
	ck_assert_ptr_eq(look(), s);
	ck_assert_ptr_eq(look(), s);
	ck_assert_int_eq(rename(at("kept"), at("iter_0000040/mp_rank_01_001")), 0);
	check_latest(look(), "iter_0000040");
	/* Readers of the old snapshot are not disturbed. */
	ck_assert_str_eq(mfs_iteration_name(s->iterations[0]), "iter_0000020");
	check_latest(s, "iter_0000020");
}
END_TEST

/* A rank's file that is still growing: same directory, same names, another size. */
START_TEST(growing_file_is_noticed)
{
	const struct mfs_root_snapshot *s;
	uint8_t *bytes;
	size_t len;

	add("iter_0000040", TORCH);
	bytes = unit_slurp(at("iter_0000040/mp_rank_00_000/model_optim_rng.pt"), &len);
	unit_write(at("iter_0000040/mp_rank_00_000"), "model_optim_rng.pt", bytes, len / 2);
	s = look();
	check_no_latest(s, "iter_0000040");
	look();
	unit_write(at("iter_0000040/mp_rank_00_000"), "model_optim_rng.pt", bytes, len);
	check_latest(look(), "iter_0000040");
	free(bytes);
}
END_TEST

START_TEST(deleted_iterations_leave)
{
	const struct mfs_root_snapshot *before, *s;
	struct mfs_ckpt *ckpt;
	struct mfs_error err;

	add("iter_0000020", DIST);
	add("iter_0000040", DIST);
	set_tracker("40");
	before = look();
	unit_ok(mfs_iteration_ckpt(before->iterations[0], &ckpt, &err), &err);
	run("rm -r '%s'%s", at("iter_0000020"), "");
	s = look();
	ck_assert_uint_eq(s->count, 1);
	check_latest(s, "iter_0000040");
	/* A caller that holds it still can: its files are gone, its memory is not. */
	ck_assert_uint_gt(mfs_ckpt_count(ckpt), 0);
	ck_assert_str_eq(mfs_iteration_name(before->iterations[0]), "iter_0000020");
	run("rm -r '%s'%s", at("iter_0000040"), "");
	check_no_latest(look(), "no directory iter_0000040");
}
END_TEST

START_TEST(unchanged_stays_the_same_object)
{
	const struct mfs_root_snapshot *s;
	struct mfs_iteration *it;

	add("iter_0000020", DIST);
	s = look();
	it = s->latest;
	ck_assert_ptr_eq(look(), s);
	/* Something else in the directory: looked at again, and found the same. */
	unit_write(at("iter_0000020"), "README", "hello", 5);
	ck_assert_ptr_eq(look(), s);
	/* Saved again under the same name: another iteration. */
	run("rm -r '%s'%s", at("iter_0000020"), "");
	add("iter_0000020", DIST);
	s = look();
	check_latest(s, "iter_0000020");
	ck_assert_ptr_ne(s->latest, it);
}
END_TEST

static void touch(const char *files)
{
	run("touch -d @1700000000 '%s'/%s", at("iter_0000020"), files);
}

/* Some files are of the save that is shown, and some of another one: it stays as it was until all
 * are. */
START_TEST(saved_again_file_by_file)
{
	const struct mfs_root_snapshot *s;
	struct mfs_iteration *it;

	add("iter_0000020", DIST);
	s = look();
	it = s->latest;
	touch("metadata.json");
	ck_assert_ptr_eq(look(), s);
	ck_assert_ptr_eq(look(), s);
	touch("__0_0.distcp");
	ck_assert_ptr_eq(look(), s);
	touch("*");
	touch(".metadata");
	s = look();
	check_latest(s, "iter_0000020");
	ck_assert_ptr_ne(s->latest, it);
	ck_assert_ptr_eq(look(), s);
}
END_TEST

/* In between it was no save at all, so that what was shown has gone. */
START_TEST(saved_again_is_no_mixture)
{
	const struct mfs_root_snapshot *s;
	char kept[700];

	add("iter_0000020", DIST);
	check_latest(look(), "iter_0000020");
	snprintf(kept, sizeof(kept), "%s", at("kept"));
	run("mv '%s'/.metadata '%s'", at("iter_0000020"), kept);
	touch("metadata.json");
	check_no_latest(look(), ".metadata");
	run("mv '%s' '%s'/.metadata", kept, at("iter_0000020"));
	check_no_latest(look(), "saved again");
	touch("__*");
	check_no_latest(look(), "saved again");
	touch(".metadata");
	s = look();
	check_latest(s, "iter_0000020");
	ck_assert_ptr_eq(look(), s);
}
END_TEST

/* A reader has met a file that is not the marker: it is looked at, once for each state of the
 * files. */
START_TEST(a_suspected_iteration_is_looked_at_once_a_state)
{
	const struct mfs_root_snapshot *s;
	struct mfs_iteration *it;

	add("iter_0000020", TORCH);
	s = look();
	it = s->latest;
	run("touch -d @1700000001 '%s'/mp_rank_0[01]_001/*%s", at("iter_0000020"), "");
	mfs_iteration_suspect(it);
	ck_assert_ptr_eq(look(), s); /* two of four */
	run("touch -d @1700000001 '%s'/mp_rank_0[01]_000/*%s", at("iter_0000020"), "");
	s = look();
	check_latest(s, "iter_0000020");
	ck_assert_ptr_ne(s->latest, it);
}
END_TEST

START_TEST(tracker_being_written)
{
	add("iter_0000020", DIST);
	add("iter_0000040", DIST);
	set_tracker("20");
	check_latest(look(), "iter_0000020");
	set_tracker("");
	check_latest(look(), "iter_0000020");
	set_tracker("40");
	check_latest(look(), "iter_0000040");
}
END_TEST

START_TEST(refresh_is_not_too_frequent)
{
	struct mfs_error err;

	add("iter_0000020", DIST);
	look();
	add("iter_0000040", DIST);
	unit_ok(mfs_root_refresh(root, false, &err), &err);
	ck_assert_uint_eq(mfs_root_snapshot(root)->count, 1);
	unit_ok(mfs_root_refresh(root, true, &err), &err);
	ck_assert_uint_eq(mfs_root_snapshot(root)->count, 2);
}
END_TEST

START_TEST(root_that_went_away)
{
	const struct mfs_root_snapshot *s;
	struct mfs_error err;

	ck_assert_int_eq(mkdir(at("root"), 0755), 0);
	add("root/iter_0000020", DIST);
	unit_ok(mfs_root_open(at("root"), &no_options, &root, &err), &err);
	s = mfs_root_snapshot(root);
	ck_assert_int_eq(rename(at("root"), at("elsewhere")), 0);
	unit_fails(mfs_root_refresh(root, true, &err), &err, -ENOENT, "root");
	ck_assert_ptr_eq(mfs_root_snapshot(root), s);
}
END_TEST

static unsigned open_of_latest(void)
{
	return mfs_open_set_count(&mfs_root_snapshot(root)->latest->ckpts);
}

/* What nobody uses is closed, so that its disk space is given back; what is used, when nobody does
any more. */
static void check_goes_away(const char *source, const char *gone)
{
	struct mfs_iteration *latest;
	struct mfs_held *held;
	struct mfs_error err;

	unit_ok(mfs_root_open(source, &no_options, &root, &err), &err);
	latest = mfs_root_snapshot(root)->latest;
	unit_ok(mfs_iteration_hold_ckpt(latest, false, &held, &err), &err);
	run("rm -r '%s'%s", gone, "");
	unit_fails(mfs_root_refresh(root, true, &err), &err, -ENOENT, "root");
	ck_assert_uint_eq(open_of_latest(), 1);
	mfs_keeper_drop(held);
	unit_fails(mfs_root_refresh(root, true, &err), &err, -ENOENT, "root");
	ck_assert_uint_eq(open_of_latest(), 0);
}

START_TEST(deleted_source_is_closed)
{
	ck_assert_int_eq(mkdir(at("root"), 0755), 0);
	add("root/iter_0000020", DIST);
	check_goes_away(at("root"), at("root"));
}
END_TEST

START_TEST(deleted_iteration_as_source_is_closed)
{
	ck_assert_int_eq(mkdir(at("root"), 0755), 0);
	add("root/iter_0000020", DIST);
	check_goes_away(at("root/iter_0000020"), at("root/iter_0000020"));
}
END_TEST

START_TEST(views_by_name)
{
	struct mfs_view *hf, *same, *other;
	struct mfs_place place;
	struct mfs_error err;
	char name[MFS_PLACE_NAME];

	add("iter_0000020", DIST);
	add("iter_0000040", TORCH);
	look();
	unit_ok(mfs_root_view(root, NULL, &hf, &place, &err), &err);
	ck_assert_str_eq(mfs_iteration_name(place.iteration), "iter_0000040");
	ck_assert_str_eq(place.view, "hf");
	ck_assert_str_eq(mfs_place_name(root, &place, name), "iter_0000040/hf");
	unit_ok(mfs_root_view(root, "latest/hf", &same, &place, &err), &err);
	ck_assert_ptr_eq(same, hf);
	unit_ok(mfs_root_view(root, "iter_0000040/hf/", &same, NULL, &err), &err);
	ck_assert_ptr_eq(same, hf);
	unit_ok(mfs_root_view(root, "iter_0000020/hf", &other, &place, &err), &err);
	ck_assert_ptr_ne(other, hf);
}
END_TEST

START_TEST(megatron_views_by_name)
{
	struct mfs_view *view, *same, *other;
	struct mfs_place place;
	struct mfs_error err;

	add("iter_0000020", DIST);
	add("iter_0000040", TORCH);
	look();
	unit_ok(mfs_root_view(root, "megatron/torch/tp2-pp1", &view, &place, &err), &err);
	ck_assert_str_eq(place.view, "megatron/torch/tp2-pp1");
	ck_assert_str_eq(view->files[0].name, "iter_0000040/mp_rank_00_000/model_optim_rng.pt");
	unit_ok(mfs_root_view(root, "latest/megatron/torch/tp2-pp1/", &same, NULL, &err), &err);
	ck_assert_ptr_eq(same, view);
	unit_ok(mfs_root_view(root, "iter_0000020/megatron/torch_dist", &other, &place, &err),
		&err);
	ck_assert_str_eq(mfs_iteration_name(place.iteration), "iter_0000020");
	ck_assert_str_eq(other->files[0].name, "iter_0000020/mp_rank_00_000/model_optim_rng.pt");
	unit_fails(mfs_root_view(root, "megatron/torch/tp3-pp1", &view, NULL, &err), &err, -EINVAL,
		   "not divisible by tp 3");
	unit_fails(mfs_root_view(root, "megatron/torch/x", &view, NULL, &err), &err, -ENOENT,
		   "torch/x");
	ck_assert_uint_eq(fake_views_built, 2);
}
END_TEST

START_TEST(names_of_no_view)
{
	static const char *const names[] = {
		"iter_0000040",
		"gguf-f8",
		"/hf",
		"",
		"/",
		"latest",
		"latest/",
		"latest//hf",
		"hf/hf",
		"megatron",
		"megatron/torch",
		"megatron/torch/",
		"megatron/torch//",
		"megatron/torch/tp1-pp1/iter_0000040",
		"megatron/torch_dist/x",
		"megatron/",
		"iter_0000040/megatron/torch",
		"iter_0000040/iter_0000040/hf",
	};
	struct mfs_view *view;
	struct mfs_error err;
	char longest[5000];

	add("iter_0000020", DIST);
	add("iter_0000040", TORCH);
	look();
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		unit_fails(mfs_root_view(root, names[i], &view, NULL, &err), &err, -ENOENT,
			   "iter_0000040/hf");
		unit_sentence(err.msg, names[i]);
	}
	unit_fails(mfs_root_view(root, "iter_0000060/hf", &view, NULL, &err), &err, -ENOENT,
		   "has no iteration iter_0000060: there are 2, from iter_0000020 to");
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	unit_fails(mfs_root_view(root, longest, &view, NULL, &err), &err, -ENOENT, NULL);
}
END_TEST

/* Directories above views, for ls. */
START_TEST(directories_above_views_have_names)
{
	static const struct {
		const char *name, *iteration, *view;
	} places[] = {
		{"latest", "iter_0000040", ""},
		{"iter_0000020/", "iter_0000020", ""},
		{"megatron", "iter_0000040", "megatron"},
		{"megatron/torch/", "iter_0000040", "megatron/torch"},
		{"iter_0000020/megatron", "iter_0000020", "megatron"},
		{"latest/megatron/torch/tp9-pp9", "iter_0000040", "megatron/torch/tp9-pp9"},
	};
	struct mfs_place place;
	struct mfs_error err;

	add("iter_0000020", DIST);
	add("iter_0000040", TORCH);
	look();
	for (size_t i = 0; i < MFS_ARRAY_SIZE(places); i++) {
		unit_ok(mfs_root_find(root, places[i].name, &place, &err), &err);
		ck_assert_str_eq(mfs_iteration_name(place.iteration), places[i].iteration);
		ck_assert_str_eq(place.view, places[i].view);
	}
}
END_TEST

START_TEST(view_of_nothing)
{
	struct mfs_view *view;
	struct mfs_error err;

	add("iter_0000020", DIST);
	ck_assert_int_eq(unlink(at("iter_0000020/metadata.json")), 0);
	look();
	unit_fails(mfs_root_view(root, "hf", &view, NULL, &err), &err, -ENODATA, "incomplete");
	unit_fails(mfs_root_view(root, "iter_0000020/hf", &view, NULL, &err), &err, -ENODATA,
		   "incomplete");
	unit_fails(mfs_root_view(root, "iter_0000020/megatron/torch_dist", &view, NULL, &err), &err,
		   -ENODATA, "incomplete");
}
END_TEST

/* The optimizer is opened later than the model: a save that was replaced in between is not
 * mixed. */
START_TEST(source_replaced_before_the_optimizer)
{
	struct mfs_view *view;
	struct mfs_error err;

	add("iter_0000020", DIST);
	look();
	unit_ok(mfs_root_view(root, "hf", &view, NULL, &err), &err);
	run("rm -r '%s'%s", at("iter_0000020"), "");
	add("iter_0000020", DIST);
	unit_fails(mfs_root_view(root, "megatron/torch_dist", &view, NULL, &err), &err, -ESTALE,
		   NULL);
	look();
	unit_ok(mfs_root_view(root, "megatron/torch_dist", &view, NULL, &err), &err);
}
END_TEST

START_TEST(number_of_a_single_iteration)
{
	struct mfs_view *view;
	struct mfs_error err;

	add("iter_0000040", DIST);
	unit_ok(mfs_root_open(at("iter_0000040"), &no_options, &root, &err), &err);
	unit_ok(mfs_root_view(root, "megatron/torch/tp1-pp1", &view, NULL, &err), &err);
	ck_assert_str_eq(view->files[0].name, "iter_0000040/mp_rank_00_000/model_optim_rng.pt");
	mfs_root_free(root);
	root = NULL;
	ck_assert_int_eq(rename(at("iter_0000040"), at("my run")), 0);
	unit_ok(mfs_root_open(at("my run"), &no_options, &root, &err), &err);
	unit_ok(mfs_root_view(root, "megatron/torch/tp1-pp1", &view, NULL, &err), &err);
	ck_assert_str_eq(view->files[1].name, "release/mp_rank_00_000/model_optim_rng.pt");
}
END_TEST

START_TEST(hf_directory)
{
	const struct mfs_root_snapshot *s;
	struct mfs_place place;
	struct mfs_view *view;
	struct mfs_error err;
	char name[MFS_PLACE_NAME];

	add("inside", DIST);
	s = look();
	ck_assert(!mfs_root_has_iterations(root));
	ck_assert_uint_eq(s->count, 1);
	ck_assert_ptr_nonnull(s->latest);
	ck_assert_ptr_null(s->tracker);
	unit_ok(mfs_root_view(root, "megatron/torch_dist", &view, &place, &err), &err);
	ck_assert_str_eq(mfs_place_name(root, &place, name), "megatron/torch_dist");
	ck_assert_uint_eq(fake_optims_opened, 0);
	unit_fails(mfs_root_view(root, "latest/hf", &view, NULL, &err), &err, -ENOENT,
		   "megatron/torch_dist");
	/* It stays as it was opened, whatever becomes of it. */
	run("rm -r '%s'%s", at("inside"), "");
	ck_assert_ptr_eq(look(), s);
}
END_TEST

START_TEST(hf_directory_that_cannot_be_shown)
{
	struct mfs_view *view;
	struct mfs_error err;

	add("inside", DIST);
	ck_assert_int_eq(unlink(at("inside/metadata.json")), 0);
	check_no_latest(look(), "metadata.json");
	unit_fails(mfs_root_view(root, "hf", &view, NULL, &err), &err, -ENODATA, "cannot be shown");
}
END_TEST

/* What Megatron has written is Megatron's, whatever lies next to it. */
START_TEST(checkpoint_before_hf_directory)
{
	add("inside", DIST);
	add("iter_0000020", DIST);
	set_tracker("20");
	check_latest(look(), "iter_0000020");
	ck_assert(mfs_root_has_iterations(root));
}
END_TEST

static _Atomic bool finished;

static void *read_snapshots(void *arg)
{
	uint64_t *seen = arg;
	struct mfs_ckpt *ckpt;

	while (!atomic_load(&finished)) {
		const struct mfs_root_snapshot *s = mfs_root_snapshot(root);

		for (uint32_t i = 0; i < s->count; i++)
			*seen += strlen(mfs_iteration_name(s->iterations[i]));
		if (s->latest && !mfs_iteration_ckpt(s->latest, &ckpt, NULL))
			*seen += mfs_ckpt_count(ckpt);
		mfs_root_refresh(root, false, NULL);
	}
	return NULL;
}

START_TEST(readers_during_refresh)
{
	pthread_t threads[3];
	uint64_t seen[3] = {0};

	add("iter_0000020", TORCH);
	add("iter_0000040", DIST);
	look();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_snapshots, &seen[i]), 0);
	for (int i = 0; i < 50; i++) {
		set_tracker(i % 2 ? "40" : "20");
		check_latest(look(), i % 2 ? "iter_0000040" : "iter_0000020");
	}
	atomic_store(&finished, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_gt(seen[i], 0);
	}
	ck_assert_ptr_eq(named(mfs_root_snapshot(root), "iter_0000040"),
			 mfs_root_snapshot(root)->latest);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("root");
	TCase *c = unit_case(s, "detection", one_iteration_as_source);

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, incomplete_iteration_as_source);
	tcase_add_test(c, what_is_no_checkpoint);
	tcase_add_test(c, verls_steps_are_iterations);
	tcase_add_test(c, files_next_to_iterations);
	tcase_add_test(c, other_names_are_no_iterations);

	c = unit_case(s, "latest", tracker_is_followed);
	tcase_add_test(c, tracker_is_overtaken);
	tcase_add_test(c, tracker_is_always_overtaken);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, beyond_the_tracker_is_held);
	tcase_add_test(c, without_tracker_the_newest_complete);
	tcase_add_test(c, train_state_as_tracker);
	tcase_add_test(c, numbers_of_iterations);
	tcase_add_test(c, tracker_that_names_nothing);
	tcase_add_test(c, tracker_being_written);
	tcase_add_test(c, a_release_is_the_latest_until_a_number_is_tracked);

	c = unit_case(s, "refresh", incomplete_is_looked_at_again);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, growing_file_is_noticed);
	tcase_add_test(c, deleted_iterations_leave);
	tcase_add_test(c, unchanged_stays_the_same_object);
	tcase_add_test(c, saved_again_file_by_file);
	tcase_add_test(c, saved_again_is_no_mixture);
	tcase_add_test(c, a_suspected_iteration_is_looked_at_once_a_state);
	tcase_add_test(c, refresh_is_not_too_frequent);
	tcase_add_test(c, root_that_went_away);
	tcase_add_test(c, deleted_source_is_closed);
	tcase_add_test(c, deleted_iteration_as_source_is_closed);
	tcase_add_test(c, readers_during_refresh);

	c = unit_case(s, "views", views_by_name);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, view_of_nothing);
	tcase_add_test(c, megatron_views_by_name);
	tcase_add_test(c, names_of_no_view);
	tcase_add_test(c, directories_above_views_have_names);
	tcase_add_test(c, source_replaced_before_the_optimizer);
	tcase_add_test(c, number_of_a_single_iteration);

	c = unit_case(s, "hf", hf_directory);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, hf_directory_that_cannot_be_shown);
	tcase_add_test(c, checkpoint_before_hf_directory);
	return s;
}
