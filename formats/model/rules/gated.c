/* Rows of a gated linear_fc1: [all gate rows; all up rows]. */
#include <stddef.h>

#include "formats/model/rules/rule_kind.h"

static const char *half_misfit(const struct mfs_rule_tensor *t)
{
	return t->halved ? NULL : "gate and up are of a linear_fc1 in a gated model";
}

static const char *alternate_misfit(const struct mfs_rule_tensor *t)
{
	if (mfs_param_ndim(t->shape) > 1 && !t->transposed)
		return "rows alternate along the last axis alone: a matrix is transposed";
	return half_misfit(t);
}

static uint64_t half_rows(const struct mfs_megatron_args *a, uint64_t source_rows, uint64_t vocab)
{
	(void)a, (void)vocab;
	return source_rows / 2;
}

static int up_maps(struct mfs_rule_walk *w)
{
	return mfs_rule_run(w, w->source_rows / 2, w->count, 1);
}

/* Rows of the gate and of up, by turns. */
static int alternate_maps(struct mfs_rule_walk *w)
{
	const uint64_t half = w->source_rows / 2;
	struct mfs_row_map r = {.count = half, .step = 1, .lanes = 2};
	int rc = half ? w->emit(&r, w->arg) : 0;

	r.from = half;
	r.lane = 1;
	return rc || !half ? rc : w->emit(&r, w->arg);
}

const struct mfs_rule_kind mfs_rule_gate = {
	.word = "gate", .misfit = half_misfit, .rows = half_rows};
const struct mfs_rule_kind mfs_rule_up = {
	.word = "up", .misfit = half_misfit, .rows = half_rows, .maps = up_maps};
const struct mfs_rule_kind mfs_rule_gate_up = {
	.word = "gate-up", .misfit = alternate_misfit, .maps = alternate_maps};
