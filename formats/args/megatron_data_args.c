#include "formats/args/megatron_data_args.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "formats/args/megatron_args.h"
#include "formats/base/array.h"

struct reader {
	const struct mfs_pickle *doc;
	mfs_value args;
	struct mfs_arena *arena;
	struct mfs_error *err;
	int rc;		 /* the first failure; later calls do nothing */
	uint64_t budget; /* bytes of the stream that no text has been made of */
};

static void wrong(struct reader *r, const char *name, const char *expected)
{
	if (!r->rc)
		r->rc = mfs_fail(r->err, -EINVAL, "argument '%s' of the run: expected %s", name,
				 expected);
}

static int64_t integer(struct reader *r, const char *name)
{
	mfs_value v = mfs_value_attr(r->doc, r->args, name);
	int64_t i;

	if (mfs_value_is_none(r->doc, v))
		return MFS_ABSENT;
	if (!mfs_value_int(r->doc, v, &i) || i < 0) {
		wrong(r, name, "a natural number");
		return MFS_ABSENT;
	}
	return i;
}

static double real(struct reader *r, const char *name)
{
	mfs_value v = mfs_value_attr(r->doc, r->args, name);
	double f = 0;

	if (mfs_value_is_none(r->doc, v))
		return -1;
	if (!mfs_value_float(r->doc, v, &f) || !isfinite(f) || f < 0)
		wrong(r, name, "a number that is not below 0");
	return f;
}

static bool flag(struct reader *r, const char *name, bool otherwise)
{
	mfs_value v = mfs_value_attr(r->doc, r->args, name);
	bool b = otherwise;

	if (!mfs_value_is_none(r->doc, v) && !mfs_value_bool(r->doc, v, &b))
		wrong(r, name, "True or False");
	return b;
}

/* NULL, or a copy of a text without NULs. */
static const char *text(struct reader *r, mfs_value v, const char *name)
{
	const char *s, *copy;
	size_t len;

	if (mfs_value_is_none(r->doc, v))
		return NULL;
	if (!mfs_value_str(r->doc, v, &s, &len) || memchr(s, 0, len)) {
		wrong(r, name, "a text");
		return NULL;
	}
	/* Each text normally has bytes of its own in the stream. Only a text that is referred to
	 * again and again needs more. */
	if (len > r->budget) {
		wrong(r, name, "texts that are not one text again and again");
		return NULL;
	}
	r->budget -= len;
	copy = mfs_arena_strndup(r->arena, s, len);
	if (!copy && !r->rc)
		r->rc = mfs_fail_nomem(r->err);
	return copy;
}

static const char *string(struct reader *r, const char *name)
{
	return text(r, mfs_value_attr(r->doc, r->args, name), name);
}

/* Before 2023-10 a single prefix may be a text by itself. */
static struct mfs_arg_words words(struct reader *r, const char *name)
{
	mfs_value v = mfs_value_attr(r->doc, r->args, name);
	const bool alone = mfs_value_type(r->doc, v) == MFS_V_STR;
	const uint32_t count = alone ? 1 : mfs_value_count(r->doc, v);
	const char **list;

	if (mfs_value_is_none(r->doc, v) || (mfs_value_type(r->doc, v) == MFS_V_LIST && !count))
		return (struct mfs_arg_words){0};
	if (!count) {
		wrong(r, name, "a list of texts");
		return (struct mfs_arg_words){0};
	}
	list = mfs_arena_array(r->arena, count, sizeof(*list));
	if (!list && !r->rc)
		r->rc = mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < count && !r->rc; i++) {
		list[i] = text(r, alone ? v : mfs_value_at(r->doc, v, i), name);
		if (!list[i])
			wrong(r, name, "a list of texts");
	}
	return r->rc ? (struct mfs_arg_words){0} : (struct mfs_arg_words){list, count};
}

static bool is_set(const struct reader *r, const char *name)
{
	mfs_value v = mfs_value_attr(r->doc, r->args, name);
	bool b;

	if (mfs_value_bool(r->doc, v, &b))
		return b;
	return !mfs_value_is_none(r->doc, v);
}

/* True also where the argument is there and None or False. */
static bool is_there(const struct reader *r, const char *name)
{
	return mfs_value_has(r->doc, mfs_value_state(r->doc, r->args), name);
}

