#include "formats/model/hf_ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/dims.h"
#include "formats/ckpt/stored.h"
#include "formats/model/features.h"
#include "formats/model/hf_config.h"
#include "formats/hf/hf_json.h"
#include "formats/model/hf_args.h"
#include "formats/model/hf_fused.h"
#include "formats/model/hf_quantised.h"
#include "formats/model/hf_tensors.h"
#include "formats/model/model.h"
#include "formats/model/rules/rules.h"

#define CONFIG "config.json"

#define DECODER	  "decoder.layers."
#define MTP	  "mtp.layers."
#define MTP_INNER "mtp.layers.transformer_layer."

struct builder {
	struct mfs_ckpt *ckpt;
	const struct mfs_megatron_args *args;
	struct mfs_model model; /* only the fields that HF's names and rules need */
	struct mfs_hf_tensors hf;
	const struct mfs_family *whole; /* the vision-language family; NULL: of text alone */
	size_t skipped; /* length of the prefix "model." that a base model's names lack */
	uint64_t dims[MFS_DIM_COUNT];
	struct mfs_error *err;
};

/* The place of a tensor in Megatron's numbering and in HF's. -1: in no layer, of no expert. */
struct numbering {
	const char *prefix; /* of Megatron's name */
	int32_t layer, hf_layer, expert;
};

/* ---- names ---- */

static const char *dir_of(const struct builder *b)
{
	return b->ckpt->dir;
}

/* The part of a layer's prefix that a base model's names lack: "model.". */
static size_t root_length(const struct mfs_family *f)
{
	return strcspn(f->layer_prefix, ".") + 1;
}

/* A base model is saved without the prefix that its names have in a model with a head. */
static void find_root(struct builder *b)
{
	const char *prefix = b->model.family->layer_prefix;
	const size_t len = root_length(b->model.family);
	const struct mfs_hf_tensor *t = NULL;

	while ((t = mfs_hf_tensors_next(&b->hf, t)))
		if (!strncmp(t->name, prefix, len))
			return;
	b->skipped = len;
}

static int64_t number_after(const char *prefix, const char *name, const char **ret_rest)
{
	const size_t len = strcspn(prefix, "{");
	char *end;
	long long layer;

	if (strncmp(name, prefix, len) || name[len] < '0' || name[len] > '9')
		return -1;
	layer = strtoll(name + len, &end, 10);
	if (*end != '.')
		return -1;
	*ret_rest = end + 1;
	return layer;
}

/* Number of the layer that a tensor belongs to, or -1. *ret_rest: the name after the number. MTP
 * layers follow the others, whatever their names begin with. */
static int64_t layer_of(const struct builder *b, const char *name, const char **ret_rest)
{
	const struct mfs_family *f = b->model.family;
	int64_t layer;

	if (f->mtp_prefix) {
		layer = number_after(f->mtp_prefix + b->skipped, name, ret_rest);
		if (layer >= 0)
			return b->args->num_layers + layer;
	}
	return number_after(f->layer_prefix + b->skipped, name, ret_rest);
}

/* ---- tensors that are left out ---- */

static bool is_buffer(const char *name)
{
	static const char *const buffers[] = {"rotary_emb.inv_freq", "attn.bias",
					      "attn.masked_bias"};

	for (size_t i = 0; i < 3; i++) {
		const size_t len = strlen(buffers[i]);

		if (mfs_str_ends(name, buffers[i]) &&
		    (strlen(name) == len || name[strlen(name) - len - 1] == '.'))
			return true;
	}
	return false;
}

/* A tied head, and the embedding and the head in multi-token-prediction layers. */
static bool is_copy(const struct builder *b, const char *name)
{
	const char *rest = "";

	if (!strcmp(name, "lm_head.weight"))
		return b->args->tied;
	return layer_of(b, name, &rest) >= b->args->num_layers && b->args->mtp_num_layers > 0 &&
	       (!strcmp(rest, "embed_tokens.weight") || !strcmp(rest, "shared_head.head.weight"));
}

