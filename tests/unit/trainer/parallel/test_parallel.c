/*
 * Who is in which group (trainer/parallel/parallel.h), for random sizes against the definition in
 * megatron/core/parallel_state.py: RankGenerator, order tp-cp-ep-dp-pp; and one table of what the
 * real RankGenerator of megatron-core 0.16.1 says.
 */
#include "trainer/parallel/parallel.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

#define MOST 128 /* processes */

/* ---- the definition ---- */

/* RankGenerator's dimensions, in its order; cp is divided in two. */
enum { TP, HEADS, RING, EP, DP, PP, DIMS };
#define CP (1u << HEADS | 1u << RING)

/* Two of them number the same processes. Of the dense one ep is 1; of the experts' one cp is 1, tp
 * is etp and dp is edp. */
struct generator {
	uint32_t size[DIMS];
};

static struct generator dense(const struct mft_parallel_sizes *s)
{
	const uint32_t neighbours = s->neighbours ? s->neighbours : 1;

	return (struct generator){{s->tp, neighbours, s->cp / neighbours, 1, s->dp, s->pp}};
}

static struct generator experts(const struct mft_parallel_sizes *s)
{
	return (struct generator){{s->etp, 1, 1, s->ep, s->edp, s->pp}};
}

/* The group that get_ranks() of dims, 1 << d each, has for a rank: all that differ from it in these
 * alone, in ascending order. Returns how many. */
static uint32_t ranks_of(struct generator g, unsigned dims, uint32_t rank, uint32_t ret[MOST])
{
	uint32_t world = 1, count = 0;

	for (int d = 0; d < DIMS; d++)
		world *= g.size[d];
	for (uint32_t other = 0; other < world; other++) {
		uint32_t a = rank, b = other;
		bool in = true;

		for (int d = 0; d < DIMS; d++) {
			in &= dims & 1u << d || a % g.size[d] == b % g.size[d];
			a /= g.size[d];
			b /= g.size[d];
		}
		if (in)
			ret[count++] = other;
	}
	return count;
}

/* initialize_model_parallel()'s tokens; embedding groups are another function's. */
static const struct {
	enum mft_group group;
	bool of_experts;
	unsigned dims;
	const char *name;
} groups[] = {
	{MFT_GROUP_WORLD, false, (1u << DIMS) - 1, "world"},
	{MFT_GROUP_TENSOR, false, 1u << TP, "tp"},
	{MFT_GROUP_CONTEXT, false, CP, "cp"},
	{MFT_GROUP_DATA, false, 1u << DP, "dp"},
	{MFT_GROUP_GRADS, false, 1u << DP | CP, "dp-cp"},
	{MFT_GROUP_PIPELINE, false, 1u << PP, "pp"},
	{MFT_GROUP_MODEL, false, 1u << TP | 1u << PP, "tp-pp"},
	{MFT_GROUP_EXPERT, true, 1u << EP, "ep"},
	{MFT_GROUP_EXPERT_TENSOR, true, 1u << TP, "expert tp"},
	{MFT_GROUP_EXPERT_TOKENS, true, 1u << TP | 1u << EP, "expert tp-ep"},
	{MFT_GROUP_EXPERT_GRADS, true, 1u << DP, "expert dp"},
	{MFT_GROUP_EXPERT_MODEL, true, 1u << TP | 1u << EP | 1u << PP, "expert tp-ep-pp"},
};
#define GROUPS MFS_ARRAY_SIZE(groups)

/* ---- a world whose groups are what split() was asked for ---- */

struct mfk_comm {
	bool made;
	unsigned color, key;
};

static struct mfk_comm comms[MFT_GROUP_COUNT];
static unsigned made, freed;

static int fake_world(struct mfk_device *d, const struct mfk_world *w, struct mfk_comm **ret,
		      char *why)
{
	(void)d, (void)why;
	comms[0] = (struct mfk_comm){true, 0, w->rank};
	made = 1;
	*ret = &comms[0];
	return 0;
}

static int fake_split(struct mfk_comm *from, unsigned color, unsigned key, struct mfk_comm **ret,
		      char *why)
{
	(void)why;
	ck_assert_ptr_eq(from, &comms[0]);
	comms[made] = (struct mfk_comm){true, color, key};
	*ret = &comms[made++];
	return 0;
}

