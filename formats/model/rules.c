#include "formats/model/rules.h"

#include <stdbool.h>
#include <string.h>

/* The geometry of linear_qkv, and where its rows go. */
struct qkv {
	uint64_t groups, heads; /* heads: query heads of a group */
	uint64_t gates;		/* heads of output gates of a group, behind the query heads */
	uint64_t head;		/* rows of a head */
	uint64_t rotary;	/* how many of these are rotated */
	bool interleaved;
	uint64_t to; /* the next row of the result */
	int (*emit)(const struct mfs_row_map *map, void *arg);
	void *arg;
};

/* A run without rotary positions may have rotary arguments; they have no effect. */
static bool rotates(const struct mfs_megatron_args *a)
{
	return !a->position_embedding_type ||
	       strcmp(a->position_embedding_type, "learned_absolute") != 0;
}

static struct qkv qkv_of(const struct mfs_megatron_args *a)
{
	struct qkv g = {
		.groups = (uint64_t)a->num_query_groups,
		.heads = (uint64_t)(a->num_attention_heads / a->num_query_groups),
		.head = (uint64_t)a->kv_channels,
		.interleaved = a->rotary_interleaved && rotates(a),
	};

	g.gates = a->attention_output_gate ? g.heads : 0;
	g.rotary = (uint64_t)((double)g.head * a->rotary_percent) / 2 * 2;
	return g;
}

static int run(struct qkv *g, uint64_t from, uint64_t count, uint64_t step)
{
	struct mfs_row_map r = {.to = g->to, .from = from, .count = count, .step = step};

	g->to += count;
	return count ? g->emit(&r, g->arg) : 0;
}

/* Emits heads with their rotary pairs in HF's order. */
static int rotary_heads(struct qkv *g, uint64_t from, uint64_t heads)
{
	int rc = 0;

	if (!g->interleaved)
		return run(g, from, heads * g->head, 1);
	for (uint64_t h = 0; h < heads && !rc; h++, from += g->head) {
		rc = run(g, from, g->rotary / 2, 2);
		if (!rc)
			rc = run(g, from + 1, g->rotary / 2, 2);
		if (!rc)
			rc = run(g, from + g->rotary, g->head - g->rotary, 1);
	}
	return rc;
}

/* Emits the queries, keys or values of every group. */
static int part(struct qkv *g, enum mfs_rule which)
{
	const uint64_t group_rows = (g->heads + g->gates + 2) * g->head;
	int rc = 0;

	for (uint64_t i = 0; i < g->groups && !rc; i++) {
		uint64_t q = i * group_rows, k = q + (g->heads + g->gates) * g->head;

		if (which == MFS_RULE_Q)
			rc = rotary_heads(g, q, g->heads);
		else if (which == MFS_RULE_K)
			rc = rotary_heads(g, k, 1);
		else
			rc = run(g, k + g->head, g->head, 1);
	}
	return rc;
}

static int concatenated(struct qkv *g)
{
	int rc = part(g, MFS_RULE_Q);

	if (!rc)
		rc = part(g, MFS_RULE_K);
	return rc ? rc : part(g, MFS_RULE_V);
}

/* Emits each head with its gates behind it. */
static int gated_heads(struct qkv *g)
{
	const uint64_t gates = g->heads * g->head;
	const uint64_t group_rows = 2 * gates + 2 * g->head;
	int rc = 0;

	for (uint64_t i = 0; i < g->groups; i++)
		for (uint64_t h = 0; h < g->heads && !rc; h++) {
			const uint64_t from = i * group_rows + h * g->head;

			rc = rotary_heads(g, from, 1);
			if (!rc)
				rc = run(g, from + gates, g->head, 1);
		}
	return rc;
}

/* Emits rows of in_proj, key head by key head. Value heads are shared out among the key heads. */
static int delta_net(struct qkv *g, enum mfs_rule rule, const struct mfs_megatron_args *a)
{
	const uint64_t heads = (uint64_t)a->linear_num_key_heads;
	const uint64_t values = (uint64_t)(a->linear_num_value_heads / a->linear_num_key_heads);
	const uint64_t key = (uint64_t)a->linear_key_head_dim;
	const uint64_t value = (uint64_t)a->linear_value_head_dim * values;
	/* q, k, v, z, b, a: rows of a key head */
	const uint64_t rows[] = {key, key, value, value, values, values};
	const unsigned first = rule == MFS_RULE_QKVZ ? 0 : 4, end = rule == MFS_RULE_QKVZ ? 4 : 6;
	int rc = 0;

	for (uint64_t h = 0; h < heads; h++) {
		uint64_t part = 0; /* where it begins */

		for (unsigned i = 0; i < end && !rc; part += heads * rows[i++])
			if (i >= first)
				rc = run(g, part + h * rows[i], rows[i], 1);
	}
	return rc;
}

