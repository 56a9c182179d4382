#include "formats/ckpt/read/args_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/yaml_tree.h"
#include "formats/args/model_config.h"
#include "formats/torch/pickle_write.h"

struct addition {
	mfs_value state;
	bool adapters;
	const struct mfs_yaml_node *config;
	const char *name; /* of the file */
};

static int add_args(void *arg, struct mfs_pickle_writer *w, mfs_value dict, struct mfs_error *err)
{
	const struct addition *a = arg;

	if (dict != a->state)
		return 0;
	mfs_pickle_name(w, "args");
	return mfs_model_config_write(w, a->config, a->name, a->adapters, err);
}

/* Writes the state as bytes of a pickle, with the arguments after its last pair. */
static int write_state(const struct mfs_pickle *doc, struct addition *a, struct mfs_buf *out,
		       struct mfs_error *err)
{
	const struct mfs_pickle_hooks hooks = {.arg = a, .pairs_end = add_args};
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, out, 2);
	rc = mfs_pickle_copy(&w, doc, a->state, &hooks, err);
	if (rc) {
		mfs_pickle_abandon(&w);
		return rc;
	}
	return mfs_pickle_end(&w, err);
}

int mfs_ckpt_replace_doc(struct mfs_torch_file *f, struct mfs_buf *bytes, const char *file,
			 struct mfs_error *err)
{
	struct mfs_pickle *doc;
	int rc = mfs_pickle_parse(bytes->data, bytes->len, file, NULL, &doc, err);

	if (rc) {
		mfs_buf_release(bytes);
		return rc;
	}
	mfs_pickle_free(f->doc);
	free(f->pickle_bytes);
	f->doc = doc;
	f->pickle_bytes = bytes->data;
	*bytes = (struct mfs_buf){0};
	return 0;
}

static int add_to_doc(struct mfs_torch_file *f, struct addition *a, const char *file,
		      mfs_value *state, struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	int rc = write_state(f->doc, a, &bytes, err);

	if (rc) {
		mfs_buf_release(&bytes);
		return rc;
	}
	rc = mfs_ckpt_replace_doc(f, &bytes, file, err);
	if (!rc)
		*state = mfs_pickle_root(f->doc);
	return rc;
}

/* *ret_arena is the tree's. */
static int read_yaml(struct mfs_ckpt *ckpt, uint32_t id, const char *name,
		     struct mfs_arena *ret_arena, struct mfs_yaml_node **ret, struct mfs_error *err)
{
	const struct mfs_source src = mfs_source_file(ckpt->files, id);
	void *bytes;
	int rc;

	if (src.size > MFS_YAML_BYTES)
		return mfs_fail(err, -EINVAL, "%s: expected at most 1 MiB, found %llu bytes", name,
				(unsigned long long)src.size);
	rc = mfs_source_slurp(&src, 0, src.size, &bytes, err);
	if (rc)
		return rc;
	rc = mfs_yaml_tree(name, bytes, src.size, 0, ret_arena, ret, err);
	free(bytes);
	return rc;
}

/* The model of the tree as the pickle of a Namespace. */
static int write_args(const struct mfs_ckpt *ckpt, const struct mfs_yaml_node *config,
		      const char *name, struct mfs_buf *ret, struct mfs_error *err)
{
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, ret, 2);
	rc = mfs_model_config_write(&w, config, name, ckpt->what & MFS_CKPT_ADAPTER, err);
	if (!rc)
		return mfs_pickle_end(&w, err);
	mfs_pickle_abandon(&w);
	return rc;
}

int mfs_ckpt_config_args(struct mfs_ckpt *ckpt, const char *name, struct mfs_buf *ret,
			 struct mfs_error *err)
{
	struct mfs_yaml_node *config = NULL;
	struct mfs_arena arena = {0};
	uint32_t id;
	int rc = mfs_fileset_add(ckpt->files, name, &id, err);

	if (rc)
		return rc;
	rc = read_yaml(ckpt, id, name, &arena, &config, err);
	if (!rc)
		rc = write_args(ckpt, config, name, ret, err);
	mfs_arena_release(&arena);
	return rc ? (mfs_fail_in(err, "%s", ckpt->dir), rc) : 0;
}

/* The arguments of the tree's model, without a Namespace between. */
static int read_args(struct mfs_ckpt *ckpt, const char *name, const struct mfs_yaml_node *root,
		     struct mfs_arena *arena, struct mfs_error *err)
{
	struct mfs_model_config config;
	struct mfs_args_source source;
	int rc = mfs_model_config_read(root, name, ckpt->what & MFS_CKPT_ADAPTER, arena, &config,
				       err);

	if (rc)
		return rc;
	source = mfs_args_of_config(&config);
	return mfs_args_read(&source, &ckpt->arena, &ckpt->args, err);
}

int mfs_ckpt_read_config(struct mfs_ckpt *ckpt, const char *name, struct mfs_error *err)
{
	struct mfs_yaml_node *root = NULL;
	struct mfs_arena arena = {0};
	uint32_t id;
	int rc = mfs_fileset_add(ckpt->files, name, &id, err);

	if (rc)
		return rc;
	rc = read_yaml(ckpt, id, name, &arena, &root, err);
	if (!rc)
		rc = read_args(ckpt, name, root, &arena, err);
	mfs_arena_release(&arena);
	return rc ? (mfs_fail_in(err, "%s", ckpt->dir), rc) : 0;
}

int mfs_ckpt_complete_state(struct mfs_ckpt *ckpt, struct mfs_torch_file *f, const char *file,
			    mfs_value *state, struct mfs_error *err)
{
	struct addition a = {
		.state = *state, .adapters = ckpt->what & MFS_CKPT_ADAPTER, .name = MFS_RUN_CONFIG};
	struct mfs_yaml_node *config = NULL;
	struct mfs_arena arena = {0};
	uint32_t id;
	int rc;

	if (!mfs_value_pairs(f->doc, *state) || mfs_value_has(f->doc, *state, "args"))
		return 0;
	rc = mfs_fileset_add(ckpt->files, MFS_RUN_CONFIG, &id, err);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = read_yaml(ckpt, id, a.name, &arena, &config, err);
	a.config = config;
	if (!rc)
		rc = add_to_doc(f, &a, file, state, err);
	mfs_arena_release(&arena);
	return rc ? (mfs_fail_in(err, "%s", ckpt->dir), rc) : 0;
}

int mfs_ckpt_read_lora(struct mfs_ckpt *ckpt, struct mfs_lora_config *ret, struct mfs_error *err)
{
	struct mfs_yaml_node *config = NULL;
	struct mfs_arena arena = {0};
	uint32_t id;
	int rc = mfs_fileset_add(ckpt->files, MFS_RUN_CONFIG, &id, err);

	if (rc)
		return rc;
	rc = read_yaml(ckpt, id, MFS_RUN_CONFIG, &arena, &config, err);
	if (!rc)
		rc = mfs_model_config_lora(config, MFS_RUN_CONFIG, ret, err);
	mfs_arena_release(&arena);
	return rc ? (mfs_fail_in(err, "%s", ckpt->dir), rc) : 0;
}
