/*
 * 8-bit floats are what DeepSeek's and Qwen's own have them for: the matrices of attention, of MLPs
 * and of experts. Embedding, head, routers, norms and biases stay.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/str.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/model/hf_config.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"
#include "fs/view/hf.h"
#include "fs/view/hf_fp8.h"

struct fp8 {
	struct mfs_fp8_target *targets; /* a matrix and its scales, in turn */
	struct mfs_fp8_scales *scales;
	uint32_t count; /* of matrices */
};

static bool is_matrix(const struct mfs_family_tensor *row)
{
	return row->shape[1] != MFS_DIM_NONE && !row->transposed && strstr(row->name, ".linear_") &&
	       mfs_str_ends(row->name, ".weight") && mfs_str_ends(row->hf, ".weight");
}

bool mfs_fp8_is_shown(const struct mfs_hf_target *t)
{
	return t->base.ndim == 2 && is_matrix(t->row);
}

/* Its matrices are of 8-bit floats already: other ones of these would not be the same again. */
static bool has_fp8(const struct mfs_ckpt *ckpt)
{
	const uint32_t count = mfs_ckpt_args(ckpt)->hf_mxfp4 ? 0 : mfs_ckpt_count(ckpt);

	for (uint32_t i = 0; i < count; i++)
		if (mfs_ckpt_at(ckpt, i)->quantised)
			return true;
	return false;
}

int mfs_fp8_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		     struct mfs_error *err)
{
	const struct mfs_family_tensor *row = family->tensors;

	if (mfs_ckpt_args(ckpt)->hf_fp8_block[0] || has_fp8(ckpt))
		return mfs_fail(err, -ENOTSUP,
				"%s: its weights are float8_e4m3fn already, with scales of their "
				"own",
				mfs_ckpt_dir(ckpt));
	while (row->hf && !is_matrix(row))
		row++;
	if (row->hf)
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: no weights of a %s are shown as float8_e4m3fn",
			mfs_ckpt_dir(ckpt), family->name);
}

static int add(const struct mfs_hf_target *t, const struct mfs_fp8_form *form,
	       struct mfs_hf_weights *w, struct fp8 *fp8, struct mfs_error *err)
{
	struct mfs_fp8_target *pair = &fp8->targets[2 * (size_t)fp8->count];
	int rc;

	if (!mfs_fp8_is_shown(t))
		return mfs_hf_weights_add(w, &t->base, t->unit, err);
	rc = mfs_fp8_targets_init(&pair[0], &pair[1], &fp8->scales[fp8->count++], &t->base,
				  form->block[0], form->block[1], form->suffix, err);
	if (!rc)
		rc = mfs_hf_weights_add(w, &pair[0].base, t->unit, err);
	return rc ? rc : mfs_hf_weights_add(w, &pair[1].base, t->unit, err);
}

/* Lists the tensors of a model, some with scales. */
static int list(struct mfs_hf_builder *b, struct mfs_hf_weights *w)
{
	const struct mfs_model *m = b->view->public.model;
	struct fp8 *fp8 = calloc(1, sizeof(*fp8));
	size_t count = 0;
	int rc = mfs_fp8_possible(m->ckpt, m->family, b->err);

	b->view->made = fp8;
	for (uint32_t i = 0; i < m->target_count; i++)
		count += mfs_fp8_is_shown(&m->targets[i]);
	if (fp8) {
		fp8->targets = calloc(count + 1, 2 * sizeof(*fp8->targets));
		fp8->scales = calloc(count + 1, sizeof(*fp8->scales));
	}
	if (!rc && (!fp8 || !fp8->targets || !fp8->scales))
		rc = mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < m->target_count && !rc; i++)
		rc = add(&m->targets[i], b->flavour->form, w, fp8, b->err);
	return rc;
}

static int add_weights(struct mfs_hf_builder *b)
{
	struct mfs_hf_weights w = {0};
	int rc = list(b, &w);

	b->view->public.cast = true;
	if (!rc)
		rc = mfs_hf_add_weights(b, &w);
	mfs_hf_weights_release(&w);
	return rc;
}

static void release(void *made)
{
	struct fp8 *fp8 = made;

	for (uint32_t i = 0; i < fp8->count; i++)
		mfs_fp8_scales_release(&fp8->scales[i]);
	free(fp8->targets);
	free(fp8->scales);
	free(fp8);
}

/* "model.layers.3.mlp.gate" of its weight. NULL: no memory. */
static const char *module_of(const struct mfs_hf_target *t, struct mfs_arena *arena)
{
	char name[MFS_CKPT_NAME_SIZE];
	const size_t len = mfs_target_name(&t->base, name, sizeof(name));

	return mfs_arena_strndup(arena, name, len - strlen(".weight"));
}

int mfs_fp8_set_config(const struct mfs_hf_builder *b, char **config, size_t *len)
{
	const struct mfs_model *m = b->view->public.model;
	const struct mfs_fp8_form *form = b->flavour->form;
	struct mfs_arena arena = {0};
	const char **kept = mfs_arena_array(&arena, m->target_count, sizeof(*kept));
	uint32_t count = 0;
	int rc = kept ? 0 : mfs_fail_nomem(b->err);

	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_hf_target *t = &m->targets[i];

		if (t->base.ndim != 2 || mfs_fp8_is_shown(t) ||
		    !mfs_str_ends(t->row->hf, ".weight"))
			continue;
		kept[count] = module_of(t, &arena);
		if (!kept[count++])
			rc = mfs_fail_nomem(b->err);
	}
	if (!rc)
		rc = mfs_hf_config_set_fp8(config, len, form->block[0] ? form->block : NULL, kept,
					   count, b->err);
	mfs_arena_release(&arena);
	return rc;
}

const struct mfs_fp8_form mfs_fp8_blocks = {{128, 128}, "_scale_inv"};
const struct mfs_fp8_form mfs_fp8_whole = {{0, 0}, "_scale"};

MFS_HF_VIEW(hf_fp8, "hf-fp8", true, "the same as float8_e4m3fn, in DeepSeek's blocks of 128 x 128",
	    .container = &mfs_hf_safetensors, .form = &mfs_fp8_blocks, .possible = mfs_fp8_possible,
	    .weights = add_weights, .config = mfs_fp8_set_config, .release = release)
MFS_HF_VIEW(hf_fp8_tensor, "hf-fp8-tensor", true, "the same with one scale for each matrix",
	    .container = &mfs_hf_safetensors, .form = &mfs_fp8_whole, .possible = mfs_fp8_possible,
	    .weights = add_weights, .config = mfs_fp8_set_config, .release = release)
