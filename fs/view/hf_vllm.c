/*
 * A model as vLLM's workers hold it, for load_format="sharded_state"
 * (vllm/model_executor/model_loader/sharded_state_loader.py). Worker r of N reads
 * "model-rank-r-part-0.safetensors": its part of each parameter.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/hf.h"
#include "fs/view/vllm_parameters.h"

#define FILE_FORMAT "model-rank-%u-part-0.safetensors"

/* What the files point into. */
struct made {
	struct mfs_arena arena;
	struct mfs_vllm_group *groups;
	uint32_t group_count;
};

/* ---- workers ---- */

/* A worker whose file is made. */
struct worker {
	struct made *made;
	const struct mfs_model *model;
	struct mfs_vllm_layout layout;
	uint32_t rank;
	struct mfs_hf_weights weights;
	struct mfs_error *err;
};

/* What each attention registers for an 8-bit cache. */
static const struct {
	const char *name;
	bool minus_one;
} numbers[] = {
	{"_k_scale", false}, {"_v_scale", false}, {"_q_scale", false}, {"_prob_scale", false}};

static int add(struct worker *w, const struct mfs_vllm_parameter *p)
{
	return mfs_hf_weights_add(&w->weights, &p->base, p->like->unit, w->err);
}

static struct mfs_vllm_parameter *new_parameter(const struct worker *w)
{
	return mfs_arena_alloc(&w->made->arena, sizeof(struct mfs_vllm_parameter));
}

static int add_number(struct worker *w, const struct mfs_hf_target *like, size_t i)
{
	struct mfs_vllm_parameter *p = new_parameter(w);
	const char *as = mfs_arena_printf(&w->made->arena, "%s.%s", w->model->family->vllm_cache,
					  numbers[i].name);
	int rc = p && as ? mfs_vllm_number(like, as, numbers[i].minus_one, p, w->err)
			 : mfs_fail_nomem(w->err);

	return rc ? rc : add(w, p);
}

/* One tensor of each layer that attends. */
static bool ends_attention(const struct mfs_hf_target *t)
{
	return !strcmp(t->row->name, "self_attention.linear_proj.weight");
}

static int add_group(struct worker *w, const struct mfs_vllm_group *g)
{
	struct mfs_vllm_parameter *p = new_parameter(w);
	int rc = p ? mfs_vllm_parameter(g, &w->layout, w->rank, &w->made->arena, p, w->err)
		   : mfs_fail_nomem(w->err);

	if (!rc)
		rc = add(w, p);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(numbers) && ends_attention(g->of[0]) && !rc; i++)
		rc = add_number(w, g->of[0], i);
	return rc;
}

static int add_worker(struct mfs_view *v, struct worker *w)
{
	struct mfs_vfile *f;
	char file[64];
	int rc = 0;

	for (uint32_t i = 0; i < w->made->group_count && !rc; i++)
		rc = add_group(w, &w->made->groups[i]);
	if (!rc) {
		const struct mfs_hf_shard all = {.count = w->weights.count,
						 .bytes = w->weights.bytes};

		rc = mfs_hf_safetensors.file(&w->weights, &all, &f, w->err);
	}
	snprintf(file, sizeof(file), FILE_FORMAT, w->rank);
	if (!rc)
		rc = mfs_view_add(v, file, f, w->err);
	v->tensor_count += w->weights.count;
	mfs_hf_weights_release(&w->weights);
	return rc;
}

/* ---- possible ones ---- */

static bool has_names(const struct mfs_family *f)
{
	const struct mfs_family_tensor *row = f->tensors;

	while (row->hf && !row->stacked && !row->transposed)
		row++;
	return f->vllm && f->vllm_cache && !row->hf;
}

/* -ENOTSUP: it is not known how vLLM holds models of the family. */
static int possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		    struct mfs_error *err)
{
	if (has_names(family))
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: how vLLM's workers hold a %s is not known here",
			mfs_ckpt_dir(ckpt), family->name);
}

/* "tpN" or "tpN-epN". False: spec has another form. */
static bool read_spec(const char *spec, uint32_t *ret_tp, uint32_t *ret_ep)
{
	char again[32];

	*ret_tp = *ret_ep = 0;
	if (sscanf(spec, "tp%3" SCNu32 "-ep%3" SCNu32, ret_tp, ret_ep) < 1 || !*ret_tp)
		return false;
	snprintf(again, sizeof(again), *ret_ep ? "tp%" PRIu32 "-ep%" PRIu32 : "tp%" PRIu32, *ret_tp,
		 *ret_ep);
	return !strcmp(again, spec);
}

/* True if any layers have no experts. */
static bool has_dense(const struct mfs_megatron_args *a)
{
	return !a->moe_layers || mfs_args_layers_differ(a);
}

