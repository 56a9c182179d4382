#include "formats/torch/extra_state.h"

#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/torch/torch_stream.h"

#define RECIPES "transformer_engine.common.recipe"

/* A dict of states, and where the storages of its tensors are. */
struct dict {
	const struct mfs_pickle *doc;
	mfs_value root;
	const struct mfs_torch_file *file; /* 1.x: the archive; NULL: bytes in the pickle */
	const char *name;
	struct mfs_arena *arena;
	struct mfs_error *err;
};

static const char *const scale_keys[] = {"scale_fwd", "scale_bwd"};
static const char *const history_keys[] = {"amax_history_fwd", "amax_history_bwd"};
static const char *const most_keys[] = {"fp8_max_fwd", "fp8_max_bwd"};

int mfs_extra_state_alloc(struct mfs_extra_state *s, struct mfs_arena *arena, struct mfs_error *err)
{
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		const uint32_t columns = mfs_extra_state_columns(s, d);

		s->scale[d] = mfs_arena_array(arena, columns, sizeof(float));
		s->history[d] = mfs_arena_array(arena, (size_t)s->length * columns, sizeof(float));
		if (!s->scale[d] || !s->history[d])
			return mfs_fail_nomem(err);
		for (uint32_t i = 0; i < columns; i++)
			s->scale[d][i] = 1;
	}
	return 0;
}

/* ---- tensors ---- */

/* A matrix of floats in the arena; a vector has one row. */
struct floats {
	uint64_t rows, cols;
	float *at;
};

/* Splitting by experts leaves tensors that are not contiguous. */
static int gather(const struct dict *d, const struct mfs_torch_file *f,
		  const struct mfs_torch_tensor *t, struct floats *ret)
{
	const unsigned last = t->ndim - 1u;
	const uint64_t row_stride = t->ndim == 2 ? t->stride[0] : 0;
	struct floats m = {.rows = t->ndim == 2 ? t->shape[0] : 1, .cols = t->shape[last]};
	void *bytes;
	int rc = mfs_torch_file_read(f, t->record, d->arena, &bytes, d->err);

	if (rc)
		return rc;
	m.at = mfs_arena_array(d->arena, m.rows * m.cols, sizeof(float));
	if (!m.at)
		return mfs_fail_nomem(d->err);
	for (uint64_t i = 0; i < m.rows * m.cols; i++)
		memcpy(&m.at[i],
		       (const float *)bytes + t->offset + i / m.cols * row_stride +
			       i % m.cols * t->stride[last],
		       sizeof(float));
	*ret = m;
	return 0;
}

static int read_over(const struct dict *d, const struct mfs_torch_file *f, mfs_value storage,
		     const struct mfs_torch_view *view, struct floats *ret)
{
	struct mfs_torch_tensor t;
	int rc = mfs_torch_view_over(f, storage, view, &t, d->err);

	if (rc)
		return rc;
	if (t.dtype != MFS_F32 || !t.ndim || t.ndim > 2)
		return mfs_fail(d->err, -EINVAL,
				"%s: a tensor of %s with %u axes, expected float32 with 1 or 2",
				d->name, mfs_dtype_torch(t.dtype), t.ndim);
	return gather(d, f, &t, ret);
}

/* The storage is what torch.storage._load_from_bytes() makes of bytes: a torch.save file. */
static int read_in_bytes(const struct dict *d, const struct mfs_torch_view *view,
			 struct floats *ret)
{
	const mfs_value call = view->storage;
	struct mfs_torch_file f;
	struct mfs_source src;
	const uint8_t *bytes;
	size_t len;
	int rc;

	if (!mfs_value_is_global(d->doc, mfs_value_callable(d->doc, call), "torch.storage",
				 "_load_from_bytes") ||
	    !mfs_value_bytes(d->doc, mfs_value_at(d->doc, mfs_value_args(d->doc, call), 0), &bytes,
			     &len))
		return mfs_fail(d->err, -ENOTSUP, "%s: a tensor whose storage is not in bytes",
				d->name);
	src = mfs_source_memory(bytes, len, d->name);
	rc = mfs_torch_file_open(&src, &f, d->err);
	if (rc)
		return rc;
	rc = read_over(d, &f, mfs_pickle_root(f.doc), view, ret);
	mfs_torch_file_release(&f);
	return rc;
}

static int read_floats(const struct dict *d, const char *key, struct floats *ret)
{
	struct mfs_torch_view view;
	int rc =
		mfs_torch_view(d->doc, d->name, mfs_value_get(d->doc, d->root, key), &view, d->err);

	if (!rc && d->file)
		rc = read_over(d, d->file, view.storage, &view, ret);
	else if (!rc)
		rc = read_in_bytes(d, &view, ret);
	return rc ? mfs_fail_in(d->err, "'%s'", key) : 0;
}

