#include "formats/megatron/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/ckpt/sections.h"
#include "formats/megatron/modules.h"

#define EMBEDDING "embedding.word_embeddings.weight"

struct builder {
	struct mfs_rank_list *list;
	const struct mfs_megatron_args *args;
	/* the place of the rows that are being added */
	const char *prefix; /* of canonical names */
	int32_t layer;	    /* in the checkpoint's numbering; -1: none */
	int32_t shown;	    /* in the rank's numbering */
	int32_t like;	    /* the decoder's layer whose kind it is of; -1: none */
	struct mfs_error *err;
};

enum mfs_layer_spec mfs_layer_spec_of(const struct mfs_ckpt *ckpt)
{
	return mfs_ckpt_args(ckpt)->local_spec ? MFS_LAYER_SPEC_LOCAL : MFS_LAYER_SPEC_TE;
}

/* ---- a tensor's part ---- */

static uint32_t part_of(const struct mfs_rank_tensor *t, uint32_t *ret_parts)
{
	const struct mfs_rank_list *l = t->list;

	*ret_parts = t->is_expert ? l->layout.etp : l->layout.tp;
	if (l->layout.tp % *ret_parts)
		return l->rank.etp;
	return l->rank.tp % *ret_parts;
}

/* Rows of the whole tensor at this layout. */
static uint64_t global_rows(const struct mfs_rank_tensor *t)
{
	return mfs_global_tensor_is_vocabulary(t->src) ? t->list->vocab : t->src->shape[0];
}

static struct mfs_box_map straight(const struct mfs_rank_tensor *t)
{
	struct mfs_box_map m = {.src = t->src};

	for (unsigned a = 0; a < t->base.ndim; a++) {
		m.size[a] = t->base.shape[a];
		m.step[a] = 1;
		m.src_axis[a] = (uint8_t)a;
	}
	return m;
}

/* Rows [first, ...) of the tensor. Rows of the vocabulary that are not stored are zeros. */
static int emit_rows(const struct mfs_rank_tensor *t, uint64_t first, mfs_emit_box emit, void *arg)
{
	const uint64_t stored = t->src->shape[0];
	struct mfs_box_map m = straight(t);
	uint64_t there = first < stored ? mfs_min_u64(m.size[0], stored - first) : 0;
	const uint64_t missing = m.size[0] - there;
	int rc = 0;

	m.src_lo[0] = first;
	m.size[0] = there;
	if (there)
		rc = emit(&m, arg);
	if (rc || !missing)
		return rc;
	m.src = NULL;
	m.lo[0] = there;
	m.size[0] = missing;
	return emit(&m, arg);
}

/* [gate; up] of the rank from the global [gate; up]. */
static int emit_gated(const struct mfs_rank_tensor *t, uint32_t part, mfs_emit_box emit, void *arg)
{
	struct mfs_box_map m = straight(t);
	const uint64_t half = m.size[0] / 2;
	int rc;

	m.size[0] = half;
	m.src_lo[0] = half * part;
	rc = emit(&m, arg);
	if (rc)
		return rc;
	m.lo[0] = half;
	m.src_lo[0] += t->src->shape[0] / 2;
	return emit(&m, arg);
}

/* The rank's rows of each section. */
static int emit_sections(const struct mfs_rank_tensor *t, uint32_t part, uint32_t parts,
			 mfs_emit_box emit, void *arg)
{
	struct mfs_box_map m = straight(t);
	uint64_t rows[MFS_SECTIONS_MAX], lo = 0, from = 0;
	const unsigned count = mfs_sections(mfs_ckpt_args(t->list->ckpt), t->src->name, rows);
	int rc = 0;

	for (unsigned i = 0; i < count && !rc; i++) {
		m.lo[0] = lo;
		m.size[0] = rows[i] / parts;
		m.src_lo[0] = from + m.size[0] * part;
		lo += m.size[0];
		from += rows[i];
		rc = emit(&m, arg);
	}
	return rc;
}

int mfs_rank_tensor_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct mfs_rank_tensor *t = (const struct mfs_rank_tensor *)base;
	struct mfs_box_map m;
	uint32_t parts, part = part_of(t, &parts);

	switch (t->split) {
	case MFS_TP_ROWS:
		return emit_rows(t, base->shape[0] * part, emit, arg);
	case MFS_TP_GATED:
		return emit_gated(t, part, emit, arg);
	case MFS_TP_SECTIONS:
		return emit_sections(t, part, parts, emit, arg);
	case MFS_TP_COLS:
		m = straight(t);
		m.src_lo[1] = base->shape[1] * part;
		return emit(&m, arg);
	default:
		m = straight(t);
		return emit(&m, arg);
	}
}

