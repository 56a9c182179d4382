/* Rows of linear_qkv, whose groups are [queries of the group; gates of these; key; value], and of
 * vectors over one of its heads. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "formats/model/rules/rule_kind.h"

/* The geometry of linear_qkv. */
struct qkv {
	uint64_t groups, heads; /* heads: query heads of a group */
	uint64_t gates;		/* heads of output gates of a group, after the query heads */
	uint64_t head;		/* rows of a head */
	uint64_t rotary;	/* how many of these are rotated */
	bool interleaved;
	struct mfs_rule_walk *w;
};

/* A run without rotary positions may have rotary arguments; they have no effect. */
static bool rotates(const struct mfs_megatron_args *a)
{
	return !a->position_embedding_type ||
	       strcmp(a->position_embedding_type, "learned_absolute") != 0;
}

static struct qkv qkv_of(struct mfs_rule_walk *w)
{
	const struct mfs_megatron_args *a = w->args;
	struct qkv g = {
		.groups = (uint64_t)a->num_query_groups,
		.heads = (uint64_t)(a->num_attention_heads / a->num_query_groups),
		.head = (uint64_t)a->kv_channels,
		.interleaved = a->rotary_interleaved && rotates(a),
		.w = w,
	};

	g.gates = a->attention_output_gate ? g.heads : 0;
	g.rotary = (uint64_t)((double)g.head * a->rotary_percent) / 2 * 2;
	return g;
}

static uint64_t group_rows(const struct qkv *g)
{
	return (g->heads + g->gates + 2) * g->head;
}

/* Emits heads with their rotary pairs in HF's order. */
static int rotary_heads(const struct qkv *g, uint64_t from, uint64_t heads)
{
	int rc = 0;

	if (!g->interleaved)
		return mfs_rule_run(g->w, from, heads * g->head, 1);
	for (uint64_t h = 0; h < heads && !rc; h++, from += g->head) {
		rc = mfs_rule_run(g->w, from, g->rotary / 2, 2);
		if (!rc)
			rc = mfs_rule_run(g->w, from + 1, g->rotary / 2, 2);
		if (!rc)
			rc = mfs_rule_run(g->w, from + g->rotary, g->head - g->rotary, 1);
	}
	return rc;
}

static int queries(const struct qkv *g)
{
	int rc = 0;

	for (uint64_t i = 0; i < g->groups && !rc; i++)
		rc = rotary_heads(g, i * group_rows(g), g->heads);
	return rc;
}

static int keys(const struct qkv *g)
{
	int rc = 0;

	for (uint64_t i = 0; i < g->groups && !rc; i++)
		rc = rotary_heads(g, i * group_rows(g) + (g->heads + g->gates) * g->head, 1);
	return rc;
}

static int values(const struct qkv *g)
{
	int rc = 0;

	for (uint64_t i = 1; i <= g->groups && !rc; i++)
		rc = mfs_rule_run(g->w, i * group_rows(g) - g->head, g->head, 1);
	return rc;
}

/* ---- where the rules fit ---- */

static const char *part_misfit(const struct mfs_rule_tensor *t)
{
	return t->shape[0] == MFS_DIM_QKV ? NULL : "q, k and v are of linear_qkv";
}

static const char *queries_misfit(const struct mfs_rule_tensor *t)
{
	return t->output_gate ? "with output gates, queries are q-gates" : part_misfit(t);
}

static const char *gates_misfit(const struct mfs_rule_tensor *t)
{
	return t->shape[0] == MFS_DIM_QKV && t->output_gate
		       ? NULL
		       : "q-gates are of linear_qkv in a model that requires output-gate";
}

/* ---- how many rows ---- */

static uint64_t query_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)source_rows, (void)vocab;
	return (uint64_t)(a->num_attention_heads * a->kv_channels);
}

static uint64_t gated_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	return 2 * query_rows(a, source_rows, vocab);
}

static uint64_t key_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)source_rows, (void)vocab;
	return (uint64_t)(a->num_query_groups * a->kv_channels);
}

/* ---- which rows ---- */

static int q_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);

	return queries(&g);
}

static int k_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);

	return keys(&g);
}

static int v_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);

	return values(&g);
}

static int q_pairs_maps(struct mfs_rule_walk *w)
{
	struct qkv g = qkv_of(w);

	g.interleaved = false;
	return queries(&g);
}

static int k_pairs_maps(struct mfs_rule_walk *w)
{
	struct qkv g = qkv_of(w);

	g.interleaved = false;
	return keys(&g);
}

static int concatenated_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);
	int rc = queries(&g);

	if (!rc)
		rc = keys(&g);
	return rc ? rc : values(&g);
}

/* Emits each head, followed by its gates. */
static int gated_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);
	const uint64_t gates = g.heads * g.head;
	const uint64_t each = 2 * gates + 2 * g.head; /* rows of a group */
	int rc = 0;

	for (uint64_t i = 0; i < g.groups; i++)
		for (uint64_t h = 0; h < g.heads && !rc; h++) {
			const uint64_t from = i * each + h * g.head;

			rc = rotary_heads(&g, from, 1);
			if (!rc)
				rc = mfs_rule_run(w, from + gates, g.head, 1);
		}
	return rc;
}

static int head_maps(struct mfs_rule_walk *w)
{
	const struct qkv g = qkv_of(w);

	return rotary_heads(&g, 0, 1);
}

/* ---- the rows ---- */

const struct mfs_rule_kind mfs_rule_q = {
	.word = "q", .misfit = queries_misfit, .rows = query_rows, .maps = q_maps};
const struct mfs_rule_kind mfs_rule_k = {
	.word = "k", .misfit = part_misfit, .rows = key_rows, .maps = k_maps};
const struct mfs_rule_kind mfs_rule_v = {
	.word = "v", .misfit = part_misfit, .rows = key_rows, .maps = v_maps};
const struct mfs_rule_kind mfs_rule_q_pairs = {
	.word = "q-pairs", .misfit = queries_misfit, .rows = query_rows, .maps = q_pairs_maps};
const struct mfs_rule_kind mfs_rule_k_pairs = {
	.word = "k-pairs", .misfit = part_misfit, .rows = key_rows, .maps = k_pairs_maps};
const struct mfs_rule_kind mfs_rule_qkv = {
	.word = "qkv", .misfit = queries_misfit, .maps = concatenated_maps};
const struct mfs_rule_kind mfs_rule_q_gates = {
	.word = "q-gates", .misfit = gates_misfit, .rows = gated_rows, .maps = gated_maps};
const struct mfs_rule_kind mfs_rule_head = {.maps = head_maps};
