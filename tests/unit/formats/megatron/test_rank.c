/*
 * What a rank holds (formats/megatron/rank.h): against the state dicts of real files, name by name
 * and byte by byte; and for random models at random layouts against the formulas of each kind of
 * split, written down here once more (docs: the table of parameters in Megatron's own modules).
 */
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/megatron/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/names.h"
#include "formats/plan/vfile.h"
#include "tests/unit/fake_ckpt.h"
#include "tests/unit/random_layout.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* ---- the fixtures' own state dicts ---- */

static const char *const fixtures[] = {
	"weights/llama-torch-tp2-pp2/iter_0000040",
	"weights/gpt2-torch-tp2-pp2/iter_0000040",
	"weights/mixtral-torch-pp2-ep2/iter_0000040",
	"resume/llama-torch-tp2-pp2/iter_0000020",
	"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
};

struct saved {
	struct mfs_fileset *files;
	struct mfs_torch_file file;
	mfs_value dict; /* of one chunk */
};

/* Elements of a strided tensor one after the other. */
static uint8_t *saved_bytes(const struct saved *s, const struct mfs_torch_tensor *t, uint64_t count)
{
	const struct mfs_source src = mfs_source_file(s->files, 0);
	const unsigned element = mfs_dtype_size(t->dtype);
	uint8_t *storage = malloc(t->record->size + 1), *bytes = malloc(count * element + 1);
	uint64_t at;

	unit_ok(mfs_zip_locate(&src, t->record, &at, &err), &err);
	unit_ok(mfs_source_read(&src, at, storage, t->record->size, &err), &err);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t rest = i, from = t->offset;

		for (unsigned a = t->ndim; a-- > 0; rest /= t->shape[a])
			from += rest % t->shape[a] * t->stride[a];
		memcpy(bytes + i * element, storage + from * element, element);
	}
	free(storage);
	return bytes;
}

static void same_tensor(const struct saved *s, const struct mfs_rank_tensor *r, mfs_value v,
			const char *key)
{
	struct mfs_torch_tensor t;
	struct mfs_vfile *f;
	uint8_t *want, *got;
	uint64_t count;
	size_t len;

	unit_ok(mfs_torch_tensor(&s->file, v, &t, &err), &err);
	ck_assert_msg(t.dtype == r->base.dtype && t.ndim == r->base.ndim, "%s: kind", key);
	for (unsigned a = 0; a < t.ndim; a++)
		ck_assert_msg(t.shape[a] == r->base.shape[a], "%s: axis %u", key, a);
	ck_assert(mfs_shape_count(t.shape, t.ndim, &count));
	ck_assert_uint_eq(r->base.bytes, count * mfs_dtype_size(t.dtype));
	want = saved_bytes(s, &t, count);
	got = malloc(r->base.bytes + 1);
	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_tensor(f, &r->base, &err), &err);
	unit_ok(mfs_vfile_pread(f, 0, got, r->base.bytes, &len, &err), &err);
	ck_assert_msg(len == r->base.bytes && !memcmp(got, want, len), "%s: bytes", key);
	mfs_vfile_free(f);
	free(want);
	free(got);
}

/* An _extra_state that carries nothing: None, or an empty io.BytesIO or tensor. */
static void same_extra(const struct saved *s, mfs_value v, const char *key)
{
	ck_assert_msg(mfs_value_is_none(s->file.doc, v), "%s: no None", key);
}

