/*
 * A rank's part (formats/megatron/read/rank_part.h), read in the order of the files by several
 * threads (pthread_create() is in rank_part_read.c: this test also runs under ThreadSanitizer),
 * against the same tensors read one by one through virtual files.
 */
#include "formats/megatron/read/rank_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/optim/read/optim_open.h"
#include "formats/plan/vfile.h"
#include "tests/unit/fake_files.h"
#include "tests/unit/random_layout.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* ---- one part ---- */

/* Elements [first, first+count) of a tensor through a virtual file. */
static void through_vfile(const struct mfs_part_tensor *t, uint8_t *to)
{
	const uint64_t element = mfs_dtype_size(t->tensor.base.dtype);
	struct mfs_vfile *f;
	size_t len;

	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &t->tensor.base, &err), &err);
	unit_ok(mfs_vfile_pread(f, t->first * element, to, t->bytes, &len, &err), &err);
	ck_assert_uint_eq(len, t->bytes);
	mfs_vfile_free(f);
}

#define MARGIN 8 /* bytes around each destination that nobody may write */

/* Reads a part, and compares it; leaves out one tensor in nine. */
static void check_part(const struct mfs_rank_part *part, unsigned threads)
{
	void **to = calloc(part->count + 1, sizeof(*to));
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < part->count; i++) {
		uint8_t *room = malloc(part->tensors[i].bytes + 2 * MARGIN);

		memset(room, 0xa5, part->tensors[i].bytes + 2 * MARGIN);
		bytes += part->tensors[i].bytes;
		to[i] = i % 9 == 8 ? (free(room), NULL) : room + MARGIN;
	}
	ck_assert_uint_eq(bytes, part->bytes);
	unit_ok(mfs_rank_part_read(part, to, threads, &err), &err);
	for (uint32_t i = 0; i < part->count; i++) {
		const struct mfs_part_tensor *t = &part->tensors[i];
		uint8_t *want = malloc(t->bytes + 2 * MARGIN);
		char name[MFS_CKPT_NAME_SIZE];

		if (to[i]) {
			memset(want, 0xa5, t->bytes + 2 * MARGIN);
			through_vfile(t, want + MARGIN);
			mfs_rank_tensor_name(&t->tensor, name, sizeof(name));
			ck_assert_msg(
				!memcmp(want, (uint8_t *)to[i] - MARGIN, t->bytes + 2 * MARGIN),
				"%s (%d)", name, t->state);
			free((uint8_t *)to[i] - MARGIN);
		}
		free(want);
	}
	free(to);
}

/* ---- random models, layouts, files ---- */

/* Adds the optimizer's tensors of each parameter after the model's. */
static void add_states(struct mfs_ckpt *c)
{
	const uint32_t count = c->tensor_count;
	struct mfs_global_tensor *all = calloc((size_t)count * 4, sizeof(*all));

	memcpy(all, c->tensors, count * sizeof(*all));
	c->tensor_count = count;
	for (int state = MFS_STATE_MAIN; state < MFS_STATE_ADAM_END; state++)
		for (uint32_t i = 0; i < count; i++) {
			if (strstr(all[i].name, "expert_bias"))
				continue;
			all[c->tensor_count] = all[i];
			all[c->tensor_count].state = (uint8_t)state;
			all[c->tensor_count++].dtype = MFS_F32;
		}
	free(c->tensors);
	c->tensors = all;
	c->model_count = count;
}

/* How often each element of each parameter of a rank has been given to a data-parallel rank. */
struct census {
	const struct mfs_rank_list *list;
	uint8_t **seen; /* by tensor of the list and element; one state stands for all */
};

static const struct mfs_rank_tensor *in_list(const struct mfs_rank_list *l,
					     const struct mfs_part_tensor *t)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (l->tensors[i].base.ops && l->tensors[i].row == t->tensor.row &&
		    l->tensors[i].layer == t->tensor.layer &&
		    l->tensors[i].expert == t->tensor.expert &&
		    l->tensors[i].src->layer == t->tensor.src->layer &&
		    l->tensors[i].src->name == t->tensor.src->name)
			return &l->tensors[i];
	ck_abort_msg("%s is not the rank's", t->tensor.src->name);
	return NULL;
}

/* Elements of a rank's slices of all buckets of a buffer. */
static uint64_t slices_size(const struct mfs_optim_buffer *b, uint32_t dp)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->bucket_count; i++)
		sum += b->bucket_padded[i] / dp;
	return sum;
}

static void count_slices(struct census *c, const struct mfs_rank_part *part, uint32_t dp)
{
	/* Elements of a rank's memory of each buffer that were given. */
	uint64_t *given = calloc(part->optim->buffer_count + 1, sizeof(*given));

	for (uint32_t i = 0; i < part->count; i++) {
		const struct mfs_part_tensor *t = &part->tensors[i];
		uint8_t *seen;

		if (t->state != MFS_STATE_EXP_AVG)
			continue;
		seen = c->seen[in_list(part->list, t) - part->list->tensors];
		ck_assert_uint_le((t->first + t->count) * 4, t->tensor.base.bytes);
		for (uint64_t k = 0; k < t->count; k++)
			seen[t->first + k]++;
		given[t->buffer] += t->count;
		ck_assert_uint_le(t->in_slices + t->count,
				  slices_size(&part->optim->buffers[t->buffer], dp));
	}
	for (uint32_t i = 0; i < part->optim->buffer_count; i++)
		ck_assert_uint_le(given[i], slices_size(&part->optim->buffers[i], dp));
	free(given);
}

