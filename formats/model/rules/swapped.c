/* Columns of eh_proj, which are for the token's embedding and for the hidden state. */
#include <stddef.h>

#include "formats/model/rules/rule_kind.h"

static const char *misfit(const struct mfs_rule_tensor *t)
{
	return mfs_param_ndim(t->shape) == 2 && t->shape[1] == MFS_DIM_HIDDEN_X2
		       ? NULL
		       : "swapped are the halves of eh_proj's columns";
}

static int maps(struct mfs_rule_walk *w)
{
	const uint64_t columns = w->source_rows;
	int rc = mfs_rule_run(w, columns / 2, columns - columns / 2, 1);

	return rc ? rc : mfs_rule_run(w, 0, columns / 2, 1);
}

const struct mfs_rule_kind mfs_rule_swapped = {
	.word = "swapped", .of_columns = true, .misfit = misfit, .maps = maps};