/* What is no part of the class' model. */
static bool is_ignored(const struct builder *b, const char *name)
{
	const char *prefix = b->model.family->ignores;

	return prefix && !strncmp(name, prefix, strlen(prefix));
}

static int warn_of_ignored(const struct builder *b)
{
	const struct mfs_hf_tensor *t = NULL;
	unsigned count = 0;

	while ((t = mfs_hf_tensors_next(&b->hf, t)))
		count += is_ignored(b, t->name);
	if (count && mfs_ckpt_warn(b->ckpt,
				   "%u tensors '%s*' are no part of a %s, and the model is shown "
				   "without them",
				   count, b->model.family->ignores, b->model.family->architecture))
		return mfs_fail_nomem(b->err);
	return 0;
}

static int check_leftovers(const struct builder *b)
{
	const struct mfs_hf_tensor *t = NULL;
	char shape[128];

	while ((t = mfs_hf_tensors_next(&b->hf, t)))
		if (!t->used && !is_buffer(t->name) && !is_copy(b, t->name) &&
		    !is_ignored(b, t->name))
			return mfs_fail(b->err, -ENOTSUP,
					"%s: tensor '%s' %s has no place in a %s with this " CONFIG,
					dir_of(b), t->name,
					mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)),
					b->model.family->architecture);
	return warn_of_ignored(b);
}

/* transformers keeps num_nextn_predict_layers in config.json, but leaves these layers' weights
 * out. */
static int settle_mtp(struct builder *b)
{
	struct mfs_megatron_args *a = &b->ckpt->args;
	const struct mfs_hf_tensor *t = NULL;
	const char *rest;

	if (!a->mtp_num_layers)
		return 0;
	while ((t = mfs_hf_tensors_next(&b->hf, t)))
		if (layer_of(b, t->name, &rest) >= a->num_layers)
			return 0;
	a->mtp_num_layers = 0;
	if (mfs_ckpt_warn(
		    b->ckpt, CONFIG
		    " names multi-token-prediction layers, but there are no weights for them: the "
		    "model is shown without"))
		return mfs_fail_nomem(b->err);
	return 0;
}

/* ---- a tensor of HF as chunks of Megatron's ---- */

/* HF's tensor for a row at a place. text: its name. NULL: it is not there. */
static struct mfs_hf_tensor *find(const struct builder *b, const struct mfs_family_tensor *row,
				  const struct numbering *p, char *text, size_t size)
{
	const struct mfs_hf_target t = {.base = {.ops = &mfs_hf_target_ops, .ckpt = b->ckpt},
					.model = &b->model,
					.row = row,
					.layer = p->hf_layer,
					.expert = p->expert};
	const char *name = text;

	mfs_target_name(&t.base, text, size);
	if (!strncmp(text, b->model.family->layer_prefix, b->skipped))
		name += b->skipped;
	return mfs_hf_tensors_find(&b->hf, name);
}

/* The first row for the same tensor of Megatron (q_proj for k_proj). All of these have its
 * dtype. */
static const struct mfs_family_tensor *first_of(const struct builder *b,
						const struct mfs_family_tensor *row)
{
	for (const struct mfs_family_tensor *w = b->model.family->tensors; w->hf; w++)
		if (w == row || (w->scope == row->scope && w->kind == row->kind &&
				 mfs_applies(w->when, w->unless, b->model.features) &&
				 !strcmp(w->name, row->name)))
			return w;
	return row;
}

static int check_dtype(const struct builder *b, const struct mfs_family_tensor *row,
		       const struct numbering *p, const struct mfs_hf_tensor *t)
{
	const struct mfs_family_tensor *first = first_of(b, row);
	const struct mfs_hf_tensor *other;
	char text[MFS_CKPT_NAME_SIZE];

	if (!mfs_dtype_is_float(t->dtype) && !t->scales)
		return mfs_fail(b->err, -ENOTSUP,
				"%s: tensor '%s' is of %s, expected floats of 16 bits or more",
				dir_of(b), t->name, mfs_dtype_torch(t->dtype));
	other = first == row ? NULL : find(b, first, p, text, sizeof(text));
	if (other && other->dtype != t->dtype)
		return mfs_fail(b->err, -ENOTSUP,
				"%s: tensor '%s' is of %s, expected %s as '%s' is: they are one "
				"tensor in Megatron",
				dir_of(b), t->name, mfs_dtype_torch(t->dtype),
				mfs_dtype_torch(other->dtype), other->name);
	return 0;
}

