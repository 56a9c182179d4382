/*
 * Legacy files: the optimizer that keeps one tensor for each parameter
 * (Float16OptimizerWithFloat16Params, FP32Optimizer; docs/formats/optimizer.md). Tensors have no
 * names: they are numbered group by group, in the order of the state dict. The file's own groups
 * say which kinds there are and in which order; counts and every shape are checked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/optim/read/legacy_i.h"
#include "formats/optim/rules/state_dict.h"

/* A parameter group, on the way through a rank's parameters. */
struct group {
	mfs_value params; /* numbers */
	mfs_value main;	  /* fp32 tensors of its 16-bit parameters */
	bool decay, decoupled, experts;
	uint32_t next, next_main;
};

struct entry {
	int64_t id;
	mfs_value state;
};

/* One optimizer of a rank. */
struct optim {
	const struct mfs_optim_rules *rules;
	struct mfs_optim_chain chain;
	uint32_t number; /* in the chain */
	struct mfs_torch_reader *r;
	const struct mfs_legacy_source *source;
	const struct mfs_torch_rank *rank;
	const struct mfs_pickle *doc;
	struct group groups[MFS_OPTIM_MAX_GROUPS];
	uint32_t group_count;
	bool by_experts; /* it has groups of experts as well as others */
	bool has_main;
	struct entry *states; /* sorted by id */
	uint32_t state_count;
};

/* A parameter group as a message names it. */
static int bad_groups(const struct optim *o, int code, const char *key, const char *what)
{
	return mfs_fail(o->r->err, code, "%s/%s: optimizer: '%s': %s", o->r->ckpt->dir,
			o->rank->name, key, what);
}

/* ---- groups ---- */

static bool get_flag(const struct mfs_pickle *doc, mfs_value dict, const char *key, bool otherwise)
{
	bool v;

	return mfs_value_bool(doc, mfs_value_get(doc, dict, key), &v) ? v : otherwise;
}

static bool group_decays(const struct mfs_pickle *doc, mfs_value dict)
{
	double v;

	if (mfs_value_float(doc, mfs_value_get(doc, dict, "wd_mult"), &v) ||
	    mfs_value_float(doc, mfs_value_get(doc, dict, "pre_wd_mult"), &v) ||
	    mfs_value_float(doc, mfs_value_get(doc, dict, "weight_decay"), &v))
		return v != 0;
	return true;
}

static int read_groups(struct optim *o, mfs_value one)
{
	const struct mfs_pickle *doc = o->doc;
	mfs_value list = mfs_optim_state_groups(doc, one);
	mfs_value main = mfs_value_get(doc, one, "fp32_from_fp16_params");
	const uint32_t count = mfs_value_count(doc, list);

	if (!main)
		main = mfs_value_get(doc, one, "fp32_from_fp16");
	o->has_main = main != 0;
	if (count > MFS_OPTIM_MAX_GROUPS || (main && mfs_value_count(doc, main) != count))
		return mfs_fail(o->r->err, -EINVAL,
				"%s/%s: optimizer: %u parameter groups, but fp32 parameters of %u",
				o->r->ckpt->dir, o->rank->name, count, mfs_value_count(doc, main));
	for (uint32_t i = 0; i < count; i++) {
		mfs_value dict = mfs_value_at(doc, list, i);
		struct group *g = &o->groups[i];

		*g = (struct group){.params = mfs_value_get(doc, dict, "params"),
				    .main = main ? mfs_value_at(doc, main, i) : 0,
				    .decay = group_decays(doc, dict),
				    .experts = get_flag(doc, dict, "is_expert_parallel", false)};
		/* Since 0.16 the group only says that it does not follow the default schedule. */
		g->decoupled = get_flag(doc, dict, "is_decoupled_lr", false) ||
			       !get_flag(doc, dict, "default_config", true);
		o->by_experts |= i && g->experts != o->groups[0].experts;
	}
	o->group_count = count;
	return 0;
}

/* The one group that a parameter belongs to. */
static int find_group(struct optim *o, const struct mfs_torch_param *p, struct group **ret)
{
	const bool decay = mfs_optim_decays(o->rules, p->key, p->t.ndim);
	const bool decoupled = mfs_optim_decoupled(o->rules, p->key);
	struct group *found = NULL;

	for (uint32_t i = 0; i < o->group_count; i++) {
		struct group *g = &o->groups[i];

		if (g->decay != decay || g->decoupled != decoupled ||
		    (o->by_experts && g->experts != p->name.experts))
			continue;
		if (found)
			return bad_groups(o, -ENOTSUP, p->key,
					  "several parameter groups could hold it");
		found = g;
	}
	if (!found)
		return bad_groups(o, -ENOTSUP, p->key, "no parameter group could hold it");
	*ret = found;
	return 0;
}