static void check_census(const struct census *c)
{
	for (uint32_t i = 0; i < c->list->count; i++) {
		const struct mfs_rank_tensor *t = &c->list->tensors[i];
		const uint64_t count =
			t->base.ops ? t->base.bytes / mfs_dtype_size(t->base.dtype) : 0;

		for (uint64_t k = 0; k < count && t->is_parameter; k++)
			ck_assert_msg(c->seen[i][k] == 1, "%s: element %llu on %u ranks",
				      t->src->name, (unsigned long long)k, c->seen[i][k]);
	}
}

/* All data-parallel ranks of one model-parallel rank. */
static void check_rank(struct mfs_ckpt *ckpt, struct mfs_rank_part_options *o)
{
	struct census c = {0};
	struct mfs_rank_part *part;

	unit_ok(mfs_rank_list_new(ckpt, &o->layout, &o->rank, o->spec, 0,
				  (struct mfs_rank_list **)(void *)&c.list, &err),
		&err);
	c.seen = calloc(c.list->count + 1, sizeof(*c.seen));
	for (uint32_t i = 0; i < c.list->count; i++)
		c.seen[i] = calloc(c.list->tensors[i].base.bytes + 1, 1);
	/* As many of either: each experts' rank then stands for one dense rank. */
	for (o->dp_rank = 0; o->dp_rank < o->dp; o->dp_rank++) {
		o->expert_dp_rank = o->dp_rank;
		unit_ok(mfs_rank_part_open(ckpt, o, &part, &err), &err);
		check_part(part, 1 + o->dp_rank % 3);
		count_slices(&c, part, o->dp);
		mfs_rank_part_free(part);
	}
	check_census(&c);
	for (uint32_t i = 0; i < c.list->count; i++)
		free(c.seen[i]);
	free(c.seen);
	mfs_rank_list_free((struct mfs_rank_list *)(uintptr_t)c.list);
}

START_TEST(parts_of_random_models)
{
	struct mfs_rank_part_options o = {.spec = _i % 2 ? MFS_LAYER_SPEC_TE : MFS_LAYER_SPEC_LOCAL,
					  .optimizer = true};
	struct mfs_optim_rules rules;
	struct mfs_megatron_args args;
	struct fake_files files;
	struct mfs_ckpt ckpt;

	srand((unsigned)_i + 1);
	random_layout(_i / 2 % RANDOM_FAMILIES, &args, &o.layout);
	fake_ckpt(&ckpt, &args);
	add_states(&ckpt);
	fake_store(&files, &ckpt, "ckpt");
	mfs_optim_rules_of(&ckpt, &rules);
	rules.overlap_grad_reduce = true;
	rules.bucket_size = 200;
	rules.aligned = fake_below(2);
	o.rules = fake_below(4) ? &rules : NULL;
	o.dp = o.expert_dp = 1 + fake_below(4);
	for (uint32_t i = 0, n = 0; mfs_rank_at(&o.layout, i, &o.rank) && n < 4;
	     i += 1 + fake_below(3), n++)
		check_rank(&ckpt, &o);
	fake_unstore(&files);
	fake_release(&ckpt);
}
END_TEST

/* Tensors that are cut into several units, both ways. */
START_TEST(parts_of_large_tensors)
{
	struct mfs_rank_part_options o = {.layout = {.tp = 4, .pp = 1, .ep = 1, .etp = 4, .vpp = 1},
					  .rank = {.tp = 1}};
	struct mfs_megatron_args args = fake_llama();
	struct mfs_rank_part *part;
	struct fake_files files;
	struct mfs_ckpt ckpt;

	srand((unsigned)_i + 1);
	args.num_layers = 1;
	args.hidden_size = 768;
	args.ffn_hidden_size = 5120;
	args.padded_vocab_size = 8192;
	args.tied = true;
	fake_ckpt(&ckpt, &args);
	for (uint32_t i = 0; i < ckpt.tensor_count; i++)
		ckpt.tensors[i].dtype = MFS_F32;
	fake_store(&files, &ckpt, "ckpt");
	unit_ok(mfs_rank_part_open(&ckpt, &o, &part, &err), &err);
	check_part(part, 1 + (unsigned)_i);
	mfs_rank_part_free(part);
	fake_unstore(&files);
	fake_release(&ckpt);
}
END_TEST

/* ---- real ones ---- */

