#include "formats/optim/buffers/rank_optim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/optim/buffers/flat_buffers.h"

/* Kinds of groups, in the order of sorted groups: those that keep the defaults first, then by what
 * they override ('max_lr' before 'wd_mult'). */
enum kind {
	DECAY,
	EXPERT_DECAY, /* of a layer-wise optimizer */
	DECOUPLED,
	DECOUPLED_NO_DECAY,
	NO_DECAY,
	EXPERT_NO_DECAY, /* likewise */
	KINDS
};

struct builder {
	struct mfs_optim *o;
	const struct mfs_rank_list *list;
	uint32_t dp[2];	   /* ranks that share a buffer: a dense one, and one of experts */
	uint8_t *kinds;	   /* [params] */
	uint32_t *chunks;  /* [params] virtual chunk */
	uint32_t *buffers; /* [params] */
	bool has_embedding;
	struct mfs_error *err;
};

/* ---- parameters ---- */

static bool has_experts(const struct mfs_rank_list *l)
{
	return mfs_ckpt_args(l->ckpt)->moe_layers != NULL;
}

/* True if other ranks reduce the gradients of experts (allreduce of their parameters is False). */
static bool experts_differ(const struct builder *b)
{
	const struct mfs_layout *p = &b->list->layout;

	return has_experts(b->list) &&
	       (p->ep > 1 || (b->o->rules.expert_tensor_groups && p->etp != p->tp));
}

static bool experts_apart(const struct builder *b)
{
	return experts_differ(b) && !b->o->rules.layer_wise;
}

static enum kind kind_of(const struct builder *b, const char *name, unsigned ndim, bool is_expert)
{
	const bool decay = mfs_optim_decays(&b->o->rules, name, ndim);

	if (b->o->rules.layer_wise && is_expert && experts_differ(b))
		return decay ? EXPERT_DECAY : EXPERT_NO_DECAY;
	if (mfs_optim_decoupled(&b->o->rules, name))
		return decay ? DECOUPLED : DECOUPLED_NO_DECAY;
	return decay ? DECAY : NO_DECAY;
}

static bool has_expert_vectors(const struct mfs_ckpt *ckpt)
{
	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++)
		if (mfs_ckpt_at(ckpt, i)->expert >= 0 && mfs_ckpt_at(ckpt, i)->ndim == 1)
			return true;
	return false;
}

static void add_param(struct builder *b, const struct mfs_rank_tensor *t, uint32_t chunk)
{
	struct mfs_optim *o = b->o;
	struct mfs_optim_param *p = &o->params[o->count];
	char name[MFS_CKPT_NAME_SIZE];
	bool is_matrix;

	mfs_rank_tensor_name(t, name, sizeof(name));
	is_matrix = mfs_optim_is_muon(&o->rules, name, t->base.ndim);
	*p = (struct mfs_optim_param){.tensor = t,
				      .optimizer =
					      mfs_optim_link(&o->chain, is_matrix, t->is_expert),
				      .has_main = mfs_dtype_size(t->base.dtype) == 2,
				      .elements = t->base.bytes / mfs_dtype_size(t->base.dtype)};
	b->kinds[o->count] = (uint8_t)kind_of(b, name, t->base.ndim, t->is_expert);
	b->chunks[o->count] = chunk;
	b->has_embedding |= !strcmp(name, "embedding.word_embeddings.weight");
	o->count++;
}

