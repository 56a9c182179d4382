#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/megatron_args.h"

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
