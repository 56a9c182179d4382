/* Rows of a gated delta net's in_proj: [all q; k; v; z; b; a]. */
#include <stddef.h>

#include "formats/model/rules/rule_kind.h"

static bool is_in_proj(const struct mfs_rule_tensor *t)
{
	return t->shape[0] == MFS_DIM_LINEAR_IN;
}

/* ---- by key heads ---- */

static const char *heads_misfit(const struct mfs_rule_tensor *t)
{
	return is_in_proj(t) ? NULL : "qkvz and ba are of in_proj";
}

/* Emits parts [first, end) of q, k, v, z, b and a, key head by key head. Value heads are shared out
 * among the key heads. */
static int key_heads(struct mfs_rule_walk *w, unsigned first, unsigned end)
{
	const struct mfs_megatron_args *a = w->args;
	const uint64_t heads = (uint64_t)a->linear_num_key_heads;
	const uint64_t values = (uint64_t)(a->linear_num_value_heads / a->linear_num_key_heads);
	const uint64_t key = (uint64_t)a->linear_key_head_dim;
	const uint64_t value = (uint64_t)a->linear_value_head_dim * values;
	/* q, k, v, z, b, a: rows of a key head */
	const uint64_t rows[] = {key, key, value, value, values, values};
	int rc = 0;

	for (uint64_t h = 0; h < heads; h++) {
		uint64_t part = 0; /* where it begins */

		for (unsigned i = 0; i < end && !rc; part += heads * rows[i++])
			if (i >= first)
				rc = mfs_rule_run(w, part + h * rows[i], rows[i], 1);
	}
	return rc;
}

static uint64_t qkvz_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)vocab;
	return source_rows - 2 * (uint64_t)a->linear_num_value_heads;
}

static int qkvz_maps(struct mfs_rule_walk *w)
{
	return key_heads(w, 0, 4);
}

static uint64_t ba_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)source_rows, (void)vocab;
	return 2 * (uint64_t)a->linear_num_value_heads;
}

static int ba_maps(struct mfs_rule_walk *w)
{
	return key_heads(w, 4, 6);
}

const struct mfs_rule_kind mfs_rule_qkvz = {
	.word = "qkvz", .misfit = heads_misfit, .rows = qkvz_rows, .maps = qkvz_maps};
const struct mfs_rule_kind mfs_rule_ba = {
	.word = "ba", .misfit = heads_misfit, .rows = ba_rows, .maps = ba_maps};

/* ---- as they are ---- */

enum net_part { NET_QKV, NET_Z, NET_B, NET_A };

static const char *net_misfit(const struct mfs_rule_tensor *t)
{
	return is_in_proj(t) ? NULL : "net-... are of in_proj";
}

/* Returns how many rows a part has, and where it begins. */
static uint64_t net_part(enum net_part part, const struct mfs_megatron_args *a, uint64_t *ret_from)
{
	const uint64_t heads = (uint64_t)a->linear_num_value_heads;
	const uint64_t z = heads * (uint64_t)a->linear_value_head_dim;
	const uint64_t keys = (uint64_t)(a->linear_num_key_heads * a->linear_key_head_dim);
	const uint64_t rows[] = {2 * keys + z, z, heads, heads};

	*ret_from = 0;
	for (unsigned i = 0; i < (unsigned)part; i++)
		*ret_from += rows[i];
	return rows[part];
}

static int net_maps(struct mfs_rule_walk *w, enum net_part part)
{
	uint64_t from;

	net_part(part, w->args, &from);
	return mfs_rule_run(w, from, w->count, 1);
}

#define NET(row, text, part)                                                                       \
	static uint64_t row##_rows(const struct mfs_megatron_args *a, uint64_t source_rows,        \
				   uint64_t vocab)                                                 \
	{                                                                                          \
		uint64_t from;                                                                     \
                                                                                                   \
		(void)source_rows, (void)vocab;                                                    \
		return net_part(part, a, &from);                                                   \
	}                                                                                          \
                                                                                                   \
	static int row##_maps(struct mfs_rule_walk *w)                                             \
	{                                                                                          \
		return net_maps(w, part);                                                          \
	}                                                                                          \
                                                                                                   \
	const struct mfs_rule_kind mfs_rule_##row = {                                              \
		.word = text, .misfit = net_misfit, .rows = row##_rows, .maps = row##_maps}

NET(net_qkv, "net-qkv", NET_QKV);
NET(net_z, "net-z", NET_Z);
NET(net_b, "net-b", NET_B);
NET(net_a, "net-a", NET_A);
