/*
 * Optimizers of checkpoints: formats/megatron/optim*. Real saves, and the same with one thing
 * wrong.
 *
 * A run in bf16 copies its fp32 parameters into the weights after each step, so that each weight is
 * its parameter, rounded: a strong check that elements are assigned to the right parameters. Those
 * under optim/ were stepped once on gradients of 0.01 times the weight, which their moments then
 * tell, too.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/numbers/cast.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/optim/buffers/layer_wise.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/settings.h"

#define LLAMA_TORCH "resume/llama-torch-tp2-pp2/iter_0000020"
#define LLAMA_DIST  "resume/llama-torch_dist-tp2-pp2/iter_0000020"
#define QWEN2_FLAT  "resume/qwen2-torch-tp2-dp2-distopt/iter_0000020"
#define TINY(name)  "optim/" name "/iter_0000001"

static struct mfs_error err;

/* ---- reading ---- */

/* Copies a chunk's elements to their places in the whole tensor, counting how often each is
 * given. */
static void copy_chunk(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
		       const struct mfs_chunk *c, uint8_t *whole, uint8_t *given)
{
	const size_t size = mfs_dtype_size(t->dtype);
	const uint8_t *map;
	uint64_t offset, count;
	uint32_t file;

	unit_ok(mfs_ckpt_locate(ckpt, t, c->storage, &file, &offset, &err), &err);
	unit_ok(mfs_fileset_map(mfs_ckpt_files(ckpt), file, &map, &err), &err);
	ck_assert(mfs_shape_count(c->size, t->ndim, &count));
	for (uint64_t i = 0; i < count; i++) {
		uint64_t rest = i, from = c->origin, to = 0, stride = 1;

		for (unsigned d = t->ndim; d-- > 0;) {
			const uint64_t at = rest % c->size[d];

			rest /= c->size[d];
			from += at * c->stride[d];
			to += (c->lo[d] + at) * stride;
			stride *= t->shape[d];
		}
		memcpy(whole + to * size, map + offset + from * size, size);
		given[to]++;
	}
}

/* All elements, each given by one chunk; to be freed. */
static void *read_tensor(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			 uint64_t *ret_count)
{
	const struct mfs_chunk *c = mfs_ckpt_chunks(ckpt, t);
	uint8_t *whole, *given;

	ck_assert(mfs_shape_count(t->shape, t->ndim, ret_count));
	whole = malloc(*ret_count * mfs_dtype_size(t->dtype));
	given = calloc(*ret_count, 1);
	ck_assert(whole && given);
	for (uint32_t i = 0; i < t->chunk_count; i++)
		copy_chunk(ckpt, t, &c[i], whole, given);
	for (uint64_t i = 0; i < *ret_count; i++)
		ck_assert_uint_eq(given[i], 1);
	free(given);
	return whole;
}

static float weight_at(const struct mfs_global_tensor *t, const void *weights, uint64_t i)
{
	float f;

	mfs_cast(MFS_F32, &f, t->dtype, (const uint8_t *)weights + i * mfs_dtype_size(t->dtype), 1);
	return f;
}

/* What the run makes of a main parameter. */
static float rounded(const struct mfs_global_tensor *t, float main)
{
	uint8_t as_weight[sizeof(float)];

	mfs_cast(t->dtype, as_weight, MFS_F32, &main, 1);
	return weight_at(t, as_weight, 0);
}

static const struct mfs_global_tensor *
state_of(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, enum mfs_state state)
{
	const struct mfs_global_tensor *s =
		mfs_ckpt_find_state(ckpt, state, t->name, t->layer, t->expert);

	ck_assert_msg(s != NULL, "no %s of %s", mfs_state_name(state), t->name);
	ck_assert_int_eq(s->dtype, MFS_F32);
	return s;
}

static bool is_buffer(const struct mfs_global_tensor *t)
{
	return strstr(t->name, "expert_bias") != NULL;
}

/* ---- the two checks ---- */

static void check_main(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	uint64_t count, same = 0;
	void *weights = read_tensor(ckpt, t, &count);
	float *main = read_tensor(ckpt, state_of(ckpt, t, MFS_STATE_MAIN), &count);

	for (uint64_t i = 0; i < count; i++) /* Megatron-FSDP saves the main parameters alone */
		same += rounded(t, main[i]) == weight_at(t, weights, i);
	ck_assert_msg(same == count, "%s %d %d: %llu of %llu are the weights", t->name, t->layer,
		      t->expert, (unsigned long long)same, (unsigned long long)count);
	free(weights);
	free(main);
}