static void same_chunk(const struct saved *s, const struct mfs_rank_list *list,
		       const struct mfs_model_chunk *chunk)
{
	const struct mfs_pickle *doc = s->file.doc;

	for (uint32_t i = 0; i < chunk->count && i < mfs_value_pairs(doc, s->dict); i++) {
		const struct mfs_rank_tensor *r = &list->tensors[chunk->first + i];
		char name[MFS_CKPT_NAME_SIZE], key[MFS_CKPT_NAME_SIZE];
		const char *text;
		size_t len;

		ck_assert(mfs_value_str(doc, mfs_value_key(doc, s->dict, i), &text, &len));
		snprintf(key, sizeof(key), "%.*s", (int)len, text);
		ck_assert_uint_eq(mfs_rank_tensor_name(r, name, sizeof(name)), strlen(name));
		ck_assert_str_eq(name, key);
		if (r->base.ops)
			same_tensor(s, r, mfs_value_item(doc, s->dict, i), key);
		else
			same_extra(s, mfs_value_item(doc, s->dict, i), key);
	}
	ck_assert_uint_eq(chunk->count, mfs_value_pairs(doc, s->dict));
}

static void same_rank(struct mfs_ckpt *ckpt, const struct mfs_layout *layout,
		      const struct mfs_rank *rank)
{
	struct saved s;
	struct mfs_rank_list *list;
	struct mfs_source src;
	char path[600], dir[64];
	uint32_t file;

	snprintf(path, sizeof(path), "%s/%s", mfs_ckpt_dir(ckpt),
		 mfs_rank_dir_name(layout, rank, dir));
	unit_ok(mfs_fileset_new(path, &s.files, &err), &err);
	unit_ok(mfs_fileset_add(s.files, "model_optim_rng.pt", &file, &err), &err);
	src = mfs_source_file(s.files, file);
	unit_ok(mfs_torch_file_open(&src, &s.file, &err), &err);
	unit_ok(mfs_rank_list_new(ckpt, layout, rank, mfs_layer_spec_of(ckpt), 0, &list, &err),
		&err);
	for (uint32_t vp = 0; vp < layout->vpp; vp++) {
		char key[16] = "model";

		if (layout->vpp > 1)
			snprintf(key, sizeof(key), "model%u", vp);
		s.dict = mfs_value_get(s.file.doc, mfs_pickle_root(s.file.doc), key);
		same_chunk(&s, list, &list->chunks[vp]);
	}
	mfs_rank_list_free(list);
	mfs_torch_file_release(&s.file);
	mfs_fileset_free(s.files);
}