/* ---- the arrays ---- */

static int wrong(const struct dict *d, const char *key, const struct floats *found, uint64_t rows,
		 uint64_t cols)
{
	return mfs_fail(d->err, -EINVAL,
			"%s: '%s' has %llu rows and %llu columns, expected %llu and %llu", d->name,
			key, (unsigned long long)found->rows, (unsigned long long)found->cols,
			(unsigned long long)rows, (unsigned long long)cols);
}

static uint32_t at_least_one(uint64_t n)
{
	return n ? (uint32_t)mfs_min_u64(n, UINT32_MAX / 4) : 1;
}

/* The first scale has an entry for each product, and the first history has its length. */
static int read_arrays(const struct dict *dict, struct mfs_extra_state *s)
{
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		struct floats scale, history;
		int rc = read_floats(dict, scale_keys[d], &scale);

		if (!rc)
			rc = read_floats(dict, history_keys[d], &history);
		if (rc)
			return rc;
		if (d == MFS_FP8_FORWARD) {
			s->products = at_least_one(scale.cols / MFS_FP8_FORWARD_KINDS);
			s->length = at_least_one(history.rows);
		}
		if (scale.rows != 1 || scale.cols != mfs_extra_state_columns(s, d))
			return wrong(dict, scale_keys[d], &scale, 1, mfs_extra_state_columns(s, d));
		if (history.rows != s->length || history.cols != scale.cols)
			return wrong(dict, history_keys[d], &history, s->length, scale.cols);
		s->scale[d] = scale.at;
		s->history[d] = history.at;
	}
	return 0;
}

/* ---- the recipe ---- */

