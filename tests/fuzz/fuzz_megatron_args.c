#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/args/megatron_args.h"
#include "formats/args/megatron_data_args.h"

static void check_words(const struct mfs_arg_words *w)
{
	fuzz_require(!w->list == !w->count);
	for (size_t i = 0; i < w->count; i++)
		fuzz_require(w->list[i] && strlen(w->list[i]) < 1u << 20);
}

/* Reads the arguments of the run's data, if it has any. */
static void read_data_args(const struct mfs_pickle *doc)
{
	struct mfs_megatron_data_args args;
	struct mfs_arena arena = {0};
	struct mfs_error err = {0};

	if (!mfs_megatron_data_args_read(doc, mfs_pickle_root(doc), &arena, &args, &err)) {
		check_words(&args.data_path);
		for (int i = 0; i < 3; i++)
			check_words(&args.split_data_path[i]);
		fuzz_require(args.seed >= MFS_ABSENT && args.iteration >= MFS_ABSENT);
	} else {
		fuzz_require(*err.msg);
	}
	mfs_arena_release(&arena);
}

/* The input is the pickle of a Namespace, or of a state dict that has one under "args". */
int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_megatron_args args;
	struct mfs_arena arena = {0};
	struct mfs_pickle *doc;
	mfs_value v;
	int rc = mfs_pickle_parse(bytes, len, "input.pkl", NULL, &doc, err);

	if (rc)
		return rc;
	read_data_args(doc);
	v = mfs_value_get(doc, mfs_pickle_root(doc), "args");
	rc = mfs_megatron_args_read(doc, v ? v : mfs_pickle_root(doc), &arena, &args, err);
	mfs_pickle_free(doc);
	if (!rc) {
		fuzz_require(args.num_layers > 0 && args.hidden_size > 0);
		fuzz_require(args.num_attention_heads > 0 && args.num_query_groups > 0);
		fuzz_require(args.tensor_model_parallel_size > 0);
		fuzz_require(args.pipeline_model_parallel_size > 0);
		fuzz_require(args.position_embedding_type && strlen(args.position_embedding_type));
		for (int64_t i = 0; args.moe_layers && i < args.num_layers; i++)
			fuzz_require(args.moe_layers[i] <= 1);
	}
	mfs_arena_release(&arena);
	return rc;
}

FUZZ_TARGET