START_TEST(lists_are_the_state_dicts_of_real_files)
{
	struct mfs_layout layout;
	struct mfs_ckpt *ckpt;
	struct mfs_rank rank;
	uint32_t ranks = 0;

	unit_ok(mfs_ckpt_open(unit_fixture(fixtures[_i]), 0, &ckpt, &err), &err);
	ck_assert(mfs_layout_of(ckpt, &layout));
	unit_ok(mfs_rank_check(ckpt, mfs_layer_spec_of(ckpt), &err), &err);
	while (mfs_rank_at(&layout, ranks, &rank)) {
		same_rank(ckpt, &layout, &rank);
		ranks++;
	}
	ck_assert_uint_eq(ranks, layout.tp * layout.pp * layout.ep);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* ---- random layouts ---- */

enum split { WHOLE, ROWS, COLS, GATED, SECTIONS };

/* How a parameter is split, by the end of its name: the table of section 4.1 of the format's
 * notes. */
static const struct {
	const char *end;
	enum split split;
} splits[] = {
	{"word_embeddings.weight", ROWS},
	{"output_layer.weight", ROWS},
	{"linear_qkv.weight", ROWS},
	{"linear_qkv.bias", ROWS},
	{"linear_q_proj.weight", ROWS},
	{"linear_q_up_proj.weight", ROWS},
	{"linear_kv_up_proj.weight", ROWS},
	{"eh_proj.weight", ROWS},
	{"linear_proj.weight", COLS},
	{"linear_fc2.weight", COLS},
	{"A_log", ROWS},
	{"dt_bias", ROWS},
	{"out_proj.weight", COLS},
	{"in_proj.weight", SECTIONS},
	{"conv1d.weight", SECTIONS},
	{"conv1d.bias", SECTIONS},
	{"mixer.D", ROWS},
	{"mixer.norm.weight", ROWS},
	{"linear_fc1.weight", GATED},
	{"linear_fc1.bias", GATED},
};

static bool ends(const char *text, const char *end)
{
	const size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

static enum split split_of(const struct mfs_rank_list *l, const char *name)
{
	const bool gated = mfs_ckpt_args(l->ckpt)->swiglu;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(splits); i++)
		if (ends(name, splits[i].end))
			return splits[i].split == GATED && !gated ? ROWS : splits[i].split;
	if (strstr(name, "_down_proj.weight") && l->spec == MFS_LAYER_SPEC_LOCAL)
		return ROWS;
	return WHOLE;
}

/* Elements of a row. */
static uint64_t columns(const uint64_t *shape, unsigned ndim)
{
	uint64_t count = 1;

	for (unsigned a = 1; a < ndim; a++)
		count *= shape[a];
	return count;
}

static uint64_t divided_row(const struct mfs_rank_tensor *t, const uint64_t *sections, uint64_t row)
{
	const uint64_t tp = t->list->layout.tp;
	uint64_t before = 0;
	int i = 0;

	for (; row >= sections[i] / tp; before += sections[i++])
		row -= sections[i] / tp;
	return before + t->list->rank.tp * (sections[i] / tp) + row;
}

/* The row of the whole tensor that is a rank's row: all q, k, v, z, b, a are divided each; of a
 * Mamba mixer z, x, B, C, dt. A convolution is of some of them. */
static uint64_t section_row(const struct mfs_rank_tensor *t, uint64_t row)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(t->list->ckpt);
	const uint64_t mixers = (uint64_t)a->mamba_num_heads;
	const uint64_t inner = mixers * (uint64_t)a->mamba_head_dim;
	const uint64_t states = (uint64_t)(a->mamba_num_groups * a->mamba_state_dim);
	const uint64_t mamba[] = {inner, inner, states, states, mixers};
	const uint64_t heads = (uint64_t)a->linear_num_value_heads;
	const uint64_t keys = (uint64_t)(a->linear_num_key_heads * a->linear_key_head_dim);
	const uint64_t values = heads * (uint64_t)a->linear_value_head_dim;
	const uint64_t sections[] = {keys, keys, values, values, heads, heads};

	if (strstr(t->src->name, ".mixer."))
		return divided_row(t, mamba + (strstr(t->src->name, "conv1d") ? 1 : 0), row);
	return divided_row(t, sections, row);
}

/* Element of the source that lies at (row, col) of a rank's tensor, counted from 1; 0: a zero. */
static uint64_t source_of(const struct mfs_rank_tensor *t, enum split split, uint64_t row,
			  uint64_t col)
{
	const struct mfs_rank_list *l = t->list;
	const bool expert = strstr(t->src->name, "mlp.experts.") != NULL;
	const uint32_t part = expert ? l->rank.tp % l->layout.etp : l->rank.tp;
	const uint64_t rows = t->base.shape[0], half = rows / 2;
	const uint64_t cols = columns(t->base.shape, t->base.ndim);
	const uint64_t all_cols = columns(t->src->shape, t->src->ndim);

	if (split == SECTIONS)
		row = section_row(t, row);
	else if (split == COLS)
		col += part * cols;
	else if (split == GATED && row >= half)
		row += t->src->shape[0] / 2 + part * half - half;
	else if (split == GATED)
		row += part * half;
	else if (split == ROWS)
		row += part * rows;
	return row < t->src->shape[0] ? row * all_cols + col + 1 : 0;
}

struct grid {
	const struct mfs_rank_tensor *tensor;
	uint64_t cols;
	uint64_t *elements; /* of the source, from 1; 0: a zero */
	uint32_t *boxes;    /* that cover an element */
};

