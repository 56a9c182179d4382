/* The row of plain torch.distributed.checkpoint (torch_dcp, fsdp_dtensor), and where its saves
 * have their arguments. */
#include <errno.h>
#include <string.h>

#include "formats/ckpt/read/args_file.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/plain.h"
#include "formats/ckpt/read/reader.h"

/* The state is flattened, and 'args' is an item of its own. item: see state_item(). */
static int read_state(struct mfs_dist_reader *r, const struct mfs_dcp_bytes *item)
{
	const struct mfs_source src = mfs_dist_item(r, &item->item);

	return mfs_dist_read_state(r, &src, item->key, r->files[item->item.file],
				   item->item.offset);
}

static bool has_optimizer(const struct mfs_dist_reader *r)
{
	const enum mfs_plain_optim_kind kind = mfs_plain_optimizer(r);

	return kind != MFS_PLAIN_NONE && kind != MFS_PLAIN_UNREAD;
}

/* The item in whose archive a state can be made, where somebody asks for it: a tensor of the state
 * stays there. False: nothing says what model it is but a reference, or there is no optimizer. */
static bool state_item(const struct mfs_dist_reader *r, struct mfs_dcp_bytes *ret)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, "args");
	const struct mfs_dcp_item *scale = mfs_plain_scale(r);
	uint32_t file;

	if (!item && !mfs_fileset_add(r->ckpt->files, MFS_RUN_CONFIG, &file, NULL))
		item = mfs_dcp_bytes(&r->dcp, "iteration");
	if (!item || item->item.file == MFS_DCP_FILE_NONE || !has_optimizer(r) ||
	    !(r->ckpt->what & MFS_CKPT_COMMON))
		return false;
	*ret = scale ? (struct mfs_dcp_bytes){MFS_PLAIN_SCALE, *scale} : *item;
	return true;
}

static int read_args_item(struct mfs_dist_reader *r, const struct mfs_dcp_bytes *item)
{
	const struct mfs_source src = mfs_dist_item(r, &item->item);
	struct mfs_torch_file f;
	int rc = mfs_torch_file_open(&src, &f, r->err);

	if (!rc) {
		rc = mfs_megatron_args_read(f.doc, mfs_pickle_root(f.doc), &r->ckpt->arena,
					    &r->ckpt->args, r->err);
		mfs_torch_file_release(&f);
	}
	return rc ? (mfs_fail_in(r->err, "%s/args", r->ckpt->dir), rc) : 0;
}

int mfs_plain_read_items(struct mfs_dist_reader *r, bool *ret_found)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, "args");
	struct mfs_dcp_bytes of_state;

	*ret_found = true;
	if (state_item(r, &of_state))
		return read_state(r, &of_state);
	if (item && item->item.file != MFS_DCP_FILE_NONE)
		return read_args_item(r, item);
	*ret_found = false;
	return 0;
}

static int read_args(struct mfs_dist_reader *r)
{
	bool found;
	int rc = mfs_plain_read_items(r, &found);

	if (found)
		return rc;
	rc = mfs_ckpt_read_config(r->ckpt, MFS_RUN_CONFIG, r->err);
	if (rc != -ENOENT)
		return rc;
	if (r->ckpt->told && r->ckpt->told->ref)
		return mfs_dist_read_told(r, NULL);
	return mfs_fail(r->err, -ENODATA,
			"%s: neither the item 'args' (Megatron-LM) nor run_config.yaml "
			"(Megatron-Bridge): the arguments are missing; -o ref=HF_DIR says what "
			"model it is",
			r->ckpt->dir);
}

/* A save in torch_dist without its metadata.json looks the same, except for its names. */
int mfs_plain_check(struct mfs_dist_reader *r)
{
	return mfs_dist_has_model(r)
		       ? 0
		       : mfs_fail(r->err, -ENODATA,
				  "%s: metadata.json is missing (the save did not finish), and no "
				  "tensor is named 'model....' (torch_dcp, fsdp_dtensor)",
				  r->ckpt->dir);
}

int mfs_plain_complete_state(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
			     mfs_value *state)
{
	(void)file;
	return mfs_plain_make_state(r, mfs_plain_optimizer(r), f, state);
}

bool mfs_plain_reads_optimizer(const struct mfs_dist_reader *r)
{
	return has_optimizer(r) && !r->ckpt->told_by;
}

static const char *after(const char *key, const char *prefix)
{
	const size_t len = strlen(prefix);

	return strncmp(key, prefix, len) ? NULL : key + len;
}

/* torch flattens the state, whose "model" is that of the module with its wrappers (DDP, FSDP,
 * Float16Module), each with a "module". */
const char *mfs_plain_model_key(const char *key)
{
	const char *inner;

	key = after(key, "model.");
	while (key && (inner = after(key, "module.")))
		key = inner;
	return key;
}

static const struct mfs_dist_maker maker = {
	.folder = "",
	.prefix = "",
	.check = mfs_plain_check,
	.read_args = read_args,
	.complete_state = mfs_plain_complete_state,
	.reads_optimizer = mfs_plain_reads_optimizer,
	.model_key = mfs_plain_model_key,
};

const struct mfs_ckpt_format mfs_plain_format = {.name = "dcp",
						 .title = "torch.distributed.checkpoint",
						 .is_plain = true,
						 .rng_list = mfs_dist_rng_list};

static bool looks_like(const char *dir)
{
	return mfs_ckpt_dir_has(dir, METADATA);
}

/* torch writes it last. */
static bool last(const char *dir, char *name, size_t size)
{
	return mfs_ckpt_dir_last(dir, METADATA, name, size);
}

const struct mfs_ckpt_reader mfs_ckpt_reader_dcp = {
	.format = &mfs_plain_format,
	.maker = &maker,
	.looks_like = looks_like,
	.read = mfs_dist_read_model,
	.last = last,
};