/* The one state that Muon or Lion keeps of a matrix: 0.05 times the gradient after one step. */
static void check_momentum(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			   enum mfs_state state)
{
	uint64_t count;
	void *weights = read_tensor(ckpt, t, &count);
	float *momentum = read_tensor(ckpt, state_of(ckpt, t, state), &count);

	for (uint64_t i = 0; i < count; i++) {
		const double gradient = 0.01 * weight_at(t, weights, i);

		ck_assert_msg(
			fabs(gradient) < 2e-4 || fabs(momentum[i] / (0.05 * gradient) - 1) < 0.02,
			"%s %d %d: %llu", t->name, t->layer, t->expert, (unsigned long long)i);
	}
	free(weights);
	free(momentum);
}

/* After one step exp_avg is 0.1 and exp_avg_sq 0.05 times the gradient, squared. */
static void check_moments(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	uint64_t count;
	void *weights = read_tensor(ckpt, t, &count);
	float *avg = read_tensor(ckpt, state_of(ckpt, t, MFS_STATE_EXP_AVG), &count);
	float *sq = read_tensor(ckpt, state_of(ckpt, t, MFS_STATE_EXP_AVG_SQ), &count);

	for (uint64_t i = 0; i < count; i++) {
		const double gradient = 0.01 * weight_at(t, weights, i);

		if (fabs(gradient) < 2e-4)
			continue; /* the step changed such a weight too much */
		ck_assert_msg(fabs(avg[i] / (0.1 * gradient) - 1) < 0.02, "%s %d %d: %llu", t->name,
			      t->layer, t->expert, (unsigned long long)i);
		ck_assert_msg(fabs(sq[i] / (0.05 * gradient * gradient) - 1) < 0.04,
			      "%s %d %d: %llu", t->name, t->layer, t->expert,
			      (unsigned long long)i);
	}
	free(weights);
	free(avg);
	free(sq);
}

