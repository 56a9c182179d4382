/*
 * How rows of a Megatron tensor become rows of an HF tensor. Only this part of the box algebra
 * knows query groups and rotary pairs (docs/formats/hf-names.md: rules for rows).
 */
#ifndef MFS_MODEL_RULES_H
#define MFS_MODEL_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/args/megatron_args.h"
#include "formats/model/families/family.h"

/* Rows [to, to+count) of the result are rows from, from+step, ... of the source. With lanes
 * (ckpt/target.h) these are the rows of one lane. */
struct mfs_row_map {
	uint64_t to, from, count, step;
	uint8_t lane, lanes; /* lanes 0: one */
};

/* True if the rule moves columns: what is said of rows below is then said of these. */
bool mfs_rule_is_of_columns(enum mfs_rule rule);

/* Number of rows of the HF tensor. source_rows: of the Megatron tensor. vocab: rows of the
 * vocabulary that are shown. */
uint64_t mfs_rule_rows(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		       uint64_t vocab);

/* Emits maps that together cover the count rows of the result, in order. Stops when emit returns
 * non-zero, and returns that value. */
int mfs_rule_maps(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		  uint64_t count, int (*emit)(const struct mfs_row_map *map, void *arg), void *arg);

#endif
