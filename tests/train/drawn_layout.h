/*
 * Ways to divide a model among the processes that there are, and how its microbatches go through:
 * drawn, or as the environment says.
 */
#ifndef MFS_TESTS_TRAIN_DRAWN_LAYOUT_H
#define MFS_TESTS_TRAIN_DRAWN_LAYOUT_H

#include <stdio.h>

#include "tests/unit/train_model.h"
#include "trainer/parallel/parallel.h"

#define LAYOUT_CHUNKS 32 /* model chunks of all stages */
#define LAYOUT_LAYERS 16

struct layout {
	struct mft_parallel_sizes size;
	uint32_t chunks;       /* of a stage */
	uint32_t microbatches; /* of each data parallel place */
	int64_t group; /* of them, that take turns; MFS_ABSENT: as many as there are stages */
	bool sequence_parallel, overlap;
	bool sharded; /* weights, gradients or states may be divided */
	bool drawn;   /* and so may be what models have in addition to their family's */
	/* of the model at hand */
	int model;
	uint32_t layers[LAYOUT_CHUNKS];
	const char *types[LAYOUT_LAYERS];
};

static inline int64_t layout_below(uint64_t *seed, int64_t end)
{
	return (int64_t)(train_random(seed) % (uint64_t)end);
}

/* One of the divisors of a number, up to 4. even: 1, 2 or 4, which heads and experts are multiples
 * of. */
static inline uint32_t layout_divisor(uint64_t *seed, uint32_t of, bool even)
{
	uint32_t d;

	do
		d = 1 + (uint32_t)layout_below(seed, 4);
	while (of % d || (even && d == 3));
	return d;
}

/* Groups of microbatches that take turns, and a rest that may be: none, or as many as stages. */
static inline void layout_draw_microbatches(struct layout *l, uint64_t *seed)
{
	const uint32_t pp = l->size.pp, group = pp + (uint32_t)layout_below(seed, 2);

	l->group = MFS_ABSENT;
	l->microbatches = 1 + (uint32_t)layout_below(seed, 2 * pp);
	if (l->chunks == 1)
		return;
	l->group = group;
	l->microbatches = group * (1 + (uint32_t)layout_below(seed, 2)) +
			  pp * (uint32_t)layout_below(seed, 2);
}

/* Of the distributed optimizer: a divisor of those that have the same of anything. */
static inline uint32_t layout_draw_instances(const struct mft_parallel_sizes *s, uint64_t *seed)
{
	uint32_t instances;

	do
		instances = layout_divisor(seed, s->cp * s->dp, false);
	while (s->edp % instances);
	return instances;
}

/* Of so many processes; they share experts if there are some. */
static inline void layout_draw(struct layout *l, uint64_t *seed, uint32_t processes, bool experts)
{
	uint64_t apart = *seed ^ UINT64_C(0x9e3779b97f4a7c15);
	uint32_t left = processes, of[3];
	const int64_t first = layout_below(seed, 3);

	for (int i = 0; i < 3; i++) {
		const int64_t at = (first + i) % 3;

		of[at] = layout_divisor(seed, left, at == 0);
		left /= of[at];
	}
	*l = (struct layout){.size = {.tp = of[0], .cp = of[1], .pp = of[2], .dp = left},
			     .sharded = true,
			     .drawn = true};
	l->size.etp = experts && layout_below(seed, 2) ? 1 : l->size.tp;
	/* Whatever tp is: those that share an expert may have other tokens. */
	if (experts && !layout_below(&apart, 3))
		l->size.etp = layout_divisor(&apart, processes / l->size.pp, true);
	left = l->size.tp * l->size.cp * l->size.dp / l->size.etp;
	l->size.ep = experts ? layout_divisor(seed, left, true) : 1;
	l->size.edp = left / l->size.ep;
	/* Two by two is what other sizes are not: more than a ring, or an exchange, of all. */
	if (l->size.cp > 1)
		l->size.neighbours = l->size.cp == 4 && layout_below(seed, 2)
					     ? 2
					     : layout_divisor(seed, l->size.cp, false);
	l->chunks = l->size.pp > 1 ? 1 + (uint32_t)layout_below(seed, 3) : 1;
	l->sequence_parallel = l->size.tp > 1 && (experts || layout_below(seed, 2));
	l->overlap = layout_below(seed, 2);
	layout_draw_microbatches(l, seed);
	if (layout_below(&apart, 2))
		l->size.instances = layout_draw_instances(&l->size, &apart);
}

static inline uint32_t layout_setting(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)atoi(text) : otherwise;
}

