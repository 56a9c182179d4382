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
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_config.h"
#include "formats/io/fileset.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/features.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/hf_fp8.h"
#include "fs/view/hf_gguf.h"
#include "fs/view/hf_vllm.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"
#include "fs/view/weights.h"

/* What tells HF views apart. */
struct flavour {
	enum mfs_dtype dtype; /* elements are cast to it; MFS_DTYPE_NONE: they are not */
	const struct mfs_hf_container *container;
	const struct mfs_hf_fp8_form *fp8; /* NULL: none of them is an 8-bit float */
	bool gguf;			   /* one file, with config and tokenizer in it */
};

/* The view and what its files are made of. */
struct hf_view {
	struct mfs_view public;
	struct mfs_fileset *passed; /* files shown unchanged: of tokenizer/ or the reference */
	struct mfs_cast_target *casts;
	struct mfs_hf_fp8 *fp8;
	struct mfs_hf_vllm *vllm;
	struct mfs_hf_gguf *gguf;
};

struct builder {
	const struct flavour *flavour;
	uint32_t tp; /* workers of vLLM, each with its own files; 0: a reader reads all */
	struct mfs_ckpt *ckpt;
	const struct mfs_view_options *opt;
	struct hf_view *view;
	const char *ref_dir;	/* the reference's directory, or NULL */
	struct mfs_hf_ref *ref; /* or NULL */
	/* directory of the tokenizer: the reference, or tokenizer/ of the checkpoint */
	char *tokenizer;
	const char *const *names; /* files passed through from there */
	uint32_t name_count;
	struct mfs_arena arena;
	struct mfs_error *err;
};

/* ---- files ---- */

static int pass_file(struct builder *b, const char *name)
{
	struct mfs_fileset *set = b->view->passed;
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

/* Finds the reference's files, or those that Megatron saved next to the checkpoint. */
static int find_tokenizer(struct builder *b)
{
	uint32_t config;
	struct stat st;
	int rc;

	rc = mfs_vocab_tokenizer(b->ckpt, b->opt->tokenizer ? b->opt->tokenizer : b->ref_dir,
				 &b->tokenizer, b->err);
	if (rc)
		return rc;
	rc = mfs_hf_files(b->tokenizer, b->ref && mfs_hf_ref_has_code(b->ref), &b->arena, &b->names,
			  &b->name_count, b->err);
	if (rc || stat(b->tokenizer, &st))
		return rc;
	rc = mfs_fileset_new(b->tokenizer, &b->view->passed, b->err);
	/* Its config.json goes into the view's, so its permissions are looked at with the
	 * others. */
	if (!rc && b->ref)
		rc = mfs_fileset_add(b->view->passed, "config.json", &config, b->err);
	return rc;
}

static bool is_passed(const struct builder *b, const char *name)
{
	for (uint32_t i = 0; i < b->name_count; i++)
		if (!strcmp(b->names[i], name))
			return true;
	return false;
}

/* True if an HF directory is shown without another reference. Its own config.json is then shown; it
 * changes only if the weights show that the head is not tied. */
static bool shows_itself(const struct builder *b)
{
	return mfs_hf_ref_is_source(b->ref_dir, b->ckpt);
}

/* Its weights are not shown as they are. */
static bool is_dequantised(const struct builder *b)
{
	const struct mfs_megatron_args *args = mfs_ckpt_args(b->ckpt);

	return shows_itself(b) && (args->hf_fp8_block[0] || args->hf_mxfp4);
}

static bool is_untied(const struct builder *b)
{
	return shows_itself(b) && mfs_hf_ckpt_is_untied(b->ckpt);
}

static int open_ref(struct builder *b, struct mfs_hf_ref **ret)
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
static int possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	const struct builder b = {
		.ckpt = s->ckpt, .opt = s->options, .ref_dir = mfs_view_ref(s->ckpt, s->options)};
	const struct mfs_family *family;
	struct mfs_hf_ref *ref = NULL;
	int rc = mfs_family_choose(mfs_ckpt_args(s->ckpt), s->options->arch, &family, err);

	if (!rc && b.ref_dir && !shows_itself(&b))
		rc = mfs_hf_ref_open(b.ref_dir, &ref, err);
	mfs_hf_ref_free(ref);
	return rc;
}

