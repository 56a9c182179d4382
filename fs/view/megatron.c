/*
 * Megatron views: a directory that --load takes. What is in the iteration's directory, the files of
 * formats/megatron/write makes; here are names, and the tracker in front of it:
 * "latest_checkpointed_iteration.txt", "iter_0000040/mp_rank_00/model_optim_rng.pt",
 * "iter_0000040/.metadata".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/path.h"
#include "formats/model/hf_config.h"
#include "formats/megatron/write/files.h"
#include "formats/megatron/tracker.h"
#include "formats/optim/rules/optim_rules.h"
#include "formats/optim/rules/settings.h"
#include "fs/view/build.h"
#include "fs/view/kind.h"
#include "fs/view/view.h"

#define MAX_LISTED 8 /* a listing has powers of two up to this as TP and PP */

struct megatron_view {
	struct mfs_view public;
	struct mfs_megatron_torch *torch;
	struct mfs_megatron_dist *dist;
};

struct builder {
	struct megatron_view *view;
	char dir[32]; /* of the iteration: "iter_0000040", "release" */
};

/* ---- names ---- */

/* -ENOENT: spec is not a layout's name; -EINVAL: the model cannot have this layout, and the message
 * says which number is not divisible by which. */
static int parse_layout(const struct mfs_ckpt *ckpt, const char *spec, struct mfs_layout *ret,
			struct mfs_error *err)
{
	if (!mfs_layout_parse(spec, ret))
		return mfs_fail(err, -ENOENT,
				"no view megatron/torch/%s: name megatron/torch_dist, or "
				"megatron/torch/tpT-ppP[-epE][-etpX][-vppV][-firstN][-lastN]",
				spec);
	mfs_layout_resolve(ret, mfs_ckpt_args(ckpt));
	return mfs_layout_check(ret, mfs_ckpt_args(ckpt), err);
}

static int check(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err)
{
	struct mfs_layout layout;

	return parse_layout(s->ckpt, spec, &layout, err);
}

/* torch_dist tensors are cut as by the source's layout. If that has no name, they stay whole. */
static void source_layout(struct mfs_ckpt *ckpt, struct mfs_layout *ret)
{
	if (!mfs_layout_of(ckpt, ret))
		*ret = (struct mfs_layout){.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
}

/* ---- what is listed ---- */

struct listing {
	struct mfs_ckpt *ckpt;
	struct mfs_arena *arena;
	const char **names;
	uint32_t count;
};

static int list_one(struct listing *l, const struct mfs_layout *p)
{
	struct mfs_layout resolved = *p;
	char name[MFS_LAYOUT_NAME_SIZE];

	mfs_layout_resolve(&resolved, mfs_ckpt_args(l->ckpt));
	if (mfs_layout_check(&resolved, mfs_ckpt_args(l->ckpt), NULL))
		return 0;
	mfs_layout_name(p, name);
	for (uint32_t i = 0; i < l->count; i++)
		if (!strcmp(l->names[i], name))
			return 0;
	l->names[l->count] = mfs_arena_strndup(l->arena, name, strlen(name));
	return l->names[l->count++] ? 0 : -ENOMEM;
}

static int list_powers(struct listing *l)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(l->ckpt);
	const uint32_t most_ep = a->moe_layers ? MAX_LISTED : 1;
	int rc = 0;

	for (uint32_t tp = 1; tp <= MAX_LISTED; tp *= 2)
		for (uint32_t pp = 1; pp <= MAX_LISTED; pp *= 2)
			for (uint32_t ep = 1; ep <= most_ep && !rc; ep *= 2) {
				const struct mfs_layout p = {
					.tp = tp, .pp = pp, .ep = ep, .etp = tp, .vpp = 1};

				rc = list_one(l, &p);
			}
	return rc;
}

/* Lists the source's own layout, and possible layouts of powers of two. */
static int list(const struct mfs_view_origin *s, struct mfs_arena *arena, const char *const **ret,
		uint32_t *ret_count, struct mfs_error *err)
{
	struct listing l = {.ckpt = s->ckpt, .arena = arena};
	struct mfs_layout own;
	int rc = 0;

	l.names = mfs_arena_array(arena, 1 + 4 * 4 * 4, sizeof(*l.names));
	if (!l.names)
		return mfs_fail_nomem(err);
	if (mfs_layout_of(s->ckpt, &own))
		rc = list_one(&l, &own);
	if (!rc)
		rc = list_powers(&l);
	if (rc)
		return mfs_fail_nomem(err);
	*ret = l.names;
	*ret_count = l.count;
	return 0;
}

/* ---- building ---- */

