/*
 * The stages of a pipeline, their model chunks, and the microbatches that go through them.
 *
 * Sources: megatron/training/arguments.py: validate_args; megatron/core/: transformer/
 * transformer_config.py: __post_init__; pipeline_parallel/schedules.py:
 * forward_backward_pipelining_with_interleaving.
 */
#include "formats/base/array.h"
#include "trainer/config/settle/settle_i.h"

static const enum mft_dest chunk_layers = NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE;
static const enum mft_dest chunks_of_stage = NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK;
static const enum mft_dest layout = PIPELINE_MODEL_PARALLEL_LAYOUT;
static const enum mft_dest chunk_count = VIRTUAL_PIPELINE_MODEL_PARALLEL_SIZE;
static const enum mft_dest ends[] = {DECODER_FIRST_PIPELINE_NUM_LAYERS,
				     DECODER_LAST_PIPELINE_NUM_LAYERS};
static const enum mft_dest accounts[] = {ACCOUNT_FOR_EMBEDDING_IN_PIPELINE_SPLIT,
					 ACCOUNT_FOR_LOSS_IN_PIPELINE_SPLIT};

/* The number of layers says how many chunks a stage has. */
static int count_chunks(struct settle *s)
{
	const int64_t layers = number(s, NUM_LAYERS) + is(s, accounts[0]) + is(s, accounts[1]);
	const int64_t each = number(s, chunk_layers);
	const int64_t stages = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	for (int i = 0; i < 2; i++)
		if (has(s, ends[i]))
			return mfs_fail(s->err, -EINVAL, "%s and %s exclude each other; use %s",
					flag(chunk_layers, a), flag(ends[i], b),
					"--num-virtual-stages-per-pipeline-rank");
	if (layers % stages || layers / stages % each)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected a divisor of the layers of a stage, %lld by %lld; "
				"found %lld",
				flag(chunk_layers, a), (long long)layers, (long long)stages,
				(long long)each);
	mft_flag_set_number(s->v, name_of(chunk_count), layers / stages / each);
	return 0;
}

static int check_numbers(struct settle *s)
{
	const enum mft_dest numbers[] = {chunk_layers, chunks_of_stage, ends[0], ends[1],
					 MICROBATCH_GROUP_SIZE_PER_VP_STAGE};
	int r = exclude(s, chunk_layers, chunks_of_stage);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(numbers) && !r; i++)
		r = at_least(s, numbers[i], 1);
	return r;
}

int mft_settle_pipeline(struct settle *s)
{
	enum mft_dest given = has(s, chunk_layers) ? chunk_layers : chunks_of_stage;
	char a[MFT_FLAG_SPELLING];
	int r = check_numbers(s);

	if (!r)
		r = has(s, HYBRID_LAYER_PATTERN) ? mft_settle_pattern_stages(s)
						 : mft_settle_layout(s);
	if (r)
		return r;
	if (has(s, layout))
		given = layout;
	if (has(s, HYBRID_LAYER_PATTERN))
		given = HYBRID_LAYER_PATTERN;
	if (has(s, chunks_of_stage))
		mft_flag_set_number(s->v, name_of(chunk_count), number(s, chunks_of_stage));
	else if (has(s, chunk_layers))
		r = count_chunks(s);
	if (r)
		return r;
	if (number(s, chunk_count) == 1)
		mft_flag_set_none(s->v, name_of(chunk_count));
	if (has(s, chunk_count) && number(s, PIPELINE_MODEL_PARALLEL_SIZE) == 1)
		return mfs_fail(
			s->err, -EINVAL,
			"%s: expected --pipeline-model-parallel-size of 2 at least with it, "
			"found 1",
			flag(given, a));
	return mft_settle_accounts(s);
}

int mft_settle_microbatches(const struct settle *s, const char *given, uint64_t count)
{
	const uint64_t stages = (uint64_t)number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	const enum mft_dest dest = MICROBATCH_GROUP_SIZE_PER_VP_STAGE;
	const uint64_t group = has(s, dest) ? (uint64_t)number(s, dest) : stages;
	char a[MFT_FLAG_SPELLING];

	if (!has(s, chunk_count))
		return 0;
	if (group < stages || group > count)
		return mfs_fail(
			s->err, -EINVAL,
			"%s: expected %llu, the number of stages, to %llu, the microbatches "
			"of %s; found %llu",
			flag(dest, a), (unsigned long long)stages, (unsigned long long)count, given,
			(unsigned long long)group);
	if (count % group && count % group < stages)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected microbatches whose last group of %llu has %llu, the "
				"number of stages, at least; found %llu of %llu",
				given, (unsigned long long)group, (unsigned long long)stages,
				(unsigned long long)(count % group), (unsigned long long)count);
	return 0;
}