/* Rows of in_proj: [q, k and v; z; b; a]. Returns how many rows a part has, and where it begins. */
static uint64_t net_part(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t *ret_from)
{
	const uint64_t heads = (uint64_t)a->linear_num_value_heads;
	const uint64_t z = heads * (uint64_t)a->linear_value_head_dim;
	const uint64_t keys = (uint64_t)(a->linear_num_key_heads * a->linear_key_head_dim);
	const uint64_t rows[] = {2 * keys + z, z, heads, heads};

	*ret_from = 0;
	for (unsigned i = 0; i < (unsigned)(rule - MFS_RULE_NET_QKV); i++)
		*ret_from += rows[i];
	return rows[rule - MFS_RULE_NET_QKV];
}

/* Rows of the gate and of up, by turns. */
static int alternate(const struct qkv *g, uint64_t half)
{
	struct mfs_row_map r = {.count = half, .step = 1, .lanes = 2};
	int rc = half ? g->emit(&r, g->arg) : 0;

	r.from = half;
	r.lane = 1;
	return rc || !half ? rc : g->emit(&r, g->arg);
}

static int swapped_halves(struct qkv *g, uint64_t columns)
{
	int rc = run(g, columns / 2, columns - columns / 2, 1);

	return rc ? rc : run(g, 0, columns / 2, 1);
}

bool mfs_rule_is_of_columns(enum mfs_rule rule)
{
	return rule == MFS_RULE_SWAPPED;
}

uint64_t mfs_rule_rows(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		       uint64_t vocab)
{
	uint64_t from;

	switch (rule) {
	case MFS_RULE_VOCAB:
		return vocab;
	case MFS_RULE_Q:
	case MFS_RULE_Q_PAIRS:
		return (uint64_t)(a->num_attention_heads * a->kv_channels);
	case MFS_RULE_Q_GATES:
		return 2 * (uint64_t)(a->num_attention_heads * a->kv_channels);
	case MFS_RULE_QKVZ:
		return source_rows - 2 * (uint64_t)a->linear_num_value_heads;
	case MFS_RULE_BA:
		return 2 * (uint64_t)a->linear_num_value_heads;
	case MFS_RULE_NET_QKV:
	case MFS_RULE_NET_Z:
	case MFS_RULE_NET_B:
	case MFS_RULE_NET_A:
		return net_part(rule, a, &from);
	case MFS_RULE_K:
	case MFS_RULE_K_PAIRS:
	case MFS_RULE_V:
		return (uint64_t)(a->num_query_groups * a->kv_channels);
	case MFS_RULE_GATE:
	case MFS_RULE_UP:
		return source_rows / 2;
	case MFS_RULE_DIRECT:
	case MFS_RULE_QKV:
	case MFS_RULE_HEAD:
	case MFS_RULE_GATE_UP:
	case MFS_RULE_SWAPPED:
		break;
	}
	return source_rows;
}

int mfs_rule_maps(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		  uint64_t count, int (*emit)(const struct mfs_row_map *map, void *arg), void *arg)
{
	struct qkv g = qkv_of(a);
	uint64_t from;

	g.emit = emit;
	g.arg = arg;
	switch (rule) {
	case MFS_RULE_Q:
	case MFS_RULE_K:
	case MFS_RULE_V:
		return part(&g, rule);
	case MFS_RULE_Q_PAIRS:
	case MFS_RULE_K_PAIRS:
		g.interleaved = false;
		return part(&g, rule == MFS_RULE_Q_PAIRS ? MFS_RULE_Q : MFS_RULE_K);
	case MFS_RULE_QKV:
		return concatenated(&g);
	case MFS_RULE_Q_GATES:
		return gated_heads(&g);
	case MFS_RULE_QKVZ:
	case MFS_RULE_BA:
		return delta_net(&g, rule, a);
	case MFS_RULE_NET_QKV:
	case MFS_RULE_NET_Z:
	case MFS_RULE_NET_B:
	case MFS_RULE_NET_A:
		net_part(rule, a, &from);
		return run(&g, from, count, 1);
	case MFS_RULE_HEAD:
		return rotary_heads(&g, 0, 1);
	case MFS_RULE_UP:
		return run(&g, source_rows / 2, count, 1);
	case MFS_RULE_GATE_UP:
		return alternate(&g, source_rows / 2);
	case MFS_RULE_SWAPPED:
		return swapped_halves(&g, source_rows);
	case MFS_RULE_DIRECT:
	case MFS_RULE_VOCAB:
	case MFS_RULE_GATE:
		break;
	}
	return run(&g, 0, count, 1);
}
