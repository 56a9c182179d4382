/*
 * Property test of the box algebra: random tensors, cut into random chunks with random strides in
 * random files, seen through every rule; reading the virtual file at random offsets must equal a
 * materialisation that walks single elements by the formulas of the rules.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/numbers/cast.h"
#include "formats/numbers/fp8.h"
#include "formats/numbers/half.h"
#include "formats/base/bytes.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/io/backing.h"
#include "formats/io/guard.h"
#include "formats/model/families/family.h"
#include "formats/plan/gather.h"
#include "formats/model/model.h"
#include "formats/plan/plan.h"
#include "formats/plan/vfile.h"
#include "tests/unit/unit.h"

#define ROUNDS 60
#define FILES  4
#define READS  40

/* A file whose bytes lie elsewhere (io/backing.h): only what somebody has acquired is right, and as
 * long as he holds it. */
struct remote {
	struct stat placeholder;
	const uint8_t *bytes;
	size_t size;
	int fd; /* what is present, between poison */
	unsigned pins;
};

/* A checkpoint of one global tensor, its elements counted 0, 1, 2, ... (as bytes of each
 * element). */
struct world {
	struct mfs_ckpt ckpt;
	struct mfs_global_tensor tensor;
	struct mfs_chunk chunks[256];
	uint32_t chunk_count;
	struct mfs_storage storages[FILES];
	uint8_t *files[FILES];
	size_t used[FILES];
	struct remote remotes[FILES + 1];
	unsigned remote_count;
	bool remote; /* files are remote: their bytes are there while they are pinned */
	unsigned element;
	struct mfs_model model;
	struct mfs_family family;
	struct mfs_family_tensor row;
	struct mfs_hf_target target;
};

static unsigned below(unsigned n)
{
	return (unsigned)rand() % n;
}

/* Every element's bytes tell which it is. */
static void stamp(uint8_t *to, uint64_t index, unsigned element)
{
	uint32_t v = (uint32_t)(index * 2654435761u);

	memcpy(to, &v, element);
}

/* Lays a chunk of the tensor into a random file, row-major or transposed, with a gap in front. */
static void add_chunk(struct world *w, uint64_t r0, uint64_t r1, uint64_t c0, uint64_t c1)
{
	struct mfs_chunk *c = &w->chunks[w->chunk_count++];
	unsigned f = below(FILES), gap = below(7);
	uint64_t rows = r1 - r0, cols = c1 - c0;
	bool transposed = below(2);

	*c = (struct mfs_chunk){.lo = {r0, c0}, .size = {rows, cols}, .storage = f};
	c->origin = w->used[f] / w->element + gap;
	c->stride[0] = transposed ? 1 : cols;
	c->stride[1] = transposed ? rows : 1;
	w->used[f] = (c->origin + rows * cols) * w->element;
	w->files[f] = realloc(w->files[f], w->used[f] + 8);
	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t k = 0; k < cols; k++)
			stamp(w->files[f] + (c->origin + r * c->stride[0] + k * c->stride[1]) *
						    w->element,
			      (r0 + r) * w->tensor.shape[1] + c0 + k, w->element);
}

/* Bands of rows, each cut at its own columns. */
static void cut(struct world *w)
{
	uint64_t rows = w->tensor.shape[0], cols = w->tensor.shape[1];

	for (uint64_t r0 = 0, r1; r0 < rows; r0 = r1) {
		r1 = r0 + 1 + below((unsigned)(rows - r0));
		for (uint64_t c0 = 0, c1; c0 < cols; c0 = c1) {
			c1 = c0 + 1 + below((unsigned)(cols - c0));
			if (w->chunk_count > 200)
				c1 = cols;
			add_chunk(w, r0, r1, c0, c1);
		}
		if (w->chunk_count > 200 && r1 < rows) {
			add_chunk(w, r1, rows, 0, cols);
			break;
		}
	}
}

/* ---- remote files ---- */