static int possible_fp8(const struct mfs_view_origin *s, struct mfs_error *err)
{
	const struct mfs_family *family;
	int rc = mfs_family_choose(mfs_ckpt_args(s->ckpt), s->options->arch, &family, err);

	if (!rc)
		rc = mfs_hf_fp8_possible(s->ckpt, family, err);
	return rc ? rc : possible(s, err);
}

static int possible_vllm(const struct mfs_view_origin *s, struct mfs_error *err)
{
	const struct mfs_family *family;
	int rc = mfs_family_choose(mfs_ckpt_args(s->ckpt), s->options->arch, &family, err);

	if (!rc)
		rc = mfs_hf_vllm_possible(s->ckpt, family, err);
	return rc ? rc : possible(s, err);
}

static int possible_gguf(const struct mfs_view_origin *s, struct mfs_error *err)
{
	const struct mfs_family *family;
	int rc = mfs_family_choose(mfs_ckpt_args(s->ckpt), s->options->arch, &family, err);

	if (!rc)
		rc = mfs_hf_gguf_possible(s->ckpt, family, err);
	return rc ? rc : possible(s, err);
}

static int build_model(struct builder *b)
{
	struct mfs_vocab_said said = {.size = b->opt->vocab_size};
	struct mfs_vocab vocab;
	int rc = 0;

	if (b->ref_dir && (!shows_itself(b) || b->opt->vocab_size))
		rc = open_ref(b, &b->ref);
	if (!rc)
		rc = find_tokenizer(b);
	said.ref = b->ref;
	said.tokenizer = b->tokenizer;
	said.by_tokenizer = b->opt->tokenizer != NULL;
	if (!rc)
		rc = mfs_vocab_decide(b->ckpt, &said, &vocab, b->err);
	if (!rc)
		rc = mfs_model_new(b->ckpt, b->opt->arch, &vocab, &b->view->public.model, b->err);
	return rc;
}

/* ---- what the directory holds ---- */

/* Takes config over. */
static int add_config_text(struct builder *b, char *config, size_t len)
{
	const enum mfs_dtype dtype = b->flavour->dtype	 ? b->flavour->dtype
				     : is_dequantised(b) ? b->view->public.model->dtype
							 : MFS_DTYPE_NONE;
	int rc = dtype ? mfs_hf_config_set_dtype(&config, &len, dtype, b->err) : 0;

	if (!rc && b->flavour->fp8)
		rc = mfs_hf_fp8_config(b->view->public.model, b->flavour->fp8, &config, &len,
				       b->err);
	if (rc) {
		free(config);
		return rc;
	}
	return mfs_view_add_bytes(&b->view->public, "config.json", config, len, b->err);
}

/* The directory's own, as text. The caller frees *ret. */
static int own_config(struct builder *b, char **ret, size_t *ret_len)
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
static int new_config(struct builder *b, char **ret, size_t *ret_len)
{
	struct mfs_hf_tokens tokens;
	int rc = mfs_hf_tokens_read(b->tokenizer, &tokens, b->err);

	return rc ? rc
		  : mfs_hf_config_json(b->view->public.model, b->ref, &tokens, ret, ret_len,
				       b->err);
}

static bool keeps_config(const struct builder *b)
{
	return shows_itself(b) && !b->opt->vocab_size;
}

static int add_own_config(struct builder *b)
{
	char *config;
	size_t len;
	int rc;

	if (!is_untied(b) && !is_dequantised(b) && !b->flavour->dtype && !b->flavour->fp8)
		return pass_file(b, "config.json");
	rc = own_config(b, &config, &len);
	return rc ? rc : add_config_text(b, config, len);
}

static int add_config(struct builder *b)
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

static int add_passed(struct builder *b)
{
	const bool language = mfs_ckpt_is_language(b->ckpt);
	int rc = 0;

	for (uint32_t i = 0; i < b->name_count && !rc; i++)
		if (!language || !is_of_images(b->names[i]))
			rc = pass_file(b, b->names[i]);
	return rc;
}

/* ---- weights ---- */