static const struct {
	const char *fixture;
	enum mfs_optim_kind kind;
	uint32_t optimizers, groups[2];
	double step;
} fixtures[] = {
	{LLAMA_TORCH, MFS_OPTIM_FLOAT16, 1, {2}, 20},
	{LLAMA_DIST, MFS_OPTIM_DISTRIBUTED, 1, {2}, 20},
	{"resume/llama-torch_dist-tp2-pp2-vpp2/iter_0000020", MFS_OPTIM_DISTRIBUTED, 1, {2}, 20},
	{QWEN2_FLAT, MFS_OPTIM_DISTRIBUTED, 1, {2}, 20},
	{TINY("mixtral-torch-pp2-ep2"), MFS_OPTIM_FLOAT16, 2, {2, 1}, 1},
	{TINY("mixtral-torch-tp2-ep2-etp1-distopt"), MFS_OPTIM_DISTRIBUTED, 2, {2, 1}, 1},
	{TINY("mixtral-torch_dist-pp2-ep2-buckets"), MFS_OPTIM_DISTRIBUTED, 2, {2, 1}, 1},
	{TINY("qwen2-torch_dist-pp2-buckets"), MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
	{TINY("llama-torch_dist-tp2-float16"), MFS_OPTIM_FLOAT16, 1, {2}, 1},
	{TINY("llama-torch_dist-tp2-reshardable"), MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
	{TINY("llama-torch_dist-tp2-flattened"), MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
	{TINY("mixtral-torch_dist-ep2-flattened"), MFS_OPTIM_DISTRIBUTED, 2, {2, 1}, 1},
	{TINY("mixtral-torch_dist-ep2-gathered"), MFS_OPTIM_DISTRIBUTED, 2, {2, 1}, 1},
	{TINY("mixtral-torch-ep2-dist_muon"), MFS_OPTIM_FLOAT16, 2, {2, 2}, 1},
	{TINY("mixtral-torch_dist-ep2-layer-wise"), MFS_OPTIM_LAYER_WISE, 2, {2, 2}, 1},
	{TINY("llama-torch-lion"), MFS_OPTIM_FLOAT16, 2, {1, 2}, 1},
	{"nemo/llama-optimizer", MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
	{"nemo/llama-optimizer-gathered", MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
	{"nemo/llama-fit", MFS_OPTIM_DISTRIBUTED, 1, {2}, 2},
	{"dcp/llama-optimizer", MFS_OPTIM_FLOAT16, 1, {2}, 1},
	{"dcp/llama-optimizer-fp16", MFS_OPTIM_FLOAT16, 1, {2}, 1},
	{"dcp/llama-fsdp-optimizer", MFS_OPTIM_DISTRIBUTED, 1, {2}, 1},
};

#define FIXTURES ((int)(MFS_ARRAY_SIZE(fixtures)))

static void check_info(const struct mfs_ckpt *ckpt, int i)
{
	const struct mfs_optim_info *info = mfs_optim_info(ckpt);

	ck_assert_int_eq(info->kind, fixtures[i].kind);
	ck_assert(info->has_main);
	ck_assert(info->has_step);
	ck_assert(info->step == fixtures[i].step);
	ck_assert_uint_eq(info->optimizers, fixtures[i].optimizers);
	for (uint32_t o = 0; o < info->optimizers; o++)
		ck_assert_uint_eq(mfs_value_count(info->groups_doc[o], info->groups[o]),
				  fixtures[i].groups[o]);
}

START_TEST(is_read)
{
	struct mfs_optim_rules rules;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture(fixtures[_i].fixture), &ckpt, &err), &err);
	mfs_optim_rules_of(ckpt, &rules);
	check_info(ckpt, _i);
	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		if (is_buffer(t))
			continue;
		check_main(ckpt, t);
		if (mfs_optim_is_muon(&rules, t->name, t->ndim))
			check_momentum(ckpt, t,
				       mfs_ckpt_args(ckpt)->muon ? MFS_STATE_MOMENTUM
								 : MFS_STATE_EXP_AVG);
		else if (fixtures[_i].step == 1)
			check_moments(ckpt, t);
	}
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- the scale of a loss ---- */

/* Plain DCP has its three values in three items. */
START_TEST(plain_scaler)
{
	const struct mfs_optim_info *info;
	struct mfs_ckpt *ckpt;
	int64_t good, left;
	double scale;

	unit_ok(mfs_optim_open(unit_fixture("dcp/llama-optimizer-fp16"), &ckpt, &err), &err);
	info = mfs_optim_info(ckpt);
	ck_assert(info->scaler);
	unit_ok(mfs_torch_number(info->scaler_file,
				 mfs_value_get(info->scaler_doc, info->scaler, "scale"), &scale,
				 &err),
		&err);
	ck_assert(scale == 512);
	ck_assert(mfs_value_int(info->scaler_doc,
				mfs_value_get(info->scaler_doc, info->scaler, "growth_tracker"),
				&good));
	ck_assert(mfs_value_int(info->scaler_doc,
				mfs_value_get(info->scaler_doc, info->scaler, "hysteresis_tracker"),
				&left));
	ck_assert(good == 3 && left == -22);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- what NeMo says otherwise ---- */

static int64_t natural(const struct mfs_ckpt_common *state, mfs_value v)
{
	int64_t number;

	ck_assert(mfs_value_int(state->archive.doc, v, &number));
	return number;
}

/* How far the run was is known, and of its schedule nothing. Groups have Megatron's names. */
START_TEST(nemo_state)
{
	const struct mfs_ckpt_common *state;
	const struct mfs_optim_info *info;
	const struct mfs_pickle *doc;
	struct mfs_ckpt *ckpt;
	mfs_value scheduler;

	unit_ok(mfs_optim_open(unit_fixture("nemo/llama-optimizer-gathered"), &ckpt, &err), &err);
	state = mfs_ckpt_common(ckpt);
	doc = state->archive.doc;
	scheduler = mfs_value_get(doc, state->root, "opt_param_scheduler");
	ck_assert_int_eq(natural(state, mfs_value_get(doc, state->root, "iteration")), 1);
	ck_assert_int_eq(natural(state, mfs_value_get(doc, scheduler, "num_steps")), 8);
	ck_assert(mfs_value_has(doc, scheduler, "max_lr"));
	ck_assert(mfs_value_is_none(doc, mfs_value_get(doc, scheduler, "max_lr")));
	ck_assert_int_eq(natural(state, mfs_value_attr(doc, mfs_value_get(doc, state->root, "args"),
						       "consumed_train_samples")),
			 8);
	info = mfs_optim_info(ckpt);
	for (uint32_t i = 0; i < 2; i++) {
		mfs_value group = mfs_value_at(info->groups_doc[0], info->groups[0], i);

		ck_assert(mfs_value_has(info->groups_doc[0], group, "wd_mult"));
		ck_assert(mfs_value_has(info->groups_doc[0], group, "lr_mult"));
		ck_assert(!mfs_value_has(info->groups_doc[0], group, "pre_wd_mult"));
		ck_assert(!mfs_value_has(info->groups_doc[0], group, "pre_mult_lr"));
	}
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Who asks for the weights alone needs none of it. */
START_TEST(nemo_weights)
{
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_ckpt_open(unit_fixture("nemo/llama-optimizer"), 0, &ckpt, &err), &err);
	ck_assert(!mfs_ckpt_common(ckpt));
	mfs_ckpt_free(ckpt);
}
END_TEST

/* The same run, saved twice: fixtures/README.md. */
START_TEST(formats_agree)
{
	struct mfs_ckpt *a, *b;
	uint32_t compared = 0;

	unit_ok(mfs_optim_open(unit_fixture(LLAMA_TORCH), &a, &err), &err);
	unit_ok(mfs_optim_open(unit_fixture(LLAMA_DIST), &b, &err), &err);
	ck_assert_uint_eq(mfs_ckpt_count_all(a), mfs_ckpt_count_all(b));
	for (uint32_t i = mfs_ckpt_count(a); i < mfs_ckpt_count_all(a); i++, compared++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(a, i), *u = mfs_ckpt_at(b, i);
		uint64_t count, other;
		void *x = read_tensor(a, t, &count), *y = read_tensor(b, u, &other);

		ck_assert_str_eq(t->name, u->name);
		ck_assert_uint_eq(count, other);
		ck_assert_msg(!memcmp(x, y, count * mfs_dtype_size(t->dtype)), "%s of %s %d",
			      mfs_state_name(t->state), t->name, t->layer);
		free(x);
		free(y);
	}
	ck_assert_uint_eq(compared, 3 * 27);
	mfs_ckpt_free(a);
	mfs_ckpt_free(b);
}
END_TEST

/* fp32 has no other main parameter than itself: nothing of the kind in the weights-only
 * checkpoints. */
START_TEST(none_is_no_error)
{
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture("weights/qwen3-torch_dist-tp4/iter_0000040"), &ckpt,
			       &err),
		&err);
	ck_assert_int_eq(mfs_optim_info(ckpt)->kind, MFS_OPTIM_NONE);
	ck_assert_uint_eq(mfs_ckpt_count_all(ckpt), mfs_ckpt_count(ckpt));
	mfs_ckpt_free(ckpt);
}
END_TEST

START_TEST(corrupt_is_refused)
{
	struct mfs_ckpt *ckpt;

	unit_fails(mfs_optim_open(unit_fixture(TINY("llama-torch_dist-dp3-corrupt")), &ckpt, &err),
		   &err, -EINVAL, "32a03b77c5");
	/* Its weights are good. */
	unit_ok(mfs_ckpt_open(unit_fixture(TINY("llama-torch_dist-dp3-corrupt")), 0, &ckpt, &err),
		&err);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- one thing wrong ---- */

static void copy_tree(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *e;

	ck_assert_ptr_nonnull(dir);
	mkdir(to, 0755);
	while ((e = readdir(dir))) {
		char source[700], target[700];
		struct stat st;
		uint8_t *bytes;
		size_t len;

		if (e->d_name[0] == '.' && strcmp(e->d_name, ".metadata"))
			continue;
		snprintf(source, sizeof(source), "%s/%s", from, e->d_name);
		snprintf(target, sizeof(target), "%s/%s", to, e->d_name);
		ck_assert_int_eq(stat(source, &st), 0);
		if (S_ISDIR(st.st_mode)) {
			copy_tree(source, target);
			continue;
		}
		bytes = unit_slurp(source, &len);
		unit_write(to, e->d_name, bytes, len);
		free(bytes);
	}
	closedir(dir);
}

static const char *copy_of(const char *fixture)
{
	static char to[600];

	snprintf(to, sizeof(to), "%s/ckpt", unit_tmpdir());
	copy_tree(unit_fixture(fixture), to);
	return to;
}

START_TEST(missing_buffers)
{
	const char *dir = copy_of(QWEN2_FLAT);
	struct mfs_ckpt *ckpt;
	char path[700];

	snprintf(path, sizeof(path), "%s/mp_rank_01/distrib_optim.pt", dir);
	ck_assert_int_eq(unlink(path), 0);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -EINVAL, "elements");
	snprintf(path, sizeof(path), "%s/mp_rank_00/distrib_optim.pt", dir);
	ck_assert_int_eq(unlink(path), 0);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -ENODATA, "distrib_optim.pt is missing");
}
END_TEST

/* The CRC-32 of an archive's data.pkl, as the central directory's entry has it: the last. */
static uint32_t pickle_crc(const uint8_t *zip, size_t len)
{
	static const char name[] = "/data.pkl";
	const uint8_t *at = zip, *entry = NULL, *local;

	while ((at = memmem(at, len - (size_t)(at - zip), "PK\1\2", 4))) {
		const uint8_t *end = at + 46 + mfs_le16(at + 28);

		if (!memcmp(end - strlen(name), name, strlen(name)))
			entry = at;
		at += 4;
	}
	ck_assert_ptr_nonnull(entry);
	local = zip + mfs_le32(entry + 42);
	local += 30 + mfs_le16(local + 26) + mfs_le16(local + 28);
	return (uint32_t)crc32(0, local, mfs_le32(entry + 24));
}

/* Sets a byte of an archive's data.pkl, and the sums that it changes. */
static void set_pickle_byte(uint8_t *zip, size_t len, uint8_t *at, uint8_t value)
{
	uint32_t was = pickle_crc(zip, len), is;

	*at = value;
	is = pickle_crc(zip, len);
	for (uint8_t *crc = zip; (crc = memmem(crc, len - (size_t)(crc - zip), &was, 4)); crc += 4)
		memcpy(crc, &is, 4);
}

/* Weights that were kept in 8 bits are not the fp32 parameters, rounded: the two are not compared.
 * The name of an argument that nothing here asks for is written over. */
START_TEST(quantised_weights_are_not_compared)
{
	static const char was[] = "moe_grouped_gemm", name[] = "fp8_param_gather";
	const char *dir = copy_of(TINY("llama-torch_dist-dp3-corrupt"));
	struct mfs_ckpt *ckpt;
	char path[700];
	uint8_t *bytes, *at;
	size_t len;

	snprintf(path, sizeof(path), "%s/common.pt", dir);
	bytes = unit_slurp(path, &len);
	at = memmem(bytes, len, was, strlen(was));
	ck_assert_ptr_nonnull(at);
	for (size_t i = 0; i < strlen(name); i++)
		set_pickle_byte(bytes, len, at + i, (uint8_t)name[i]);
	at += strlen(name) + 2; /* after BINPUT and its number */
	ck_assert_uint_eq(*at, 0x89);
	unit_write(dir, "common.pt", bytes, len);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -EINVAL, "32a03b77c5");
	set_pickle_byte(bytes, len, at, 0x88); /* NEWTRUE */
	unit_write(dir, "common.pt", bytes, len);
	free(bytes);
	unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* The buffers of another model: sizes do not agree. */
START_TEST(foreign_buffers)
{
	const char *dir = copy_of(QWEN2_FLAT);
	struct mfs_ckpt *ckpt;
	uint8_t *bytes;
	size_t len;

	bytes = unit_slurp(
		unit_fixture(TINY(
			"mixtral-torch-tp2-ep2-etp1-distopt") "/mp_rank_00_000/distrib_optim.pt"),
		&len);
	unit_write(dir, "mp_rank_00/distrib_optim.pt", bytes, len);
	free(bytes);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -EINVAL,
		   "expected 1 optimizers, found 2");
}
END_TEST