static void poison(struct remote *r)
{
	uint8_t *bytes = malloc(r->size + 1);

	memset(bytes, 0xa5, r->size);
	ck_assert_int_eq(pwrite(r->fd, bytes, r->size, 0), (ssize_t)r->size);
	free(bytes);
}

static int open_remote(void *object, int *ret_fd, struct mfs_error *err)
{
	const struct remote *r = object;

	(void)err;
	*ret_fd = dup(r->fd);
	return 0;
}

static int acquire(void *object, uint64_t off, uint64_t len, uint32_t *ret_pin,
		   struct mfs_error *err)
{
	struct remote *r = object;

	(void)err;
	ck_assert(off <= r->size && len <= r->size - off);
	ck_assert_int_eq(pwrite(r->fd, r->bytes + off, len, (off_t)off), (ssize_t)len);
	*ret_pin = r->pins++;
	return 0;
}

static void release_remote(void *object, uint32_t pin)
{
	struct remote *r = object;

	(void)pin;
	if (!--r->pins)
		poison(r);
}

static void willneed(void *object, uint64_t off, uint64_t len)
{
	(void)object, (void)off, (void)len;
}

static const struct mfs_backing_ops remote_ops = {
	.open = open_remote, .acquire = acquire, .release = release_remote, .willneed = willneed};

static void make_remote(struct world *w, const char *name, const void *bytes, size_t size)
{
	struct remote *r = &w->remotes[w->remote_count++];
	const struct mfs_backing backing = {.ops = &remote_ops, .object = r};
	char path[400];

	*r = (struct remote){.bytes = bytes, .size = size, .fd = memfd_create(name, MFD_CLOEXEC)};
	ck_assert_int_ge(r->fd, 0);
	poison(r);
	snprintf(path, sizeof(path), "%s/%s", unit_tmpdir(), name);
	unit_write(unit_tmpdir(), name, "", 0);
	ck_assert_int_eq(truncate(path, (off_t)size), 0);
	ck_assert_int_eq(stat(path, &r->placeholder), 0);
	ck_assert_int_eq(mfs_backing_add(&r->placeholder, &backing), 0);
}

static uint32_t add_file(struct world *w, const char *name, const void *bytes, size_t size)
{
	struct mfs_error err;
	uint32_t file;

	if (w->remote)
		make_remote(w, name, bytes, size);
	else
		unit_write(unit_tmpdir(), name, bytes, size);
	unit_ok(mfs_fileset_add(w->ckpt.files, name, &file, &err), &err);
	return file;
}

static void write_files(struct world *w)
{
	struct mfs_error err;

	unit_ok(mfs_fileset_new(unit_tmpdir(), &w->ckpt.files, &err), &err);
	w->remote = below(2);
	for (unsigned f = 0; f < FILES; f++) {
		char name[] = "file0";

		name[4] += (char)f;
		w->storages[f] = (struct mfs_storage){
			.file = add_file(w, name, w->files[f] ? (char *)w->files[f] : "",
					 w->used[f]),
			.data = 1};
	}
}