static inline void layout_from_environment(struct layout *l, uint32_t processes)
{
	const uint32_t tp = layout_setting("TP", 1), etp = layout_setting("ETP", tp);
	const uint32_t ep = layout_setting("EP", 1);

	ck_assert_uint_eq(processes % tp, 0);
	ck_assert_uint_eq(processes % (etp * ep), 0);
	*l = (struct layout){.size = {.tp = tp,
				      .cp = 1,
				      .pp = 1,
				      .dp = processes / tp,
				      .etp = etp,
				      .ep = ep,
				      .edp = processes / (etp * ep)},
			     .chunks = 1,
			     .microbatches = getenv("FSDP") ? 2 : 1,
			     .group = MFS_ABSENT,
			     .sequence_parallel = layout_setting("SP", 0),
			     .sharded = getenv("FSDP")};
}

/* ---- of a model ---- */

/* Sequences are multiples of it. */
static inline int64_t layout_tokens(const struct layout *l)
{
	const uint32_t shared = 2 * l->size.cp * (l->sequence_parallel ? l->size.tp : 1);

	return l->size.cp > 1 ? shared : 4;
}

/* As many layers as stages have to have, and some more. */
static inline int64_t layout_draw_count(const struct layout *l, uint64_t *seed)
{
	return (l->size.pp > 2 ? l->size.pp - 2 : 1) + layout_below(seed, l->size.pp > 1 ? 4 : 3);
}

/* A chunk may have none; a stage without embedding and head may not. */
static inline bool layout_has_layers(const struct layout *l)
{
	for (uint32_t stage = 1; stage + 1 < l->size.pp; stage++) {
		uint32_t layers = 0;

		for (uint32_t c = 0; c < l->chunks; c++)
			layers += l->layers[c * l->size.pp + stage];
		if (!layers)
			return false;
	}
	return true;
}

static inline void layout_draw_layers(struct layout *l, uint64_t *seed, int64_t layers)
{
	const uint32_t chunks = l->chunks * l->size.pp;

	ck_assert_uint_le(chunks, LAYOUT_CHUNKS);
	do {
		memset(l->layers, 0, sizeof(l->layers));
		for (int64_t i = 0; i < layers; i++)
			l->layers[layout_below(seed, chunks)]++;
	} while (!layout_has_layers(l));
}

/* Whether what a process has of heads and of their groups can be exchanged. */
static inline bool layout_exchanges(const struct layout *l, const struct mfs_megatron_args *a,
				    const char *type)
{
	const bool levels = !strcmp(type, "a2a+p2p");
	const int64_t heads = a->num_attention_heads / l->size.tp;
	const int64_t some = a->num_query_groups / l->size.tp;
	const int64_t groups = a->multi_latent_attention ? heads : some ? some : 1;
	const int64_t n = levels ? l->size.neighbours : l->size.cp;

	if (!levels && strcmp(type, "a2a") != 0)
		return true;
	return heads % n == 0 && groups % n == 0;
}

/* One way to attend for all layers, or one for each. */
static inline void layout_draw_types(struct layout *l, uint64_t *seed, struct mft_train_config *c)
{
	static const char *const all[] = {"p2p", "all_gather", "a2a", "a2a+p2p"};
	const int64_t count = layout_below(seed, 2) ? 1 : c->model.num_layers;

	ck_assert_int_le(count, LAYOUT_LAYERS);
	for (int64_t i = 0; i < count; i++)
		do
			l->types[i] = all[layout_below(seed, 4)];
		while (!layout_exchanges(l, &c->model, l->types[i]));
	c->cp_comm_type = (struct mfs_arg_words){l->types, (size_t)count};
}

/* What a run's arguments say of it. The one process that has the whole model does not look. */
static inline void layout_tell(struct layout *l, uint64_t *seed, struct mft_train_config *c)
{
	c->global_batch_size = c->micro_batch_size * l->microbatches * l->size.dp;
	c->eval_global_batch_size = c->micro_batch_size * l->size.dp;
	c->microbatch_group_size = l->group;
	c->overlap_p2p_comm = l->overlap;
	if (l->size.cp > 1)
		layout_draw_types(l, seed, c);
	if (l->size.pp == 1)
		return;
	layout_draw_layers(l, seed, c->model.num_layers);
	c->chunk_layers = l->layers;
	c->model.virtual_pipeline_model_parallel_size = l->chunks;
}

/* For a person who looks for what has failed. */
static inline void layout_print(const struct layout *l, const struct mft_train_config *c)
{
	const struct mft_parallel_sizes *s = &l->size;

	printf("model %d: tp %u, sp %d, cp %u by %u, dp %u, pp %u, etp %u, ep %u, ", l->model,
	       s->tp, l->sequence_parallel, s->cp, s->neighbours, s->dp, s->pp, s->etp, s->ep);
	printf("%u instances; layers", s->instances ? s->instances : 1);
	for (uint32_t i = 0; c->chunk_layers && i < l->chunks * s->pp; i++)
		printf(" %u", l->layers[i]);
	printf(" of %lld; %u microbatches, groups of %lld;", (long long)c->model.num_layers,
	       l->microbatches, (long long)l->group);
	for (size_t i = 0; i < c->cp_comm_type.count; i++)
		printf(" %s", c->cp_comm_type.list[i]);
	putchar('\n');
	fflush(stdout);
}

#endif
