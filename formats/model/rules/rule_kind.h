/* What a rule is: a row of a table. Rules of one parameter share a file. A new one is a row, and a
 * line in rules.h. Private to formats/model/rules. */
#ifndef MFS_MODEL_RULES_RULE_KIND_H
#define MFS_MODEL_RULES_RULE_KIND_H

#include "formats/model/rules/rules.h"

/* One mfs_rule_maps(). */
struct mfs_rule_walk {
	const struct mfs_megatron_args *args;
	uint64_t source_rows, count;
	uint64_t to; /* the next row of the result */
	int (*emit)(const struct mfs_row_map *map, void *arg);
	void *arg;
};

struct mfs_rule_kind {
	const char *word; /* "q-pairs", in families' files; NULL: it follows from the tensor */
	bool of_columns;
	const char *(*misfit)(const struct mfs_rule_tensor *t); /* NULL: it fits any */
	/* NULL: the source's. */
	uint64_t (*rows)(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab);
	int (*maps)(struct mfs_rule_walk *w); /* NULL: the source's first rows, in their order */
};

#define MFS_RULE_DECLARE(name, row) extern const struct mfs_rule_kind mfs_rule_##row;

MFS_RULES(MFS_RULE_DECLARE)

/* Emits the next count rows of the result; there may be none. */
int mfs_rule_run(struct mfs_rule_walk *w, uint64_t from, uint64_t count, uint64_t step);

#endif
