/*
 * How rows of a Megatron tensor become rows of an HF tensor. Only this part of the box algebra
 * knows query groups and rotary pairs (docs/formats/hf-names.md: rules for rows).
 */
#ifndef MFS_MODEL_RULES_RULES_H
#define MFS_MODEL_RULES_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/args/megatron_args.h"
#include "formats/ckpt/dim.h"

/* X(NAME, ROW): a file defines mfs_rule_ROW (rule_kind.h). */
#define MFS_RULES(X)                                                                               \
	X(DIRECT, direct)                                                                          \
	X(VOCAB, vocab) /* the rows of the true vocabulary */                                      \
	X(Q, q)		/* of linear_qkv, whose groups are [queries of the group; key; value] */   \
	X(K, k)                                                                                    \
	X(V, v)                                                                                    \
	X(Q_PAIRS, q_pairs) /* where HF, too, has the two of a rotary pair side by side */         \
	X(K_PAIRS, k_pairs)                                                                        \
	X(QKV, qkv)	    /* [all q; all k; all v] */                                            \
	X(Q_GATES, q_gates) /* of each head its queries, then its gates */                         \
	X(HEAD, head)	    /* a vector over one head, reordered as rotary pairs are */            \
	/* of in_proj, [all q; k; v; z; b; a]: of each key head [q; k; v; z], or [b; a] */         \
	X(QKVZ, qkvz)                                                                              \
	X(BA, ba)                                                                                  \
	X(NET_QKV, net_qkv) /* of in_proj as it is: q, k and v, then z, b, a */                    \
	X(NET_Z, net_z)                                                                            \
	X(NET_B, net_b)                                                                            \
	X(NET_A, net_a)                                                                            \
	X(GATE, gate)	    /* first half */                                                       \
	X(UP, up)	    /* second half */                                                      \
	X(GATE_UP, gate_up) /* row of the gate, row of up, ... along the last axis */              \
	X(SWAPPED, swapped) /* of columns: the second half, then the first */

#define MFS_RULE_ENUM(name, row) MFS_RULE_##name,

enum mfs_rule { MFS_RULES(MFS_RULE_ENUM) MFS_RULE_COUNT };

/* Finds the rule of a word in a family's file. False: no rule has it. */
bool mfs_rule_find(const char *word, enum mfs_rule *ret);
/* True if no word says it: it follows from the tensor. */
bool mfs_rule_is_usual(enum mfs_rule rule);

/* The tensor that a family's file names with a rule. */
struct mfs_rule_tensor {
	const enum mfs_dim *shape; /* [MFS_PARAM_AXES], Megatron's */
	bool transposed;	   /* HF's is */
	bool halved;		   /* its rows are those of a gate, then of up */
	bool output_gate;	   /* of a model whose attention has output gates */
};

/* Why the rule does not fit the tensor. NULL: it does. */
const char *mfs_rule_misfit(enum mfs_rule rule, const struct mfs_rule_tensor *t);

/* Rows [to, to+count) of the result are rows from, from+step, ... of the source. With lanes
 * (ckpt/target.h) these are the rows of one lane. */
struct mfs_row_map {
	uint64_t to, from, count, step;
	uint8_t lane, lanes; /* lanes 0: one */
};

/* True if the rule moves columns. Then what is documented of rows below holds for columns. */
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