/* rows and cols of the source tensor; args say what the rule needs. */
static void build(struct world *w, enum mfs_rule rule, bool transposed)
{
	static const unsigned sizes[] = {1, 2, 4};
	struct mfs_megatron_args *a = &w->ckpt.args;
	uint64_t rows, cols = 1 + below(40);

	memset(w, 0, sizeof(*w));
	w->element = sizes[below(3)];
	a->num_query_groups = 1 + below(4);
	a->num_attention_heads = a->num_query_groups * (1 + below(3));
	a->kv_channels = 2 * (1 + below(4));
	a->rotary_percent = 1.0;
	rows = 2 * (1 + below(30));
	if (rule == MFS_RULE_Q || rule == MFS_RULE_K || rule == MFS_RULE_V || rule == MFS_RULE_QKV)
		rows = (uint64_t)((a->num_attention_heads + 2 * a->num_query_groups) *
				  a->kv_channels);
	w->tensor = (struct mfs_global_tensor){.name = "decoder.layers.x",
					       .dtype = w->element == 4	  ? MFS_F32
							: w->element == 2 ? MFS_BF16
									  : MFS_U8,
					       .ndim = 2,
					       .shape = {rows, cols},
					       .expert = -1};
	cut(w);
	w->tensor.chunk_count = w->chunk_count;
	w->ckpt.dir = (char *)"test";
	w->ckpt.chunks = w->chunks;
	w->ckpt.storages = w->storages;
	w->model.ckpt = &w->ckpt;
	w->model.family = &w->family;
	w->family.layer_prefix = "";
	w->row = (struct mfs_family_tensor){
		.hf = "x", .name = "x", .rule = rule, .transposed = transposed};
	w->model.vocab.rows = 1 + below((unsigned)rows);
	w->target = (struct mfs_hf_target){.base = {.ops = &mfs_hf_target_ops,
						    .ckpt = &w->ckpt,
						    .dtype = w->tensor.dtype,
						    .ndim = 2},
					   .model = &w->model,
					   .row = &w->row,
					   .src = &w->tensor,
					   .layer = -1,
					   .expert = -1};
	write_files(w);
}

static void release(struct world *w)
{
	for (unsigned i = 0; i < w->remote_count; i++) {
		ck_assert_uint_eq(w->remotes[i].pins, 0);
		mfs_backing_remove(&w->remotes[i].placeholder);
		close(w->remotes[i].fd);
	}
	for (unsigned f = 0; f < FILES; f++)
		free(w->files[f]);
	mfs_fileset_free(w->ckpt.files);
	free(w->ckpt.scales);
}

/* Megatron row of HF row i, by the formulas of the mapping (section 3.0.1), one row at a time. */
static uint64_t source_row(const struct world *w, enum mfs_rule rule, uint64_t i)
{
	const struct mfs_megatron_args *a = &w->ckpt.args;
	const uint64_t d = (uint64_t)a->kv_channels, ng = (uint64_t)a->num_query_groups;
	const uint64_t r = (uint64_t)a->num_attention_heads / ng, group = (r + 2) * d;

	switch (rule) {
	case MFS_RULE_Q:
		return i / (r * d) * group + i % (r * d);
	case MFS_RULE_K:
		return i / d * group + r * d + i % d;
	case MFS_RULE_V:
		return i / d * group + (r + 1) * d + i % d;
	case MFS_RULE_QKV:
		if (i < ng * r * d)
			return source_row(w, MFS_RULE_Q, i);
		i -= ng * r * d;
		return i < ng * d ? source_row(w, MFS_RULE_K, i)
				  : source_row(w, MFS_RULE_V, i - ng * d);
	case MFS_RULE_UP:
		return w->tensor.shape[0] / 2 + i;
	case MFS_RULE_GATE_UP:
		return i % 2 * (w->tensor.shape[0] / 2) + i / 2;
	default:
		return i;
	}
}

/* cols: of the tensor. */
static uint64_t source_col(enum mfs_rule rule, uint64_t cols, uint64_t i)
{
	return rule == MFS_RULE_SWAPPED ? (i + cols / 2) % cols : i;
}

static uint64_t target_rows(const struct world *w, enum mfs_rule rule)
{
	const struct mfs_megatron_args *a = &w->ckpt.args;

	switch (rule) {
	case MFS_RULE_Q:
		return (uint64_t)(a->num_attention_heads * a->kv_channels);
	case MFS_RULE_K:
	case MFS_RULE_V:
		return (uint64_t)(a->num_query_groups * a->kv_channels);
	case MFS_RULE_GATE:
	case MFS_RULE_UP:
		return w->tensor.shape[0] / 2;
	case MFS_RULE_VOCAB:
		return w->model.vocab.rows;
	default:
		return w->tensor.shape[0];
	}
}

