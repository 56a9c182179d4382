/*
 * 8-bit floats are what DeepSeek's and Qwen's own have them for: the matrices of attention, of MLPs
 * and of experts. Embedding, head, routers, norms and biases stay.
 */
#include "fs/view/hf_fp8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/str.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/model/hf_config.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"

struct mfs_hf_fp8 {
	struct mfs_fp8_target *targets; /* a matrix and its scales, in turn */
	struct mfs_fp8_scales *scales;
	uint32_t count; /* of matrices */
};

static bool is_matrix(const struct mfs_family_tensor *row)
{
	return row->shape[1] != MFS_DIM_NONE && !row->transposed && strstr(row->name, ".linear_") &&
	       mfs_str_ends(row->name, ".weight") && mfs_str_ends(row->hf, ".weight");
}

static bool is_quantised(const struct mfs_hf_target *t)
{
	return t->base.ndim == 2 && is_matrix(t->row);
}

int mfs_hf_fp8_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			struct mfs_error *err)
{
	const struct mfs_family_tensor *row = family->tensors;

	if (mfs_ckpt_args(ckpt)->hf_fp8_block[0])
		return mfs_fail(err, -ENOTSUP,
				"%s: its weights are float8_e4m3fn already, in blocks of their own",
				mfs_ckpt_dir(ckpt));
	while (row->hf && !is_matrix(row))
		row++;
	if (row->hf)
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: no weights of a %s are shown as float8_e4m3fn",
			mfs_ckpt_dir(ckpt), family->name);
}

static int add(const struct mfs_hf_target *t, const struct mfs_hf_fp8_form *form,
	       struct mfs_hf_weights *w, struct mfs_hf_fp8 *fp8, struct mfs_error *err)
{
	struct mfs_fp8_target *pair = &fp8->targets[2 * (size_t)fp8->count];
	int rc;

	if (!is_quantised(t))
		return mfs_hf_weights_add(w, &t->base, t->unit, err);
	rc = mfs_fp8_targets_init(&pair[0], &pair[1], &fp8->scales[fp8->count++], &t->base,
				  form->block[0], form->block[1], form->suffix, err);
	if (!rc)
		rc = mfs_hf_weights_add(w, &pair[0].base, t->unit, err);
	return rc ? rc : mfs_hf_weights_add(w, &pair[1].base, t->unit, err);
}

int mfs_hf_fp8_list(const struct mfs_model *m, const struct mfs_hf_fp8_form *form,
		    struct mfs_hf_weights *w, struct mfs_hf_fp8 **ret, struct mfs_error *err)
{
	struct mfs_hf_fp8 *fp8 = calloc(1, sizeof(*fp8));
	size_t count = 0;
	int rc = mfs_hf_fp8_possible(m->ckpt, m->family, err);

	for (uint32_t i = 0; i < m->target_count; i++)
		count += is_quantised(&m->targets[i]);
	if (fp8) {
		fp8->targets = calloc(count + 1, 2 * sizeof(*fp8->targets));
		fp8->scales = calloc(count + 1, sizeof(*fp8->scales));
	}
	if (!rc && (!fp8 || !fp8->targets || !fp8->scales))
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; i < m->target_count && !rc; i++)
		rc = add(&m->targets[i], form, w, fp8, err);
	*ret = fp8;
	return rc;
}

void mfs_hf_fp8_free(struct mfs_hf_fp8 *fp8)
{
	if (!fp8)
		return;
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

int mfs_hf_fp8_config(const struct mfs_model *m, const struct mfs_hf_fp8_form *form, char **config,
		      size_t *len, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	const char **kept = mfs_arena_array(&arena, m->target_count, sizeof(*kept));
	uint32_t count = 0;
	int rc = kept ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_hf_target *t = &m->targets[i];

		if (t->base.ndim != 2 || is_quantised(t) || !mfs_str_ends(t->row->hf, ".weight"))
			continue;
		kept[count] = module_of(t, &arena);
		if (!kept[count++])
			rc = mfs_fail_nomem(err);
	}
	if (!rc)
		rc = mfs_hf_config_set_fp8(config, len, form->block[0] ? form->block : NULL, kept,
					   count, err);
	mfs_arena_release(&arena);
	return rc;
}
