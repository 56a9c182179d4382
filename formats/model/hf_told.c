#include "formats/model/hf_told.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/dims.h"
#include "formats/hf/hf_json.h"
#include "formats/model/hf_args.h"
#include "formats/model/hf_config.h"
#include "formats/model/model.h"

#define CONFIG "config.json"

static int parse(struct mfs_ckpt *ckpt, const char *bytes, size_t len, const char *name,
		 const char *arch, struct mfs_error *err)
{
	const struct mfs_family *family, *whole;
	int rc = mfs_hf_args_parse(bytes, len, name, arch, &ckpt->arena, &ckpt->args, &family,
				   &whole, err);

	if (rc || !whole)
		return rc;
	return mfs_fail(err, -ENOTSUP,
			"%s: it is of a %s, a vision-language model: of such a model a save "
			"without arguments is not read",
			name, whole->name);
}

/* The file below the checkpoint's directory joins its files: a change of it is a change of the
 * checkpoint. */
static int read_config(struct mfs_ckpt *ckpt, const struct mfs_ckpt_told *told, const char *folder,
		       struct mfs_error *err)
{
	char name[PATH_MAX], inner[PATH_MAX], *bytes;
	size_t len;
	int rc;

	snprintf(inner, sizeof(inner), "%s/" CONFIG, folder ? folder : "");
	if ((size_t)snprintf(name, sizeof(name), "%s/%s", folder ? ckpt->dir : told->ref,
			     folder ? inner : CONFIG) >= sizeof(name))
		return mfs_fail(err, -ENAMETOOLONG, "the path of a " CONFIG " is too long");
	rc = folder ? mfs_hf_slurp_added(ckpt->files, inner, MFS_HF_CONFIG_MAX, &bytes, &len, err)
		    : mfs_hf_slurp(told->ref, CONFIG, MFS_HF_CONFIG_MAX, &bytes, &len, err);
	if (rc == -ENOENT && !folder)
		return mfs_fail(err, -ENODATA, "%s: there is no such file, which ref= names", name);
	if (rc)
		return rc;
	rc = parse(ckpt, bytes, len, name, told->arch, err);
	free(bytes);
	return rc;
}

/* Programs train without the multi-token-prediction layers that a config names. */
static int settle_mtp(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const uint32_t count = mfs_ckpt_count(ckpt);

	if (!ckpt->args.mtp_num_layers)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		if (!strncmp(mfs_ckpt_at(ckpt, i)->name, "mtp.", 4))
			return 0;
	ckpt->args.mtp_num_layers = 0;
	if (mfs_ckpt_warn(ckpt, CONFIG " names multi-token-prediction layers, but there are no "
				       "weights for them: the model is shown without"))
		return mfs_fail_nomem(err);
	return 0;
}

/* The rows that Megatron has padded, and the type of the weights. */
static int settle_embedding(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);

	if (!t || !t->ndim)
		return 0;
	if (t->shape[0] < (uint64_t)ckpt->args.vocab_size)
		return mfs_fail(err, -EINVAL,
				"%s: tensor '%s' has %llu rows, but by %s/" CONFIG
				" it should have %lld or more (vocab_size)",
				ckpt->dir, t->name, (unsigned long long)t->shape[0], ckpt->told_by,
				(long long)ckpt->args.vocab_size);
	ckpt->args.padded_vocab_size = (int64_t)t->shape[0];
	ckpt->args.params_dtype = mfs_dtype_torch(t->dtype);
	return 0;
}

/* A view of the whole model compares every tensor with the config, and leaves none over. */
static int check(struct mfs_ckpt *ckpt, const struct mfs_ckpt_told *told, struct mfs_error *err)
{
	struct mfs_model *model;
	int rc = settle_mtp(ckpt, err);

	if (!rc)
		rc = settle_embedding(ckpt, err);
	if (!rc)
		rc = mfs_model_new(ckpt, told->arch, NULL, &model, err);
	if (rc)
		return rc;
	mfs_model_free(model);
	return 0;
}

struct mfs_ckpt_told mfs_hf_told(const char *ref, const char *arch)
{
	return (struct mfs_ckpt_told){
		.ref = ref, .arch = arch, .read = read_config, .check = check};
}