static uint8_t *materialise(const struct world *w, enum mfs_rule rule, uint64_t rows)
{
	const uint64_t cols = w->tensor.shape[1];
	uint8_t *bytes = malloc(rows * cols * w->element + 8);

	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t c = 0; c < cols; c++) {
			uint64_t at = w->row.transposed ? c * rows + r : r * cols + c;

			stamp(bytes + at * w->element,
			      source_row(w, rule, r) * cols + source_col(rule, cols, c),
			      w->element);
		}
	return bytes;
}

static void read_at_random(struct mfs_vfile *f, const uint8_t *want, size_t size)
{
	uint8_t *got = malloc(size + 16);
	struct mfs_error err;
	size_t len;

	for (int i = 0; i < READS; i++) {
		size_t off = i ? below((unsigned)size) : 0;
		size_t ask = i ? 1 + below((unsigned)size + 10) : size;

		unit_ok(mfs_vfile_pread(f, off, got, ask, &len, &err), &err);
		ck_assert_uint_eq(len, ask < size - off ? ask : size - off);
		ck_assert_mem_eq(got, want + off, len);
	}
	unit_ok(mfs_vfile_pread(f, size, got, 5, &len, &err), &err);
	ck_assert_uint_eq(len, 0);
	free(got);
}

/* The file of a header and a target; want: the target's bytes. */
static void read_target(const struct mfs_target *t, const uint8_t *want)
{
	uint8_t *file = malloc(t->bytes + 4);
	struct mfs_vfile *f;
	struct mfs_error err;

	memcpy(file, "head", 4);
	memcpy(file + 4, want, t->bytes);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_literal(f, strdup("head"), 4, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, t, &err), &err);
	read_at_random(f, file, t->bytes + 4);
	mfs_vfile_free(f);
	free(file);
}

/* The same elements in other types, wider and narrower. */
static void read_casts(const struct world *w, const uint8_t *want)
{
	static const enum mfs_dtype types[] = {MFS_F32, MFS_F16, MFS_BF16};
	const struct mfs_target *of = &w->target.base;
	struct mfs_cast_target t;
	struct mfs_error err;
	uint8_t *cast;

	for (int i = 0; i < 3 && w->element > 1; i++) {
		if (types[i] == of->dtype)
			continue;
		unit_ok(mfs_cast_target_init(&t, of, types[i], &err), &err);
		cast = malloc(t.base.bytes);
		mfs_cast(types[i], cast, of->dtype, want, of->bytes / w->element);
		read_target(&t.base, cast);
		free(cast);
	}
}

/* Norms that are stored as weight - 1. */
static void read_plus_one(struct world *w)
{
	const uint64_t count = w->tensor.shape[0] * w->tensor.shape[1];
	uint8_t *want = malloc(count * w->element);
	struct mfs_whole_target t;

	for (uint64_t i = 0; i < count && w->element > 1; i++) {
		float f;

		stamp(want + i * w->element, i, w->element);
		mfs_cast(MFS_F32, &f, w->tensor.dtype, want + i * w->element, 1);
		f += 1.0f;
		mfs_cast(w->tensor.dtype, want + i * w->element, MFS_F32, &f, 1);
	}
	mfs_whole_target_init_add_one(&t, &w->ckpt, &w->tensor);
	if (w->element > 1)
		read_target(&t.base, want);
	free(want);
}

/* ---- 8-bit floats ---- */

/* The scales and elements of a matrix in blocks, one by one. */
static void quantise(const struct mfs_fp8_scales *s, const float *from, uint8_t *to, float *scales)
{
	uint32_t *amax = calloc(s->grid_rows * s->grid_cols, sizeof(*amax));

	for (int pass = 0; pass < 2; pass++)
		for (uint64_t i = 0; i < s->rows * s->cols; i++) {
			const uint64_t b = i / s->cols / s->block_rows * s->grid_cols +
					   i % s->cols / s->block_cols;
			const uint32_t bits = mfs_float_to_bits(from[i]) & 0x7fffffff;

			if (pass)
				to[i] = mfs_float_to_e4m3(from[i] / scales[b]);
			else if (bits > amax[b])
				amax[b] = bits;
			scales[b] = mfs_fp8_scale(amax[b]);
		}
	free(amax);
}