static void fake_free(struct mfk_comm *c)
{
	ck_assert(c->made);
	c->made = false;
	freed++;
}

static const struct mfk_comm_ops fake = {
	.name = "fake", .world = fake_world, .split = fake_split, .free = fake_free};
static const struct mfk_backend backend = {.name = "fake", .comm = &fake};

struct seen {
	uint32_t rank, size;
	bool has;
	unsigned color;
};

/* What each process has of each group when it has opened them. */
static void open_all(const struct mft_parallel_sizes *s, uint32_t world,
		     struct seen ret[MOST][MFT_GROUP_COUNT])
{
	for (uint32_t r = 0; r < world; r++) {
		const struct mft_launch launch = {.rank = r, .size = world, .by = "test"};
		struct mft_parallel p;

		made = freed = 0;
		mft_parallel_places(&launch, s, &p);
		unit_ok(mft_parallel_open(&p, &backend, NULL, 600, &err), &err);
		for (int g = 0; g < MFT_GROUP_COUNT; g++) {
			const struct mft_group_place *place = &p.group[g];

			ret[r][g] = (struct seen){place->rank, place->size, place->comm != NULL,
						  place->comm ? place->comm->color : 0};
			if (place->comm)
				ck_assert_uint_eq(place->comm->key, place->rank);
		}
		unit_ok(mft_parallel_close(&p, &err), &err);
		ck_assert_uint_eq(freed, made);
	}
}

static void check_group(struct seen all[MOST][MFT_GROUP_COUNT], uint32_t world, uint32_t rank,
			int g, const uint32_t *want, uint32_t count, const char *name)
{
	const struct seen *own = &all[rank][g];
	uint32_t at = 0;

	ck_assert_msg(own->size == count, "%s of rank %u: %u, not %u", name, rank, own->size,
		      count);
	ck_assert_msg(want[own->rank] == rank, "%s of rank %u: number %u", name, rank, own->rank);
	ck_assert_msg(own->has || count == 1, "%s of rank %u is not opened", name, rank);
	/* Who named the same color is in it, and nobody else. */
	for (uint32_t r = 0; r < world && own->has; r++) {
		const bool in = at < count && want[at] == r;

		ck_assert_msg(in == (all[r][g].has && all[r][g].color == own->color),
			      "%s of rank %u: rank %u", name, rank, r);
		at += in;
	}
}

/* parallel_state.py: default_embedding_ranks: the first and the last stage of each pipeline. */
static void check_embedding(struct seen all[MOST][MFT_GROUP_COUNT], struct generator g,
			    uint32_t world, uint32_t rank)
{
	uint32_t stages[MOST], ends[2];
	const uint32_t count = ranks_of(g, 1u << PP, rank, stages);

	ends[0] = stages[0];
	ends[1] = stages[count - 1];
	if (rank == ends[0] || rank == ends[1])
		check_group(all, world, rank, MFT_GROUP_EMBEDDING, ends, count > 1 ? 2 : 1,
			    "embedding");
	else
		check_group(all, world, rank, MFT_GROUP_EMBEDDING, &rank, 1, "embedding");
}

/* Of processes that are not divided in neighbours there are no such groups. */
static void check_levels(struct seen all[MOST][MFT_GROUP_COUNT], const struct mft_parallel_sizes *s,
			 uint32_t world, uint32_t rank)
{
	static const int levels[][2] = {{MFT_GROUP_CONTEXT_HEADS, HEADS},
					{MFT_GROUP_CONTEXT_RING, RING}};
	uint32_t want[MOST];

	for (int i = 0; i < 2; i++) {
		const uint32_t count = ranks_of(dense(s), 1u << levels[i][1], rank, want);

		if (s->neighbours)
			check_group(all, world, rank, levels[i][0], want, count, "a level of cp");
		else
			ck_assert(!all[rank][levels[i][0]].has);
	}
}

static uint32_t index_of(const uint32_t *ranks, uint32_t rank)
{
	uint32_t at = 0;

	while (ranks[at] != rank)
		at++;
	return at;
}