/* Another rank's file: its optimizer lists other numbers of parameters. */
START_TEST(foreign_groups)
{
	const char *dir = copy_of(LLAMA_TORCH);
	struct mfs_ckpt *ckpt;
	uint8_t *bytes;
	size_t len;

	bytes = unit_slurp(unit_fixture("weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_01_001/"
					"model_optim_rng.pt"),
			   &len);
	unit_write(dir, "mp_rank_01_001/model_optim_rng.pt", bytes, len);
	free(bytes);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -EINVAL, "differs from that of");
}
END_TEST

START_TEST(states_of_others_are_refused)
{
	struct mfs_megatron_args *args;
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_ckpt_open(unit_fixture(TINY("llama-torch-lion")), 0, &ckpt, &err), &err);
	unit_ok(mfs_optim_check_read(ckpt, &err), &err);
	args = (struct mfs_megatron_args *)mfs_ckpt_args(ckpt);
	args->unread_optimizer = "soap";
	unit_fails(mfs_optim_check_read(ckpt, &err), &err, -ENOTSUP,
		   "the state of --optimizer soap is not read; -o no_optim shows the model");
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- a rank's side ---- */

static struct mfs_ckpt *side_ckpt;
static struct mfs_rank_list *side_list;
static struct mfs_optim *side;