/* Its first and its last rows as parts of two matrices, which are both the whole: the scale of a
 * part is not that of its own elements. */
static void read_fp8_parts(const struct mfs_target *of, float *floats)
{
	const uint64_t count = of->shape[0] * of->shape[1];
	struct mfs_fp8_target whole[2], scale[2], weight, scales;
	struct mfs_fp8_scales known[2] = {0};
	struct mfs_fp8_part at[2] = {{0, &scale[0]}, {below(of->shape[0]), &scale[1]}};
	const struct mfs_fp8_parts parts = {at, 2};
	float found[2];
	uint8_t *bytes = malloc(count);
	struct mfs_error err;

	for (int i = 0; i < 2; i++)
		unit_ok(mfs_fp8_targets_init(&whole[i], &scale[i], &known[i], of, 0, 0, "_scale",
					     &err),
			&err);
	unit_ok(mfs_fp8_part_targets_init(&weight, &scales, of, &parts, 0, "_scale", &err), &err);
	ck_assert_uint_eq(scales.base.ndim, 1);
	quantise(&known[0], floats, bytes, found);
	found[1] = found[0];
	if (below(2))
		read_target(&scales.base, (uint8_t *)found);
	read_target(&weight.base, bytes);
	read_target(&scales.base, (uint8_t *)found);
	for (int i = 0; i < 2; i++)
		mfs_fp8_scales_release(&known[i]);
	free(bytes);
}

/* The same elements as 8-bit floats in blocks of any size; what is read first differs. */
static void read_fp8(const struct world *w, const uint8_t *want)
{
	const struct mfs_target *of = &w->target.base;
	const uint64_t count = of->bytes / w->element;
	const uint64_t block_rows = below(3) ? 1 + below(9) : 0;
	const uint64_t block_cols = block_rows ? 1 + below(9) : 0;
	struct mfs_fp8_target weight, scale;
	struct mfs_fp8_scales known = {0};
	float *floats = malloc(count * sizeof(*floats)), *scales = malloc(count * sizeof(*scales));
	uint8_t *bytes = malloc(count);
	struct mfs_error err;

	if (w->element > 1) {
		unit_ok(mfs_fp8_targets_init(&weight, &scale, &known, of, block_rows, block_cols,
					     "_scale", &err),
			&err);
		ck_assert_uint_eq(scale.base.ndim, block_rows ? 2 : 0);
		mfs_cast(MFS_F32, floats, of->dtype, want, count);
		quantise(&known, floats, bytes, scales);
		if (below(2))
			read_target(&weight.base, bytes);
		read_target(&scale.base, (uint8_t *)scales);
		read_target(&weight.base, bytes);
		mfs_fp8_scales_release(&known);
		read_fp8_parts(of, floats);
	}
	free(floats);
	free(scales);
	free(bytes);
}

/* Where an element of the tensor lies in its file. */
static uint64_t place_of(const struct world *w, uint64_t row, uint64_t col, unsigned *ret_file)
{
	for (uint32_t i = 0; i < w->chunk_count; i++) {
		const struct mfs_chunk *c = &w->chunks[i];

		if (row - c->lo[0] < c->size[0] && col - c->lo[1] < c->size[1]) {
			*ret_file = c->storage;
			return c->origin + (row - c->lo[0]) * c->stride[0] +
			       (col - c->lo[1]) * c->stride[1];
		}
	}
	ck_abort_msg("in no chunk");
	return 0;
}

/* A scale by its number, of floats of 8 bits and of 4. */
static float scale_of(uint64_t number, bool fp4)
{
	return fp4 ? ldexpf(1, (int)(number % 11) - 7) : (float)number * 0.37f;
}

#define SCALES 32768

