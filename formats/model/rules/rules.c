#include "formats/model/rules/rules.h"

#include <stddef.h>
#include <string.h>

#include "formats/model/rules/rule_kind.h"

#define ROW(name, row) &mfs_rule_##row,

static const struct mfs_rule_kind *const kinds[] = {MFS_RULES(ROW)};

bool mfs_rule_find(const char *word, enum mfs_rule *ret)
{
	for (unsigned i = 0; i < MFS_RULE_COUNT; i++)
		if (kinds[i]->word && !strcmp(kinds[i]->word, word)) {
			*ret = (enum mfs_rule)i;
			return true;
		}
	return false;
}

bool mfs_rule_is_usual(enum mfs_rule rule)
{
	return !kinds[rule]->word;
}

bool mfs_rule_is_of_columns(enum mfs_rule rule)
{
	return kinds[rule]->of_columns;
}

const char *mfs_rule_misfit(enum mfs_rule rule, const struct mfs_rule_tensor *t)
{
	return kinds[rule]->misfit ? kinds[rule]->misfit(t) : NULL;
}

uint64_t mfs_rule_rows(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		       uint64_t vocab)
{
	return kinds[rule]->rows ? kinds[rule]->rows(a, source_rows, vocab) : source_rows;
}

int mfs_rule_run(struct mfs_rule_walk *w, uint64_t from, uint64_t count, uint64_t step)
{
	const struct mfs_row_map r = {.to = w->to, .from = from, .count = count, .step = step};

	w->to += count;
	return count ? w->emit(&r, w->arg) : 0;
}

int mfs_rule_maps(enum mfs_rule rule, const struct mfs_megatron_args *a, uint64_t source_rows,
		  uint64_t count, int (*emit)(const struct mfs_row_map *map, void *arg), void *arg)
{
	struct mfs_rule_walk w = {
		.args = a, .source_rows = source_rows, .count = count, .emit = emit, .arg = arg};

	return kinds[rule]->maps ? kinds[rule]->maps(&w) : mfs_rule_run(&w, 0, count, 1);
}

/* ---- rules of any tensor ---- */

static uint64_t vocab_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)a, (void)source_rows;
	return vocab;
}

const struct mfs_rule_kind mfs_rule_direct = {0};
const struct mfs_rule_kind mfs_rule_vocab = {.rows = vocab_rows};