static int draw_box(const struct mfs_box_map *m, void *arg)
{
	struct grid *g = arg;
	const uint64_t cols = columns(m->size, g->tensor->base.ndim);

	for (uint64_t r = 0; r < m->size[0]; r++)
		for (uint64_t c = 0; c < cols; c++) {
			const uint64_t at = (m->lo[0] + r) * g->cols + m->lo[1] + c;
			uint64_t from[MFS_CKPT_DIMS];

			g->boxes[at]++;
			if (!m->src)
				continue;
			ck_assert_ptr_eq(m->src, g->tensor->src);
			memcpy(from, m->src_lo, sizeof(from));
			from[m->src_axis[0]] += r * m->step[0];
			if (g->tensor->base.ndim > 1)
				from[m->src_axis[1]] += c * m->step[1];
			g->elements[at] =
				from[0] * columns(m->src->shape, m->src->ndim) + from[1] + 1;
		}
	return 0;
}

/* How often each element of each global tensor has been seen. */
struct census {
	struct mfs_ckpt *ckpt;
	uint32_t **seen;
};

static void count_tensor(struct census *c, const struct mfs_rank_tensor *t)
{
	const uint64_t cols = columns(t->base.shape, t->base.ndim);
	const uint64_t count = t->base.shape[0] * cols;
	const enum split split = split_of(t->list, t->src->name);
	uint32_t *seen = c->seen[t->src - mfs_ckpt_at(c->ckpt, 0)];
	struct grid g = {.tensor = t, .cols = cols};

	g.elements = calloc(count, sizeof(*g.elements));
	g.boxes = calloc(count, sizeof(*g.boxes));
	ck_assert_int_eq(mfs_target_boxes(&t->base, draw_box, &g), 0);
	for (uint64_t i = 0; i < count; i++) {
		const uint64_t want = source_of(t, split, i / cols, i % cols);

		ck_assert_msg(g.boxes[i] == 1 && g.elements[i] == want, "%s: element %llu",
			      t->src->name, (unsigned long long)i);
		if (want)
			seen[want - 1]++;
	}
	free(g.elements);
	free(g.boxes);
}

/* The embedding and its copies that are kept equal: the tied head, or what MTP reads instead of
 * it. */
static bool shared(const struct mfs_rank_tensor *t, const char *name)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(t->list->ckpt);
	const bool mtp = a->mtp_num_layers > 0;

	if (!t->base.ops || t->list->layout.pp == 1 || (!a->tied && !mtp))
		return false;
	return ends(name, "word_embeddings.weight") ||
	       (a->tied && !mtp && ends(name, "output_layer.weight"));
}

/* The rank's name of a tensor is that of its source, numbered within the chunk and the expert
 * rank. */
static void check_name(const struct mfs_rank_tensor *t, uint32_t first_layer)
{
	const struct mfs_rank_list *l = t->list;
	const int64_t experts = mfs_ckpt_args(l->ckpt)->num_experts;
	struct mfs_name name;
	char text[MFS_CKPT_NAME_SIZE];

	mfs_rank_tensor_name(t, text, sizeof(text));
	mfs_name_parse(text, &name);
	ck_assert_int_eq(t->is_shared, shared(t, text));
	if (t->is_copy && ends(text, "output_layer.weight")) {
		ck_assert_str_eq(t->src->name, "embedding.word_embeddings.weight");
		return;
	}
	if (t->base.ops)
		ck_assert_str_eq(name.canonical, t->src->name);
	else
		ck_assert(name.ignored);
	if (!strncmp(text, "decoder.layers.", 15))
		ck_assert_int_eq(name.layer + (int32_t)first_layer, t->src->layer);
	else
		ck_assert_int_eq(name.layer, t->src->layer);
	if (name.expert >= 0)
		ck_assert_int_eq(name.expert + (int32_t)(experts / l->layout.ep * l->rank.ep),
				 t->src->expert);
	else
		ck_assert(t->src->expert < 0 || !t->base.ops);
	ck_assert_int_eq(t->is_expert, name.experts);
	ck_assert_int_eq(t->base.ops && t->is_parameter,
			 t->base.ops && !ends(text, "router.expert_bias"));
}