/* The first element of a file that is in a chunk. */
static uint64_t first_of(const struct world *w, unsigned file)
{
	uint64_t first = w->used[file];

	for (unsigned i = 0; i < w->chunk_count; i++)
		if (w->chunks[i].storage == file)
			first = mfs_min_u64(first, w->chunks[i].origin);
	return first;
}

/* Each file is now a matrix of floats with a scale for each block, after whatever is before it, or
 * the first half of the file is; the scales lie in a file of their own, with others between rows of
 * them. */
static void add_scales(struct world *w, struct mfs_storage *scales, bool fp4)
{
	static float all[SCALES];
	static uint8_t exponents[SCALES];
	struct mfs_error err;
	uint32_t number;

	for (unsigned i = 0; i < SCALES; i++) {
		all[i] = scale_of(i, false);
		exponents[i] = (uint8_t)(127 - 7 + i % 11);
	}
	*scales = (struct mfs_storage){.file = fp4 ? add_file(w, "scales", exponents, SCALES)
						   : add_file(w, "scales", all, sizeof(all)),
				       .data = 1};
	for (unsigned f = 0; f < FILES; f++) {
		struct mfs_ckpt_scales s = {.storage = FILES,
					    .dtype = fp4 ? MFS_U8 : MFS_F32,
					    .rows = w->used[f],
					    .cols = fp4 ? 32 * (1 + below(3)) : 1 + below(30),
					    .block_rows = fp4 ? 1 : 2 + below(100),
					    .block_cols = fp4 ? 32 : 1 + below(9)};

		s.matrix = fp4 ? 0 : below((unsigned)first_of(w, f) + 1);
		s.first = below(20);
		s.stride = (s.cols - 1) / s.block_cols + 1 + below(3);
		ck_assert_uint_lt((s.rows / s.cols / s.block_rows + 1) * s.stride + s.first,
				  SCALES);
		unit_ok(mfs_ckpt_add_scales(&w->ckpt, &s, &number, &err), &err);
		for (unsigned i = 0; i < w->chunk_count; i++)
			if (w->chunks[i].storage == f)
				w->chunks[i].scales = number;
	}
	w->tensor.quantised = true;
	w->tensor.dtype = MFS_BF16;
}

static float weight_of(const uint8_t *file, uint64_t place, bool fp4)
{
	static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
	unsigned v;

	if (!fp4)
		return mfs_e4m3_to_float(file[place]);
	v = place % 2 ? file[place / 2] >> 4 : file[place / 2] & 15;
	return v & 8 ? -values[v & 7] : values[v];
}

static void read_dequantised(struct world *w, enum mfs_rule rule, bool fp4)
{
	const uint64_t rows = target_rows(w, rule), cols = w->tensor.shape[1];
	static const enum mfs_dtype types[] = {MFS_BF16, MFS_F32, MFS_F16};
	struct mfs_target *t = &w->target.base;
	float *floats = malloc(rows * cols * sizeof(*floats));
	uint8_t *want = malloc(rows * cols * sizeof(float));

	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t c = 0; c < cols; c++) {
			unsigned f;
			const uint64_t place =
				place_of(w, source_row(w, rule, r), source_col(rule, cols, c), &f);
			const struct mfs_ckpt_scales *s = &w->ckpt.scales[f];
			const uint64_t at = place - s->matrix;
			const uint64_t scale = s->first + at / s->cols / s->block_rows * s->stride +
					       at % s->cols / s->block_cols;

			floats[w->row.transposed ? c * rows + r : r * cols + c] =
				weight_of(w->files[f], place, fp4) * scale_of(scale, fp4);
		}
	for (int i = 0; i < 3; i++) {
		t->dtype = types[i];
		t->bytes = rows * cols * mfs_dtype_size(types[i]);
		mfs_cast(types[i], want, MFS_F32, floats, rows * cols);
		read_target(t, want);
	}
	free(floats);
	free(want);
}