/* Recipes that keep nothing from one step to the next. */
static bool is_stateless(const struct mfs_pickle *doc, mfs_value cls)
{
	static const char *const names[] = {"Float8CurrentScaling", "Float8BlockScaling",
					    "MXFP8BlockScaling", "NVFP4BlockScaling"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		if (mfs_value_is_global(doc, cls, RECIPES, names[i]))
			return true;
	return false;
}

/* Megatron has a class of its own. */
static bool is_delayed(const struct mfs_pickle *doc, mfs_value cls)
{
	return mfs_value_is_global(doc, cls, RECIPES, "DelayedScaling") ||
	       mfs_value_is_global(doc, cls, "megatron.core.extensions.transformer_engine",
				   "TEDelayedScaling") ||
	       mfs_value_is_global(doc, cls,
				   "megatron.core.transformer.custom_layers.transformer_engine",
				   "TEDelayedScaling");
}

static int check_most(const struct dict *d, const struct mfs_extra_state *s)
{
	const double *m = s->most;

	if (m[MFS_FP8_FORWARD] == 448 &&
	    (m[MFS_FP8_BACKWARD] == 448 || m[MFS_FP8_BACKWARD] == 57344))
		return 0;
	return mfs_fail(d->err, -ENOTSUP,
			"%s: a format up to %g forward and %g backward, expected e4m3 (448 and "
			"448) or hybrid (448 and 57344)",
			d->name, m[MFS_FP8_FORWARD], m[MFS_FP8_BACKWARD]);
}

/* Format.HYBRID, as pickle has it: Format(_FormatHelper(448, 57344)), or by its name. */
static void read_format(const struct dict *d, mfs_value format, struct mfs_extra_state *s)
{
	const mfs_value args = mfs_value_args(d->doc, format);
	const mfs_value numbers = mfs_value_args(d->doc, mfs_value_at(d->doc, args, 0));

	if (mfs_value_is_str(d->doc, mfs_value_at(d->doc, args, 1), "E4M3"))
		s->most[MFS_FP8_BACKWARD] = 448;
	for (uint32_t i = 0; i < MFS_FP8_DIRECTIONS && mfs_value_count(d->doc, numbers) == 2; i++)
		mfs_value_float(d->doc, mfs_value_at(d->doc, numbers, i), &s->most[i]);
}

/* What is not there is as Transformer Engine has it by default. */
static int read_recipe(const struct dict *d, mfs_value recipe, struct mfs_extra_state *s)
{
	const mfs_value extra = mfs_value_get(d->doc, d->root, "extra_fp8_variables");
	const mfs_value algo = mfs_value_attr(d->doc, recipe, "amax_compute_algo");
	const mfs_value format = mfs_value_attr(d->doc, recipe, "fp8_format");

	s->most[MFS_FP8_FORWARD] = 448;
	s->most[MFS_FP8_BACKWARD] = 57344;
	for (enum mfs_fp8_direction i = 0; i < MFS_FP8_DIRECTIONS; i++)
		mfs_value_float(d->doc, mfs_value_get(d->doc, extra, most_keys[i]), &s->most[i]);
	read_format(d, format, s);
	mfs_value_int(d->doc, mfs_value_attr(d->doc, recipe, "margin"), &s->margin);
	s->most_recent = mfs_value_is_str(d->doc, algo, "most_recent");
	if (!s->most_recent && !mfs_value_is_none(d->doc, algo) &&
	    !mfs_value_is_str(d->doc, algo, "max"))
		return mfs_fail(d->err, -ENOTSUP,
				"%s: expected amax_compute_algo 'max' or 'most_recent', found a "
				"function or another text",
				d->name);
	return check_most(d, s);
}

static int unknown(const struct dict *d, mfs_value recipe)
{
	size_t len;
	const char *name = mfs_value_class(d->doc, recipe, &len);

	if (!len)
		return mfs_fail(d->err, -ENOTSUP, "%s: state of a recipe without a name", d->name);
	return mfs_fail(d->err, -ENOTSUP, "%s: state of the recipe '%.*s', which is not supported",
			d->name, (int)mfs_min_u64(len, 64), name);
}

static int read_dict(const struct dict *d, struct mfs_extra_state *ret)
{
	const mfs_value recipe = mfs_value_get(d->doc, d->root, "recipe");
	const mfs_value cls = mfs_value_callable(d->doc, recipe);
	const bool has = mfs_value_has(d->doc, d->root, scale_keys[MFS_FP8_FORWARD]);
	struct mfs_extra_state s = {0};
	int rc;

	if (mfs_value_is_none(d->doc, d->root) || is_stateless(d->doc, cls))
		return 0;
	if (mfs_value_type(d->doc, d->root) != MFS_V_DICT)
		return mfs_fail(d->err, -ENOTSUP, "%s: expected a dict of scales and histories",
				d->name);
	if (mfs_value_is_none(d->doc, recipe) && !has)
		return mfs_value_pairs(d->doc, d->root) ? unknown(d, recipe) : 0;
	if (!mfs_value_is_none(d->doc, recipe) && !is_delayed(d->doc, cls))
		return unknown(d, recipe);
	rc = read_recipe(d, recipe, &s);
	if (!rc)
		rc = read_arrays(d, &s);
	if (!rc)
		*ret = s;
	return rc;
}

/* ---- the forms ---- */

static int read_archive(const struct mfs_source *src, struct mfs_arena *arena,
			struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct dict d = {.name = src->name, .arena = arena, .err = err};
	struct mfs_torch_file f;
	int rc = mfs_torch_file_open(src, &f, err);

	if (rc)
		return rc;
	d.doc = f.doc;
	d.root = mfs_pickle_root(f.doc);
	d.file = &f;
	rc = read_dict(&d, ret);
	mfs_torch_file_release(&f);
	return rc;
}

static int read_pickle(const struct mfs_source *src, struct mfs_arena *arena,
		       struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct dict d = {.name = src->name, .arena = arena, .err = err};
	struct mfs_pickle *doc;
	int rc = mfs_pickle_parse(src->object, src->size, src->name, NULL, &doc, err);

	if (rc)
		return rc;
	d.doc = doc;
	d.root = mfs_pickle_root(doc);
	rc = read_dict(&d, ret);
	mfs_pickle_free(doc);
	return rc;
}

int mfs_extra_state_read(const void *bytes, size_t len, const char *name, struct mfs_arena *arena,
			 struct mfs_extra_state *ret, struct mfs_error *err)
{
	const struct mfs_source src = mfs_source_memory(bytes, len, name);

	*ret = (struct mfs_extra_state){0};
	if (!len)
		return 0;
	if ((len >= 2 && !memcmp(bytes, "PK", 2)) || mfs_torch_is_stream(&src))
		return read_archive(&src, arena, ret, err);
	return read_pickle(&src, arena, ret, err);
}

/* The bytes that _codecs.encode(text, 'latin1') makes: how protocol 2 has them. NULL: no memory, or
 * the text has another character. */
static uint8_t *from_latin1(const char *text, size_t len, struct mfs_arena *arena, size_t *ret_len)
{
	uint8_t *bytes = mfs_arena_alloc(arena, len + 1);
	size_t n = 0;

	for (size_t i = 0; i < len && bytes; i++) {
		const uint8_t c = (uint8_t)text[i];

		if (c < 0x80)
			bytes[n++] = c;
		else if ((c & 0xfc) == 0xc0 && i + 1 < len)
			bytes[n++] = (uint8_t)(c << 6 | ((uint8_t)text[++i] & 0x3f));
		else
			return NULL;
	}
	*ret_len = n;
	return bytes;
}

static const uint8_t *copy_bytes(const uint8_t *from, size_t len, struct mfs_arena *arena)
{
	uint8_t *ret = mfs_arena_alloc(arena, len + 1);

	if (ret && len)
		memcpy(ret, from, len);
	return ret;
}

const uint8_t *mfs_extra_state_buffer(const struct mfs_pickle *doc, mfs_value v,
				      struct mfs_arena *arena, size_t *ret_len)
{
	const mfs_value bytes = mfs_value_at(doc, mfs_value_state(doc, v), 0);
	const char *text;
	const uint8_t *ret;
	size_t len;

	if (!mfs_value_is_object_of(doc, v, "BytesIO"))
		return NULL;
	if (mfs_value_bytes(doc, bytes, &ret, ret_len))
		return copy_bytes(ret, *ret_len, arena);
	if (mfs_value_is_global(doc, mfs_value_callable(doc, bytes), "_codecs", "encode") &&
	    mfs_value_str(doc, mfs_value_at(doc, mfs_value_args(doc, bytes), 0), &text, &len))
		return from_latin1(text, len, arena, ret_len);
	return NULL;
}

static int read_tensor(const struct mfs_torch_file *f, mfs_value v, struct mfs_arena *arena,
		       struct mfs_extra_state *ret, struct mfs_error *err)
{
	struct mfs_torch_tensor t;
	void *bytes;
	int rc = mfs_torch_tensor(f, v, &t, err);

	if (rc)
		return rc;
	if (t.dtype != MFS_U8 || t.ndim != 1 || (t.shape[0] > 1 && t.stride[0] != 1))
		return mfs_fail(err, -ENOTSUP, "%s: a tensor of %s with %u axes, expected bytes",
				f->zip.src.name, mfs_dtype_torch(t.dtype), t.ndim);
	rc = mfs_torch_file_read(f, t.record, arena, &bytes, err);
	return rc ? rc
		  : mfs_extra_state_read((const uint8_t *)bytes + t.offset, t.shape[0],
					 f->zip.src.name, arena, ret, err);
}

int mfs_extra_state_value(const struct mfs_torch_file *f, mfs_value v, struct mfs_arena *arena,
			  struct mfs_extra_state *ret, struct mfs_error *err)
{
	const uint8_t *bytes;
	size_t len;

	*ret = (struct mfs_extra_state){0};
	if (mfs_value_is_none(f->doc, v))
		return 0;
	if (mfs_torch_is_tensor(f, v))
		return read_tensor(f, v, arena, ret, err);
	bytes = mfs_extra_state_buffer(f->doc, v, arena, &len);
	if (bytes)
		return mfs_extra_state_read(bytes, len, f->zip.src.name, arena, ret, err);
	return mfs_fail(err, -ENOTSUP, "%s: expected None, a tensor of bytes or a BytesIO",
			f->zip.src.name);
}

/* ---- products ---- */

/* Copies column `from` of a direction's arrays to column `to`. */
static void copy_column(const struct mfs_extra_state *s, uint32_t from, struct mfs_extra_state *ret,
			uint32_t to, enum mfs_fp8_direction d)
{
	const uint32_t columns = mfs_extra_state_columns(s, d),
		       ret_columns = mfs_extra_state_columns(ret, d);

	ret->scale[d][to] = s->scale[d][from];
	for (size_t row = 0; row < s->length; row++)
		ret->history[d][row * ret_columns + to] = s->history[d][row * columns + from];
}

/* Copies product `from` of all kinds to product `to`. */
static void copy_product(const struct mfs_extra_state *s, uint32_t from,
			 struct mfs_extra_state *ret, uint32_t to)
{
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++) {
		const uint32_t kinds = mfs_extra_state_columns(s, d) / s->products;

		for (uint32_t k = 0; k < kinds; k++)
			copy_column(s, k * s->products + from, ret, k * ret->products + to, d);
	}
}

int mfs_extra_state_split(const struct mfs_extra_state *s, uint32_t product,
			  struct mfs_arena *arena, struct mfs_extra_state *ret,
			  struct mfs_error *err)
{
	int rc;

	*ret = *s;
	if (s->products <= 1)
		return 0;
	ret->products = 1;
	rc = mfs_extra_state_alloc(ret, arena, err);
	if (!rc)
		copy_product(s, product, ret, 0);
	return rc;
}

int mfs_extra_state_join(const struct mfs_extra_state *const *parts, uint32_t count,
			 struct mfs_arena *arena, struct mfs_extra_state *ret,
			 struct mfs_error *err)
{
	int rc;

	*ret = *parts[0];
	for (uint32_t i = 0; i < count; i++)
		if (parts[i]->products != 1 || parts[i]->length != parts[0]->length)
			return mfs_fail(err, -EINVAL,
					"experts have states of %u and %u rows and of %u products",
					parts[0]->length, parts[i]->length, parts[i]->products);
	if (count == 1)
		return 0;
	ret->products = count;
	rc = mfs_extra_state_alloc(ret, arena, err);
	for (uint32_t i = 0; i < count && !rc; i++)
		copy_product(parts[i], 0, ret, i);
	return rc;
}
