/*
 * The HF views of a checkpoint: the model as it is, with its elements cast, and in torch.save's
 * files. If any part of the model cannot be shown, it fails with -ENOTSUP or
 * -ENODATA and names the tensor or argument: a view never shows a part of a model.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/arena.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_config.h"
#include "formats/io/fileset.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/hf.h"
#include "fs/view/kind.h"
#include "fs/view/stacked.h"
#include "fs/view/view.h"
#include "fs/view/weights.h"

/* ---- files ---- */

static int pass_file(struct mfs_hf_builder *b, struct mfs_fileset *set, const char *name)
{
	struct mfs_vfile *f = NULL;
	uint32_t file;
	int rc = mfs_fileset_add(set, name, &file, b->err);

	if (!rc)
		rc = mfs_vfile_new(&f, b->err);
	if (!rc)
		rc = mfs_vfile_add_file(f, set, file, 0, mfs_fileset_size(set, file), b->err);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	return mfs_view_add(&b->view->public, name, f, b->err);
}

/* ---- tokenizer and reference ---- */

static bool is_listed(const char *const *names, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* Whether the person names a tokenizer, and a reference, too. */
static bool is_apart(const struct mfs_hf_builder *b)
{
	return b->ref && b->opt->tokenizer;
}

/* Where another directory gives the tokenizer, the reference gives what says how the model computes
 * and generates: its code, if its config names any, and generation_config.json. */
static int find_apart(struct mfs_hf_builder *b)
{
	const bool code = mfs_hf_ref_has_code(b->ref);
	const char *const *all, **kept;
	uint32_t count;
	int rc = mfs_hf_files(b->ref_dir, code, &b->arena, &all, &count, b->err);

	if (rc)
		return rc;
	kept = mfs_arena_array(&b->arena, count ? count : 1, sizeof(*kept));
	if (!kept)
		return mfs_fail_nomem(b->err);
	b->ref_names = kept;
	for (uint32_t i = 0; i < count; i++)
		if ((mfs_str_ends(all[i], ".py") || !strcmp(all[i], "generation_config.json")) &&
		    !is_listed(b->names, b->name_count, all[i]))
			kept[b->ref_count++] = all[i];
	return mfs_fileset_new(b->ref_dir, &b->view->apart, b->err);
}

/* Finds the reference's files, or those that Megatron saved next to the checkpoint. */
static int find_tokenizer(struct mfs_hf_builder *b)
{
	const bool apart = is_apart(b);
	uint32_t config;
	struct stat st;
	int rc;

	rc = mfs_vocab_tokenizer(b->ckpt, b->opt->tokenizer ? b->opt->tokenizer : b->ref_dir,
				 &b->tokenizer, b->err);
	if (rc)
		return rc;
	rc = mfs_hf_files(b->tokenizer, b->ref && !apart && mfs_hf_ref_has_code(b->ref), &b->arena,
			  &b->names, &b->name_count, b->err);
	if (!rc && apart)
		rc = find_apart(b);
	if (rc || stat(b->tokenizer, &st))
		return rc;
	rc = mfs_fileset_new(b->tokenizer, &b->view->passed, b->err);
	/* Its config.json goes into the view's, so its permissions are looked at with the
	 * others. */
	if (!rc && b->ref)
		rc = mfs_fileset_add(apart ? b->view->apart : b->view->passed, "config.json",
				     &config, b->err);
	return rc;
}

static bool is_passed(const struct mfs_hf_builder *b, const char *name)
{
	return is_listed(b->names, b->name_count, name) ||
	       is_listed(b->ref_names, b->ref_count, name);
}

/* True if an HF directory is shown without another reference. Its own config.json is then shown; it
 * changes only if the weights show that the head is not tied. */
static bool shows_itself(const struct mfs_hf_builder *b)
{
	return mfs_hf_ref_is_source(b->ref_dir, b->ckpt);
}

/* Its weights are not shown as they are. */
static bool is_dequantised(const struct mfs_hf_builder *b)
{
	const struct mfs_megatron_args *args = mfs_ckpt_args(b->ckpt);

	return shows_itself(b) && (args->hf_fp8_block[0] || args->hf_mxfp4);
}

static bool is_untied(const struct mfs_hf_builder *b)
{
	return shows_itself(b) && mfs_hf_ckpt_is_untied(b->ckpt);
}

static int open_ref(struct mfs_hf_builder *b, struct mfs_hf_ref **ret)
{
	int rc = mfs_hf_ref_open(b->ref_dir, ret, b->err);

	if (rc)
		return rc;
	if (is_untied(b))
		return mfs_hf_ref_set_tied(*ret, false, b->err);
	/* Versions of vision-language classes differ in it. The weights decide. */
	if (mfs_ckpt_is_language(b->ckpt) && mfs_hf_ref_is_of(b->ref_dir, b->ckpt))
		return mfs_hf_ref_set_tied(*ret, mfs_ckpt_args(b->ckpt)->tied, b->err);
	return 0;
}

/* Checks the arguments, and that ref exists. */
int mfs_hf_possible(const struct mfs_view_origin *s, const struct mfs_hf_flavour *flavour,
		    struct mfs_error *err)
{
	const struct mfs_hf_builder b = {
		.ckpt = s->ckpt, .opt = s->options, .ref_dir = mfs_view_ref(s->ckpt, s->options)};
	const struct mfs_family *family;
	struct mfs_hf_ref *ref = NULL;
	int rc = mfs_family_choose(mfs_ckpt_args(s->ckpt), s->options->arch, &family, err);

	if (!rc && flavour->possible)
		rc = flavour->possible(s->ckpt, family, err);
	if (!rc && flavour->stacks && s->options->stack_experts)
		rc = mfs_stacked_possible(s->ckpt, family, err);
	if (!rc && b.ref_dir && !shows_itself(&b))
		rc = mfs_hf_ref_open(b.ref_dir, &ref, err);
	mfs_hf_ref_free(ref);
	return rc;
}

static int build_model(struct mfs_hf_builder *b)
{
	struct mfs_vocab_given given = {.size = b->opt->vocab_size};
	struct mfs_vocab vocab;
	int rc = 0;

	if (b->ref_dir && (!shows_itself(b) || b->opt->vocab_size))
		rc = open_ref(b, &b->ref);
	if (!rc)
		rc = find_tokenizer(b);
	given.ref = b->ref;
	given.tokenizer = b->tokenizer;
	given.by_tokenizer = b->opt->tokenizer != NULL;
	if (!rc)
		rc = mfs_vocab_decide(b->ckpt, &given, &vocab, b->err);
	if (!rc)
		rc = mfs_model_new(b->ckpt, b->opt->arch, &vocab, &b->view->public.model, b->err);
	return rc;
}

/* ---- what the directory holds ---- */

/* Takes config over. */
static int add_config_text(struct mfs_hf_builder *b, char *config, size_t len)
{
	const enum mfs_dtype dtype = b->flavour->dtype	 ? b->flavour->dtype
				     : is_dequantised(b) ? b->view->public.model->dtype
							 : MFS_DTYPE_NONE;
	int rc = dtype ? mfs_hf_config_set_dtype(&config, &len, dtype, b->err) : 0;

	if (!rc && b->flavour->config)
		rc = b->flavour->config(b, &config, &len);
	if (rc) {
		free(config);
		return rc;
	}
	return mfs_view_add_bytes(&b->view->public, "config.json", config, len, b->err);
}

/* The directory's own, as text. The caller frees *ret. */
static int own_config(struct mfs_hf_builder *b, char **ret, size_t *ret_len)
{
	struct mfs_hf_ref *own = NULL;
	int rc = open_ref(b, &own);

	if (rc)
		return rc;
	/* The file may have changed since the checkpoint was opened. */
	mfs_view_note_read(&b->view->public, mfs_hf_ref_access(own));
	rc = mfs_hf_ref_json(own, ret, ret_len, b->err);
	mfs_hf_ref_free(own);
	return rc;
}

/* Written for the model. The caller frees *ret. */
static int new_config(struct mfs_hf_builder *b, char **ret, size_t *ret_len)
{
	struct mfs_hf_tokens tokens;
	int rc = mfs_hf_tokens_read(b->tokenizer, &tokens, b->err);

	return rc ? rc
		  : mfs_hf_config_json(b->view->public.model, b->ref, &tokens, ret, ret_len,
				       b->err);
}

static bool keeps_config(const struct mfs_hf_builder *b)
{
	return shows_itself(b) && !b->opt->vocab_size;
}

int mfs_hf_config_text(struct mfs_hf_builder *b, char **ret, size_t *ret_len)
{
	return keeps_config(b) ? own_config(b, ret, ret_len) : new_config(b, ret, ret_len);
}

static int add_own_config(struct mfs_hf_builder *b)
{
	char *config;
	size_t len;
	int rc;

	if (!is_untied(b) && !is_dequantised(b) && !b->flavour->dtype && !b->flavour->config)
		return pass_file(b, b->view->passed, "config.json");
	rc = own_config(b, &config, &len);
	return rc ? rc : add_config_text(b, config, len);
}

static int add_config(struct mfs_hf_builder *b)
{
	char *config, *generation;
	size_t len, generation_len;
	int rc;

	if (keeps_config(b))
		return add_own_config(b);
	rc = new_config(b, &config, &len);
	if (rc)
		return rc;
	if (!is_passed(b, "generation_config.json")) {
		rc = mfs_hf_generation_json(config, len, &generation, &generation_len, b->err);
		if (!rc)
			rc = mfs_view_add_bytes(&b->view->public, "generation_config.json",
						generation, generation_len, b->err);
	}
	if (rc) {
		free(config);
		return rc;
	}
	return add_config_text(b, config, len);
}

/* Files that make a reader look for images in addition to text. */
static bool is_of_images(const char *name)
{
	return !strcmp(name, "preprocessor_config.json") ||
	       !strcmp(name, "processor_config.json") ||
	       !strcmp(name, "video_preprocessor_config.json");
}

static int add_passed(struct mfs_hf_builder *b)
{
	const bool language = mfs_ckpt_is_language(b->ckpt);
	int rc = 0;

	for (uint32_t i = 0; i < b->name_count && !rc; i++)
		if (!language || !is_of_images(b->names[i]))
			rc = pass_file(b, b->view->passed, b->names[i]);
	for (uint32_t i = 0; i < b->ref_count && !rc; i++)
		rc = pass_file(b, b->view->apart, b->ref_names[i]);
	return rc;
}

/* ---- weights ---- */

/* A buffer keeps its type: DeepSeek's e_score_correction_bias is float32 in models of any type. */
static bool stays(const struct mfs_hf_target *t, enum mfs_dtype dtype)
{
	return t->base.dtype == dtype || !mfs_name_is_parameter(t->src->name, MFS_F32);
}

int mfs_hf_warn_of_infinity(struct mfs_hf_builder *b)
{
	struct mfs_model *m = b->view->public.model;

	if (b->flavour->dtype != MFS_F16 || m->dtype == MFS_F16)
		return 0;
	b->view->public.own_warnings++;
	return mfs_model_warn(m,
			      "float16 ends at 65504: weights of %s beyond it are shown as "
			      "infinity, as torch casts them",
			      mfs_dtype_torch(m->dtype))
		       ? mfs_fail_nomem(b->err)
		       : 0;
}

/* The model's tensors, or with stacks in the place of experts. */
static int list_shown(struct mfs_hf_builder *b, struct mfs_stacked **ret, uint32_t *ret_count)
{
	struct mfs_model *m = b->view->public.model;
	struct mfs_stacked *list;

	if (b->opt->stack_experts)
		return mfs_stacked_list(m, &m->arena, ret, ret_count, b->err);
	list = mfs_arena_array(&b->arena, m->target_count + 1u, sizeof(*list));
	if (!list)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < m->target_count; i++)
		list[i] = (struct mfs_stacked){&m->targets[i].base, &m->targets[i]};
	*ret = list;
	*ret_count = m->target_count;
	return 0;
}