/* Which instance a rank is of, by the data parallel ranks of its experts. */
static uint32_t instance_of(const struct mft_parallel_sizes *s, uint32_t rank)
{
	uint32_t ranks[MOST];

	ranks_of(experts(s), 1u << DP, rank, ranks);
	return index_of(ranks, rank) / (s->edp / s->instances);
}

/* initialize_model_parallel(): slices of dp-cp, create_hierarchical_groups() of the experts' dp,
 * whose second level is the dense parameters', too, and neighbours of tp-ep-pp's groups. */
static void check_instances(struct seen all[MOST][MFT_GROUP_COUNT],
			    const struct mft_parallel_sizes *s, uint32_t world, uint32_t rank)
{
	const uint32_t dense_each = s->cp * s->dp / s->instances, each = s->edp / s->instances;
	uint32_t ranks[MOST], want[MOST], at, count = 0;

	ranks_of(dense(s), 1u << DP | CP, rank, ranks);
	at = index_of(ranks, rank);
	check_group(all, world, rank, MFT_GROUP_INSTANCE_GRADS,
		    ranks + at / dense_each * dense_each, dense_each, "intra_dp_cp");
	ranks_of(experts(s), 1u << DP, rank, ranks);
	at = index_of(ranks, rank);
	check_group(all, world, rank, MFT_GROUP_INSTANCE_EXPERT_GRADS, ranks + at / each * each,
		    each, "intra_expt_dp");
	for (uint32_t i = 0; i < s->instances; i++)
		want[i] = ranks[i * each + at % each];
	check_group(all, world, rank, MFT_GROUP_ACROSS_INSTANCES, want, s->instances,
		    "inter_dist_opt");
	for (uint32_t r = 0; r < world; r++)
		if (instance_of(s, r) == instance_of(s, rank))
			want[count++] = r;
	check_group(all, world, rank, MFT_GROUP_INSTANCE, want, count, "intra_dist_opt");
}

static void check_sizes(const struct mft_parallel_sizes *s)
{
	static struct seen all[MOST][MFT_GROUP_COUNT];
	const uint32_t world = s->tp * s->cp * s->dp * s->pp;
	uint32_t want[MOST], count;

	open_all(s, world, all);
	for (uint32_t r = 0; r < world; r++) {
		for (size_t i = 0; i < GROUPS; i++) {
			count = ranks_of(groups[i].of_experts ? experts(s) : dense(s),
					 groups[i].dims, r, want);
			check_group(all, world, r, groups[i].group, want, count, groups[i].name);
		}
		check_embedding(all, dense(s), world, r);
		check_levels(all, s, world, r);
		if (s->instances > 1)
			check_instances(all, s, world, r);
		for (int g = MFT_GROUP_INSTANCE; g < MFT_GROUP_COUNT; g++)
			ck_assert(s->instances > 1 || !all[r][g].has);
	}
}

static uint32_t some(uint32_t n)
{
	return 1 + (uint32_t)rand() % n;
}

START_TEST(random_sizes)
{
	srand(13);
	for (int i = 0; i < 300; i++) {
		struct mft_parallel_sizes s = {
			.tp = some(4), .cp = some(6), .dp = some(4), .pp = some(4)};
		uint32_t each = s.tp * s.cp * s.dp;

		while (each * s.pp > MOST)
			s.pp--;
		/* Sizes of experts divide what one stage has. */
		do
			s.etp = some(each);
		while (each % s.etp);
		each /= s.etp;
		do
			s.ep = some(each);
		while (each % s.ep);
		s.edp = each / s.ep;
		if (i % 2)
			do
				s.neighbours = some(s.cp);
			while (s.cp % s.neighbours);
		if (i % 3)
			do
				s.instances = some(s.edp);
			while (s.edp % s.instances || s.cp * s.dp % s.instances);
		check_sizes(&s);
	}
}
END_TEST

/* tp 2, cp 2, dp 2, pp 2, etp 1, ep 4, edp 2: what RankGenerator.get_ranks() returns. */
struct row {
	enum mft_group group;
	const char *ranks;
};

