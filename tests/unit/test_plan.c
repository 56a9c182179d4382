/*
 * Property test of the box algebra: random tensors, cut into random chunks with random strides in
 * random files, seen through every rule; reading the virtual file at random offsets must equal a
 * materialisation that walks single elements by the formulas of the rules.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/cast.h"
#include "formats/base/half.h"
#include "formats/ckpt/build.h"
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

static void write_files(struct world *w)
{
	struct mfs_error err;
	uint32_t file;

	unit_ok(mfs_fileset_new(unit_tmpdir(), &w->ckpt.files, &err), &err);
	for (unsigned f = 0; f < FILES; f++) {
		char name[] = "file0";

		name[4] += (char)f;
		unit_write(unit_tmpdir(), name, w->files[f] ? (char *)w->files[f] : "", w->used[f]);
		unit_ok(mfs_fileset_add(w->ckpt.files, name, &file, &err), &err);
		w->storages[f] = (struct mfs_storage){.file = file, .data = 1};
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
	w->target = (struct mfs_hf_target){.base = {.kind = &mfs_hf_target_kind,
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
	for (unsigned f = 0; f < FILES; f++)
		free(w->files[f]);
	mfs_fileset_free(w->ckpt.files);
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
	default:
		return i;
	}
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

			stamp(bytes + at * w->element, source_row(w, rule, r) * cols + c,
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

static const enum mfs_rule rules[] = {MFS_RULE_DIRECT, MFS_RULE_VOCAB, MFS_RULE_Q,    MFS_RULE_K,
				      MFS_RULE_V,      MFS_RULE_QKV,   MFS_RULE_GATE, MFS_RULE_UP};

START_TEST(every_rule_over_random_chunks)
{
	const enum mfs_rule rule = rules[_i / 2];
	const bool transposed = _i % 2;

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
		free(want);
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

START_TEST(threads_agree)
{
	pthread_t threads[THREADS];
	struct shared s = {0};
	struct mfs_error err;
	struct world w;

	ck_assert_int_eq(mfs_guard_install(), 0);
	srand(3);
	build(&w, MFS_RULE_QKV, false);
	w.target.base.shape[0] = w.tensor.shape[0];
	w.target.base.shape[1] = w.tensor.shape[1];
	s.size = w.target.base.bytes = w.tensor.shape[0] * w.tensor.shape[1] * w.element;
	s.want = materialise(&w, MFS_RULE_QKV, w.tensor.shape[0]);
	unit_ok(mfs_vfile_new(&s.f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(s.f, &w.target.base, &err), &err);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &s), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(s.bad, 0);
	mfs_vfile_free(s.f);
	free((void *)(uintptr_t)s.want);
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
			    2 * (int)(sizeof(rules) / sizeof(rules[0])));
	tcase_add_test(c, holes_and_overlaps_are_refused);
	tcase_add_test(c, threads_agree);
	tcase_add_test(c, halves_round_trip);
	return s;
}