/* Describes Megatron's tensor src, and the target that an HF view would make of it. */
static int describe(const struct builder *b, const struct mfs_family_tensor *row,
		    const struct numbering *p, struct mfs_global_tensor *src,
		    struct mfs_hf_target *ret)
{
	src->ndim = (uint8_t)mfs_param_ndim(row->shape);
	for (unsigned i = 0; i < src->ndim; i++)
		src->shape[i] = b->dims[row->shape[i]];
	*ret = (struct mfs_hf_target){
		.base = {.ops = &mfs_hf_target_ops, .ckpt = b->ckpt, .dtype = src->dtype},
		.model = &b->model,
		.row = row,
		.src = src,
		.layer = p->hf_layer,
		.expert = p->expert};
	return mfs_hf_target_shape(ret, src->shape[0], b->err);
}

static int check_shape(const struct builder *b, const struct mfs_target *want,
		       const struct mfs_hf_tensor *t)
{
	char expected[96], found[128];

	if (t->ndim == want->ndim && !memcmp(t->shape, want->shape, t->ndim * sizeof(*t->shape)))
		return 0;
	return mfs_fail(b->err, -EINVAL, "%s: tensor '%s' is %s, but by " CONFIG " it should be %s",
			dir_of(b), t->name, mfs_shape_text(t->shape, t->ndim, found, sizeof(found)),
			mfs_shape_text(want->shape, want->ndim, expected, sizeof(expected)));
}

struct inverse {
	struct builder *b;
	const struct mfs_hf_tensor *hf;
	struct mfs_found_chunk found; /* all but the chunk's box */
};

/* A box map says that a box of HF's tensor is a box of Megatron's. Backwards it is a chunk of
 * Megatron's tensor. */
static int add_chunk(const struct mfs_box_map *m, void *arg)
{
	const struct inverse *inv = arg;
	const struct mfs_hf_tensor *hf = inv->hf;
	struct mfs_found_chunk p = inv->found;

	p.chunk.origin = hf->origin;
	for (unsigned a = 0; a < hf->ndim; a++) {
		const uint64_t lanes = a == hf->ndim - 1u && m->lanes ? m->lanes : 1;
		const unsigned to = m->src_axis[a];

		p.chunk.origin += (m->lo[a] * lanes + (lanes > 1 ? m->lane : 0)) * hf->stride[a];
		if (to == MFS_AXIS_NONE)
			continue;
		if (m->step[a] != 1)
			return mfs_fail(inv->b->err, -ENOTSUP,
					"%s: tensor '%s': interleaved rotary positions",
					dir_of(inv->b), hf->name);
		p.chunk.lo[to] = m->src_lo[to];
		p.chunk.size[to] = m->size[a];
		p.chunk.stride[to] = hf->stride[a] * lanes;
	}
	return mfs_ckpt_add_found(inv->b->ckpt, &p, inv->b->err);
}

/* A norm that HF does not store as weight - 1, in a model whose other norms it does. */
static bool is_whole_norm(const struct builder *b, const struct mfs_family_tensor *row)
{
	return row->norm && b->args->zero_centered_gamma;
}