static const struct row table[] = {
	{MFT_GROUP_TENSOR, "0 1|2 3|4 5|6 7|8 9|10 11|12 13|14 15"},
	{MFT_GROUP_CONTEXT, "0 2|1 3|4 6|5 7|8 10|9 11|12 14|13 15"},
	{MFT_GROUP_DATA, "0 4|1 5|2 6|3 7|8 12|9 13|10 14|11 15"},
	{MFT_GROUP_GRADS, "0 2 4 6|1 3 5 7|8 10 12 14|9 11 13 15"},
	{MFT_GROUP_PIPELINE, "0 8|1 9|2 10|3 11|4 12|5 13|6 14|7 15"},
	{MFT_GROUP_MODEL, "0 1 8 9|2 3 10 11|4 5 12 13|6 7 14 15"},
	{MFT_GROUP_EXPERT, "0 1 2 3|4 5 6 7|8 9 10 11|12 13 14 15"},
	{MFT_GROUP_EXPERT_TENSOR, "0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15"},
	{MFT_GROUP_EXPERT_TOKENS, "0 1 2 3|4 5 6 7|8 9 10 11|12 13 14 15"},
	{MFT_GROUP_EXPERT_GRADS, "0 4|1 5|2 6|3 7|8 12|9 13|10 14|11 15"},
	{MFT_GROUP_EXPERT_MODEL, "0 1 2 3 8 9 10 11|4 5 6 7 12 13 14 15"},
};

/* create_hierarchical_groups() of 16 processes: what its comment says of the first and the last of
 * levels. */
static const struct row by_two = {MFT_GROUP_CONTEXT_HEADS, "0 1|2 3|4 5|6 7|8 9|10 11|12 13|14 15"};
static const struct row by_four = {MFT_GROUP_CONTEXT_RING, "0 4 8 12|1 5 9 13|2 6 10 14|3 7 11 15"};

static void check_rows(const struct mft_parallel_sizes *s, const struct row *rows, size_t count_of)
{
	static struct seen all[MOST][MFT_GROUP_COUNT];

	open_all(s, 16, all);
	for (size_t i = 0; i < count_of; i++) {
		const char *text = rows[i].ranks;
		unsigned seen = 0;

		while (*text) {
			uint32_t ranks[16], count = 0;
			char *end;

			do {
				ranks[count++] = (uint32_t)strtoul(text, &end, 10);
				text = end;
			} while (*text == ' ');
			text += *text == '|';
			for (uint32_t r = 0; r < count; r++)
				check_group(all, 16, ranks[r], (int)rows[i].group, ranks, count,
					    "table");
			seen += count;
		}
		ck_assert_uint_eq(seen, 16);
	}
}

START_TEST(real_table)
{
	static const struct mft_parallel_sizes s = {2, 2, 2, 2, 1, 4, 2, 0, 0};
	static const struct mft_parallel_sizes two = {1, 16, 1, 1, 1, 1, 16, 2, 0};
	static const struct mft_parallel_sizes four = {1, 16, 1, 1, 1, 1, 16, 4, 0};

	check_rows(&s, table, MFS_ARRAY_SIZE(table));
	check_rows(&two, &by_two, 1);
	check_rows(&four, &by_four, 1);
}
END_TEST

/* A group of one has nothing to say, and what it has stays. */
START_TEST(a_group_of_one_sends_nothing)
{
	struct mft_parallel p;
	double value = 3, got = 0;

	mft_parallel_one(&p);
	unit_ok(mft_parallel_open(&p, &backend, NULL, 600, &err), &err);
	ck_assert_ptr_null(p.ops);
	mft_parallel_all_reduce(&p, MFT_GROUP_WORLD, NULL, MFK_SUM, MFK_F32, &value, 1);
	unit_ok(mft_parallel_sum(&p, MFT_GROUP_DATA, &value, 1, &err), &err);
	unit_ok(mft_parallel_gather(&p, MFT_GROUP_WORLD, &got, &value, sizeof(got), &err), &err);
	ck_assert(value == 3 && got == 3);
	ck_assert(mft_is_first_stage(&p) && mft_is_last_stage(&p));
	unit_ok(mft_parallel_close(&p, &err), &err);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("parallel");
	TCase *c = unit_case(s, "groups", random_sizes);

	tcase_add_test(c, real_table);
	tcase_add_test(c, a_group_of_one_sends_nothing);
	return s;
}
