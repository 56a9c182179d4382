#include "formats/ckpt/read/bridge_adapter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/read/args_file.h"
#include "formats/ckpt/read/ckpt_open.h"

#define IN  ".adapter.linear_in.weight"
#define OUT ".adapter.linear_out.weight"

/* The tensor of ckpt whose name is t's with another end. NULL: there is none. */
static const struct mfs_global_tensor *partner(const struct mfs_ckpt *ckpt,
					       const struct mfs_global_tensor *t, const char *end,
					       const char *other)
{
	char name[MFS_NAME_MAX + sizeof(OUT)];

	snprintf(name, sizeof(name), "%.*s%s", (int)(strlen(t->name) - strlen(end)), t->name,
		 other);
	return mfs_ckpt_find(ckpt, name, t->layer, t->expert);
}

static int refuse(const struct mfs_ckpt *adapter, const struct mfs_global_tensor *t,
		  const char *why, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' %s", adapter->dir,
			mfs_global_tensor_name(t, name, sizeof(name)), why);
}

static int add_module(struct mfs_ckpt *ckpt, const struct mfs_ckpt *adapter,
		      const struct mfs_lora_config *config, const struct mfs_global_tensor *in,
		      struct mfs_error *err)
{
	struct mfs_ckpt_delta d = {.of = partner(ckpt, in, IN, ".weight"),
				   .out = partner(adapter, in, IN, OUT),
				   .in = in,
				   .scale = config->scale};
	int rc;

	if (!d.out)
		return refuse(adapter, in, "has no linear_out next to it", err);
	if (!d.of)
		return refuse(adapter, in, "belongs to no matrix of the model", err);
	memcpy(d.size, d.of->shape, sizeof(d.size));
	if (d.out->shape[0] != d.size[0] || in->shape[1] != d.size[1])
		d.size[0] = UINT64_MAX; /* more or less than the whole matrix: it does not fit */
	if (in->shape[0] != config->rank)
		return refuse(adapter, in, "is of another rank than peft.dim", err);
	rc = mfs_ckpt_add_delta(ckpt, &d, err);
	return rc ? (mfs_fail_in(err, "%s", adapter->dir), rc) : 0;
}

static int add_modules(struct mfs_ckpt *ckpt, const struct mfs_ckpt *adapter,
		       const struct mfs_lora_config *config, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_ckpt_count(adapter) && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(adapter, i);

		if (mfs_str_ends(t->name, IN))
			rc = add_module(ckpt, adapter, config, t, err);
		else if (!mfs_str_ends(t->name, OUT) || !partner(adapter, t, OUT, IN))
			rc = refuse(adapter, t,
				    "is none of an adapter's matrices (linear_in, linear_out)",
				    err);
	}
	return rc;
}

int mfs_ckpt_attach_bridge(struct mfs_ckpt *ckpt, const char *dir, struct mfs_error *err)
{
	struct mfs_lora_config config;
	struct mfs_ckpt *adapter;
	int rc = mfs_ckpt_open(dir, MFS_CKPT_ADAPTER, &adapter, err);

	if (rc)
		return rc;
	rc = mfs_ckpt_read_lora(adapter, &config, err);
	if (!rc)
		rc = add_modules(ckpt, adapter, &config, err);
	if (rc)
		mfs_ckpt_free(adapter);
	else
		mfs_ckpt_attach(ckpt, adapter);
	return rc;
}