START_TEST(parts_of_a_real_run)
{
	struct mfs_rank_part_options o = {.optimizer = true, .dp = 2, .expert_dp = 2};
	struct mfs_ckpt *ckpt;

	unit_ok(mfs_optim_open(unit_fixture("resume/qwen2-torch-tp2-dp2-distopt/iter_0000020"),
			       &ckpt, &err),
		&err);
	ck_assert(mfs_layout_parse(_i ? "tp1-pp2" : "tp2-pp1", &o.layout));
	o.spec = mfs_layer_spec_of(ckpt);
	for (uint32_t i = 0; mfs_rank_at(&o.layout, i, &o.rank); i++)
		check_rank(ckpt, &o);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Slices as they lie in memory: rank 0 of 2 has the lower half of each bucket. */
START_TEST(slices_of_one_bucket)
{
	struct mfs_rank_part_options o = {.layout = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1},
					  .spec = MFS_LAYER_SPEC_LOCAL,
					  .optimizer = true,
					  .dp = 2};
	struct mfs_megatron_args args = fake_llama();
	uint64_t elements = 0, padded, last = 0;
	struct mfs_rank_part *part;
	struct fake_files files;
	struct mfs_ckpt ckpt;

	srand(1);
	fake_ckpt(&ckpt, &args);
	add_states(&ckpt);
	fake_store(&files, &ckpt, "ckpt");
	unit_ok(mfs_rank_part_open(&ckpt, &o, &part, &err), &err);
	ck_assert_uint_eq(part->optim->buffer_count, 1);
	ck_assert_uint_eq(part->optim->buffers[0].bucket_count, 1);
	padded = part->optim->buffers[0].bucket_padded[0];
	for (uint32_t i = 0; i < part->count; i++) {
		const struct mfs_part_tensor *t = &part->tensors[i];

		if (t->state != MFS_STATE_MAIN)
			continue;
		ck_assert_uint_le(t->in_slices + t->count, padded / 2);
		elements += t->count;
		last = mfs_global_tensor_name(t->tensor.src, err.msg, sizeof(err.msg)) &&
				       strstr(err.msg, "output_layer")
			       ? t->in_slices
			       : last;
	}
	/* The last parameter to be registered lies first. */
	ck_assert_uint_eq(last, 0);
	ck_assert_uint_le(elements, padded / 2);
	ck_assert_uint_gt(elements, padded / 2 - 64 * part->optim->count);
	mfs_rank_part_free(part);
	fake_unstore(&files);
	fake_release(&ckpt);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(a_rank_that_there_is_not)
{
	struct mfs_rank_part_options o = {.layout = {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1},
					  .rank = {.tp = 2}};
	struct mfs_megatron_args args = fake_llama();
	struct mfs_rank_part *part;
	struct mfs_ckpt ckpt;

	fake_ckpt(&ckpt, &args);
	unit_fails(mfs_rank_part_open(&ckpt, &o, &part, &err), &err, -EINVAL,
		   "no tensor-parallel rank 2 of 2");
	o.rank.tp = 0;
	o.layout.tp = o.layout.etp = 3;
	unit_fails(mfs_rank_part_open(&ckpt, &o, &part, &err), &err, -EINVAL, "tp3 is impossible");
	o.layout.tp = o.layout.etp = 1;
	o.dp_rank = 1;
	unit_fails(mfs_rank_part_open(&ckpt, &o, &part, &err), &err, -EINVAL,
		   "no data-parallel rank 1 of 1");
	o.dp_rank = 0;
	o.optimizer = true;
	unit_fails(mfs_rank_part_open(&ckpt, &o, &part, &err), &err, -ENODATA, "fp32_param");
	fake_release(&ckpt);
}
END_TEST

START_TEST(a_file_that_was_cut)
{
	struct mfs_rank_part_options o = {
		.layout = {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1}};
	struct mfs_megatron_args args = fake_llama();
	struct mfs_rank_part *part;
	struct fake_files files;
	struct mfs_ckpt ckpt;
	char path[600];
	void **to;

	srand(3);
	fake_ckpt(&ckpt, &args);
	fake_store(&files, &ckpt, "ckpt");
	unit_ok(mfs_rank_part_open(&ckpt, &o, &part, &err), &err);
	to = calloc(part->count, sizeof(*to));
	for (uint32_t i = 0; i < part->count; i++)
		to[i] = malloc(part->tensors[i].bytes);
	snprintf(path, sizeof(path), "%s/ckpt", unit_tmpdir());
	unit_write(path, "file2", "x", 1);
	unit_fails(mfs_rank_part_read(part, to, 2, &err), &err, -ESTALE, "ckpt/file2");
	unit_write(path, "file2", files.bytes[2], files.used[2]);
	for (uint32_t i = 0; i < part->count; i++)
		free(to[i]);
	free(to);
	mfs_rank_part_free(part);
	fake_unstore(&files);
	fake_release(&ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rank_part");
	TCase *c = unit_case(s, "Part", slices_of_one_bucket);

	tcase_add_test(c, a_rank_that_there_is_not);
	tcase_add_test(c, a_file_that_was_cut);
	tcase_add_loop_test(c, parts_of_large_tensors, 0, UNIT_TSAN ? 1 : 5);
	tcase_add_loop_test(c, parts_of_a_real_run, 0, 2);
	tcase_add_loop_test(c, parts_of_random_models, 0, 4 * RANDOM_FAMILIES);
	return s;
}
