#include "trainer/config/run_namespace.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/value.h"

static void write_value(struct mfs_pickle_writer *w, const struct mft_flag_value *v);

static void write_list(struct mfs_pickle_writer *w, const struct mft_flag_value *v)
{
	mfs_pickle_list_begin(w);
	for (size_t i = 0; i < v->count; i++) {
		mfs_pickle_batch(w, MFS_OP_APPENDS, i);
		write_value(w, &v->items[i]);
	}
	mfs_pickle_list_end(w);
}

static void write_tuple(struct mfs_pickle_writer *w, const struct mft_flag_value *v)
{
	mfs_pickle_op(w, MFS_OP_MARK);
	for (size_t i = 0; i < v->count; i++)
		write_value(w, &v->items[i]);
	mfs_pickle_op(w, MFS_OP_TUPLE);
}

/* Enum.__reduce_ex__: the class, called with the value. */
static void write_member(struct mfs_pickle_writer *w, const struct mft_flag_value *v)
{
	mfs_pickle_global(w, v->of->module, v->of->class_name);
	mfs_pickle_int(w, v->number);
	mfs_pickle_op(w, MFS_OP_TUPLE1);
	mfs_pickle_op(w, MFS_OP_REDUCE);
}

static void write_value(struct mfs_pickle_writer *w, const struct mft_flag_value *v)
{
	switch (v->type) {
	case MFT_IS_NONE:
		mfs_pickle_none(w);
		break;
	case MFT_IS_BOOL:
		mfs_pickle_bool(w, v->truth);
		break;
	case MFT_IS_INT:
		mfs_pickle_int(w, v->number);
		break;
	case MFT_IS_REAL:
		mfs_pickle_float(w, v->real);
		break;
	case MFT_IS_TEXT:
		mfs_pickle_str(w, v->text);
		break;
	case MFT_IS_LIST:
		write_list(w, v);
		break;
	case MFT_IS_TUPLE:
		write_tuple(w, v);
		break;
	case MFT_IS_DTYPE:
		mfs_pickle_dtype(w, v->dtype);
		break;
	case MFT_IS_ENUM:
		write_member(w, v);
		break;
	}
}

/* The value of an attribute that changes during the run. */
static bool progress_of(const char *dest, const struct mft_namespace_extra *x, uint64_t *ret)
{
	const struct {
		const char *dest;
		uint64_t value;
	} known[] = {
		/* training.py: train() has iteration at the start, and counts in curr_iteration */
		{"curr_iteration", x->iteration ? x->iteration - 1 : 0},
		{"consumed_train_samples", x->consumed_train_samples},
		{"consumed_valid_samples", x->consumed_valid_samples},
		{"skipped_train_samples", x->skipped_train_samples},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(known); i++) {
		if (!mfs_str_is(dest, known[i].dest))
			continue;
		*ret = known[i].value;
		return true;
	}
	return false;
}

/* Attributes that Megatron does not look for, after so many others. */
static void write_ours(struct mfs_pickle_writer *w, const struct mft_namespace_extra *x,
		       uint64_t written)
{
	const struct {
		const char *name;
		uint64_t value;
	} ours[] = {{"sft_samples", x->sft_samples}, {"sft_order", x->sft_order}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ours); i++) {
		if (!ours[i].value)
			continue;
		mfs_pickle_batch(w, MFS_OP_SETITEMS, written++);
		mfs_pickle_name(w, ours[i].name);
		mfs_pickle_uint(w, ours[i].value);
	}
}

int mft_train_namespace_write(struct mfs_pickle_writer *w, const struct mft_train_config *config,
			      const struct mft_namespace_extra *extra)
{
	const size_t count = mft_flag_count();
	uint64_t written = 0, value;

	mfs_pickle_object_begin(w, "argparse", "Namespace");
	for (size_t i = 0; i < count; i++) {
		const struct mft_flag *f = mft_flag_at(i);

		if (f->gone)
			continue;
		mfs_pickle_batch(w, MFS_OP_SETITEMS, written++);
		mfs_pickle_name(w, f->dest);
		if (extra && progress_of(f->dest, extra, &value))
			mfs_pickle_uint(w, value);
		else
			write_value(w, &config->values->at[i]);
	}
	if (extra)
		write_ours(w, extra, written);
	mfs_pickle_object_end(w);
	return w->failure.code;
}