static void put_number(char *text, size_t size, const char *pattern, int32_t number)
{
	const char *hole = strstr(pattern, "{e}");

	if (hole)
		snprintf(text, size, "%.*s%d%s", (int)(hole - pattern), pattern, number, hole + 3);
	else
		snprintf(text, size, "%s", pattern);
}

/* An HF model, which no run has written, gets the names of the newest release. */
static const char *mtp_inner(const struct mfs_rank_tensor *t)
{
	const struct mfs_ckpt *ckpt = t->list->ckpt;

	return mfs_ckpt_format(ckpt)->is_hf || mfs_ckpt_args(ckpt)->mtp_model_layer
		       ? "mtp_model_layer."
		       : "transformer_layer.";
}

/* Of a block that is two layers: 0 for attention, 1 for the MLP. */
static int sublayer(const struct mfs_rank_tensor *t)
{
	return mfs_name_sublayer(t->row->canonical) == MFS_SUBLAYER_MLP;
}

/* A name in a HybridModel, whose MTP layers have layers of their own. */
static size_t hybrid_name(const struct mfs_rank_tensor *t, const char *rest, char *text,
			  size_t size)
{
	static const char inner[] = "mtp.layers.transformer_layer.";

	if (!strncmp(t->src->name, inner, sizeof(inner) - 1))
		return (size_t)snprintf(text, size, "mtp.layers.%d.mtp_model_layer.layers.%d.%s",
					t->layer, sublayer(t), rest);
	if (!strncmp(t->src->name, "mtp.", 4))
		return (size_t)snprintf(text, size, "mtp.layers.%d.%s", t->layer, rest);
	return (size_t)snprintf(text, size, "decoder.layers.%d.%s", 2 * t->layer + sublayer(t),
				rest);
}

size_t mfs_rank_tensor_name(const struct mfs_rank_tensor *t, char *text, size_t size)
{
	static const char mtp[] = "mtp.layers.", inner[] = "mtp.layers.transformer_layer.";
	const char *name = t->src->name;
	char rest[MFS_CKPT_NAME_SIZE];

	put_number(rest, sizeof(rest), t->row->name, t->expert);
	if (t->layer < 0)
		return (size_t)snprintf(text, size, "%s", rest);
	if (t->list->layout.hybrid)
		return hybrid_name(t, rest, text, size);
	if (strncmp(name, mtp, sizeof(mtp) - 1))
		return (size_t)snprintf(text, size, "decoder.layers.%d.%s", t->layer, rest);
	return (size_t)snprintf(text, size, "%s%d.%s%s", mtp, t->layer,
				strncmp(name, inner, sizeof(inner) - 1) ? "" : mtp_inner(t), rest);
}

static size_t rank_name(const struct mfs_target *base, char *text, size_t size)
{
	return mfs_rank_tensor_name((const struct mfs_rank_tensor *)base, text, size);
}

static enum mfs_op rank_op(const struct mfs_target *base)
{
	return mfs_megatron_op(((const struct mfs_rank_tensor *)base)->src);
}

static const struct mfs_target_ops rank_ops = {mfs_rank_tensor_boxes, rank_name, rank_op};

/* ---- shapes ---- */

static int cannot_split(const struct builder *b, const struct mfs_rank_tensor *t, uint32_t parts)
{
	char name[MFS_CKPT_NAME_SIZE], shape[96];

	return mfs_fail(b->err, -EINVAL, "%s: tensor '%s' %s cannot be divided among %u ranks",
			mfs_ckpt_dir(b->list->ckpt),
			mfs_global_tensor_name(t->src, name, sizeof(name)),
			mfs_shape_text(t->src->shape, t->src->ndim, shape, sizeof(shape)), parts);
}

static void resolve_split(const struct builder *b, struct mfs_rank_tensor *t)
{
	struct mfs_name name;

	mfs_name_parse(t->src->name, &name);
	t->split = (uint8_t)name.tp;
	/* MLA's down projections are whole on every rank in Transformer Engine. */
	if (name.tp == MFS_TP_AUTO)
		t->split = b->list->spec == MFS_LAYER_SPEC_TE ? MFS_TP_NONE : MFS_TP_ROWS;
	if (name.tp == MFS_TP_HEADS)
		t->split = b->args->qk_norm_wide ? MFS_TP_ROWS : MFS_TP_NONE;
	if (name.tp == MFS_TP_GATED && !mfs_args_gated(b->args))
		t->split = MFS_TP_ROWS;
	t->is_expert = name.experts;
}