static int list_params(struct builder *b)
{
	const struct mfs_rank_list *l = b->list;
	struct mfs_optim *o = b->o;

	o->params = mfs_arena_array(&o->arena, l->count, sizeof(*o->params));
	b->kinds = mfs_arena_array(&o->arena, l->count, sizeof(*b->kinds));
	b->chunks = mfs_arena_array(&o->arena, l->count, sizeof(*b->chunks));
	b->buffers = mfs_arena_array(&o->arena, l->count, sizeof(*b->buffers));
	if (!o->params || !b->kinds || !b->chunks || !b->buffers)
		return mfs_fail_nomem(b->err);
	o->chain = mfs_optim_chain_of(o->rules.kept.matrices, experts_apart(b),
				      has_expert_vectors(l->ckpt));
	for (uint32_t vp = 0; vp < l->layout.vpp; vp++)
		for (uint32_t i = 0; i < l->chunks[vp].count; i++) {
			const struct mfs_rank_tensor *t = &l->tensors[l->chunks[vp].first + i];

			if (t->base.ops && t->is_parameter)
				add_param(b, t, vp);
		}
	return 0;
}

/* ---- groups ---- */

/* True if there are parameters of more than two axes, which Muon does not take. */
static bool has_stacks(const struct builder *b)
{
	const struct mfs_ckpt *ckpt = b->list->ckpt;

	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++)
		if (mfs_ckpt_at(ckpt, i)->ndim > 2)
			return true;
	return false;
}

/* True if any rank has parameters of that kind in that optimizer. */
static bool is_anywhere(const struct builder *b, uint32_t optimizer, enum kind kind)
{
	const struct mfs_optim_chain *c = &b->o->chain;
	const struct mfs_optim_rules *rules = &b->o->rules;
	const bool experts = mfs_optim_link_is_expert(c, optimizer);

	if (kind == EXPERT_DECAY || kind == EXPERT_NO_DECAY)
		return rules->layer_wise && experts_differ(b) &&
		       mfs_optim_link_is_muon(c, optimizer) == (kind == EXPERT_DECAY) &&
		       (kind == EXPERT_DECAY || has_expert_vectors(b->list->ckpt));
	if (mfs_optim_link_is_muon(c, optimizer))
		return kind == DECAY;
	switch (kind) {
	case DECAY:
		return experts ? !c->muon : !c->muon || !rules->decoupled_lr || has_stacks(b);
	case DECOUPLED:
		return rules->decoupled_lr && !experts;
	case DECOUPLED_NO_DECAY:
		return rules->decoupled_lr && rules->skip_embedding_decay && !experts;
	default:
		return !experts || has_expert_vectors(b->list->ckpt);
	}
}

/* Until core 0.15 a rank's groups are in the order of its parameters; groups that only other ranks
 * need come last. */
static uint32_t order_kinds(const struct builder *b, uint32_t optimizer, enum kind order[KINDS])
{
	const struct mfs_optim *o = b->o;
	bool seen[KINDS] = {false};
	uint32_t count = 0;

	for (uint32_t i = 0; i < o->count && !o->rules.sorted_groups; i++)
		if (o->params[i].optimizer == optimizer && !seen[b->kinds[i]]) {
			seen[b->kinds[i]] = true;
			order[count++] = b->kinds[i];
		}
	for (enum kind k = 0; k < KINDS; k++)
		if (!seen[k] && is_anywhere(b, optimizer, k))
			order[count++] = k;
	return count;
}

/* Numbers the parameters of an optimizer group by group. */
static void number_params(struct builder *b, uint32_t optimizer, const enum kind *order)
{
	struct mfs_optim *o = b->o;
	struct mfs_optim_group *groups = &o->groups[o->first_group[optimizer]];
	uint32_t id = 0;

	for (uint32_t g = 0; g < o->group_count[optimizer]; g++) {
		uint32_t main = 0;

		groups[g] = (struct mfs_optim_group){
			.optimizer = optimizer,
			.muon = mfs_optim_link_is_muon(&o->chain, optimizer),
			.experts = mfs_optim_link_is_expert(&o->chain, optimizer) ||
				   order[g] == EXPERT_DECAY || order[g] == EXPERT_NO_DECAY,
			.decay = order[g] == DECAY || order[g] == EXPERT_DECAY ||
				 order[g] == DECOUPLED,
			.decoupled = order[g] == DECOUPLED || order[g] == DECOUPLED_NO_DECAY};
		for (uint32_t i = 0; i < o->count; i++) {
			struct mfs_optim_param *p = &o->params[i];

			if (p->optimizer != optimizer || b->kinds[i] != order[g])
				continue;
			p->group = g;
			p->index = groups[g].count++;
			p->id = id++;
			p->main = p->has_main ? main++ : 0;
		}
	}
}

