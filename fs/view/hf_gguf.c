/*
 * A model as one file that llama.cpp reads (formats/gguf/gguf.h). Names,
 * keys and shapes are those that its converter gives the same model
 * (gguf: gguf/constants.py, gguf/tensor_mapping.py; llama.cpp: convert_hf_to_gguf.py and
 * conversion/{base,llama,qwen}.py):
 *
 *   vectors, norms and routers are float32, all others of one type;
 *   where llama.cpp rotates neighbours (its architecture "llama"), the rows of queries and keys are
 *   reordered, head by head: row i of a head's first half, row i of its second half, ...;
 *   the experts of a layer are one tensor;
 *   Llama 3's rotary scaling is a tensor of factors, "rope_freqs.weight";
 *   a tied head is left out.
 *
 * What its graphs do not compute is refused. A window is not known to them: the context ends where
 * the window would begin to matter.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/target.h"
#include "formats/gguf/gguf.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/gguf_keys.h"
#include "fs/view/hf.h"

#define FILE_NAME "model.gguf"

/*
 * A tensor of the file. What its bytes are is a target; where rows are reordered, that has another
 * shape than the file says: the two rows of a rotary pair are one row of twice the length.
 */
struct tensor {
	struct mfs_target base;
	const struct mfs_hf_target *const *each; /* the experts', or the only one */
	uint32_t experts;			 /* 0: it is not a stack */
	uint64_t half;				 /* rows of half a head; 0: no row is moved */
	uint8_t ndim;				 /* in the file */
	uint64_t shape[3];
};

struct made {
	struct tensor *tensors;
	uint32_t count;
	const struct mfs_hf_target **each;
};

/* ---- possible ones ---- */

/* -ENOTSUP: llama.cpp has no architecture for the family, or not for this model. */
static int possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		    struct mfs_error *err)
{
	mfs_features foreign;

	if (!family->gguf || !mfs_gguf_refused(family->gguf, &foreign))
		return mfs_fail(err, -ENOTSUP, "%s: how llama.cpp holds a %s is not known here",
				mfs_ckpt_dir(ckpt), family->name);
	foreign &= mfs_features_of(mfs_ckpt_args(ckpt));
	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (mfs_has_feature(foreign, i))
			return mfs_fail(err, -ENOTSUP, "%s: llama.cpp's %s does not know %s",
					mfs_ckpt_dir(ckpt), family->gguf, mfs_feature_text(i));
	return 0;
}

/* ---- names ---- */

/* The end of HF's name without the layer and ".weight", and llama.cpp's. */
static const struct {
	const char *hf, *gguf;
} names[] = {
	{"model.embed_tokens", "token_embd"},
	{"model.norm", "output_norm"},
	{"lm_head", "output"},
	{"input_layernorm", "attn_norm"},
	{"post_attention_layernorm", "ffn_norm"},
	{"self_attn.q_proj", "attn_q"},
	{"self_attn.k_proj", "attn_k"},
	{"self_attn.v_proj", "attn_v"},
	{"self_attn.o_proj", "attn_output"},
	{"self_attn.q_norm", "attn_q_norm"},
	{"self_attn.k_norm", "attn_k_norm"},
	{"mlp.gate_proj", "ffn_gate"},
	{"mlp.up_proj", "ffn_up"},
	{"mlp.down_proj", "ffn_down"},
	{"mlp.gate", "ffn_gate_inp"},
	{"mlp.experts.{e}.gate_proj", "ffn_gate_exps"},
	{"mlp.experts.{e}.up_proj", "ffn_up_exps"},
	{"mlp.experts.{e}.down_proj", "ffn_down_exps"},
	{"block_sparse_moe.gate", "ffn_gate_inp"},
	{"block_sparse_moe.experts.{e}.w1", "ffn_gate_exps"},
	{"block_sparse_moe.experts.{e}.w3", "ffn_up_exps"},
	{"block_sparse_moe.experts.{e}.w2", "ffn_down_exps"},
};

static const char *name_of_row(const struct mfs_family_tensor *row)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		const size_t len = strlen(names[i].hf);

		if (!strncmp(row->hf, names[i].hf, len) &&
		    (!strcmp(row->hf + len, ".weight") || !strcmp(row->hf + len, ".bias")))
			return names[i].gguf;
	}
	return NULL;
}