/* Norms over all heads of more ranks than there are groups: several ranks would have one's keys. */
static bool splits_heads(const struct builder *b, const struct mfs_rank_tensor *t, uint32_t parts)
{
	struct mfs_name name;

	mfs_name_parse(t->src->name, &name);
	return name.tp == MFS_TP_HEADS && b->args->num_query_groups % parts != 0;
}

/* False: a section has rows that the ranks cannot share alike, or the whole is not as long as its
 * sections. */
static bool fit_sections(const struct builder *b, const struct mfs_rank_tensor *t, uint32_t parts)
{
	uint64_t rows[MFS_SECTIONS_MAX], all = 0;
	const unsigned count = mfs_sections(b->args, t->src->name, rows);
	bool fit = true;

	if (t->split != MFS_TP_SECTIONS)
		return true;
	for (unsigned i = 0; i < count; i++) {
		all += rows[i];
		fit &= rows[i] % parts == 0;
	}
	return fit && t->src->ndim && t->src->shape[0] == all;
}

static int shape_part(const struct builder *b, struct mfs_rank_tensor *t)
{
	const unsigned axis = t->split == MFS_TP_COLS ? 1 : 0;
	const bool halves = t->split == MFS_TP_GATED;
	uint64_t shape[MFS_CKPT_DIMS];
	uint32_t parts;

	part_of(t, &parts);
	memcpy(shape, t->src->shape, sizeof(shape));
	if (t->src->ndim)
		shape[0] = global_rows(t);
	if (t->split != MFS_TP_NONE) {
		if (axis >= t->src->ndim || shape[axis] % ((uint64_t)parts * (halves ? 2 : 1)) ||
		    splits_heads(b, t, parts) || !fit_sections(b, t, parts))
			return cannot_split(b, t, parts);
		shape[axis] /= parts;
	}
	return mfs_target_shape(&t->base, shape, t->src->ndim, b->err);
}

/* ---- the list ---- */

static int next_tensor(struct builder *b, struct mfs_rank_tensor **ret)
{
	struct mfs_rank_list *l = b->list;

	if (mfs_grow(&l->tensors, l->count))
		return mfs_fail_nomem(b->err);
	*ret = &l->tensors[l->count++];
	return 0;
}

/* True if all-reduces keep a copy of the embedding on the last stage equal to it: for a tied head
 * or for MTP (language_module.py: setup_embeddings_and_output_layer). */
static bool in_stages(const struct mfs_rank_list *l)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(l->ckpt);

	return (a->tied || a->mtp_num_layers > 0) && l->layout.pp > 1;
}

static int add_tensor(struct builder *b, const struct mfs_module_row *row,
		      const struct mfs_global_tensor *src, int32_t expert, bool copy)
{
	struct mfs_rank_tensor *t;
	int rc = next_tensor(b, &t);

	if (rc)
		return rc;
	*t = (struct mfs_rank_tensor){.list = b->list,
				      .row = row,
				      .src = src,
				      .layer = b->shown,
				      .expert = expert,
				      .is_copy = copy};
	resolve_split(b, t);
	if (row->extra)
		return 0;
	t->base.ops = &rank_ops;
	t->base.ckpt = b->list->ckpt;
	t->base.dtype = mfs_run_dtype(b->list->ckpt, src);
	t->is_parameter = !row->buffer;
	/* In a tied model with MTP the last stage has a head that nobody reads. */
	t->is_shared = in_stages(b->list) && !strcmp(src->name, EMBEDDING) &&
		       (row != &mfs_modules_output[0] || !b->args->mtp_num_layers);
	return shape_part(b, t);
}

/* The global tensor of a row; for an _extra_state its owner's. */
static const struct mfs_global_tensor *find(const struct builder *b,
					    const struct mfs_module_row *row, int32_t expert)
{
	char name[MFS_CKPT_NAME_SIZE];

	snprintf(name, sizeof(name), "%s%s", b->prefix, row->canonical);
	return mfs_ckpt_find(b->list->ckpt, name, b->layer, expert);
}

/* The name of the last norm follows from the form, which is the files' and not the model's. */
static bool applies(const struct builder *b, enum mfs_module_condition when)
{
	if (b->list->layout.hybrid && (when == MFS_WHEN_HYBRID || when == MFS_WHEN_PAIRED))
		return when == MFS_WHEN_HYBRID;
	return mfs_module_applies(b->args, when, b->like);
}

