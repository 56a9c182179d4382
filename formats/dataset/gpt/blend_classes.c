/* Datasets of equal weight, and what is kept about a walk through a blend. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/blend_greedy.h"

struct entry {
	double weight;
	uint64_t size;
	uint16_t dataset;
};

static int by_weight(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return (x->dataset > y->dataset) - (x->dataset < y->dataset);
}

static int by_first(const void *a, const void *b)
{
	const struct entry *const *x = a, *const *y = b;

	return ((*x)->dataset > (*y)->dataset) - ((*x)->dataset < (*y)->dataset);
}

/* Sorted entries into classes; heads point at the first of each. */
static void fill_classes(const struct entry *sorted, const struct entry **heads,
			 struct mfs_blend_classes *c)
{
	const struct entry *end = sorted + c->datasets;
	uint32_t at = 0;

	for (const struct entry *e = sorted; e < end; e++)
		if (e == sorted || e->weight != e[-1].weight || e->size != e[-1].size)
			heads[c->count++] = e;
	/* In the order of their first datasets, so that memory is walked as Megatron does. */
	qsort(heads, c->count, sizeof(*heads), by_first);
	for (uint32_t k = 0; k < c->count; k++) {
		const struct entry *e = heads[k];

		c->weight[k] = e->weight;
		c->limit[k] = e->size == UINT64_MAX ? INFINITY : (double)e->size;
		c->first[k] = at;
		for (; e < end && e->weight == heads[k]->weight && e->size == heads[k]->size; e++)
			c->members[at++] = e->dataset;
	}
	c->first[c->count] = at;
	c->padded = (c->count + MFS_BLEND_LANES - 1) / MFS_BLEND_LANES * MFS_BLEND_LANES;
}

int mfs_blend_classes_new(const double *weights, const uint64_t *sizes, uint32_t datasets,
			  struct mfs_blend_classes *ret)
{
	struct mfs_blend_classes c = {.datasets = datasets};
	const uint32_t room = datasets + MFS_BLEND_LANES;
	struct entry *sorted = calloc(datasets, sizeof(*sorted));
	const struct entry **heads = calloc(datasets, sizeof(*heads));

	c.weight = calloc(room, sizeof(*c.weight));
	c.limit = calloc(datasets, sizeof(*c.limit));
	c.first = calloc(datasets + 1, sizeof(*c.first));
	c.members = calloc(datasets, sizeof(*c.members));
	if (sorted && heads && c.weight && c.limit && c.first && c.members) {
		for (uint32_t i = 0; i < datasets; i++)
			sorted[i] = (struct entry){weights[i], sizes ? sizes[i] : UINT64_MAX,
						   (uint16_t)i};
		qsort(sorted, datasets, sizeof(*sorted), by_weight);
		fill_classes(sorted, heads, &c);
	}
	free(sorted);
	free(heads);
	if (!c.count) {
		mfs_blend_classes_release(&c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void mfs_blend_classes_release(struct mfs_blend_classes *c)
{
	free(c->weight);
	free(c->limit);
	free(c->first);
	free(c->members);
	*c = (struct mfs_blend_classes){0};
}

/* ---- the state of a walk ---- */

static uint32_t members_of(const struct mfs_blend_classes *c, uint32_t k)
{
	return c->first[k + 1] - c->first[k];
}

/* Takes size bytes off a block of memory, all of them multiples of 8. */
static void *take(uint8_t **at, size_t size)
{
	void *p = *at;

	*at += (size + 7) / 8 * 8;
	return p;
}

/* The number of samples for which a short list is made grows with the root of the number of
 * classes: so do then both its length and what it costs a sample to make it. */
static uint32_t list_room(uint32_t classes)
{
	return 8 * (uint32_t)sqrt(classes) + MFS_BLEND_LANES;
}

int mfs_blend_walk_new(const struct mfs_blend_classes *c, struct mfs_blend_walk *ret)
{
	const size_t n = c->padded, room = list_room(c->count);
	struct mfs_blend_walk w = {.classes = c};
	uint8_t *at = calloc(1, n * (8 + 8 + 8) + (room + MFS_BLEND_LANES) * (8 + 8 + 8));

	if (!at)
		return -ENOMEM;
	w.memory = at;
	w.count = take(&at, n * sizeof(*w.count));
	w.place = take(&at, n * sizeof(*w.place));
	w.next = take(&at, n * sizeof(*w.next));
	w.list.room = (uint32_t)room;
	w.list.weight = take(&at, (room + MFS_BLEND_LANES) * sizeof(*w.list.weight));
	w.list.count = take(&at, (room + MFS_BLEND_LANES) * sizeof(*w.list.count));
	w.list.class = take(&at, (room + MFS_BLEND_LANES) * sizeof(*w.list.class));
	w.list.margin = (double)room / 4 / c->count;
	for (uint32_t k = 0; k < c->count; k++)
		w.next[k] = c->members[c->first[k]];
	for (uint32_t k = c->count; k < c->padded; k++)
		w.count[k] = INFINITY;
	*ret = w;
	return 0;
}

void mfs_blend_walk_release(struct mfs_blend_walk *w)
{
	free(w->memory);
	*w = (struct mfs_blend_walk){0};
}

/* Whole, also of a class that has no more samples. */
static uint64_t count_of(const struct mfs_blend_walk *w, uint32_t k)
{
	return (uint64_t)(isinf(w->count[k]) ? w->classes->limit[k] : w->count[k]);
}

void mfs_blend_walk_save(const struct mfs_blend_walk *w, uint64_t *ret)
{
	const struct mfs_blend_classes *c = w->classes;

	for (uint32_t k = 0; k < c->count; k++)
		ret[k] = count_of(w, k) * members_of(c, k) + w->place[k];
}

void mfs_blend_walk_restore(struct mfs_blend_walk *w, uint64_t sample, const uint64_t *saved)
{
	const struct mfs_blend_classes *c = w->classes;

	w->sample = sample;
	for (uint32_t k = 0; k < c->count; k++) {
		const double count = (double)(saved[k] / members_of(c, k));

		w->count[k] = count < c->limit[k] ? count : INFINITY;
		w->place[k] = (uint32_t)(saved[k] % members_of(c, k));
		w->next[k] = c->members[c->first[k] + w->place[k]];
	}
}

void mfs_blend_walk_counts(const struct mfs_blend_walk *w, uint64_t *ret)
{
	const struct mfs_blend_classes *c = w->classes;

	for (uint32_t k = 0; k < c->count; k++)
		for (uint32_t m = 0; m < members_of(c, k); m++)
			ret[c->members[c->first[k] + m]] = count_of(w, k) + (m < w->place[k]);
}