static int list_casts(struct mfs_hf_builder *b, const struct mfs_stacked *shown, uint32_t count,
		      struct mfs_hf_weights *w)
{
	const enum mfs_dtype dtype = b->flavour->dtype;
	struct mfs_cast_target *casts = calloc(count + 1u, sizeof(*casts));
	int rc = 0;

	b->view->made = casts;
	if (!casts)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_target *t = shown[i].target;
		struct mfs_cast_target *cast = &casts[i];
		const bool as_is = stays(shown[i].like, dtype);

		b->view->public.cast |= !as_is;
		rc = as_is ? 0 : mfs_cast_target_init(cast, t, dtype, b->err);
		if (!rc)
			rc = mfs_hf_weights_add(w, as_is ? t : &cast->base, shown[i].like->unit,
						b->err);
	}
	return rc ? rc : mfs_hf_warn_of_infinity(b);
}

static int list_as_they_are(const struct mfs_hf_builder *b, const struct mfs_stacked *shown,
			    uint32_t count, struct mfs_hf_weights *w)
{
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++)
		rc = mfs_hf_weights_add(w, shown[i].target, shown[i].like->unit, b->err);
	return rc;
}

int mfs_hf_add_weights(struct mfs_hf_builder *b, const struct mfs_hf_weights *w)
{
	return mfs_view_add_weights(&b->view->public, w, b->flavour->container, b->opt, b->err);
}

