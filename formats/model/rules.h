/*
 * How rows of a Megatron tensor become rows of an HF tensor: the part of the box algebra that knows
 * what a query group is, and rotary pairs (docs/formats/hf-names.md: rules for rows).
 */
#ifndef MFS_MODEL_RULES_H
#define MFS_MODEL_RULES_H

#include <stdint.h>

#include "formats/torch/megatron_args.h"
#include "formats/model/families/family.h"

/* Rows [to, to+count) of the result are rows from, from+step, ... of the source. */
struct mfs_row_map {
	uint64_t to, from, count, step;
};

/* Rows of the result. source_rows: of the Megatron tensor; vocab: rows that are shown. */
uint64_t mfs_rule_rows(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		       uint64_t vocab);

/* Emits maps that tile the result's rows, count of them, in order. Stops when emit returns
 * non-zero, and returns that. */
int mfs_rule_maps(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		  uint64_t count, int (*emit)(const struct mfs_row_map *map, void *arg), void *arg);

#endif