static void count_rank(struct census *c, const struct mfs_layout *p, const struct mfs_rank *rank,
		       enum mfs_layer_spec spec)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(c->ckpt);
	struct mfs_rank_list *list;
	uint32_t next = 0;

	unit_ok(mfs_rank_list_new(c->ckpt, p, rank, spec, 0, &list, &err), &err);
	for (uint32_t vp = 0; vp < p->vpp; vp++) {
		uint32_t first;

		random_layout_layers(p, a, vp, rank->pp, &first);
		ck_assert_uint_eq(list->chunks[vp].first, next);
		for (uint32_t i = 0; i < list->chunks[vp].count; i++) {
			const struct mfs_rank_tensor *t = &list->tensors[next++];

			check_name(t, first);
			if (t->base.ops)
				count_tensor(c, t);
		}
	}
	ck_assert_uint_eq(next, list->count);
	mfs_rank_list_free(list);
}

static uint32_t common_multiple(uint32_t a, uint32_t b)
{
	uint32_t m = a;

	while (m % b)
		m += a;
	return m;
}

/* On how many ranks each element must lie. */
static uint32_t copies(const struct census *c, const struct mfs_layout *p, enum mfs_layer_spec spec,
		       const struct mfs_global_tensor *t)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(c->ckpt);
	const struct mfs_rank_list any = {.ckpt = c->ckpt, .spec = spec};
	const uint32_t ranks = common_multiple(p->tp, p->etp * p->ep);
	const bool whole = split_of(&any, t->name) == WHOLE;
	uint32_t times = 1;

	if (strstr(t->name, "mlp.experts."))
		return ranks / (whole ? p->ep : p->ep * p->etp);
	/* The last stage's copies: a tied head, and the embedding that MTP reads. */
	if (!strcmp(t->name, "embedding.word_embeddings.weight") && p->pp > 1)
		times += a->tied + (a->mtp_num_layers > 0);
	return times * ranks / (whole ? 1 : p->tp);
}

static void check_census(const struct census *c, const struct mfs_layout *p,
			 enum mfs_layer_spec spec, const char *family)
{
	char layout[MFS_LAYOUT_NAME_SIZE];