/* Numbers that N workers share; 0: the model has no such. */
static int check_shares(const struct mfs_ckpt *ckpt, const struct mfs_vllm_layout *layout,
			struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const int64_t moe = a->moe_layers ? a->moe_ffn_hidden_size : 0;
	const int64_t shared = a->moe_layers ? a->moe_shared_expert_intermediate_size : 0;
	const struct {
		const char *what;
		int64_t size;
	} shares[] = {{"the padding of the vocabulary", MFS_VLLM_PADDING},
		      {"num_attention_heads", a->num_attention_heads},
		      {"ffn_hidden_size", has_dense(a) ? a->ffn_hidden_size : 0},
		      {"moe_ffn_hidden_size", layout->ep || moe < 0 ? 0 : moe},
		      {"moe_shared_expert_intermediate_size", shared < 0 ? 0 : shared}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(shares); i++)
		if (shares[i].size % layout->tp)
			return mfs_fail(err, -EINVAL,
					"%s: %s is %lld, which %u workers cannot share",
					mfs_ckpt_dir(ckpt), shares[i].what,
					(long long)shares[i].size, layout->tp);
	return 0;
}

/* Groups are at more than one worker where these are more. */
static int check_groups(const struct mfs_ckpt *ckpt, uint32_t tp, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const int64_t groups = a->num_query_groups;

	if (a->multi_latent_attention || (groups > 0 && (!(groups % tp) || !(tp % groups))))
		return 0;
	return mfs_fail(err, -EINVAL, "%s: num_query_groups is %lld, which %u workers cannot share",
			mfs_ckpt_dir(ckpt), (long long)groups, tp);
}

static int check_experts(const struct mfs_ckpt *ckpt, uint32_t tp, uint32_t ep,
			 struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);

	if (!a->moe_layers)
		return mfs_fail(err, -EINVAL, "%s: a model without experts, expected vllm/tpN",
				mfs_ckpt_dir(ckpt));
	if (ep != tp)
		return mfs_fail(err, -EINVAL,
				"vllm/tp%u-ep%u: vLLM has experts at all workers of an engine, "
				"expected vllm/tp%u-ep%u",
				tp, ep, tp, tp);
	if (ep > a->num_experts)
		return mfs_fail(err, -EINVAL, "%s: %lld experts, fewer than %u workers",
				mfs_ckpt_dir(ckpt), (long long)a->num_experts, ep);
	return 0;
}

/* -ENOENT: spec has another form; -EINVAL: the model cannot be cut so. */
static int parse(const struct mfs_ckpt *ckpt, const char *spec, struct mfs_vllm_layout *ret,
		 struct mfs_error *err)
{
	uint32_t ep;
	int rc = 0;

	if (!read_spec(spec, &ret->tp, &ep))
		return mfs_fail(err, -ENOENT, "no view vllm/%s: name vllm/tpN or vllm/tpN-epN",
				spec);
	ret->ep = ep != 0;
	if (ret->ep)
		rc = check_experts(ckpt, ret->tp, ep, err);
	if (!rc)
		rc = check_shares(ckpt, ret, err);
	return rc ? rc : check_groups(ckpt, ret->tp, err);
}

/* ---- the row ---- */

static int add_workers(struct mfs_hf_builder *b)
{
	struct mfs_view *v = &b->view->public;
	struct made *made = calloc(1, sizeof(*made));
	struct worker w = {.made = made, .model = v->model, .err = b->err};
	int rc = parse(b->ckpt, b->spec, &w.layout, b->err);

	b->view->made = made;
	if (!rc)
		rc = made ? mfs_vllm_groups(v->model, &made->arena, &made->groups,
					    &made->group_count, b->err)
			  : mfs_fail_nomem(b->err);
	for (w.rank = 0; w.rank < w.layout.tp && !rc; w.rank++)
		rc = add_worker(v, &w);
	return rc;
}

static void release(void *made)
{
	mfs_arena_release(&((struct made *)made)->arena);
	free(made);
}

static const struct mfs_hf_flavour flavour = {.container = &mfs_hf_safetensors,
					      .possible = possible,
					      .weights = add_workers,
					      .release = release};

static int possible_vllm(const struct mfs_view_origin *s, struct mfs_error *err)
{
	return mfs_hf_possible(s, &flavour, err);
}

static int check_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err)
{
	struct mfs_vllm_layout layout;

	return parse(s->ckpt, spec, &layout, err);
}

#define MAX_LISTED 4 /* powers of two, without and with experts at one worker each */

static int list_vllm(const struct mfs_view_origin *s, struct mfs_arena *arena,
		     const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, 2 * MAX_LISTED, sizeof(*names));

	*ret_count = 0;
	for (unsigned i = 0; i < 2 * MAX_LISTED && names; i++) {
		const unsigned n = 1u << i % MAX_LISTED;
		char *name = i < MAX_LISTED ? mfs_arena_printf(arena, "tp%u", n)
					    : mfs_arena_printf(arena, "tp%u-ep%u", n, n);

		if (!name)
			return mfs_fail_nomem(err);
		if (n == 1 && i)
			continue;
		if (!check_vllm(s, name, NULL))
			names[(*ret_count)++] = name;
	}
	*ret = names;
	return names ? 0 : mfs_fail_nomem(err);
}

static int open_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	int rc = possible_vllm(s, err);

	if (!rc)
		rc = check_vllm(s, spec, err);
	return rc ? rc : mfs_hf_open(s, &flavour, spec, ret, err);
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