static int add_weights(struct mfs_hf_builder *b)
{
	struct mfs_hf_weights w = {0};
	struct mfs_stacked *shown;
	uint32_t count;
	int rc = list_shown(b, &shown, &count);

	if (!rc)
		rc = b->flavour->dtype ? list_casts(b, shown, count, &w)
				       : list_as_they_are(b, shown, count, &w);
	if (!rc)
		rc = mfs_hf_add_weights(b, &w);
	mfs_hf_weights_release(&w);
	return rc;
}

static int add_directory(struct mfs_hf_builder *b)
{
	int rc = add_config(b);

	if (!rc)
		rc = add_passed(b);
	return rc ? rc : b->flavour->weights(b);
}

static int build(struct mfs_hf_builder *b)
{
	struct mfs_view *v = &b->view->public;
	int rc = build_model(b);

	if (!rc)
		rc = b->flavour->emit ? b->flavour->emit(b) : add_directory(b);
	if (rc)
		return rc;
	v->ckpt = b->ckpt;
	mfs_view_note_ckpt(v, b->ckpt);
	mfs_view_note_sources(v, b->view->passed);
	mfs_view_note_sources(v, b->view->apart);
	if (b->ref)
		mfs_view_note_read(v, mfs_hf_ref_access(b->ref));
	return mfs_view_finish(v, b->err);
}