static const enum mfs_rule rules[] = {MFS_RULE_DIRECT,	MFS_RULE_VOCAB,	 MFS_RULE_Q,	MFS_RULE_K,
				      MFS_RULE_V,	MFS_RULE_QKV,	 MFS_RULE_GATE, MFS_RULE_UP,
				      MFS_RULE_GATE_UP, MFS_RULE_SWAPPED};

START_TEST(every_rule_over_random_chunks)
{
	const enum mfs_rule rule = rules[_i / 2];
	/* Rows alternate along the last axis. */
	const bool transposed = _i % 2 || rule == MFS_RULE_GATE_UP;

	ck_assert_int_eq(mfs_guard_install(), 0);
	srand((unsigned)_i + 1);
	for (int round = 0; round < ROUNDS; round++) {
		struct world w;
		uint64_t rows, cols;
		uint8_t *want;

		build(&w, rule, transposed);
		rows = target_rows(&w, rule);
		cols = w.tensor.shape[1];
		w.target.base.shape[0] = transposed ? cols : rows;
		w.target.base.shape[1] = transposed ? rows : cols;
		w.target.base.bytes = rows * cols * w.element;
		want = materialise(&w, rule, rows);
		read_target(&w.target.base, want);
		read_casts(&w, want);
		read_plus_one(&w);
		read_fp8(&w, want);
		free(want);
		if (w.element == 1) {
			struct mfs_storage storages[FILES + 1];

			memcpy(storages, w.storages, sizeof(w.storages));
			w.ckpt.storages = storages;
			add_scales(&w, &storages[FILES], round % 2);
			read_dequantised(&w, rule, round % 2);
		}
		release(&w);
	}
}
END_TEST

/* A missing chunk and a doubled one are errors that name the tensor. */
START_TEST(holes_and_overlaps_are_refused)
{
	struct mfs_plan *plan;
	struct mfs_error err;
	struct world w;

	srand(7);
	do {
		build(&w, MFS_RULE_DIRECT, false);
	} while (w.chunk_count < 3);
	w.target.base.shape[0] = w.tensor.shape[0];
	w.target.base.shape[1] = w.tensor.shape[1];
	w.tensor.chunk_count--;
	unit_fails(mfs_plan_new(&w.target.base, &plan, &err), &err, -EINVAL, "'x'");
	w.chunks[w.chunk_count] = w.chunks[0];
	w.tensor.chunk_count = w.chunk_count + 1;
	unit_fails(mfs_plan_new(&w.target.base, &plan, &err), &err, -EINVAL, "two chunks");
	w.tensor.chunk_count = w.chunk_count;
	w.chunks[0].origin += 1u << 20;
	unit_fails(mfs_plan_new(&w.target.base, &plan, &err), &err, -EINVAL, "beyond the end");
	w.target.base.dtype = MFS_I16;
	unit_fails(mfs_plan_new(&w.target.base, &plan, &err), &err, -ENOTSUP,
		   "which is not cast to int16");
	release(&w);
}
END_TEST

/* Long runs are references into the mapping, short ones merge in scratch, and iovecs never run
 * out. */
START_TEST(gathers_stay_within_their_iovecs)
{
	struct mfs_gather g;
	uint8_t *bytes = calloc(64, MFS_GATHER_COPY + 1);

	ck_assert_int_eq(mfs_gather_init(&g, 64 * (MFS_GATHER_COPY + 1), 8), 0);
	for (int i = 0; i < 64; i++)
		mfs_gather_add(&g, bytes + i * (MFS_GATHER_COPY + 1), MFS_GATHER_COPY);
	ck_assert_uint_eq(g.bytes, 64 * MFS_GATHER_COPY);
	ck_assert_uint_eq(g.count, 8);
	mfs_gather_reset(&g);
	for (int i = 0; i < 64; i++)
		mfs_gather_add(&g, bytes + i * 200, 100);
	ck_assert_uint_eq(g.count, 1);
	ck_assert_uint_eq(g.iov[0].iov_len, 6400);
	mfs_gather_release(&g);
	free(bytes);
}
END_TEST