/* A buffer keeps its type: DeepSeek's e_score_correction_bias is float32 in models of any type. */
static bool stays(const struct mfs_hf_target *t, enum mfs_dtype dtype)
{
	return t->base.dtype == dtype || !mfs_name_is_parameter(t->src->name, MFS_F32);
}

static int warn_of_infinity(struct builder *b)
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

static int list_casts(struct builder *b, struct mfs_hf_weights *w)
{
	const struct mfs_model *m = b->view->public.model;
	const enum mfs_dtype dtype = b->flavour->dtype;
	int rc = 0;

	b->view->casts = calloc(m->target_count + 1u, sizeof(*b->view->casts));
	if (!b->view->casts)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_hf_target *t = &m->targets[i];
		struct mfs_cast_target *cast = &b->view->casts[i];
		const bool as_is = stays(t, dtype);

		b->view->public.cast |= !as_is;
		rc = as_is ? 0 : mfs_cast_target_init(cast, &t->base, dtype, b->err);
		if (!rc)
			rc = mfs_hf_weights_add(w, as_is ? &t->base : &cast->base, t->unit, b->err);
	}
	return rc ? rc : warn_of_infinity(b);
}

static int add_weights(struct builder *b)
{
	struct mfs_hf_weights w = {0};
	int rc;

	if (b->tp)
		return mfs_hf_vllm_add(&b->view->public, b->view->public.model, b->tp,
				       &b->view->vllm, b->err);
	if (b->flavour->fp8)
		rc = mfs_hf_fp8_list(b->view->public.model, b->flavour->fp8, &w, &b->view->fp8,
				     b->err);
	else if (b->flavour->dtype)
		rc = list_casts(b, &w);
	else
		rc = mfs_hf_weights_add_model(&w, b->view->public.model, b->err);
	b->view->public.cast |= b->flavour->fp8 != NULL;
	if (!rc)
		rc = mfs_view_add_weights(&b->view->public, &w, b->flavour->container, b->opt,
					  b->err);
	mfs_hf_weights_release(&w);
	return rc;
}

static int add_directory(struct builder *b)
{
	int rc = add_config(b);

	if (!rc)
		rc = add_passed(b);
	return rc ? rc : add_weights(b);
}

static int add_gguf(struct builder *b)
{
	struct mfs_view *v = &b->view->public;
	uint32_t before;
	char *config;
	size_t len;
	int rc = keeps_config(b) ? own_config(b, &config, &len) : new_config(b, &config, &len);

	if (rc)
		return rc;
	before = v->model->warning_count;
	rc = mfs_hf_gguf_add(v, v->model, b->flavour->dtype, config, len, b->view->passed,
			     &b->view->gguf, b->err);
	free(config);
	v->own_warnings = v->model->warning_count - before;
	return rc ? rc : warn_of_infinity(b);
}

static int build(struct builder *b)
{
	struct mfs_view *v = &b->view->public;
	int rc = build_model(b);

	if (!rc)
		rc = b->flavour->gguf ? add_gguf(b) : add_directory(b);
	if (rc)
		return rc;
	v->ckpt = b->ckpt;
	mfs_view_note_ckpt(v, b->ckpt);
	mfs_view_note_sources(v, b->view->passed);
	if (b->ref)
		mfs_view_note_read(v, mfs_hf_ref_access(b->ref));
	return mfs_view_finish(v, b->err);
}

static void release(struct mfs_view *view)
{
	struct hf_view *v = (struct hf_view *)view;

	mfs_model_free(view->model);
	mfs_fileset_free(v->passed);
	free(v->casts);
	mfs_hf_fp8_free(v->fp8);
	mfs_hf_vllm_free(v->vllm);
	mfs_hf_gguf_free(v->gguf);
	free(v);
}

static int open_view(const struct mfs_view_origin *s, const struct flavour *flavour, uint32_t tp,
		     struct mfs_view **ret, struct mfs_error *err)
{
	struct builder b = {
		.flavour = flavour, .tp = tp, .ckpt = s->ckpt, .opt = s->options, .err = err};
	int rc;

	b.ref_dir = mfs_view_ref(s->ckpt, s->options);