static int add_chunks(struct builder *b, const struct mfs_hf_target *t,
		      const struct mfs_hf_tensor *hf, const struct numbering *p)
{
	const struct mfs_global_tensor *src = t->src;
	struct inverse inv = {b,
			      hf,
			      {.layer = p->layer,
			       .expert = p->expert,
			       .dtype = src->dtype,
			       .whole_norm = is_whole_norm(b, t->row),
			       .ndim = src->ndim,
			       .chunk = {.storage = hf->storage, .scales = hf->scales}}};
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	memcpy(inv.found.shape, src->shape, sizeof(inv.found.shape));
	snprintf(name, sizeof(name), "%s%s", p->prefix, t->row->name);
	inv.found.name = mfs_ckpt_intern(b->ckpt, name);
	if (!inv.found.name)
		return mfs_fail_nomem(b->err);
	if (!t->row->stacked)
		return mfs_target_boxes(&t->base, add_chunk, &inv);
	for (int32_t e = 0; e < b->args->num_experts && !rc; e++) {
		inv.found.expert = e;
		rc = mfs_hf_target_expert_boxes(t, e, src, add_chunk, &inv);
	}
	return rc;
}

static int add_tensor(struct builder *b, const struct mfs_family_tensor *row,
		      const struct numbering *p)
{
	char text[MFS_CKPT_NAME_SIZE];
	struct mfs_hf_tensor *hf = find(b, row, p, text, sizeof(text));
	struct mfs_global_tensor src = {0};
	struct mfs_hf_target t;
	int rc;

	if (!hf)
		return mfs_fail(b->err, -ENODATA,
				"%s: tensor '%s' is missing; a %s with this " CONFIG " has it",
				dir_of(b), text, b->model.family->architecture);
	hf->used = true;
	src.dtype = hf->scales ? MFS_BF16 : hf->dtype;
	rc = check_dtype(b, row, p, hf);
	if (!rc)
		rc = describe(b, row, p, &src, &t);
	if (!rc)
		rc = check_shape(b, &t.base, hf);
	return rc ? rc : add_chunks(b, &t, hf, p);
}

/* ---- a head that is declared tied ---- */

/* HF's tensor for a tensor of Megatron outside of the layers. NULL: it is not there. */
static const struct mfs_hf_tensor *find_end(const struct builder *b, const char *name)
{
	const struct mfs_family_tensor *row = b->model.family->tensors;
	const struct numbering ends = {"", -1, -1, -1};
	char text[MFS_CKPT_NAME_SIZE];

	for (; row->hf; row++)
		if (!strcmp(row->name, name))
			return find(b, row, &ends, text, sizeof(text));
	return NULL;
}

static struct mfs_stored stored(const struct mfs_hf_tensor *t)
{
	return (struct mfs_stored){.name = t->name,
				   .storage = t->storage,
				   .dtype = t->dtype,
				   .ndim = t->ndim,
				   .shape = {t->shape[0], t->shape[1]},
				   .stride = {t->stride[0], t->stride[1]},
				   .origin = t->origin};
}

static int settle_tied(struct builder *b)
{
	const struct mfs_hf_tensor *head = find_end(b, "output_layer.weight");
	const struct mfs_hf_tensor *embedding = find_end(b, "embedding.word_embeddings.weight");
	struct mfs_stored x, y;
	uint64_t row;
	int rc;

	if (!b->args->tied || !head || !embedding)
		return 0;
	x = stored(head);
	y = stored(embedding);
	rc = mfs_stored_compare(b->ckpt, &x, &y, &row, b->err);
	if (rc || row == MFS_SAME)
		return rc;
	b->ckpt->args.tied = false;
	b->ckpt->untied = true;
	if (b->whole) /* versions of these classes differ in what they take for granted */
		return 0;
	if (mfs_ckpt_warn(
		    b->ckpt,
		    CONFIG
		    " ties the head to the embedding, but '%s' differs from '%s' in row %llu: the "
		    "model is shown untied",
		    head->name, embedding->name, (unsigned long long)row))
		return mfs_fail_nomem(b->err);
	return 0;
}

/* ---- tensors of all experts ---- */