static void open_side(const char *fixture, const struct mfs_rank *rank)
{
	struct mfs_layout layout;

	unit_ok(mfs_ckpt_open(unit_fixture(fixture), MFS_CKPT_COMMON, &side_ckpt, &err), &err);
	ck_assert(mfs_layout_of(side_ckpt, &layout));
	unit_ok(mfs_rank_list_new(side_ckpt, &layout, rank, mfs_layer_spec_of(side_ckpt), 0,
				  &side_list, &err),
		&err);
	unit_ok(mfs_optim_new(side_list, NULL, 1, 1, &side, &err), &err);
}

static void close_side(void)
{
	mfs_optim_free(side);
	mfs_rank_list_free(side_list);
	mfs_ckpt_free(side_ckpt);
}

/* fp32_from_fp16_params of the first rank's file: [[tensor, ...] of each group]. */
static void check_numbers(uint32_t optimizer, mfs_value one)
{
	const struct mfs_torch_file *f = &mfs_ckpt_common(side_ckpt)->archive;
	mfs_value main = mfs_value_get(f->doc, one, "fp32_from_fp16_params");
	mfs_value states = mfs_value_get(f->doc, mfs_value_get(f->doc, one, "optimizer"), "state");

	ck_assert_uint_eq(mfs_value_count(f->doc, main), side->group_count[optimizer]);
	for (uint32_t i = 0; i < side->count; i++) {
		const struct mfs_optim_param *p = &side->params[i];
		struct mfs_torch_tensor t;
		mfs_value v;

		if (p->optimizer != optimizer)
			continue;
		v = mfs_value_at(f->doc, mfs_value_at(f->doc, main, p->group), p->main);
		unit_ok(mfs_torch_tensor(f, v, &t, &err), &err);
		ck_assert_uint_eq(t.ndim, p->tensor->base.ndim);
		ck_assert(!memcmp(t.shape, p->tensor->base.shape, t.ndim * sizeof(*t.shape)));
		v = mfs_value_get(f->doc, mfs_value_item(f->doc, states, p->id), "exp_avg");
		unit_ok(mfs_torch_tensor(f, v, &t, &err), &err);
		ck_assert(!memcmp(t.shape, p->tensor->base.shape, t.ndim * sizeof(*t.shape)));
	}
}