	mfs_layout_name(p, layout);
	for (uint32_t i = 0; i < mfs_ckpt_count(c->ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(c->ckpt, i);
		const uint32_t want = copies(c, p, spec, t);
		uint64_t count;

		ck_assert(mfs_shape_count(t->shape, t->ndim, &count));
		for (uint64_t k = 0; k < count; k++)
			ck_assert_msg(c->seen[i][k] == want,
				      "%s at %s: %s layer %d: element %llu %u times, not %u",
				      family, layout, t->name, t->layer, (unsigned long long)k,
				      c->seen[i][k], want);
	}
}

START_TEST(every_element_lies_on_the_right_ranks)
{
	const enum mfs_layer_spec spec = _i % 2 ? MFS_LAYER_SPEC_TE : MFS_LAYER_SPEC_LOCAL;
	const char *family = random_families[_i / 2 % RANDOM_FAMILIES].name;

	srand((unsigned)_i + 1);
	for (int round = 0; round < 6; round++) {
		struct mfs_megatron_args args;
		struct mfs_layout p;
		struct mfs_rank rank;
		struct mfs_ckpt ckpt;
		struct census c = {.ckpt = &ckpt};

		random_layout(_i / 2 % RANDOM_FAMILIES, &args, &p);
		fake_ckpt(&ckpt, &args);
		unit_ok(mfs_rank_check(&ckpt, spec, &err), &err);
		c.seen = calloc(ckpt.tensor_count, sizeof(*c.seen));
		for (uint32_t i = 0; i < ckpt.tensor_count; i++) {
			const struct mfs_global_tensor *t = &ckpt.tensors[i];

			c.seen[i] =
				calloc(t->shape[0] * columns(t->shape, t->ndim), sizeof(**c.seen));
		}
		for (uint32_t i = 0; mfs_rank_at(&p, i, &rank); i++)
			count_rank(&c, &p, &rank, spec);
		check_census(&c, &p, spec, family);
		for (uint32_t i = 0; i < ckpt.tensor_count; i++)
			free(c.seen[i]);
		free(c.seen);
		fake_release(&ckpt);
	}
}
END_TEST

/* ---- what is not there ---- */

START_TEST(holes_are_named)
{
	struct mfs_megatron_args args = fake_mixtral();
	struct mfs_ckpt ckpt;

	fake_ckpt(&ckpt, &args);
	fake_drop(&ckpt,
		  fake_find(&ckpt, "decoder.layers.mlp.experts.experts.linear_fc2.weight", 1, 2));
	unit_fails(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err, -ENODATA,
		   "decoder.layers.1.mlp.experts.experts.2.linear_fc2.weight");
	fake_release(&ckpt);
	fake_ckpt(&ckpt, &args);
	fake_add(&ckpt, "decoder.layers.", "mlp.linear_fc3.weight", 0, -1, 4, 4);
	fake_sort(&ckpt);
	unit_fails(mfs_rank_check(&ckpt, MFS_LAYER_SPEC_TE, &err), &err, -ENOTSUP, "linear_fc3");
	fake_release(&ckpt);
}
END_TEST

/* Rows of the vocabulary: padded further for more tensor ranks, cropped to what is true for
 * fewer. */
/* Every tensor of these models is one that the model must have: without all of a name nothing is
 * shown. */
START_TEST(whole_modules_are_missed)
{
	static struct mfs_megatron_args (*const families[])(void) = {
		fake_llama, fake_qwen2, fake_qwen3, fake_gpt2, fake_mixtral, fake_deepseek};
	struct mfs_megatron_args args = families[_i]();
	struct mfs_ckpt ckpt;
	uint32_t count;

	fake_ckpt(&ckpt, &args);
	unit_ok(mfs_rank_check(&ckpt, mfs_layer_spec_of(&ckpt), &err), &err);
	count = ckpt.tensor_count;
	fake_release(&ckpt);
	for (uint32_t i = 0; i < count; i++) {
		const char *name;

		fake_ckpt(&ckpt, &args);
		name = ckpt.tensors[i].name;
		for (uint32_t k = ckpt.tensor_count; k-- > 0;)
			if (ckpt.tensors[k].name == name)
				fake_drop(&ckpt, &ckpt.tensors[k]);
		unit_fails(mfs_rank_check(&ckpt, mfs_layer_spec_of(&ckpt), &err), &err, -ENODATA,
			   "is missing");
		fake_release(&ckpt);
	}
}
END_TEST

START_TEST(the_vocabulary_is_padded_as_megatron_pads_it)
{
	struct mfs_megatron_args args = fake_llama();
	struct mfs_layout p = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	struct mfs_ckpt ckpt;

	fake_ckpt(&ckpt, &args);
	ck_assert_uint_eq(mfs_layout_vocab(&p, &ckpt, 1000), 1024);
	ck_assert_uint_eq(mfs_layout_vocab(&p, &ckpt, 257), 384);
	p.tp = 16;
	ck_assert_uint_eq(mfs_layout_vocab(&p, &ckpt, 0), 2048);
	ck_assert_uint_eq(mfs_layout_vocab(&p, &ckpt, 2049), 4096);
	ckpt.args.make_vocab_size_divisible_by = 1;
	ck_assert_uint_eq(mfs_layout_vocab(&p, &ckpt, 1001), 1008);
	fake_release(&ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rank");
	TCase *c = unit_case(s, "Rank", holes_are_named);

	tcase_add_loop_test(c, whole_modules_are_missed, 0, 6);
	tcase_add_test(c, the_vocabulary_is_padded_as_megatron_pads_it);
	tcase_add_loop_test(c, lists_are_the_state_dicts_of_real_files, 0,
			    MFS_ARRAY_SIZE(fixtures));
	tcase_add_loop_test(c, every_element_lies_on_the_right_ranks, 0, 4 * RANDOM_FAMILIES);
	return s;
}