/* [rows, columns] of a part, which is a tensor of the family's. */
static int part_shape(const struct builder *b, const struct mfs_fused *fused, uint64_t *ret)
{
	const struct mfs_family_tensor *row = b->model.family->tensors;
	struct mfs_global_tensor src = {.dtype = MFS_BF16};
	struct mfs_hf_target t;
	int rc;

	while (row->hf && (strcmp(row->hf, fused->to[0]) != 0 || !row->experts))
		row++;
	if (!row->hf || mfs_param_ndim(row->shape) != 2)
		return mfs_fail(b->err, -EINVAL, "%s: [fused]: a %s has no matrix '%s'", dir_of(b),
				b->model.family->name, fused->to[0]);
	rc = describe(b, row, &(struct numbering){DECODER, 0, 0, 0}, &src, &t);
	ret[0] = t.base.shape[0];
	ret[1] = t.base.shape[1];
	return rc;
}

/* They become one of each, where a family's file says so. */
static int settle_fused(struct builder *b)
{
	struct mfs_hf_tensor *t = NULL;
	const char *rest;
	int rc = 0;

	while (!rc && (t = mfs_hf_tensors_next(&b->hf, t))) {
		const struct mfs_fused *row = NULL;
		uint64_t each[2];

		if (b->args->num_experts <= 0 || layer_of(b, t->name, &rest) < 0)
			continue;
		/* A vision-language class has its own files. */
		if (b->whole)
			row = mfs_hf_fused(b->whole, rest);
		if (!row)
			row = mfs_hf_fused(b->model.family, rest);
		if (!row)
			continue;
		rc = part_shape(b, row, each);
		if (!rc)
			rc = mfs_hf_unfuse(b->ckpt, &b->hf, row, t, rest, each, b->err);
	}
	return rc;
}

/* ---- rows of the family's tables ---- */

/* One tensor, or one of each expert. */
static int add_experts(struct builder *b, const struct mfs_family_tensor *row, struct numbering p)
{
	int rc = 0;

	if (!mfs_is_per_expert(row))
		return add_tensor(b, row, &p);
	for (p.expert = 0; p.expert < b->args->num_experts && !rc; p.expert++)
		rc = add_tensor(b, row, &p);
	return rc;
}

static int add_row(struct builder *b, const struct mfs_family_tensor *row)
{
	const int32_t layers = (int32_t)b->args->num_layers;
	const bool inner = row->scope == MFS_SCOPE_LAYER;
	int rc = 0;

	if (row->scope == MFS_SCOPE_BEFORE || row->scope == MFS_SCOPE_AFTER)
		return add_experts(b, row, (struct numbering){"", -1, -1, -1});
	for (int32_t i = 0; i < layers && inner && !rc; i++)
		if (mfs_is_of_layer(row, b->args, i))
			rc = add_experts(b, row, (struct numbering){DECODER, i, i, -1});
	/* MTP layer k is HF's layer L+k, and of the same kind as the last layer. */
	for (int32_t k = 0; k < b->args->mtp_num_layers && !rc; k++)
		if (mfs_is_of_layer(row, b->args, layers - 1))
			rc = add_experts(
				b, row,
				(struct numbering){inner ? MTP_INNER : MTP, k, layers + k, -1});
	return rc;
}

static int add_rows(struct builder *b)
{
	int rc = 0;

	for (const struct mfs_family_tensor *row = b->model.family->tensors; row->hf && !rc; row++)
		if (mfs_applies(row->when, row->unless, b->model.features))
			rc = add_row(b, row);
	return rc;
}

/* ---- the directory ---- */

bool mfs_hf_ckpt_looks_like_one(const char *dir)
{
	char path[4096];
	struct stat st;
	bool index;

	return (size_t)snprintf(path, sizeof(path), "%s/" CONFIG, dir) < sizeof(path) &&
	       !stat(path, &st) && S_ISREG(st.st_mode) && mfs_hf_weights_name(dir, &index);
}