START_TEST(groups_are_the_files)
{
	const struct mfs_torch_file *f;
	mfs_value optimizer;

	open_side(LLAMA_TORCH, &(struct mfs_rank){0});
	ck_assert_uint_eq(side->chain.count, 1);
	ck_assert(side->groups[0].decay && !side->groups[1].decay);
	f = &mfs_ckpt_common(side_ckpt)->archive;
	check_numbers(0, mfs_value_get(f->doc, mfs_pickle_root(f->doc), "optimizer"));
	close_side();
	open_side(TINY("mixtral-torch-pp2-ep2"), &(struct mfs_rank){0});
	ck_assert_uint_eq(side->chain.count, 2);
	f = &mfs_ckpt_common(side_ckpt)->archive;
	optimizer = mfs_value_get(f->doc, mfs_pickle_root(f->doc), "optimizer");
	for (uint32_t i = 0; i < 2; i++)
		check_numbers(i, mfs_value_at(f->doc, optimizer, i));
	close_side();
}
END_TEST

START_TEST(buffers_are_the_files)
{
	uint64_t sum = 0;

	open_side(QWEN2_FLAT, &(struct mfs_rank){.tp = 1});
	ck_assert_uint_eq(side->buffer_count, 1);
	ck_assert_uint_eq(side->buffers[0].bucket_count, 1);
	ck_assert_int_eq(side->buffers[0].param_dtype, MFS_BF16);
	ck_assert_int_eq(side->buffers[0].grad_dtype, MFS_F32);
	for (uint32_t i = 0; i < side->count; i++) {
		ck_assert_uint_eq(side->params[i].start % 64, 0);
		sum += side->params[i].elements;
	}
	ck_assert_uint_ge(side->buffers[0].elements, sum);
	/* Last registered first: the embedding ends the buffer. */
	ck_assert_uint_eq(side->params[0].in_coalesced + side->params[0].elements,
			  side->buffers[0].elements);
	close_side();
}
END_TEST

