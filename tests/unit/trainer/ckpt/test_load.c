/*
 * --load (trainer/ckpt/load.h): every tensor of real checkpoints in the flat buffers, against the
 * same tensors read one by one; casts; padding; progress; and what is refused. The files are read
 * by threads (pthread_create() is in rank_part_read.c): this test also runs under ThreadSanitizer.
 */
#include "trainer/ckpt/load.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/numbers/half.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/settings.h"
#include "formats/plan/vfile.h"
#include "tests/unit/run_of.h"

static struct mfs_error err;

/* ---- the same tensors one by one ---- */

static float number(enum mfs_dtype type, const void *p, uint64_t i)
{
	float f;

	if (type == MFS_F32) {
		memcpy(&f, (const char *)p + 4 * i, 4);
		return f;
	}
	return type == MFS_BF16 ? mfs_bf16_to_float(((const uint16_t *)p)[i])
				: mfs_f16_to_float(((const uint16_t *)p)[i]);
}

static float rounded(enum mfs_dtype type, float f)
{
	if (type == MFS_BF16)
		return mfs_bf16_to_float(mfs_float_to_bf16(f));
	return type == MFS_F16 ? mfs_f16_to_float(mfs_float_to_f16(f)) : f;
}

static void *read_tensor(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	struct mfs_whole_target target;
	struct mfs_vfile *f;
	size_t len;
	void *p;

	mfs_whole_target_init(&target, ckpt, t);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &target.base, &err), &err);
	p = malloc(target.base.bytes);
	unit_ok(mfs_vfile_pread(f, 0, p, target.base.bytes, &len, &err), &err);
	ck_assert_uint_eq(len, target.base.bytes);
	mfs_vfile_free(f);
	return p;
}

/* Where an element that the process has is in the whole tensor. */
static int find_whole(void *arg, const struct mft_param_run *r)
{
	uint64_t *whole = arg;

	for (uint64_t i = 0; i < r->count; i++)
		whole[r->first + i] = r->whole_first + i;
	return 0;
}

/* A buffer holds the process's part of the source's tensor, rounded; rows beyond it are zeros. */
static void same(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *src,
		 const struct mft_param *p, enum mfs_dtype type, const void *buffer,
		 enum mfs_dtype through)
{
	const uint64_t cols = src->ndim == 2 ? src->shape[1] : 1, stored = src->shape[0] * cols;
	uint64_t *whole = calloc(p->elements + 1, sizeof(*whole));
	void *want = read_tensor(ckpt, src);

	unit_ok(mft_param_runs(p, 0, p->elements, find_whole, whole), &err);
	for (uint64_t i = 0; i < p->elements; i++) {
		const float w = whole[i] < stored ? number(src->dtype, want, whole[i]) : 0;

		ck_assert_msg(number(type, buffer, p->start + i) ==
				      rounded(type, rounded(through, w)),
			      "%s %d: element %llu", src->name, src->layer, (unsigned long long)i);
	}
	free(whole);
	free(want);
}

static const struct mfs_global_tensor *find(struct mfs_ckpt *ckpt, enum mfs_state state,
					    const struct mft_param *p)
{
	const struct mfs_global_tensor *t = mfs_ckpt_find_state(
		ckpt, state, p->tensor->name, p->tensor->layer, p->tensor->expert);

	ck_assert_ptr_nonnull(t);
	return t;
}

/* What lies between parameters is zero. */
static void check_gaps(const struct mft_params *p, enum mfs_dtype type, const void *buffer)
{
	for (uint32_t i = 0; buffer && i < p->count; i++) {
		const uint64_t end = i + 1 < p->count ? p->list[i + 1].start : p->elements;

		for (uint64_t e = p->list[i].start + p->list[i].elements; e < end; e++)
			ck_assert(number(type, buffer, e) == 0);
	}
}

