/*
 * How rows of a Megatron tensor become rows of an HF tensor: the part of the box algebra that knows
 * what a query group is.
 *
 * linear_qkv has per query group the rows [queries of the group's heads; key; value], each head
 * kv_channels rows (megatron/core/transformer/attention.py: get_query_key_value_tensors). HF has q, k
 * and v apart, or behind each other. Gated linear_fc1 is [gate; up] here (ckpt/ckpt.h).
 *
 * Megatron's rotary pairs are (j, j + rotary/2) as HF's are. With rotary_interleaved they are
 * (2j, 2j + 1): rows of q and k, and of their norms, are then taken in steps of two.
 */
#ifndef MFS_MODEL_RULES_H
#define MFS_MODEL_RULES_H

#include <stdint.h>

#include "formats/torch/megatron_args.h"
#include "formats/model/family.h"

/* Rows [to, to+count) of the result are rows from, from+step, ... of the source. */
struct mfs_row_map {
	uint64_t to, from, count, step;
};

/* Rows of the result. source_rows: of the Megatron tensor; vocab: rows that are shown. */
uint64_t mfs_rule_rows(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		       uint64_t vocab);

/* Emits maps that tile the result's rows, count of them, in order. Stops when emit returns non-zero,
 * and returns that. */
int mfs_rule_maps(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		  uint64_t count, int (*emit)(const struct mfs_row_map *map, void *arg), void *arg);

#endif