/* Until core 0.15 groups stood in the order of a rank's parameters: on a later stage the norm is
 * first. */
START_TEST(groups_in_order)
{
	struct mfs_optim_rules rules;
	struct mfs_optim *o;

	open_side(LLAMA_TORCH, &(struct mfs_rank){.pp = 1});
	mfs_optim_rules_of(side_ckpt, &rules);
	ck_assert(rules.sorted_groups);
	rules.sorted_groups = false;
	unit_ok(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err);
	ck_assert_uint_eq(o->group_count[0], 2);
	ck_assert(!o->groups[0].decay && o->groups[1].decay);
	mfs_optim_free(o);
	rules.decoupled_lr = rules.sorted_groups = true;
	unit_ok(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err);
	ck_assert_uint_eq(o->group_count[0], 3);
	ck_assert(o->groups[1].decoupled && o->groups[1].count == 1);
	mfs_optim_free(o);
	rules.unsupported = "use_megatron_fsdp";
	unit_fails(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err, -ENOTSUP,
		   "use_megatron_fsdp");
	close_side();
}
END_TEST

/* The order of Muon's chain: matrices, those of experts, others. */
START_TEST(muon_and_others_are_apart)
{
	struct mfs_optim_rules rules;
	uint32_t of[3] = {0}, mains = 0;
	struct mfs_optim *o;

	open_side(TINY("mixtral-torch-pp2-ep2"), &(struct mfs_rank){0});
	mfs_optim_rules_of(side_ckpt, &rules);
	rules.kept = (struct mfs_kept_states){MFS_OPTIM_STATE(MOMENTUM), MFS_OPTIM_ADAM};
	unit_ok(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err);
	ck_assert_uint_eq(o->chain.count, 3);
	for (uint32_t i = 0; i < o->count; i++) {
		const struct mfs_optim_param *p = &o->params[i];

		ck_assert_uint_eq(p->optimizer == 1, p->tensor->is_expert);
		ck_assert(p->optimizer == 2 || p->tensor->base.ndim == 2);
		ck_assert_uint_eq(
			mfs_optim_kept(&rules, p->tensor->src->name, p->tensor->base.ndim),
			p->optimizer == 2 ? MFS_OPTIM_ADAM : MFS_OPTIM_STATE(MOMENTUM));
		ck_assert_uint_lt(p->id, o->count);
		of[p->optimizer]++;
		mains += p->has_main;
	}
	ck_assert(of[0] && of[1] && of[2]);
	ck_assert_uint_eq(mains, o->count);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(o->group_count[i], i == 2 ? 2 : 1);
	ck_assert(o->groups[1].experts && o->groups[1].muon && !o->groups[2].muon);
	mfs_optim_free(o);
	rules.decoupled_lr = true;
	unit_ok(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err);
	ck_assert_uint_eq(o->group_count[2], 2); /* the embedding's rate is its own */
	ck_assert(o->groups[2].decoupled && !o->groups[3].decay);
	mfs_optim_free(o);
	close_side();
}
END_TEST