static void check_all(struct mfs_ckpt *ckpt, const struct mft_params *p, bool optim)
{
	const bool main = optim && mfs_optim_info(ckpt)->has_main;
	const struct mft_slot *slot = p->slot;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		const struct mfs_global_tensor *model = find(ckpt, MFS_STATE_MODEL, q);

		if (p->weight_type == MFS_F32 && main)
			model = find(ckpt, MFS_STATE_MAIN, q);
		same(ckpt, model, q, p->weight_type, p->weights, p->weight_type);
		if (slot->device && main)
			same(ckpt, find(ckpt, MFS_STATE_MAIN, q), q, slot->type, slot->device,
			     slot->type);
		else if (slot->device)
			same(ckpt, model, q, slot->type, slot->device, p->weight_type);
		if (!optim)
			continue;
		same(ckpt, find(ckpt, MFS_STATE_EXP_AVG, q), q, slot[1].type, slot[1].device,
		     slot[1].type);
		same(ckpt, find(ckpt, MFS_STATE_EXP_AVG_SQ, q), q, slot[2].type, slot[2].device,
		     slot[2].type);
	}
	check_gaps(p, p->weight_type, p->weights);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		check_gaps(p, slot[i].type, slot[i].device);
	for (uint32_t i = 0; i < p->buffer_count; i++) {
		const struct mft_model_buffer *b = &p->buffer_list[i];
		const struct mfs_global_tensor *t =
			mfs_ckpt_find(ckpt, b->tensor->name, b->tensor->layer, -1);
		void *want = read_tensor(ckpt, t);

		for (uint64_t e = 0; e < b->elements; e++)
			ck_assert(p->buffers[b->start + e] == number(t->dtype, want, e));
		free(want);
	}
}

/* ---- sources ---- */

struct fixture {
	const char *root;
	int iteration;
	bool optim;
};

static const struct fixture fixtures[] = {
	{"weights/llama-torch-tp2-pp2", 40, false},
	{"weights/gpt2-torch-tp2-pp2", 40, false},
	{"weights/qwen3-torch_dist-tp4", 40, false},
	{"weights/mixtral-torch_dist-pp2-ep2", 40, false},
	{"weights/deepseek-torch_dist-pp2-ep2", 40, false},
	{"resume/llama-torch-tp2-pp2", 20, true},
	{"resume/llama-torch_dist-tp2-pp2", 20, true},
	{"resume/llama-torch_dist-tp2-pp2-vpp2", 20, true},
	{"resume/qwen2-torch-tp2-dp2-distopt", 20, true},
	{"optim/mixtral-torch-tp2-ep2-etp1-distopt", 1, true},
	{"optim/mixtral-torch_dist-ep2-flattened", 1, true},
	{"optim/qwen2-torch_dist-pp2-buckets", 1, true},
};

#define FIXTURES MFS_ARRAY_SIZE(fixtures)

static struct mfs_ckpt *open_fixture(const struct fixture *f)
{
	struct mfs_ckpt *ckpt;
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/iter_%07d", f->root, f->iteration);
	unit_ok(mfs_optim_open(unit_fixture(dir), &ckpt, &err), &err);
	return ckpt;
}

static void load_at(struct mft_train_config *c, const struct mft_parallel *parallel, struct run *r,
		    struct mft_progress *progress, bool *ret_optim)
{
	struct mft_load *l;

	unit_ok(mft_load_open(c, &l, &err), &err);
	ck_assert_ptr_nonnull(l);
	unit_ok(mft_load_args(l, c, &err), &err);
	run_new_at(r, c, parallel);
	unit_ok(mft_load_state(l, c, r->params, &mfk_cpu, r->device, r->ctx, progress, ret_optim,
			       &err),
		&err);
	mft_load_free(l);
}

static void load(struct mft_train_config *c, struct run *r, struct mft_progress *progress,
		 bool *ret_optim)
{
	load_at(c, NULL, r, progress, ret_optim);
}

static const enum mfs_dtype types[] = {MFS_BF16, MFS_F32, MFS_F16};