	b.view = calloc(1, sizeof(*b.view));
	if (b.view)
		b.view->public.release = release;
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

#define HF_VIEW(NAME, PATH, HELP, POSSIBLE, ...)                                                   \
	static int open_##NAME(const struct mfs_view_origin *s, const char *spec,                  \
			       struct mfs_view **ret, struct mfs_error *err)                       \
	{                                                                                          \
		static const struct flavour flavour = {__VA_ARGS__};                               \
                                                                                                   \
		(void)spec;                                                                        \
		return open_view(s, &flavour, 0, ret, err);                                        \
	}                                                                                          \
                                                                                                   \
	const struct mfs_view_kind mfs_view_kind_##NAME = {                                        \
		.name = PATH,                                                                      \
		.help = HELP,                                                                      \
		.of = MFS_VIEW_OF_MODEL,                                                           \
		.is_extra = (POSSIBLE) != possible,                                                \
		.possible = POSSIBLE,                                                              \
		.open = open_##NAME,                                                               \
	};

static const struct mfs_hf_fp8_form blocks = {{128, 128}, "_scale_inv"};
static const struct mfs_hf_fp8_form whole = {{0, 0}, "_scale"};

HF_VIEW(hf, "hf", "a HuggingFace model", possible, .container = &mfs_hf_safetensors)
HF_VIEW(hf_bf16, "hf-bf16", "the same, cast to bfloat16 when it is read", possible,
	.dtype = MFS_BF16, .container = &mfs_hf_safetensors)
HF_VIEW(hf_fp16, "hf-fp16", "the same, cast to float16", possible, .dtype = MFS_F16,
	.container = &mfs_hf_safetensors)
HF_VIEW(hf_fp32, "hf-fp32", "the same, cast to float32", possible, .dtype = MFS_F32,
	.container = &mfs_hf_safetensors)
HF_VIEW(hf_fp8, "hf-fp8", "the same as float8_e4m3fn, in DeepSeek's blocks of 128 x 128",
	possible_fp8, .container = &mfs_hf_safetensors, .fp8 = &blocks)
HF_VIEW(hf_fp8_tensor, "hf-fp8-tensor", "the same with one scale for each matrix", possible_fp8,
	.container = &mfs_hf_safetensors, .fp8 = &whole)
HF_VIEW(hf_bin, "hf-bin", "the same as pytorch_model.bin, for torch.load", possible,
	.container = &mfs_hf_bin)
HF_VIEW(gguf, "gguf", "the same as one file for llama.cpp, its weights cast to bfloat16",
	possible_gguf, .dtype = MFS_BF16, .gguf = true)
HF_VIEW(gguf_f16, "gguf-f16", "the same, cast to float16", possible_gguf, .dtype = MFS_F16,
	.gguf = true)

/* ---- vLLM's workers ---- */

static int check_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err)
{
	uint32_t tp;

	return mfs_hf_vllm_parse(s->ckpt, spec, &tp, err);
}

#define MAX_LISTED 4 /* powers of two */

static int list_vllm(const struct mfs_view_origin *s, struct mfs_arena *arena,
		     const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, MAX_LISTED, sizeof(*names));

	*ret_count = 0;
	for (unsigned i = 0; i < MAX_LISTED && names; i++) {
		char *name = mfs_arena_printf(arena, "tp%u", 1u << i);

		if (!name)
			return mfs_fail_nomem(err);
		if (!check_vllm(s, name, NULL))
			names[(*ret_count)++] = name;
	}
	*ret = names;
	return names ? 0 : mfs_fail_nomem(err);
}

static int open_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	static const struct flavour flavour = {.container = &mfs_hf_safetensors};
	uint32_t tp;
	int rc = possible_vllm(s, err);

	if (!rc)
		rc = mfs_hf_vllm_parse(s->ckpt, spec, &tp, err);
	return rc ? rc : open_view(s, &flavour, tp, ret, err);
}

const struct mfs_view_kind mfs_view_kind_vllm = {
	.name = "vllm",
	.spec = "tp2",
	.help = "the same as vLLM's workers hold it (sharded_state)",
	.of = MFS_VIEW_OF_MODEL,
	.is_extra = true,
	.possible = possible_vllm,
	.check = check_vllm,
	.list = list_vllm,
	.open = open_vllm,
};
