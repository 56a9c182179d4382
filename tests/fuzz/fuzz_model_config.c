/* Input: a run_config.yaml or model.yaml. What is accepted is a Namespace, of which the arguments'
 * reader makes numbers or an error. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "formats/base/yaml_tree.h"
#include "formats/args/megatron_args.h"
#include "formats/args/model_config.h"

static int read_args(const struct mfs_buf *bytes, struct mfs_error *err)
{
	struct mfs_megatron_args args;
	struct mfs_arena arena = {0};
	struct mfs_pickle *doc;
	int rc;

	fuzz_require(!mfs_pickle_parse(bytes->data, bytes->len, "args", NULL, &doc, err));
	fuzz_require(mfs_pickle_length(doc) == bytes->len);
	fuzz_require(mfs_value_is_object_of(doc, mfs_pickle_root(doc), "Namespace"));
	rc = mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &args, err);
	if (!rc)
		fuzz_require(args.num_layers > 0 && args.num_query_groups > 0);
	mfs_pickle_free(doc);
	mfs_arena_release(&arena);
	return rc;
}

/* The same without a Namespace between. */
static int read_tree(const struct mfs_yaml_node *root, struct mfs_arena *arena,
		     struct mfs_error *err)
{
	struct mfs_model_config config;
	struct mfs_megatron_args args;
	struct mfs_args_source source;
	int rc = mfs_model_config_read(root, "input.yaml", false, arena, &config, err);

	if (rc)
		return rc;
	source = mfs_args_of_config(&config);
	return mfs_args_read(&source, arena, &args, err);
}

/* What a run with adapters says of them. */
static void read_lora(const struct mfs_yaml_node *root)
{
	struct mfs_lora_config lora;
	struct mfs_error err;

	if (!mfs_model_config_lora(root, "input.yaml", &lora, &err))
		fuzz_require(lora.rank > 0 && isfinite(lora.scale));
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_pickle_writer w;
	struct mfs_yaml_node *root;
	struct mfs_arena arena = {0};
	struct mfs_buf out = {0};
	int rc = mfs_yaml_tree("input.yaml", bytes, len, 0, &arena, &root, err);

	if (!rc) {
		read_lora(root);
		mfs_pickle_begin(&w, &out, 2);
		rc = mfs_model_config_write(&w, root, "input.yaml", false, err);
		if (rc)
			mfs_pickle_abandon(&w);
		else
			fuzz_require(!mfs_pickle_end(&w, err));
		if (!rc)
			rc = read_args(&out, err);
		fuzz_require(read_tree(root, &arena, err) == rc);
	}
	mfs_buf_release(&out);
	mfs_arena_release(&arena);
	return rc;
}

FUZZ_TARGET