START_TEST(every_fixture_loads)
{
	const struct fixture *f = &fixtures[_i / 3];
	struct mfs_ckpt *ckpt = open_fixture(f);
	struct mft_train_config c = run_config(ckpt);
	struct mft_progress progress = {0};
	struct run r;
	bool optim;

	c.load = unit_fixture(f->root);
	c.ckpt_step = f->iteration;
	c.params_dtype = types[_i % 3];
	c.no_load_optim = !f->optim;
	load(&c, &r, &progress, &optim);
	ck_assert_int_eq(optim, f->optim);
	ck_assert_uint_eq(progress.iteration, (uint64_t)f->iteration);
	check_all(ckpt, r.params, optim);
	run_free(&r);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- parts ---- */

/* Checkpoints of any layout, at other layouts. */
static const struct {
	struct fixture of;
	struct mft_parallel_sizes at;
	int64_t vpp;
} places[] = {
	{{"resume/llama-torch-tp2-pp2", 20, true}, {2, 1, 1, 1, 2, 1, 1, 0, 0}, 1},
	{{"resume/llama-torch_dist-tp2-pp2", 20, true}, {1, 1, 1, 2, 1, 1, 1, 0, 0}, 1},
	{{"resume/llama-torch_dist-tp2-pp2-vpp2", 20, true}, {2, 1, 1, 2, 2, 1, 1, 0, 0}, 2},
	{{"resume/llama-torch_dist-tp2-pp2", 20, true}, {2, 1, 2, 1, 2, 1, 2, 0, 0}, 1},
	{{"resume/qwen2-torch-tp2-dp2-distopt", 20, true}, {2, 1, 1, 2, 2, 1, 1, 0, 0}, 1},
	{{"weights/deepseek-torch_dist-pp2-ep2", 40, false}, {1, 1, 2, 2, 1, 2, 1, 0, 0}, 1},
	{{"optim/mixtral-torch-tp2-ep2-etp1-distopt", 1, true}, {2, 1, 1, 1, 1, 2, 1, 0, 0}, 1},
	{{"optim/mixtral-torch_dist-ep2-flattened", 1, true}, {2, 1, 2, 1, 2, 2, 1, 0, 0}, 1},
};
#define PLACES MFS_ARRAY_SIZE(places)

/* Elements that some process has, for each tensor of the whole model. */
static void mark(const struct mft_params *p, uint8_t **seen)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		uint64_t *whole = calloc(q->elements + 1, sizeof(*whole));
		const size_t at = (size_t)(q->tensor - mfs_ckpt_at(p->ckpt, 0));

		unit_ok(mft_param_runs(q, 0, q->elements, find_whole, whole), &err);
		for (uint64_t e = 0; e < q->elements; e++)
			seen[at][whole[e]] = 1;
		free(whole);
	}
}

