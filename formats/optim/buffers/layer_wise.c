#include "formats/optim/buffers/layer_wise.h"

#include <stdlib.h>

/* ---- dealing ---- */

static int by_group(const void *a, const void *b)
{
	const struct mfs_layer_card *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return (x->param > y->param) - (x->param < y->param);
}

static int by_size(const void *a, const void *b)
{
	const struct mfs_layer_card *x = a, *y = b;

	if (x->elements != y->elements)
		return x->elements < y->elements ? -1 : 1;
	return by_group(a, b);
}

/* The rank that gets the i-th. */
static uint32_t turn(uint32_t i, uint32_t ranks)
{
	const uint32_t at = i % (2 * ranks);

	return at < ranks ? at : 2 * ranks - 1 - at;
}

uint32_t mfs_layer_deal(const struct mfs_layer_share *s, struct mfs_layer_card *cards,
			uint32_t count)
{
	uint32_t dealt[2] = {0}, own = 0;

	qsort(cards, count, sizeof(*cards), s->ranks == 1 ? by_group : by_size);
	for (uint32_t i = 0; i < count; i++) {
		const bool expert = cards[i].expert;
		const uint32_t ranks = expert ? s->expert_ranks : s->ranks;

		if (turn(dealt[expert]++, ranks) == (expert ? s->expert_rank : s->rank))
			cards[own++] = cards[i];
	}
	return own;
}

/* ---- a rank's parameters ---- */

/* Numbers the parameters of an optimizer, which are in the order of each group. */
static void number(struct mfs_optim *o, uint32_t optimizer)
{
	uint32_t id = 0;

	for (uint32_t g = 0; g < o->group_count[optimizer]; g++) {
		struct mfs_optim_group *group = &o->groups[o->first_group[optimizer] + g];
		uint32_t main = 0;

		group->count = 0;
		for (uint32_t i = 0; i < o->count; i++) {
			struct mfs_optim_param *p = &o->params[i];

			if (p->optimizer != optimizer || p->group != g)
				continue;
			p->index = group->count++;
			p->id = id++;
			p->main = p->has_main ? main++ : 0;
		}
	}
}

int mfs_layer_share_take(struct mfs_optim *o, const struct mfs_layer_share *s,
			 struct mfs_error *err)
{
	struct mfs_layer_card *cards = mfs_arena_array(&o->arena, o->count + 1, sizeof(*cards));
	struct mfs_optim_param *own = mfs_arena_array(&o->arena, o->count + 1, sizeof(*own));

	if (!cards || !own)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < o->count; i++) {
		const struct mfs_optim_param *p = &o->params[i];
		const uint32_t group = o->first_group[p->optimizer] + p->group;

		cards[i] = (struct mfs_layer_card){.elements = p->elements,
						   .group = group,
						   .param = i,
						   .expert = o->groups[group].experts};
	}
	o->count = mfs_layer_deal(s, cards, o->count);
	for (uint32_t i = 0; i < o->count; i++)
		own[i] = o->params[cards[i].param];
	o->params = own;
	for (uint32_t i = 0; i < o->chain.count; i++)
		number(o, i);
	return 0;
}