static int check_counts(const struct optim *o)
{
	for (uint32_t i = 0; i < o->group_count; i++) {
		const struct group *g = &o->groups[i];
		const uint32_t count = mfs_value_count(o->doc, g->params);

		if (g->next != count || g->next_main != mfs_value_count(o->doc, g->main))
			return mfs_fail(
				o->r->err, -EINVAL,
				"%s/%s: optimizer: parameter group %u: expected %u parameters (%u "
				"of 16 bits), found %u (%u)",
				o->r->ckpt->dir, o->rank->name, i, g->next, g->next_main, count,
				mfs_value_count(o->doc, g->main));
	}
	return 0;
}

/* ---- tensors ---- */

static int by_id(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int index_states(struct optim *o, mfs_value states)
{
	const uint32_t pairs = mfs_value_pairs(o->doc, states);

	o->states = calloc((size_t)pairs + 1, sizeof(*o->states));
	if (!o->states)
		return mfs_fail_nomem(o->r->err);
	for (uint32_t i = 0; i < pairs; i++) {
		struct entry *e = &o->states[o->state_count];

		e->state = mfs_value_item(o->doc, states, i);
		if (mfs_value_int(o->doc, mfs_value_key(o->doc, states, i), &e->id))
			o->state_count++;
	}
	qsort(o->states, o->state_count, sizeof(*o->states), by_id);
	return 0;
}

/* One rank alone has the state of a dense parameter that was dealt, whatever its experts are. */
static bool is_wanted(const struct optim *o, const struct mfs_torch_param *p)
{
	if (!o->source->share || p->name.experts)
		return p->wanted;
	return !p->copy && (p->name.tp != MFS_TP_NONE || o->rank->tp == 0);
}

static int place_state(struct optim *o, const struct mfs_torch_param *p, enum mfs_state state,
		       mfs_value v)
{
	struct mfs_torch_tensor t;
	char want[96], have[96];
	uint32_t storage;
	int rc = mfs_torch_tensor(o->source->optim->state, v, &t, o->r->err);

	if (rc) {
		mfs_fail_in(o->r->err, "%s/%s: %s of '%s'", o->r->ckpt->dir, o->rank->name,
			    mfs_state_name(state), p->key);
		return rc;
	}
	if (t.ndim != p->t.ndim || memcmp(t.shape, p->t.shape, t.ndim * sizeof(*t.shape)))
		return mfs_fail(o->r->err, -EINVAL, "%s/%s: %s of '%s': expected %s, found %s",
				o->r->ckpt->dir, o->rank->name, mfs_state_name(state), p->key,
				mfs_shape_text(p->t.shape, p->t.ndim, want, sizeof(want)),
				mfs_shape_text(t.shape, t.ndim, have, sizeof(have)));
	if (!is_wanted(o, p))
		return 0;
	rc = mfs_torch_storage(o->r, o->source->optim, &t, &storage);
	return rc ? rc : mfs_torch_place(o->r, o->rank, p, state, &t, storage);
}

/* A parameter in fp32 has no copy: it is its own main parameter. */
static int place_main(struct optim *o, const struct mfs_torch_param *p, struct group *g)
{
	uint32_t storage;
	int rc;

	if (!o->has_main)
		return 0;
	if (mfs_dtype_size(p->dtype) == 2)
		return place_state(o, p, MFS_STATE_MAIN,
				   mfs_value_at(o->doc, g->main, g->next_main++));
	if (!is_wanted(o, p))
		return 0;
	rc = mfs_torch_storage(o->r, o->source->model, &p->t, &storage);
	return rc ? rc : mfs_torch_place(o->r, o->rank, p, MFS_STATE_MAIN, &p->t, storage);
}

/* Places what torch's optimizer has of the parameter in addition to its main parameter. e NULL:
 * nothing. */
static int place_kept(struct optim *o, const struct mfs_torch_param *p, const struct entry *e)
{
	int rc = 0;

	for (enum mfs_state s = MFS_STATE_EXP_AVG; e && s < MFS_STATE_COUNT && !rc; s++) {
		const mfs_value v = mfs_value_get(o->doc, e->state, mfs_state_name(s));

		if (!mfs_value_is_none(o->doc, v))
			rc = place_state(o, p, s, v);
	}
	return rc;
}

static bool is_member(const struct optim *o, const struct mfs_torch_param *p)
{
	return mfs_optim_link(&o->chain, mfs_optim_is_muon(o->rules, p->key, p->t.ndim),
			      p->name.experts) == o->number;
}

/* Finds what the run's optimizer must have. *ret: the first state that is missing, if any. */
static bool has_kept(const struct optim *o, const struct mfs_torch_param *p, const struct entry *e,
		     const char **ret)
{
	const unsigned kept = mfs_optim_kept(o->rules, p->key, p->t.ndim);

	for (enum mfs_state s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT; s++) {
		*ret = mfs_state_name(s);
		if ((kept >> s & 1) &&
		    (!e || mfs_value_is_none(o->doc, mfs_value_get(o->doc, e->state, *ret))))
			return false;
	}
	return true;
}

static int read_param(struct optim *o, const struct mfs_torch_param *p)
{
	struct entry key, *e;
	struct group *g = NULL;
	const char *missing;
	char why[96];
	int rc = find_group(o, p, &g);

	if (rc)
		return rc;
	if (!mfs_value_int(o->doc, mfs_value_at(o->doc, g->params, g->next++), &key.id))
		return bad_groups(o, -EINVAL, p->key, "its group holds fewer parameters");
	e = bsearch(&key, o->states, o->state_count, sizeof(*e), by_id);
	if (!has_kept(o, p, e, &missing)) {
		snprintf(why, sizeof(why),
			 "it has no %s: another optimizer, or before the first step", missing);
		return bad_groups(o, -ENOTSUP, p->key, why);
	}
	rc = place_main(o, p, g);
	return rc ? rc : place_kept(o, p, e);
}

/* ---- a chain ---- */

static struct optim *new_optim(const struct optim *template, uint32_t number)
{
	struct optim *o = calloc(1, sizeof(*o));

	if (o) {
		*o = *template;
		o->number = number;
	}
	return o;
}

static void free_optim(struct optim *o)
{
	free(o->states);
	free(o);
}

/* Adds an optimizer's parameters. */
static int list_cards(struct optim *o, struct mfs_layer_card *cards, uint32_t *count)
{
	const struct mfs_torch_params *all = &o->r->params;
	int rc = 0;

	for (uint32_t i = 0; i < all->count && !rc; i++) {
		struct mfs_layer_card *c = &cards[*count];
		struct group *g = NULL;

		if (!is_member(o, &all->list[i]))
			continue;
		rc = find_group(o, &all->list[i], &g);
		if (rc || !mfs_shape_count(all->list[i].t.shape, all->list[i].t.ndim, &c->elements))
			return rc ? rc : bad_groups(o, -EINVAL, all->list[i].key, "too large");
		c->group = o->number * MFS_OPTIM_MAX_GROUPS + (uint32_t)(g - o->groups);
		c->param = i;
		c->expert = g->experts;
		++*count;
	}
	return rc;
}

static int read_one(const struct optim *template, uint32_t number,
		    const struct mfs_layer_card *cards, uint32_t count)
{
	const mfs_value one =
		mfs_optim_state_at(template->doc, template->source->optimizer, number);
	struct optim *o = new_optim(template, number);
	int rc = o ? read_groups(o, one) : mfs_fail_nomem(template->r->err);

	if (!o)
		return rc;
	if (!rc)
		rc = index_states(
			o, mfs_value_get(o->doc, mfs_optim_state_torch(o->doc, one), "state"));
	for (uint32_t i = 0; i < count && !rc; i++)
		if (cards[i].group / MFS_OPTIM_MAX_GROUPS == number)
			rc = read_param(o, &o->r->params.list[cards[i].param]);
	if (!rc)
		rc = check_counts(o);
	free_optim(o);
	return rc;
}

/* Lists the parameters of all optimizers, as each has them. */
static int list_all(const struct optim *template, struct mfs_layer_card *cards, uint32_t *count)
{
	int rc = 0;

	for (uint32_t i = 0; i < template->chain.count && !rc; i++) {
		struct optim *o = new_optim(template, i);

		if (!o)
			return mfs_fail_nomem(template->r->err);
		rc = read_groups(o, mfs_optim_state_at(o->doc, template->source->optimizer, i));
		if (!rc)
			rc = list_cards(o, cards, count);
		free_optim(o);
	}
	return rc;
}

int mfs_legacy_read_float16(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_legacy_source *source)
{
	const struct optim template = {
		.rules = &l->rules,
		.chain = mfs_optim_chain_counted(l->rules.kept.matrices, source->count),
		.r = r,
		.source = source,
		.rank = source->rank,
		.doc = source->optim->state->doc};
	struct mfs_layer_card *cards = calloc((size_t)r->params.count + 1, sizeof(*cards));
	uint32_t count = 0;
	int rc = cards ? list_all(&template, cards, &count) : mfs_fail_nomem(r->err);

	if (!rc && source->share)
		count = mfs_layer_deal(source->share, cards, count);
	for (uint32_t i = 0; i < source->count && !rc; i++)
		rc = read_one(&template, i, cards, count);
	free(cards);
	return rc;
}
