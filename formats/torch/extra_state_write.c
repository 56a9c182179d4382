/* Writes a module's `_extra_state` as Transformer Engine pickles it: with names and values that all
 * its releases from 2.0 on load, and that Megatron's SafeUnpickler lets through. */
#include "formats/base/array.h"
#include "formats/torch/extra_state.h"
#include "formats/torch/pickle_write.h"

#define RECIPES	 "transformer_engine.common.recipe"
#define PROTOCOL 1001 /* torch/serialization.py:PROTOCOL_VERSION */

/* MAGIC_NUMBER of torch/serialization.py, as a pickle. */
static const uint8_t magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
				0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/* ---- a storage, as torch.save writes it without a ZIP (torch_stream.h) ---- */

static int add_version(struct mfs_buf *out, struct mfs_error *err)
{
	struct mfs_pickle_writer w;

	mfs_pickle_begin(&w, out, 2);
	mfs_pickle_int(&w, PROTOCOL);
	return mfs_pickle_end(&w, err);
}

static int add_system(struct mfs_buf *out, struct mfs_error *err)
{
	static const struct {
		const char *name;
		int size;
	} sizes[] = {{"short", 2}, {"int", 4}, {"long", 4}};
	struct mfs_pickle_writer w;

	mfs_pickle_begin(&w, out, 2);
	mfs_pickle_dict_begin(&w);
	mfs_pickle_name(&w, "protocol_version");
	mfs_pickle_int(&w, PROTOCOL);
	mfs_pickle_name(&w, "little_endian");
	mfs_pickle_bool(&w, true);
	mfs_pickle_name(&w, "type_sizes");
	mfs_pickle_dict_begin(&w);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes); i++) {
		mfs_pickle_name(&w, sizes[i].name);
		mfs_pickle_int(&w, sizes[i].size);
	}
	mfs_pickle_dict_end(&w);
	mfs_pickle_dict_end(&w);
	return mfs_pickle_end(&w, err);
}

/* The storage itself, by its persistent id, and the list of keys. */
static int add_names(struct mfs_buf *out, uint64_t count, struct mfs_error *err)
{
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, out, 2);
	mfs_pickle_op(&w, MFS_OP_MARK);
	mfs_pickle_name(&w, "storage");
	mfs_pickle_global(&w, "torch", "FloatStorage");
	mfs_pickle_str(&w, "0");
	mfs_pickle_name(&w, "cpu");
	mfs_pickle_uint(&w, count);
	mfs_pickle_none(&w);
	mfs_pickle_op(&w, MFS_OP_TUPLE);
	mfs_pickle_op(&w, MFS_OP_BINPERSID);
	rc = mfs_pickle_end(&w, err);
	if (rc)
		return rc;
	mfs_pickle_begin(&w, out, 2);
	mfs_pickle_list_begin(&w);
	mfs_pickle_str(&w, "0");
	mfs_pickle_list_end(&w);
	return mfs_pickle_end(&w, err);
}

static int add_storage(struct mfs_buf *out, const float *values, uint64_t count,
		       struct mfs_error *err)
{
	int rc;

	mfs_buf_add(out, magic, sizeof(magic));
	rc = add_version(out, err);
	if (!rc)
		rc = add_system(out, err);
	if (!rc)
		rc = add_names(out, count, err);
	mfs_buf_add(out, &count, sizeof(count));
	mfs_buf_add(out, values, count * sizeof(*values));
	return !rc && out->failed ? mfs_fail_nomem(err) : rc;
}

/* ---- the dict ---- */

/* rows 0: a vector. */
static int put_floats(struct mfs_pickle_writer *w, const float *values, uint64_t rows,
		      uint64_t cols, struct mfs_error *err)
{
	const uint64_t shape[] = {rows, cols}, stride[] = {cols, 1};
	const unsigned first = rows ? 0 : 1, ndim = 2 - first;
	struct mfs_buf storage = {0};
	int rc = add_storage(&storage, values, (rows ? rows : 1) * cols, err);

	mfs_pickle_global(w, "torch._utils", "_rebuild_tensor_v2");
	mfs_pickle_op(w, MFS_OP_MARK);
	mfs_pickle_global(w, "torch.storage", "_load_from_bytes");
	mfs_pickle_bytes(w, storage.data, storage.len);
	mfs_pickle_op(w, MFS_OP_TUPLE1);
	mfs_pickle_op(w, MFS_OP_REDUCE);
	mfs_pickle_int(w, 0);
	mfs_pickle_ints(w, shape + first, ndim);
	mfs_pickle_ints(w, stride + first, ndim);
	mfs_pickle_bool(w, false);			    /* requires_grad */
	mfs_pickle_global(w, "collections", "OrderedDict"); /* backward hooks: none */
	mfs_pickle_op(w, MFS_OP_EMPTY_TUPLE);
	mfs_pickle_op(w, MFS_OP_REDUCE);
	mfs_pickle_op(w, MFS_OP_TUPLE);
	mfs_pickle_op(w, MFS_OP_REDUCE);
	mfs_buf_release(&storage);
	return rc;
}