/* Of three layers the first and the last are bf16; those of MTP are not counted among them. */
START_TEST(eight_bit_parameters_have_buffers)
{
	const struct mfs_optim_rules ends = {.bf16_start = 1, .bf16_end = 1}, all = {0};
	static const char proj[] = "decoder.layers.0.self_attention.linear_proj.weight";
	struct mfs_optim_rules rules;
	struct mfs_optim *o;

	ck_assert(mfs_optim_is_fp8(&all, proj, 2, 0, 3));
	ck_assert(!mfs_optim_is_fp8(&ends, proj, 2, 0, 3));
	ck_assert(mfs_optim_is_fp8(&ends, proj, 2, 1, 3));
	ck_assert(!mfs_optim_is_fp8(&ends, proj, 2, 2, 3));
	ck_assert(mfs_optim_is_fp8(&ends, "mtp.layers.0.eh_proj.weight", 2, -1, 3));
	ck_assert(
		mfs_optim_is_fp8(&all, "decoder.layers.0.mlp.experts.linear_fc1.weight3", 2, 0, 1));
	ck_assert(!mfs_optim_is_fp8(&all, "decoder.layers.0.mlp.router.weight", 2, 0, 1));
	ck_assert(!mfs_optim_is_fp8(&all, "decoder.layers.0.mlp.linear_fc1.bias", 1, 0, 1));
	ck_assert(!mfs_optim_is_fp8(&all, "decoder.layers.0.mlp.linear_fc1.layer_norm_weight", 1, 0,
				    1));
	ck_assert(!mfs_optim_is_fp8(&all, "output_layer.weight", 2, -1, 1));
	open_side(LLAMA_TORCH, &(struct mfs_rank){.pp = 1});
	mfs_optim_rules_of(side_ckpt, &rules);
	rules.fp8_buffers = true;
	unit_ok(mfs_optim_new(side_list, &rules, 1, 1, &o, &err), &err);
	ck_assert_uint_eq(o->buffer_count, 2);
	for (uint32_t i = 0; i < o->count; i++)
		ck_assert_uint_eq(o->buffers[o->params[i].buffer].param_dtype == MFS_U8,
				  strstr(o->params[i].tensor->src->name, ".linear_") != NULL);
	mfs_optim_free(o);
	close_side();
}
END_TEST

/* The example of layer_wise_optimizer.py: ten parameters and four ranks. */
START_TEST(parameters_are_dealt_to_and_fro)
{
	static const uint32_t expected[4][3] = {{0, 7, 8}, {1, 6, 9}, {2, 5}, {3, 4}};
	static const uint32_t counts[] = {3, 3, 2, 2};

	for (uint32_t rank = 0; rank < 4; rank++) {
		const struct mfs_layer_share s = {rank, 4, 0, 1};
		struct mfs_layer_card cards[11];
		uint32_t own = 0;

		for (uint32_t i = 0; i < 11; i++) /* the last is of an expert, which one rank has */
			cards[i] = (struct mfs_layer_card){.elements = 100 - i,
							   .group = i % 2,
							   .param = 9 - i,
							   .expert = i == 10};
		ck_assert_uint_eq(mfs_layer_deal(&s, cards, 11), counts[rank] + 1);
		for (uint32_t i = 0; i <= counts[rank]; i++)
			if (!cards[i].expert)
				ck_assert_uint_eq(cards[i].param, expected[rank][own++]);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("optim");
	TCase *c = unit_case(s, "formats", formats_agree);

	tcase_add_loop_test(c, is_read, 0, FIXTURES);
	tcase_add_test(c, plain_scaler);
	tcase_add_test(c, nemo_state);
	tcase_add_test(c, nemo_weights);
	tcase_add_test(c, none_is_no_error);
	tcase_add_test(c, corrupt_is_refused);
	c = unit_case(s, "wrong", missing_buffers);
	tcase_add_test(c, quantised_weights_are_not_compared);
	tcase_add_test(c, foreign_buffers);
	tcase_add_test(c, foreign_groups);
	tcase_add_test(c, states_of_others_are_refused);
	c = unit_case(s, "rank", groups_are_the_files);
	tcase_add_test(c, buffers_are_the_files);
	tcase_add_test(c, groups_in_order);
	tcase_add_test(c, muon_and_others_are_apart);
	tcase_add_test(c, eight_bit_parameters_have_buffers);
	tcase_add_test(c, parameters_are_dealt_to_and_fro);
	return s;
}