static int make_groups(struct builder *b)
{
	struct mfs_optim *o = b->o;

	o->groups = mfs_arena_array(&o->arena, (size_t)MFS_OPTIM_CHAIN * KINDS, sizeof(*o->groups));
	if (!o->groups)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0, first = 0; i < o->chain.count; i++) {
		enum kind order[KINDS];

		o->first_group[i] = first;
		o->group_count[i] = order_kinds(b, i, order);
		number_params(b, i, order);
		first += o->group_count[i];
	}
	return 0;
}

/* ---- buffers ---- */

static enum mfs_dtype grad_dtype(const struct mfs_optim *o, enum mfs_dtype dtype)
{
	if (o->rules.grad_fp32)
		return MFS_F32;
	return dtype == MFS_U8 ? MFS_BF16 : dtype;
}

static uint32_t find_buffer(struct builder *b, uint32_t optimizer, uint32_t chunk,
			    enum mfs_dtype dtype)
{
	struct mfs_optim *o = b->o;
	struct mfs_optim_buffer *last = o->buffer_count ? &o->buffers[o->buffer_count - 1] : NULL;

	for (uint32_t i = o->buffer_count; i-- > 0;) {
		const struct mfs_optim_buffer *f = &o->buffers[i];

		if (f->optimizer != optimizer || f->chunk != chunk)
			break;
		if (f->param_dtype == dtype)
			return i;
	}
	o->buffers[o->buffer_count] = (struct mfs_optim_buffer){
		.optimizer = optimizer,
		.index = last && last->optimizer == optimizer ? last->index + 1 : 0,
		.chunk = chunk,
		.param_dtype = dtype,
		.grad_dtype = grad_dtype(o, dtype)};
	return o->buffer_count++;
}

/* What a buffer's key calls the type of a parameter. */
static enum mfs_dtype key_dtype(const struct builder *b, const struct mfs_optim_param *p)
{
	const struct mfs_rank_tensor *t = p->tensor;
	const bool decoder = t->src->layer >= 0 && !strncmp(t->src->name, "decoder.", 8);
	const int64_t layers = mfs_ckpt_args(b->list->ckpt)->num_layers;
	char name[MFS_CKPT_NAME_SIZE];

	mfs_rank_tensor_name(t, name, sizeof(name));
	if (b->o->rules.fp8_buffers && mfs_optim_is_fp8(&b->o->rules, name, t->base.ndim,
							decoder ? t->src->layer : -1, layers))
		return MFS_U8;
	return t->base.dtype;
}

/* On a last stage with MTP's copy of the embedding, the head's copy is not kept equal. */
static bool is_shared(const struct builder *b, const struct mfs_optim_param *p)
{
	char name[MFS_CKPT_NAME_SIZE];

	if (!p->tensor->is_shared || !b->has_embedding)
		return p->tensor->is_shared;
	mfs_rank_tensor_name(p->tensor, name, sizeof(name));
	return strcmp(name, "output_layer.weight") != 0;
}

static uint64_t all_elements(const struct mfs_optim *o)
{
	uint64_t sum = 0;

	/* Of tensors that are in files, so that their sum does not overflow. */
	for (uint32_t i = 0; i < o->count; i++)
		sum += o->params[i].elements;
	return sum;
}