static size_t name(const struct mfs_target *base, char *text, size_t size)
{
	const struct mfs_hf_target *t = ((const struct tensor *)base)->each[0];
	const char *what = name_of_row(t->row), *end = strrchr(t->row->hf, '.');

	if (t->layer < 0)
		return (size_t)snprintf(text, size, "%s%s", what, end);
	return (size_t)snprintf(text, size, "blk.%d.%s%s", t->layer, what, end);
}

/* ---- boxes ---- */

struct mover {
	const struct tensor *t;
	uint32_t expert;
	mfs_emit_box emit;
	void *arg;
};

/* A box of an expert's matrix in the stack. */
static int stacked(const struct mfs_box_map *m, const struct mover *mover)
{
	const unsigned ndim = mover->t->base.ndim;
	struct mfs_box_map box = *m;

	for (unsigned a = ndim; a-- > 1;) {
		box.lo[a] = m->lo[a - 1];
		box.size[a] = m->size[a - 1];
		box.step[a] = m->step[a - 1];
		box.src_axis[a] = m->src_axis[a - 1];
	}
	box.lo[0] = mover->expert;
	box.size[0] = 1;
	box.src_axis[0] = MFS_AXIS_NONE;
	return mover->emit(&box, mover->arg);
}

/* Rows [row, row + count) of the box, which lie in one half of one head. */
static int half_of_head(const struct mfs_box_map *m, const struct mover *mover, uint64_t row,
			uint64_t count)
{
	const struct tensor *t = mover->t;
	const uint64_t half = t->half, at = m->lo[0] + row, columns = t->base.shape[1] / 2;
	struct mfs_box_map box = *m;

	box.lo[0] = at / (2 * half) * half + at % half;
	box.size[0] = count;
	if (m->src)
		box.src_lo[m->src_axis[0]] += row * m->step[0];
	if (t->ndim == 1) {
		box.lo[1] = 0;
		box.size[1] = 1;
		box.src_axis[1] = MFS_AXIS_NONE;
	}
	box.lo[1] += at / half % 2 * columns;
	return mover->emit(&box, mover->arg);
}

static int paired(const struct mfs_box_map *m, const struct mover *mover)
{
	const uint64_t half = mover->t->half;
	int rc = 0;

	for (uint64_t row = 0, count; row < m->size[0] && !rc; row += count) {
		count = half - (m->lo[0] + row) % half;
		if (count > m->size[0] - row)
			count = m->size[0] - row;
		rc = half_of_head(m, mover, row, count);
	}
	return rc;
}

static int move_box(const struct mfs_box_map *m, void *arg)
{
	const struct mover *mover = arg;

	if (mover->t->experts)
		return stacked(m, mover);
	return mover->t->half ? paired(m, mover) : mover->emit(m, mover->arg);
}

static int boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct tensor *t = (const struct tensor *)base;
	struct mover mover = {.t = t, .emit = emit, .arg = arg};
	int rc;

	do {
		rc = mfs_target_boxes(&t->each[mover.expert]->base, move_box, &mover);
	} while (!rc && ++mover.expert < t->experts);
	return rc;
}

static enum mfs_op op(const struct mfs_target *base)
{
	return mfs_target_op(&((const struct tensor *)base)->each[0]->base);
}

static const struct mfs_target_ops target_ops = {boxes, name, op};

/* ---- tensors ---- */

static bool is_router(const struct mfs_hf_target *t)
{
	return mfs_str_is(name_of_row(t->row), "ffn_gate_inp");
}

/* llama.cpp's kernels take these as float32 alone. */
static bool is_float32(const struct mfs_hf_target *t)
{
	return t->base.ndim == 1 || t->row->norm || is_router(t);
}

static bool is_rotated(const struct mfs_hf_target *t)
{
	return t->row->rule == MFS_RULE_Q || t->row->rule == MFS_RULE_K;
}