static int add_row(struct builder *b, const struct mfs_module_row *row, int32_t expert)
{
	const uint32_t each = b->args->moe_layers && b->args->num_experts > 0
				      ? (uint32_t)b->args->num_experts / b->list->layout.ep
				      : 0;
	const bool of_experts = strstr(row->canonical, "mlp.experts.") != NULL;
	const int32_t global = (int32_t)(each * b->list->rank.ep) + (expert < 0 ? 0 : expert);
	const struct mfs_global_tensor *src =
		applies(b, row->when) ? find(b, row, of_experts ? global : -1) : NULL;

	return src ? add_tensor(b, row, src, row->experts ? expert : -1, false) : 0;
}

/* Adds count rows for the first expert, then for the next. */
static int add_experts(struct builder *b, const struct mfs_module_row *rows, size_t count)
{
	const bool moe = b->like >= 0 && mfs_args_is_moe(b->args, b->like);
	const int64_t each = moe ? b->args->num_experts / b->list->layout.ep : 0;
	int rc = 0;

	for (int32_t e = 0; e < each && !rc; e++)
		for (size_t i = 0; i < count && !rc; i++)
			rc = add_row(b, &rows[i], e);
	return rc;
}

static int add_rows(struct builder *b, const struct mfs_module_row *rows)
{
	int rc = 0;

	while (rows->name && !rc) {
		size_t count = 1;

		if (!rows->experts) {
			rc = add_row(b, rows, -1);
		} else {
			while (rows[count].name && rows[count].experts == rows->experts)
				count++;
			rc = add_experts(b, rows, count);
		}
		rows += count;
	}
	return rc;
}

static const struct mfs_module_row *layer_rows(const struct builder *b)
{
	if (b->list->spec == MFS_LAYER_SPEC_LOCAL)
		return mfs_modules_local;
	return b->args->moe_grouped_gemm || b->list->layout.hybrid ? mfs_modules_te_grouped
								   : mfs_modules_te;
}

static void stand_outside(struct builder *b)
{
	b->prefix = "";
	b->layer = b->shown = b->like = -1;
}

static int add_layers(struct builder *b, uint32_t vp)
{
	uint32_t first;
	const uint32_t count =
		mfs_layout_layers(&b->list->layout, b->args, vp, b->list->rank.pp, &first);
	int rc = 0;

	b->prefix = "decoder.layers.";
	for (uint32_t i = 0; i < count && !rc; i++) {
		b->layer = b->like = (int32_t)(first + i);
		b->shown = (int32_t)i;
		rc = add_rows(b, layer_rows(b));
	}
	stand_outside(b);
	return rc;
}

static int add_mtp(struct builder *b)
{
	int rc = 0;

	for (int32_t k = 0; k < b->args->mtp_num_layers && !rc; k++) {
		b->layer = b->shown = k;
		b->like = (int32_t)b->args->num_layers - 1;
		b->prefix = "mtp.layers.";
		rc = add_rows(b, mfs_modules_mtp_before);
		b->prefix = "mtp.layers.transformer_layer.";
		if (!rc)
			rc = add_rows(b, layer_rows(b));
		b->prefix = "mtp.layers.";
		if (!rc)
			rc = add_rows(b, mfs_modules_mtp_after);
	}
	stand_outside(b);
	return rc;
}

/* A tied model's head is the embedding. On another stage it is a copy, in addition to the copy that
 * MTP reads (gpt_model.py: skip_weight_param_allocation). */
static int add_output(struct builder *b, bool is_first)
{
	const struct mfs_global_tensor *embedding = mfs_ckpt_find(b->list->ckpt, EMBEDDING, -1, -1);
	int rc = 0;

	if (b->args->tied && !is_first && embedding)
		rc = add_tensor(b, &mfs_modules_output[0], embedding, -1, true);
	return rc ? rc : add_rows(b, mfs_modules_output);
}

/* MTP embeds tokens on its own stage. */
static int add_copy_of_embedding(struct builder *b)
{
	const struct mfs_global_tensor *embedding = mfs_ckpt_find(b->list->ckpt, EMBEDDING, -1, -1);

	if (!embedding)
		return mfs_fail(b->err, -ENODATA, "%s: tensor '" EMBEDDING "' is missing",
				mfs_ckpt_dir(b->list->ckpt));
	return add_tensor(b, &mfs_modules_before[0], embedding, -1, true);
}