/* An iteration directory that is SOURCE itself may have no number in its name; the common state has
 * it. */
static int64_t iteration_of(const struct mfs_ckpt *ckpt, int64_t number)
{
	const struct mfs_ckpt_common *s = mfs_ckpt_common(ckpt);
	int64_t saved;

	if (number >= 0 || !s || !strcmp(mfs_path_base(mfs_ckpt_dir(ckpt)), "release"))
		return number;
	return mfs_value_int(s->archive.doc, mfs_value_get(s->archive.doc, s->root, "iteration"),
			     &saved) &&
			       saved >= 0
		       ? saved
		       : number;
}

static int add_tracker(struct builder *b, int64_t number, struct mfs_error *err)
{
	char text[32], *copy;
	int len = number < 0 ? snprintf(text, sizeof(text), "release")
			     : snprintf(text, sizeof(text), "%lld", (long long)number);

	if (number < 0)
		snprintf(b->dir, sizeof(b->dir), "release");
	else
		snprintf(b->dir, sizeof(b->dir), "iter_%07lld", (long long)number);
	copy = strdup(text);
	if (!copy)
		return mfs_fail_nomem(err);
	return mfs_view_add_bytes(&b->view->public, MFS_TRACKER_FILE, copy, (size_t)len, err);
}

static int add_file(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *err)
{
	struct builder *b = arg;
	char name[512];

	snprintf(name, sizeof(name), "%s/%s", b->dir, path);
	return mfs_view_add(&b->view->public, name, data, err);
}

static int check_optimizer(const struct mfs_view_origin *s, struct mfs_error *err)
{
	return s->options->no_optim ? 0 : mfs_optim_check_read(s->ckpt, err);
}

/* A run would not pass --rope-scaling-factor on (MFS_ROPE_SCALING_FACTOR), and train another model
 * than this one. Models with norms only after a sublayer are Megatron-Bridge's, which passes it
 * on. */
static int check_rope(const struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);

	if (!a->use_rope_scaling || a->post_norms ||
	    a->rope_scaling_factor == MFS_ROPE_SCALING_FACTOR)
		return 0;
	return mfs_fail(
		err, -ENOTSUP,
		"%s: the factor of the rotary scaling is %g, expected %g: releases of Megatron up "
		"to core 0.19 do not pass --rope-scaling-factor to the model",
		mfs_ckpt_dir(ckpt), a->rope_scaling_factor, MFS_ROPE_SCALING_FACTOR);
}

/* What a HybridModel has no words for, though a GPTModel has (hybrid_model.py: its constructor,
 * hybrid_layer_specs.py). */
static const char *not_hybrid(const struct mfs_megatron_args *a)
{
	if (a->hybrid_layers)
		return "it is one already, which megatron/torch and megatron/torch_dist show";
	if (a->layernorm)
		return "its norms are LayerNorms, and those of a HybridModel's stack take another "
		       "spec";
	if (a->use_rope_scaling && !a->multi_latent_attention)
		return "its constructor has no use_rope_scaling";
	if (a->post_norms || a->qk_norm_wide || a->rotary_base_local != 0)
		return "it has modules of Megatron-Bridge's own";
	return NULL;
}

static int possible_hybrid(const struct mfs_view_origin *s, struct mfs_error *err)
{
	const char *why = not_hybrid(mfs_ckpt_args(s->ckpt));

	if (why)
		return mfs_fail(err, -ENOTSUP, "%s: this model is not shown as a HybridModel: %s",
				mfs_ckpt_dir(s->ckpt), why);
	if (s->options->spec == MFS_VIEW_LAYER_SPEC_LOCAL)
		return mfs_fail(err, -ENOTSUP,
				"%s: -o spec=local: a HybridModel has Transformer Engine's modules "
				"alone",
				mfs_ckpt_dir(s->ckpt));
	if (check_optimizer(s, err))
		return -ENOTSUP;
	return mfs_rank_check(s->ckpt, MFS_LAYER_SPEC_TE, err);
}

static enum mfs_layer_spec spec_of(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt)
{
	if (opt->spec == MFS_VIEW_LAYER_SPEC_LOCAL)
		return MFS_LAYER_SPEC_LOCAL;
	return opt->spec == MFS_VIEW_LAYER_SPEC_TE ? MFS_LAYER_SPEC_TE : mfs_layer_spec_of(ckpt);
}

/* Checks that the model can have Megatron views at any layout. */
static int possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	int rc = check_optimizer(s, err);

	if (!rc)
		rc = check_rope(s->ckpt, err);
	return rc ? rc : mfs_rank_check(s->ckpt, spec_of(s->ckpt, s->options), err);
}