/* The release is told by arguments that came and went. The rules for sampled data changed with core
 * 0.4 (2023-10, a0e190ca4c) and core 0.11 (2025-02, 85676ca489). In between, core 0.9 added an
 * option. */
static const char *version_of(const struct reader *r)
{
	static const struct {
		const char *argument, *version;
	} marks[] = {
		{"mid_level_dataset_surplus", NULL},   /* 0.13 and later */
		{"renormalize_blend_weights", "0.10"}, /* 0.9 and 0.10 */
		{"per_split_data_args_path", "0.12"},  /* 0.10 and later */
		{"mmap_warmup", "2.6"},		       /* Megatron-LM before core 0.4 */
		{"data_path", "0.8"},		       /* any */
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(marks); i++)
		if (is_there(r, marks[i].argument))
			return marks[i].version;
	return NULL;
}

/* The first of the names, up to NULL, that is neither None nor False nor absent. */
static const char *first_set(const struct reader *r, const char *const *names)
{
	while (*names && !is_set(r, *names))
		names++;
	return *names;
}

static void read_paths(struct reader *r, struct mfs_megatron_data_args *a)
{
	a->data_path = words(r, "data_path");
	a->split_data_path[0] = words(r, "train_data_path");
	a->split_data_path[1] = words(r, "valid_data_path");
	a->split_data_path[2] = words(r, "test_data_path");
	a->data_args_path = string(r, "data_args_path");
	a->per_split_data_args_path = string(r, "per_split_data_args_path");
	a->split = string(r, "split");
}

/* With --multiple-validation-sets Megatron replaces eval_iters by a list (training.py:
 * build_train_valid_test_data_iterators). */
static bool batches_of_sets(const struct reader *r)
{
	return mfs_value_type(r->doc, mfs_value_attr(r->doc, r->args, "eval_iters")) == MFS_V_LIST;
}

static void read_length(struct reader *r, struct mfs_megatron_data_args *a)
{
	a->seed = integer(r, "seed");
	a->seq_length = integer(r, "seq_length");
	a->train_iters = integer(r, "train_iters");
	a->train_samples = integer(r, "train_samples");
	a->eval_iters = batches_of_sets(r) ? MFS_ABSENT : integer(r, "eval_iters");
	a->eval_interval = integer(r, "eval_interval");
	a->global_batch_size = integer(r, "global_batch_size");
	a->micro_batch_size = integer(r, "micro_batch_size");
	a->data_parallel_size = integer(r, "data_parallel_size");
	a->consumed_train_samples = integer(r, "consumed_train_samples");
}

static void read_kind(struct reader *r, struct mfs_megatron_data_args *a)
{
	static const char *const varies[] = {"rampup_batch_size", "step_batch_size_schedule",
					     "phase_transition_iterations", NULL};
	static const char *const other[] = {"mock_data", "sft", "fim_data", "perform_rl_step",
					    NULL};

	a->dataloader_type = string(r, "dataloader_type");
	a->version = version_of(r);
	a->renormalize = flag(r, "renormalize_blend_weights", false);
	a->surplus = real(r, "mid_level_dataset_surplus");
	a->full_validation = flag(r, "full_validation", false);
	a->no_data_sharding = !flag(r, "data_sharding", true);
	a->eod_mask_loss = flag(r, "eod_mask_loss", false);
	a->varies = first_set(r, varies);
	a->other_data = first_set(r, other);
}

int mfs_megatron_data_args_read(const struct mfs_pickle *doc, mfs_value state,
				struct mfs_arena *arena, struct mfs_megatron_data_args *ret,
				struct mfs_error *err)
{
	struct reader r = {
		doc, mfs_value_get(doc, state, "args"), arena, err, 0, mfs_pickle_length(doc)};
	struct mfs_megatron_data_args a = {.iteration = MFS_ABSENT};

	if (mfs_value_is_none(doc, r.args))
		return mfs_fail(err, -ENODATA, "the checkpoint holds no arguments of its run");
	read_paths(&r, &a);
	read_length(&r, &a);
	read_kind(&r, &a);
	if (mfs_value_int(doc, mfs_value_get(doc, state, "iteration"), &a.iteration) &&
	    a.iteration < 0)
		a.iteration = MFS_ABSENT;
	if (!r.rc)
		*ret = a;
	return r.rc;
}