START_TEST(parts_of_processes)
{
	const struct fixture *f = &places[_i].of;
	const struct mft_parallel_sizes *s = &places[_i].at;
	struct mfs_ckpt *ckpt = open_fixture(f);
	const uint32_t world = s->tp * s->cp * s->dp * s->pp;
	uint8_t **seen = NULL;
	struct mft_params *all;

	for (uint32_t rank = 0; rank < world; rank++) {
		const struct mft_launch launch = {.rank = rank, .size = world};
		struct mft_train_config c = run_config(ckpt);
		struct mft_progress progress = {0};
		struct mft_parallel p;
		struct run r;
		bool optim;

		c.load = unit_fixture(f->root);
		c.ckpt_step = f->iteration;
		c.no_load_optim = !f->optim;
		c.model.virtual_pipeline_model_parallel_size = places[_i].vpp;
		mft_parallel_places(&launch, s, &p);
		load_at(&c, &p, &r, &progress, &optim);
		ck_assert_int_eq(optim, f->optim);
		check_all(ckpt, r.params, optim);
		if (!rank) {
			unit_ok(mft_params_new(&c, NULL, &all, &err), &err);
			seen = calloc(mfs_ckpt_count(all->ckpt), sizeof(*seen));
			for (uint32_t i = 0; i < all->count; i++)
				seen[all->list[i].tensor - mfs_ckpt_at(all->ckpt, 0)] =
					calloc(all->list[i].elements, 1);
		}
		mark(r.params, seen);
		run_free(&r);
	}
	/* Together they are the whole. */
	for (uint32_t i = 0; i < all->count; i++) {
		uint8_t *of = seen[all->list[i].tensor - mfs_ckpt_at(all->ckpt, 0)];

		ck_assert_ptr_null(memchr(of, 0, all->list[i].elements));
		free(of);
	}
	free(seen);
	mft_params_free(all);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(hf_directories)
{
	static const char *const dirs[] = {"hf/gpt2-safetensors", "hf/llama-safetensors",
					   "hf/llama-bin-shards"};
	struct mft_progress progress = {.iteration = 7};
	struct mft_train_config c;
	struct mfs_ckpt *ckpt;
	struct run r;
	bool optim;

	unit_ok(mfs_hf_ckpt_open(unit_fixture(dirs[_i]), NULL, 0, &ckpt, &err), &err);
	c = run_config(ckpt);
	c.load = unit_fixture(dirs[_i]);
	/* The directory says what the model is. */
	c.model.num_layers = 1;
	c.model.hidden_size = 8;
	load(&c, &r, &progress, &optim);
	ck_assert(!optim);
	ck_assert_uint_eq(progress.iteration, 7);
	check_all(ckpt, r.params, false);
	run_free(&r);
	mfs_arena_release(&c.arena);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- padding ---- */

START_TEST(rows_of_the_vocabulary_are_padded_or_cut)
{
	struct mfs_ckpt *ckpt = open_fixture(&fixtures[5]);
	struct mft_train_config c = run_config(ckpt);
	struct mft_progress progress = {0};
	struct run r;
	bool optim;

	c.load = unit_fixture(fixtures[5].root);
	c.model.padded_vocab_size += _i ? 128 : -32;
	load(&c, &r, &progress, &optim);
	check_all(ckpt, r.params, true);
	run_free(&r);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- progress ---- */

START_TEST(progress_of_a_run)
{
	struct mfs_ckpt *ckpt = open_fixture(&fixtures[6]);
	struct mft_train_config c = run_config(ckpt);
	struct mft_progress p = {.schedule = {.max_lr = 1, .num_steps = 0}};
	struct mft_load *l;
	struct run r;
	bool optim;

	c.load = unit_fixture(fixtures[6].root);
	c.ckpt_step = 20;
	c.override_opt_param_scheduler = false;
	c.use_checkpoint_opt_param_scheduler = true;
	unit_ok(mft_load_open(&c, &l, &err), &err);
	ck_assert_ptr_nonnull(strstr(mft_load_what(l), "iteration 20 of "));
	ck_assert_ptr_nonnull(strstr(mft_load_what(l), "(torch_dist, TP2 PP2)"));
	run_new(&r, &c);
	unit_ok(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err), &err);
	/* resume/llama-*: 20 iterations of 8 samples (loss.csv's run). */
	ck_assert_uint_eq(p.iteration, 20);
	ck_assert_uint_eq(p.optimizer_step, 20);
	ck_assert_uint_eq(p.consumed_train_samples % 20, 0);
	ck_assert_uint_gt(p.consumed_train_samples, 0);
	ck_assert_uint_eq(p.schedule.num_steps, p.consumed_train_samples);
	ck_assert(p.schedule.max_lr > 0 && p.schedule.max_lr < 1);
	ck_assert_uint_gt(p.schedule.decay_steps, p.schedule.warmup_steps);
	ck_assert(p.floating_point_operations > 0);
	/* What the arguments say must be what the checkpoint says, unless one is chosen. */
	c.use_checkpoint_opt_param_scheduler = false;
	unit_ok(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err), &err);
	p.schedule.max_lr *= 2;
	unit_fails(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err),
		   &err, -EINVAL, "--override-opt-param-scheduler");
	c.override_opt_param_scheduler = true;
	unit_ok(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err), &err);
	mft_load_free(l);
	run_free(&r);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(fine_tuning_begins_with_weights_alone)
{
	struct mfs_ckpt *ckpt = open_fixture(&fixtures[6]);
	struct mft_train_config c = run_config(ckpt);
	struct mft_progress p = {.iteration = 3, .consumed_train_samples = 9};
	struct run r;
	bool optim;

	if (_i) { /* --load has nothing: the pretrained checkpoint is fine-tuned */
		c.load = unit_tmpdir();
		c.pretrained_checkpoint = unit_fixture(fixtures[6].root);
	} else {
		c.load = unit_fixture(fixtures[6].root);
		c.finetune = true;
	}
	c.ckpt_step = 20;
	load(&c, &r, &p, &optim);
	ck_assert(!optim);
	ck_assert_uint_eq(p.iteration, 3);
	ck_assert_uint_eq(p.consumed_train_samples, 9);
	check_all(ckpt, r.params, false);
	run_free(&r);
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(without_optimizer)
{
	struct mfs_ckpt *ckpt = open_fixture(&fixtures[6]);
	struct mft_train_config c = run_config(ckpt);
	struct mft_progress p = {.optimizer_step = 5};
	struct run r;
	bool optim;

	c.load = unit_fixture("resume/llama-torch_dist-tp2-pp2/iter_0000020");
	c.no_load_optim = true;
	load(&c, &r, &p, &optim);
	ck_assert(!optim);
	ck_assert_uint_eq(p.iteration, 20);
	ck_assert_uint_eq(p.optimizer_step, 5);
	check_all(ckpt, r.params, false);
	run_free(&r);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- what is there, and what is refused ---- */

START_TEST(nothing_to_load)
{
	struct mft_train_config c = {.ckpt_step = MFS_ABSENT};
	struct mft_load *l = (struct mft_load *)&c;

	unit_ok(mft_load_open(&c, &l, &err), &err);
	ck_assert_ptr_null(l);
	c.load = unit_tmpdir();
	unit_ok(mft_load_open(&c, &l, &err), &err);
	ck_assert_ptr_null(l);
	c.exit_on_missing_checkpoint = true;
	unit_fails(mft_load_open(&c, &l, &err), &err, -ENODATA, "--exit-on-missing-checkpoint");
	c.pretrained_checkpoint = c.load;
	unit_fails(mft_load_open(&c, &l, &err), &err, -ENODATA, "--pretrained-checkpoint");
	unit_write(c.load, "latest_checkpointed_iteration.txt", "soon", 4);
	unit_fails(mft_load_open(&c, &l, &err), &err, -EINVAL, "soon");
	unit_write(c.load, "latest_checkpointed_iteration.txt", "12", 2);
	ck_assert_int_lt(mft_load_open(&c, &l, &err), 0);
	unit_sentence(err.msg, "iter_0000012");
}
END_TEST

START_TEST(another_model)
{
	struct mfs_ckpt *ckpt = open_fixture(&fixtures[5]);
	struct mft_train_config c = run_config(ckpt);
	struct mft_load *l;
	struct run r;
	struct mft_progress p;
	bool optim;

	c.load = unit_fixture(fixtures[5].root);
	unit_ok(mft_load_open(&c, &l, &err), &err);
	c.model.num_layers++;
	unit_fails(mft_load_args(l, &c, &err), &err, -EINVAL, "num_layers");
	c.model.num_layers--;
	c.model.swiglu = false;
	unit_fails(mft_load_args(l, &c, &err), &err, -EINVAL, "swiglu");
	c.model.swiglu = true;
	c.model.position_embedding_type = "learned_absolute";
	unit_fails(mft_load_args(l, &c, &err), &err, -EINVAL, "position_embedding_type");
	/* Told to, it takes the checkpoint's. */
	c.use_checkpoint_args = true;
	c.model.num_layers = 99;
	unit_ok(mft_load_args(l, &c, &err), &err);
	ck_assert_int_eq(c.model.num_layers, mfs_ckpt_args(ckpt)->num_layers);
	ck_assert_str_eq(c.model.position_embedding_type, "rope");
	/* Tensors that do not fit are found without comparing arguments. */
	c.model.add_qkv_bias = true;
	run_new(&r, &c);
	unit_fails(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err),
		   &err, -ENODATA, "linear_qkv.bias");
	run_free(&r);
	c.model.add_qkv_bias = false;
	c.model.ffn_hidden_size += 8;
	run_new(&r, &c);
	unit_fails(mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err),
		   &err, -EINVAL, "linear_fc1.weight");
	run_free(&r);
	c.model.ffn_hidden_size -= 8;
	c.model.tied = !c.model.tied;
	run_new(&r, &c);
	ck_assert_int_lt(
		mft_load_state(l, &c, r.params, &mfk_cpu, r.device, r.ctx, &p, &optim, &err), 0);
	unit_sentence(err.msg, "output_layer.weight");
	run_free(&r);
	mft_load_free(l);
	mfs_arena_release(&c.arena);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("load");
	TCase *c = tcase_create("sources");

	tcase_add_loop_test(c, every_fixture_loads, 0, (UNIT_TSAN ? 1 : 3) * FIXTURES);
	tcase_add_loop_test(c, parts_of_processes, 0, PLACES);
	tcase_add_loop_test(c, hf_directories, 0, 3);
	tcase_add_loop_test(c, rows_of_the_vocabulary_are_padded_or_cut, 0, 2);
	tcase_add_loop_test(c, fine_tuning_begins_with_weights_alone, 0, 2);
	suite_add_tcase(s, c);
	c = unit_case(s, "progress", progress_of_a_run);
	tcase_add_test(c, without_optimizer);
	c = unit_case(s, "refused", nothing_to_load);
	tcase_add_test(c, another_model);
	return s;
}