static int read_args(struct builder *b, const char *arch)
{
	struct mfs_ckpt *ckpt = b->ckpt;
	char *bytes, path[4096];
	size_t len;
	/* It joins the fileset: a change of it is a change of the checkpoint. */
	int rc = mfs_hf_slurp_added(ckpt->files, CONFIG, MFS_HF_CONFIG_MAX, &bytes, &len, b->err);

	if (rc == -ENOENT)
		return mfs_fail(b->err, -ENODATA, "%s: " CONFIG " is missing", ckpt->dir);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/" CONFIG, ckpt->dir);
	rc = mfs_hf_args_parse(bytes, len, path, arch, &ckpt->arena, &ckpt->args, &b->model.family,
			       &b->whole, b->err);
	free(bytes);
	return rc;
}

/* The dtype of the tensors counts, not the one that config.json gives. */
static void settle_dtype(struct mfs_ckpt *ckpt)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);

	if (t)
		ckpt->args.params_dtype = mfs_dtype_torch(t->dtype);
}

/* ---- of a vision-language model the language model ---- */

static int check_language(struct builder *b, const struct mfs_prefixes *seen)
{
	const struct mfs_family *f = b->whole;

	if (!(b->ckpt->what & MFS_CKPT_LANGUAGE))
		return mfs_fail(b->err, -ENOTSUP, MFS_PART_REFUSAL, dir_of(b), f->name,
				f->architecture, seen->others, seen->all, b->model.family->name);
	b->ckpt->language = true;
	if (mfs_ckpt_warn(b->ckpt, MFS_PART_NOTE, f->name, seen->others, seen->all))
		return mfs_fail_nomem(b->err);
	return 0;
}

static int read_tensors(struct builder *b)
{
	struct mfs_prefixes seen = {0};
	int rc;

	if (b->whole)
		seen = (struct mfs_prefixes){.table = b->whole->language->hf,
					     .owner = b->whole->name};

	if (!b->whole && b->ckpt->what & MFS_CKPT_LANGUAGE)
		return mfs_fail(b->err, -EINVAL,
				"%s: part=language: its " CONFIG
				" is of a %s, which is no vision-language model",
				dir_of(b), b->model.family->name);
	rc = mfs_hf_tensors_read(b->ckpt, b->whole ? &seen : NULL, &b->hf, b->err);
	return rc || !b->whole ? rc : check_language(b, &seen);
}

static int read_dir(struct builder *b, const char *arch)
{
	int rc = read_args(b, arch);

	if (!rc)
		rc = read_tensors(b);
	if (rc)
		return rc;
	find_root(b);
	rc = mfs_hf_settle_quantised(b->ckpt, &b->hf, b->err);
	if (!rc)
		rc = settle_mtp(b);
	if (!rc)
		rc = settle_tied(b);
	if (rc)
		return rc;
	b->model.features = mfs_features_of(b->args);
	mfs_dims(b->args, (uint64_t)b->args->padded_vocab_size, b->dims);
	rc = settle_fused(b);
	if (!rc)
		rc = add_rows(b);
	if (!rc)
		rc = check_leftovers(b);
	if (!rc)
		rc = mfs_ckpt_group(b->ckpt, b->err);
	if (rc)
		return rc;
	settle_dtype(b->ckpt);
	b->ckpt->layout = (struct mfs_ckpt_layout){.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	return 0;
}

const struct mfs_ckpt_format mfs_ckpt_format_hf = {
	.name = "hf", .title = "HuggingFace", .is_hf = true};

int mfs_hf_ckpt_open(const char *dir, const char *arch, unsigned what, struct mfs_ckpt **ret,
		     struct mfs_error *err)
{
	struct builder b = {.err = err};
	int rc = mfs_ckpt_new(dir, what, &mfs_ckpt_format_hf, &b.ckpt, err);

	if (rc)
		return rc;
	b.args = mfs_ckpt_args(b.ckpt);
	b.model.ckpt = b.ckpt;
	rc = read_dir(&b, arch);
	mfs_hf_tensors_release(&b.hf);
	return mfs_ckpt_end(b.ckpt, rc, ret);
}

bool mfs_hf_ckpt_is_untied(const struct mfs_ckpt *ckpt)
{
	return ckpt->untied;
}