/* Lays out the parameters of a buffer; flat and members have room for count. */
static int lay_out(struct builder *b, uint32_t buffer, struct mfs_flat_param *flat,
		   uint32_t *members)
{
	struct mfs_optim *o = b->o;
	struct mfs_optim_buffer *f = &o->buffers[buffer];
	struct mfs_flat_buffer layout;
	uint64_t size;
	uint32_t count = 0;
	int rc;

	for (uint32_t i = 0; i < o->count; i++)
		if (b->buffers[i] == buffer) {
			members[count] = i;
			flat[count++] =
				(struct mfs_flat_param){.elements = o->params[i].elements,
							.shared = is_shared(b, &o->params[i])};
		}
	size = mfs_flat_bucket_size(&o->rules, b->list->rank.pp, f->chunk, all_elements(o),
				    b->dp[0]);
	rc = mfs_flat_layout(&o->rules, size,
			     b->dp[mfs_optim_link_is_expert(&o->chain, f->optimizer)], flat, count,
			     &o->arena, &layout, b->err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		struct mfs_optim_param *p = &o->params[members[i]];

		p->buffer = buffer;
		p->bucket = flat[i].bucket;
		p->start = flat[i].start;
		p->in_bucket = flat[i].in_bucket;
		p->in_coalesced = flat[i].in_coalesced;
	}
	if (rc)
		return rc;
	f->bucket_count = layout.bucket_count;
	f->bucket_elements = layout.unpadded;
	f->bucket_padded = layout.padded;
	f->elements = layout.elements;
	return 0;
}

static bool has_buffer(const struct mfs_optim *o, uint32_t optimizer)
{
	return !o->rules.layer_wise || !mfs_optim_link_is_muon(&o->chain, optimizer);
}

static int make_buffers(struct builder *b)
{
	struct mfs_optim *o = b->o;
	struct mfs_flat_param *flat = calloc((size_t)o->count + 1, sizeof(*flat));
	uint32_t *members = calloc((size_t)o->count + 1, sizeof(*members));
	int rc = flat && members ? 0 : mfs_fail_nomem(b->err);

	o->buffers = mfs_arena_array(&o->arena, o->count, sizeof(*o->buffers));
	if (!o->buffers)
		rc = mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < o->count && !rc; i++)
		o->params[i].buffer = b->buffers[i] = MFS_OPTIM_NO_BUFFER;
	for (uint32_t k = 0; k < o->chain.count && !rc; k++)
		for (uint32_t i = 0; i < o->count; i++)
			if (o->params[i].optimizer == k && has_buffer(o, k))
				b->buffers[i] = find_buffer(b, k, b->chunks[i],
							    key_dtype(b, &o->params[i]));
	for (uint32_t i = 0; i < o->buffer_count && !rc; i++)
		rc = lay_out(b, i, flat, members);
	free(flat);
	free(members);
	return rc;
}

/* ---- life ---- */

int mfs_optim_new(const struct mfs_rank_list *list, const struct mfs_optim_rules *rules,
		  uint32_t dp, uint32_t expert_dp, struct mfs_optim **ret, struct mfs_error *err)
{
	struct mfs_optim *o = calloc(1, sizeof(*o));
	struct builder b = {.o = o, .list = list, .dp = {dp, expert_dp}, .err = err};
	int rc;

	if (!o)
		return mfs_fail_nomem(err);
	if (rules)
		o->rules = *rules;
	else
		mfs_optim_rules_of(list->ckpt, &o->rules);
	rc = o->rules.unsupported
		     ? mfs_fail(err, -ENOTSUP,
				"%s: the optimizer's layout with '%s' is not supported",
				mfs_ckpt_dir(list->ckpt), o->rules.unsupported)
		     : 0;
	if (!rc)
		rc = list_params(&b);
	if (!rc)
		rc = make_groups(&b);
	if (!rc)
		rc = make_buffers(&b);
	if (rc) {
		mfs_optim_free(o);
		return rc;
	}
	*ret = o;
	return 0;
}

void mfs_optim_free(struct mfs_optim *o)
{
	if (!o)
		return;
	mfs_arena_release(&o->arena);
	free(o);
}