static void release(struct mfs_view *view)
{
	struct mfs_hf_view *v = (struct mfs_hf_view *)view;

	mfs_model_free(view->model);
	mfs_fileset_free(v->passed);
	mfs_fileset_free(v->apart);
	if (v->made)
		v->flavour->release(v->made);
	free(v);
}

int mfs_hf_open(const struct mfs_view_origin *s, const struct mfs_hf_flavour *flavour,
		const char *spec, struct mfs_view **ret, struct mfs_error *err)
{
	struct mfs_hf_builder b = {
		.flavour = flavour, .spec = spec, .ckpt = s->ckpt, .opt = s->options, .err = err};
	int rc;

	b.ref_dir = mfs_view_ref(s->ckpt, s->options);

	b.view = calloc(1, sizeof(*b.view));
	if (b.view) {
		b.view->public.release = release;
		b.view->flavour = flavour;
	}
	rc = b.view ? build(&b) : mfs_fail_nomem(err);
	mfs_hf_ref_free(b.ref);
	free(b.tokenizer);
	mfs_arena_release(&b.arena);
	if (rc) {
		mfs_view_free(b.view ? &b.view->public : NULL);
		return rc;
	}
	*ret = &b.view->public;
	return 0;
}

/* ---- rows of the table ---- */

MFS_HF_VIEW(hf, "hf", false, "a HuggingFace model", .container = &mfs_hf_safetensors,
	    .weights = add_weights, .stacks = true)
MFS_HF_VIEW(hf_bf16, "hf-bf16", false, "the same, cast to bfloat16 when it is read",
	    .dtype = MFS_BF16, .container = &mfs_hf_safetensors, .weights = add_weights,
	    .stacks = true, .release = free)
MFS_HF_VIEW(hf_fp16, "hf-fp16", false, "the same, cast to float16", .dtype = MFS_F16,
	    .container = &mfs_hf_safetensors, .weights = add_weights, .stacks = true,
	    .release = free)
MFS_HF_VIEW(hf_fp32, "hf-fp32", false, "the same, cast to float32", .dtype = MFS_F32,
	    .container = &mfs_hf_safetensors, .weights = add_weights, .stacks = true,
	    .release = free)
MFS_HF_VIEW(hf_bin, "hf-bin", false, "the same as pytorch_model.bin, for torch.load",
	    .container = &mfs_hf_bin, .weights = add_weights, .stacks = true)