static int add_chunk(struct builder *b, uint32_t vp)
{
	const struct mfs_rank_list *l = b->list;
	const bool is_first = !vp && !l->rank.pp;
	const bool is_last = vp == l->layout.vpp - 1 && l->rank.pp == l->layout.pp - 1;
	const bool copy = is_last && !is_first && b->args->mtp_num_layers > 0;
	int rc = 0;

	if (is_first)
		rc = add_rows(b, mfs_modules_before);
	else if (copy)
		rc = add_copy_of_embedding(b);
	if (!rc)
		rc = add_layers(b, vp);
	if (rc || !is_last)
		return rc;
	rc = add_rows(b, mfs_modules_after);
	if (!rc)
		rc = add_mtp(b);
	return rc ? rc : add_output(b, is_first);
}

static int build(struct builder *b)
{
	struct mfs_rank_list *l = b->list;
	int rc = 0;

	l->chunks = calloc(l->layout.vpp, sizeof(*l->chunks));
	if (!l->chunks)
		return mfs_fail_nomem(b->err);
	stand_outside(b);
	for (uint32_t vp = 0; vp < l->layout.vpp && !rc; vp++) {
		l->chunks[vp].first = l->count;
		rc = add_chunk(b, vp);
		l->chunks[vp].count = l->count - l->chunks[vp].first;
	}
	return rc;
}

int mfs_rank_list_new(struct mfs_ckpt *ckpt, const struct mfs_layout *layout,
		      const struct mfs_rank *rank, enum mfs_layer_spec spec, uint64_t vocab,
		      struct mfs_rank_list **ret, struct mfs_error *err)
{
	struct mfs_rank_list *list = calloc(1, sizeof(*list));
	struct builder b = {.list = list, .args = mfs_ckpt_args(ckpt), .err = err};
	int rc;

	if (!list)
		return mfs_fail_nomem(err);
	list->ckpt = ckpt;
	list->layout = *layout;
	list->rank = *rank;
	list->spec = spec;
	list->vocab = mfs_layout_vocab(layout, ckpt, vocab);
	rc = build(&b);
	if (rc) {
		mfs_rank_list_free(list);
		return rc;
	}
	*ret = list;
	return 0;
}

void mfs_rank_list_free(struct mfs_rank_list *list)
{
	if (!list)
		return;
	free(list->tensors);
	free(list->chunks);
	free(list);
}

int mfs_rank_state(const struct mfs_rank_tensor *t, enum mfs_state state,
		   struct mfs_rank_tensor *ret, struct mfs_error *err)
{
	const struct mfs_global_tensor *src = mfs_ckpt_find_state(
		t->list->ckpt, state, t->src->name, t->src->layer, t->src->expert);
	struct mfs_rank_tensor r = *t;
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	if (!src)
		return mfs_fail(err, -ENODATA, "%s: the optimizer's %s of '%s' is missing",
				mfs_ckpt_dir(t->list->ckpt), mfs_state_name(state),
				mfs_global_tensor_name(t->src, name, sizeof(name)));
	if (src->ndim != t->src->ndim ||
	    memcmp(src->shape, t->src->shape, src->ndim * sizeof(*src->shape)))
		return mfs_fail(err, -EINVAL, "%s: tensor '%s' has another shape than the weight",
				mfs_ckpt_dir(t->list->ckpt),
				mfs_global_tensor_name(src, name, sizeof(name)));
	r.src = src;
	r.base.dtype = src->dtype;
	rc = mfs_target_shape(&r.base, t->base.shape, t->base.ndim, err);
	if (rc)
		return rc;
	*ret = r;
	return 0;
}

/* ---- files ---- */

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b;

	while (y) {
		uint64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

/* parallel_state.py numbers a stage's ranks by tp first, and for experts by etp first, then ep. The
 * pairs (tp, ep) repeat after the least common multiple of tp and etp * ep. */
bool mfs_rank_at(const struct mfs_layout *p, uint32_t i, struct mfs_rank *ret)
{
	const uint64_t each = common_multiple(p->tp, (uint64_t)p->etp * p->ep);
	const uint64_t r = i % each;

	if (i / each >= p->pp)
		return false;
	*ret = (struct mfs_rank){.tp = (uint32_t)(r % p->tp),
				 .pp = (uint32_t)(i / each),
				 .ep = (uint32_t)(r / p->etp % p->ep)};
	return true;
}

const char *mfs_rank_dir_name(const struct mfs_layout *layout, const struct mfs_rank *rank,
			      char text[64])
{
	int used = snprintf(text, 64, "mp_rank_%02u", rank->tp);

	if (layout->pp > 1)
		used += snprintf(text + used, 64 - (size_t)used, "_%03u", rank->pp);
	if (layout->ep > 1)
		snprintf(text + used, 64 - (size_t)used, "_%03u", rank->ep);
	return text;
}