static int shape_tensor(struct tensor *t, struct mfs_error *err)
{
	const struct mfs_hf_target *first = t->each[0];
	uint64_t filled[MFS_CKPT_DIMS] = {0};

	t->ndim = (uint8_t)(first->base.ndim + (t->experts > 0));
	t->shape[0] = t->experts;
	memcpy(t->shape + (t->experts > 0), first->base.shape,
	       first->base.ndim * sizeof(*t->shape));
	if (!t->half)
		return mfs_target_shape(&t->base, t->shape, t->ndim, err);
	filled[0] = t->shape[0] / 2;
	filled[1] = 2 * (t->ndim > 1 ? t->shape[1] : 1);
	return mfs_target_shape(&t->base, filled, 2, err);
}

/* The experts' targets of first's row and layer, by their numbers, at gguf->each. Returns how
 * many. */
static uint32_t collect(const struct mfs_model *m, const struct mfs_hf_target *first,
			const struct mfs_hf_target **each)
{
	uint32_t count = 0;

	for (const struct mfs_hf_target *t = first; t < m->targets + m->target_count; t++)
		if (t->row == first->row && t->layer == first->layer) {
			each[t->expert] = t;
			count++;
		} else if (t->unit != first->unit) {
			break;
		}
	return count;
}

static int list_tensors(struct made *gguf, const struct mfs_model *m, enum mfs_dtype dtype,
			struct mfs_error *err)
{
	const bool pairs = mfs_gguf_rotates_pairs(m->family->gguf);
	const struct mfs_hf_target **each = gguf->each;
	int rc = 0;

	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_hf_target *first = &m->targets[i];
		struct tensor *t = &gguf->tensors[gguf->count];

		if (!name_of_row(first->row))
			return mfs_fail(err, -ENOTSUP,
					"%s: llama.cpp's name for '%s' is not known here",
					mfs_ckpt_dir(m->ckpt), first->row->hf);
		if (first->expert > 0)
			continue;
		*t = (struct tensor){
			.base = {.ops = &target_ops,
				 .ckpt = m->ckpt,
				 .dtype = is_float32(first) ? MFS_F32 : dtype},
			.each = each,
			.half = pairs && is_rotated(first)
					? (uint64_t)mfs_ckpt_args(m->ckpt)->kv_channels / 2
					: 0};
		each[0] = first;
		if (first->expert == 0)
			t->experts = collect(m, first, each);
		each += t->experts ? t->experts : 1;
		rc = shape_tensor(t, err);
		gguf->count++;
	}
	return rc;
}

/* ---- the file ---- */

/* Where the factors of Llama 3's scaling stand, which have no target. */
#define FACTORS "rope_freqs.weight"

static int describe_tensors(const struct made *gguf, const struct mfs_gguf_extra *extra,
			    struct mfs_gguf *header, uint64_t *padding, struct mfs_error *err)
{
	char text[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	if (extra->factor_count)
		rc = mfs_gguf_tensor(header, FACTORS, MFS_F32,
				     (const uint64_t[]){extra->factor_count}, 1, padding++, err);
	for (uint32_t i = 0; i < gguf->count && !rc; i++) {
		const struct tensor *t = &gguf->tensors[i];

		mfs_target_name(&t->base, text, sizeof(text));
		rc = mfs_gguf_tensor(header, text, t->base.dtype, t->shape, t->ndim, padding++,
				     err);
	}
	return rc;
}

static int add_literal(struct mfs_vfile *f, struct mfs_buf *bytes, struct mfs_error *err)
{
	int rc = bytes->failed ? mfs_fail_nomem(err)
			       : mfs_vfile_add_literal(f, bytes->data, bytes->len, err);

	if (rc)
		mfs_buf_release(bytes);
	return rc;
}

static int add_factors(struct mfs_vfile *f, const struct mfs_gguf_extra *extra,
		       struct mfs_error *err)
{
	struct mfs_buf bytes = {0};