/* ---- many readers at once: one plan, published once (also under ThreadSanitizer) ---- */

#define THREADS 8

struct shared {
	struct mfs_vfile *f;
	const uint8_t *want;
	size_t size;
	int bad;
};

static void *read_all(void *arg)
{
	struct shared *s = arg;
	uint8_t *got = malloc(s->size);
	size_t len;

	for (int i = 0; i < 50; i++)
		if (mfs_vfile_pread(s->f, 0, got, s->size, &len, NULL) || len != s->size ||
		    memcmp(got, s->want, len))
			__atomic_store_n(&s->bad, 1, __ATOMIC_RELAXED);
	free(got);
	return NULL;
}

static void read_by_threads(struct shared *s, const struct mfs_target *t)
{
	pthread_t threads[THREADS];
	struct mfs_error err;

	s->size = t->bytes;
	unit_ok(mfs_vfile_new(&s->f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(s->f, t, &err), &err);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, s), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(s->bad, 0);
	mfs_vfile_free(s->f);
}

START_TEST(threads_agree)
{
	struct mfs_fp8_target weight, scale;
	struct mfs_fp8_scales known = {0};
	struct shared s = {0};
	struct mfs_error err;
	uint64_t count;
	float *floats, *scales;
	uint8_t *want, *bytes;
	struct world w;

	ck_assert_int_eq(mfs_guard_install(), 0);
	srand(3);
	do {
		build(&w, MFS_RULE_QKV, false);
	} while (w.element == 1);
	w.target.base.shape[0] = w.tensor.shape[0];
	w.target.base.shape[1] = w.tensor.shape[1];
	count = w.tensor.shape[0] * w.tensor.shape[1];
	w.target.base.bytes = count * w.element;
	s.want = want = materialise(&w, MFS_RULE_QKV, w.tensor.shape[0]);
	read_by_threads(&s, &w.target.base);

	floats = malloc(count * sizeof(*floats));
	scales = malloc(count * sizeof(*scales));
	s.want = bytes = malloc(count);
	unit_ok(mfs_fp8_targets_init(&weight, &scale, &known, &w.target.base, 5, 7, "_scale", &err),
		&err);
	mfs_cast(MFS_F32, floats, w.tensor.dtype, want, count);
	quantise(&known, floats, bytes, scales);
	read_by_threads(&s, &weight.base);
	mfs_fp8_scales_release(&known);
	free(floats);
	free(scales);
	free(bytes);
	free(want);
	release(&w);
}
END_TEST

/* ---- 16-bit floats ---- */

START_TEST(halves_round_trip)
{
	for (uint32_t v = 0; v < 65536; v++) {
		float f = mfs_f16_to_float((uint16_t)v), b = mfs_bf16_to_float((uint16_t)v);

		if (f == f)
			ck_assert_uint_eq(mfs_float_to_f16(f), v);
		if (b == b)
			ck_assert_uint_eq(mfs_float_to_bf16(b), v);
	}
	ck_assert_uint_eq(mfs_float_to_f16(65519.9f), 0x7bff);
	ck_assert_uint_eq(mfs_float_to_f16(65520.0f), 0x7c00);
	ck_assert_uint_eq(mfs_float_to_f16(1.00048828125f), 0x3c00); /* a tie goes to even */
	ck_assert_uint_eq(mfs_float_to_bf16(1.00390625f), 0x3f80);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("plan");
	TCase *c = unit_case(s, "Gather", gathers_stay_within_their_iovecs);

	tcase_add_loop_test(c, every_rule_over_random_chunks, 0,
			    UNIT_TSAN ? 1 : 2 * (int)(MFS_ARRAY_SIZE(rules)));
	tcase_add_test(c, holes_and_overlaps_are_refused);
	tcase_add_test(c, threads_agree);
	tcase_add_test(c, halves_round_trip);
	return s;
}