static int put_arrays(struct mfs_pickle_writer *w, const struct mfs_extra_state *s,
		      struct mfs_error *err)
{
	static const char *const keys[][2] = {{"scale_fwd", "amax_history_fwd"},
					      {"scale_bwd", "amax_history_bwd"}};
	int rc = 0;

	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS && !rc; d++) {
		const uint32_t columns = mfs_extra_state_columns(s, d);

		mfs_pickle_name(w, keys[d][0]);
		rc = put_floats(w, s->scale[d], 0, columns, err);
		mfs_pickle_name(w, keys[d][1]);
		if (!rc)
			rc = put_floats(w, s->history[d], s->length, columns, err);
	}
	return rc;
}

static void put_format(struct mfs_pickle_writer *w, const struct mfs_extra_state *s)
{
	mfs_pickle_global(w, RECIPES, "Format");
	mfs_pickle_global(w, RECIPES, "_FormatHelper");
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++)
		mfs_pickle_int(w, (int64_t)s->most[d]);
	mfs_pickle_op(w, MFS_OP_TUPLE2);
	mfs_pickle_op(w, MFS_OP_NEWOBJ);
	mfs_pickle_op(w, MFS_OP_TUPLE1);
	mfs_pickle_op(w, MFS_OP_REDUCE);
}

/* The fields that every release has; others keep their defaults. */
static void put_recipe(struct mfs_pickle_writer *w, const struct mfs_extra_state *s)
{
	mfs_pickle_object_begin(w, RECIPES, "DelayedScaling");
	mfs_pickle_name(w, "margin");
	mfs_pickle_int(w, s->margin);
	mfs_pickle_name(w, "fp8_format");
	put_format(w, s);
	mfs_pickle_name(w, "amax_history_len");
	mfs_pickle_int(w, s->length);
	mfs_pickle_name(w, "amax_compute_algo");
	mfs_pickle_name(w, s->most_recent ? "most_recent" : "max");
	mfs_pickle_name(w, "scaling_factor_compute_algo");
	mfs_pickle_none(w);
	mfs_pickle_name(w, "reduce_amax");
	mfs_pickle_bool(w, true);
	mfs_pickle_name(w, "fp8_dpa");
	mfs_pickle_bool(w, false);
	mfs_pickle_name(w, "fp8_mha");
	mfs_pickle_bool(w, false);
	mfs_pickle_object_end(w);
}

static void put_extra(struct mfs_pickle_writer *w, const struct mfs_extra_state *s)
{
	mfs_pickle_dict_begin(w);
	mfs_pickle_name(w, "fp8_checkpoint");
	mfs_pickle_bool(w, true);
	mfs_pickle_name(w, "num_gemms");
	mfs_pickle_int(w, s->products);
	mfs_pickle_name(w, "fp8_max_fwd");
	mfs_pickle_int(w, (int64_t)s->most[MFS_FP8_FORWARD]);
	mfs_pickle_name(w, "fp8_max_bwd");
	mfs_pickle_int(w, (int64_t)s->most[MFS_FP8_BACKWARD]);
	mfs_pickle_dict_end(w);
}

int mfs_extra_state_write(const struct mfs_extra_state *s, struct mfs_buf *out,
			  struct mfs_error *err)
{
	struct mfs_pickle_writer w;
	int rc;

	if (!s->products)
		return 0;
	mfs_pickle_begin(&w, out, 4);
	mfs_pickle_dict_begin(&w);
	mfs_pickle_name(&w, "recipe");
	put_recipe(&w, s);
	rc = put_arrays(&w, s, err);
	mfs_pickle_name(&w, "extra_fp8_variables");
	put_extra(&w, s);
	mfs_pickle_dict_end(&w);
	if (rc) {
		mfs_pickle_abandon(&w);
		return rc;
	}
	return mfs_pickle_end(&w, err);
}