static int describe(const struct mfs_view_origin *s, struct mfs_megatron_options *ret,
		    struct mfs_error *err)
{
	const struct mfs_view_options *opt = s->options;

	*ret = (struct mfs_megatron_options){.ckpt = s->ckpt,
					     .spec = spec_of(s->ckpt, opt),
					     .number = iteration_of(s->ckpt, s->number)};
	ret->spec_given = opt->spec != MFS_VIEW_LAYER_SPEC_SOURCE;
	ret->optimizer = !opt->no_optim && mfs_optim_info(s->ckpt)->kind != MFS_OPTIM_NONE;
	return mfs_view_true_vocab(s->ckpt, opt, &ret->vocab, err);
}

/* layout NULL: torch_dist. */
static int build(struct builder *b, const struct mfs_view_origin *s, const char *layout,
		 bool hybrid, struct mfs_error *err)
{
	const struct mfs_file_sink sink = {add_file, b};
	struct mfs_megatron_options m;
	int rc = describe(s, &m, err);

	if (hybrid)
		m.spec = MFS_LAYER_SPEC_TE;

	if (!rc && layout)
		rc = parse_layout(s->ckpt, layout, &m.layout, err);
	else if (!rc)
		source_layout(s->ckpt, &m.layout);
	m.layout.hybrid = hybrid;
	if (!rc)
		rc = hybrid ? possible_hybrid(s, err) : possible(s, err);
	if (!rc)
		rc = add_tracker(b, m.number, err);
	if (!rc && layout)
		rc = mfs_megatron_torch_new(&m, &sink, &b->view->torch, err);
	else if (!rc)
		rc = mfs_megatron_dist_new(&m, &sink, &b->view->dist, err);
	if (rc)
		return rc;
	mfs_view_note_ckpt(&b->view->public, s->ckpt);
	return mfs_view_finish(&b->view->public, err);
}

static void release(struct mfs_view *view)
{
	struct megatron_view *v = (struct megatron_view *)view;

	mfs_megatron_torch_free(v->torch);
	mfs_megatron_dist_free(v->dist);
	free(v);
}

static int open_view(const struct mfs_view_origin *s, const char *layout, bool hybrid,
		     struct mfs_view **ret, struct mfs_error *err)
{
	struct builder b = {.view = calloc(1, sizeof(*b.view))};
	int rc;

	if (!b.view)
		return mfs_fail_nomem(err);
	b.view->public.release = release;
	b.view->public.ckpt = s->ckpt;
	rc = build(&b, s, layout, hybrid, err);
	if (rc) {
		mfs_view_free(&b.view->public);
		return rc;
	}
	*ret = &b.view->public;
	return 0;
}

static int open_torch(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		      struct mfs_error *err)
{
	return open_view(s, spec, false, ret, err);
}

static int open_dist(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	(void)spec;
	return open_view(s, NULL, false, ret, err);
}

static int open_hybrid_torch(const struct mfs_view_origin *s, const char *spec,
			     struct mfs_view **ret, struct mfs_error *err)
{
	return open_view(s, spec, true, ret, err);
}

static int open_hybrid_dist(const struct mfs_view_origin *s, const char *spec,
			    struct mfs_view **ret, struct mfs_error *err)
{
	(void)spec;
	return open_view(s, NULL, true, ret, err);
}

const struct mfs_view_kind mfs_view_kind_megatron_torch = {
	.name = "megatron/torch",
	.spec = "tp2-pp4",
	.help = "a Megatron checkpoint at that layout; -ep, -etp, -vpp,\n"
		"-first, -last follow where they matter, in this order",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.possible = possible,
	.check = check,
	.list = list,
	.open = open_torch,
};

const struct mfs_view_kind mfs_view_kind_megatron_torch_dist = {
	.name = "megatron/torch_dist",
	.help = "the same as torch_dist, for any layout",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.possible = possible,
	.open = open_dist,
};

const struct mfs_view_kind mfs_view_kind_megatron_hybrid_torch = {
	.name = "megatron/hybrid_torch",
	.spec = "tp2-pp4",
	.help = "the same as a HybridModel has it: attention and MLP\n"
		"of each block are layers of their own",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.is_extra = true,
	.possible = possible_hybrid,
	.check = check,
	.list = list,
	.open = open_hybrid_torch,
};

const struct mfs_view_kind mfs_view_kind_megatron_hybrid_torch_dist = {
	.name = "megatron/hybrid_torch_dist",
	.help = "the same as torch_dist",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.is_extra = true,
	.possible = possible_hybrid,
	.open = open_hybrid_dist,
};