	mfs_buf_add(&bytes, extra->factors, extra->factor_count * sizeof(*extra->factors));
	return add_literal(f, &bytes, err);
}

static int fill_file(struct mfs_vfile *f, const struct made *gguf,
		     const struct mfs_gguf_extra *extra, const struct mfs_gguf *header,
		     const uint64_t *padding, struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	int rc;

	mfs_gguf_header(header, &bytes);
	rc = add_literal(f, &bytes, err);
	if (!rc && extra->factor_count) {
		rc = add_factors(f, extra, err);
		if (!rc && *padding)
			rc = mfs_vfile_add_zeros(f, *padding, err);
		padding++;
	}
	for (uint32_t i = 0; i < gguf->count && !rc; i++) {
		rc = mfs_vfile_add_tensor(f, &gguf->tensors[i].base, err);
		if (!rc && padding[i])
			rc = mfs_vfile_add_zeros(f, padding[i], err);
	}
	return rc;
}

static int add_file(struct mfs_view *v, const struct made *gguf, const struct mfs_gguf_extra *extra,
		    struct mfs_gguf *header, struct mfs_error *err)
{
	uint64_t *padding = calloc((size_t)gguf->count + 1, sizeof(*padding));
	struct mfs_vfile *f = NULL;
	int rc =
		padding ? describe_tensors(gguf, extra, header, padding, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = mfs_vfile_new(&f, err);
	if (!rc)
		rc = fill_file(f, gguf, extra, header, padding, err);
	free(padding);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	v->tensor_count = (uint32_t)header->tensor_count;
	return mfs_view_add(v, FILE_NAME, f, err);
}

static bool casts(const struct made *gguf)
{
	for (uint32_t i = 0; i < gguf->count; i++)
		if (gguf->tensors[i].each[0]->base.dtype != gguf->tensors[i].base.dtype)
			return true;
	return false;
}

/* config: the text of the HF view's config.json, which knows token ids and the factor of Llama 3's
 * scaling. A tokenizer that cannot be carried along is left out, with a warning of the model that
 * says why. */
static int add_model(struct mfs_hf_builder *b, const char *config, size_t config_len)
{
	struct mfs_model *model = b->view->public.model;
	const enum mfs_dtype dtype = b->flavour->dtype;
	struct made *gguf = calloc(1, sizeof(*gguf));
	struct mfs_gguf header = {0};
	struct mfs_gguf_extra extra = {0};
	int rc;

	b->view->made = gguf;
	if (!gguf)
		return mfs_fail_nomem(b->err);
	rc = possible(model->ckpt, model->family, b->err);
	if (rc)
		return rc;
	gguf->tensors = calloc((size_t)model->target_count + 1, sizeof(*gguf->tensors));
	gguf->each = calloc((size_t)model->target_count + 1, sizeof(*gguf->each));
	rc = gguf->tensors && gguf->each ? list_tensors(gguf, model, dtype, b->err)
					 : mfs_fail_nomem(b->err);
	if (!rc)
		rc = mfs_gguf_read_config(model, config, config_len, &extra, b->err);
	if (!rc)
		rc = mfs_gguf_add_keys(&header, model, dtype, b->err);
	if (!rc)
		rc = mfs_gguf_add_tokenizer(&header, model, &extra, b->view->passed, b->err);
	if (!rc)
		rc = add_file(&b->view->public, gguf, &extra, &header, b->err);
	if (!rc)
		b->view->public.cast |= casts(gguf);
	mfs_gguf_release(&header);
	free(extra.factors);
	return rc;
}

static int emit(struct mfs_hf_builder *b)
{
	struct mfs_view *v = &b->view->public;
	uint32_t before;
	char *config;
	size_t len;
	int rc = mfs_hf_config_text(b, &config, &len);

	if (rc)
		return rc;
	before = v->model->warning_count;
	rc = add_model(b, config, len);
	free(config);
	v->own_warnings = v->model->warning_count - before;
	return rc ? rc : mfs_hf_warn_of_infinity(b);
}

static void release(void *made)
{
	struct made *gguf = made;

	free(gguf->tensors);
	free(gguf->each);
	free(gguf);
}

MFS_HF_VIEW(gguf, "gguf", true, "the same as one file for llama.cpp, its weights cast to bfloat16",
	    .dtype = MFS_BF16, .possible = possible, .emit = emit, .release = release)
MFS_HF_VIEW(gguf_f16, "gguf-f16", true, "the same, cast to float16", .dtype = MFS_F16,
	    .possible = possible, .emit = emit, .release = release)
