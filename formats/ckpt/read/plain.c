#include "formats/ckpt/read/plain.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/args_file.h"
#include "formats/torch/pickle_write.h"

#define GROUPS	"param_groups."
#define METAS	"optimizer.param_to_group_meta."
#define DECAY	".wd_mult"
#define SCALER	"optimizer.grad_scaler"
#define MAX_KEY 512
/* More than Megatron makes, and than are read (optim/rules/state_dict.h). */
#define MAX_GROUPS 65

struct making {
	struct mfs_dist_reader *r;
	const struct mfs_torch_file *f;
	enum mfs_plain_optim_kind kind;
	struct mfs_pickle_writer w;
	double step;
	bool has_step;
};

static const char *after(const char *key, const char *prefix)
{
	const size_t len = strlen(prefix);

	return strncmp(key, prefix, len) ? NULL : key + len;
}

/* ---- which optimizer ---- */

/* Megatron-FSDP keeps no other copy in fp32 than the one that it saves as the model. Where it was
 * told to keep none, there is no main parameter. */
static bool model_is_main(const struct mfs_dist_reader *r)
{
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		if (mfs_dist_model_key(r, r->dcp.tensors[i].key) &&
		    r->dcp.tensors[i].dtype != MFS_F32)
			return false;
	return true;
}

static enum mfs_plain_optim_kind kind_of_key(const char *key)
{
	const char *rest = after(key, "optimizer.optimizer.state.");

	if (rest)
		return isdigit((unsigned char)*rest) ? MFS_PLAIN_FLOAT16 : MFS_PLAIN_UNREAD;
	rest = after(key, "optimizer.state.");
	if (rest)
		return isdigit((unsigned char)*rest) ? MFS_PLAIN_FP32 : MFS_PLAIN_NAMED;
	if (after(key, "optimizer.fp32_from_fp16_params.") || !strcmp(key, MFS_PLAIN_SCALE))
		return MFS_PLAIN_FLOAT16;
	return after(key, "optim") ? MFS_PLAIN_UNREAD : MFS_PLAIN_NONE;
}

enum mfs_plain_optim_kind mfs_plain_optimizer(const struct mfs_dist_reader *r)
{
	enum mfs_plain_optim_kind found = MFS_PLAIN_NONE;

	for (uint32_t i = 0; i < r->dcp.tensor_count; i++) {
		const enum mfs_plain_optim_kind kind = kind_of_key(r->dcp.tensors[i].key);

		if (kind != MFS_PLAIN_NONE && found != MFS_PLAIN_NONE && kind != found)
			return MFS_PLAIN_UNREAD;
		if (kind != MFS_PLAIN_NONE)
			found = kind;
	}
	if (mfs_dcp_tensor(&r->dcp, MFS_PLAIN_SCALE) && !mfs_plain_scale(r))
		return MFS_PLAIN_UNREAD;
	return found == MFS_PLAIN_NAMED && !model_is_main(r) ? MFS_PLAIN_UNREAD : found;
}

const struct mfs_dcp_item *mfs_plain_scale(const struct mfs_dist_reader *r)
{
	const struct mfs_dcp_tensor *t = mfs_dcp_tensor(&r->dcp, MFS_PLAIN_SCALE);

	return t && t->chunk_count == 1 && t->chunks[0].item.file != MFS_DCP_FILE_NONE
		       ? &t->chunks[0].item
		       : NULL;
}

const char *mfs_plain_prefix(enum mfs_plain_optim_kind kind)
{
	return kind == MFS_PLAIN_FLOAT16 ? "optimizer.optimizer." : "optimizer.";
}

/* ---- items ---- */

static int open_item(const struct making *m, const struct mfs_dcp_bytes *b,
		     struct mfs_torch_file *ret)
{
	const struct mfs_source src = mfs_dist_item(m->r, &b->item);
	int rc = mfs_torch_file_open(&src, ret, m->r->err);

	return rc ? (mfs_fail_in(m->r->err, "%s: '%s'", m->r->ckpt->dir, b->key), rc) : 0;
}

/* The items lie in archives of their own, and the state in one. */
static int refuse_tensor(void *arg, mfs_value persid, const char *key, size_t key_len,
			 uint32_t *ret, struct mfs_error *err)
{
	(void)arg, (void)persid, (void)key, (void)key_len, (void)ret;
	return mfs_fail(err, -ENOTSUP, "it contains a tensor");
}

/* Writes a pair of the item's. */
static int copy_item(struct making *m, const struct mfs_dcp_bytes *b, const char *name)
{
	const struct mfs_pickle_hooks hooks = {.storage = refuse_tensor};
	struct mfs_torch_file f;
	int rc = open_item(m, b, &f);

	if (rc)
		return rc;
	mfs_pickle_name(&m->w, name);
	rc = mfs_pickle_copy(&m->w, f.doc, mfs_pickle_root(f.doc), &hooks, m->r->err);
	mfs_torch_file_release(&f);
	return rc ? (mfs_fail_in(m->r->err, "%s: '%s'", m->r->ckpt->dir, b->key), rc) : 0;
}

/* Writes pairs of all items whose keys begin with prefix and go on with a name. *ret: how many. */
static int copy_items(struct making *m, const char *prefix, uint32_t *ret)
{
	int rc = 0;

	*ret = 0;
	for (uint32_t i = 0; i < m->r->dcp.bytes_count && !rc; i++) {
		const struct mfs_dcp_bytes *b = &m->r->dcp.bytes[i];
		const char *name = after(b->key, prefix);

		if (!name || !*name || strchr(name, '.') || b->item.file == MFS_DCP_FILE_NONE)
			continue;
		mfs_pickle_batch(&m->w, MFS_OP_SETITEMS, (*ret)++);
		rc = copy_item(m, b, name);
	}
	return rc;
}

/* ---- the optimizer's step ---- */

/* torch's Adam keeps it as a tensor of each parameter. They are equal. */
static int read_step(struct making *m)
{
	char prefix[64];
	int rc = 0;

	snprintf(prefix, sizeof(prefix), "%sstate.", mfs_plain_prefix(m->kind));
	for (uint32_t i = 0; i < m->r->dcp.tensor_count && !m->has_step && !rc; i++) {
		const struct mfs_dcp_tensor *t = &m->r->dcp.tensors[i];
		struct mfs_torch_file f;

		if (!after(t->key, prefix) || !mfs_str_ends(t->key, ".step") ||
		    t->chunk_count != 1 || t->chunks[0].item.file == MFS_DCP_FILE_NONE)
			continue;
		rc = open_item(m, &(struct mfs_dcp_bytes){t->key, t->chunks[0].item}, &f);
		if (rc)
			return rc;
		rc = mfs_torch_number(&f, mfs_pickle_root(f.doc), &m->step, m->r->err);
		mfs_torch_file_release(&f);
		m->has_step = !rc;
	}
	return rc;
}

static void write_step(struct making *m, const char *name)
{
	if (!m->has_step)
		return;
	mfs_pickle_name(&m->w, name);
	mfs_pickle_float(&m->w, m->step);
}

/* ---- the gradient scaler ---- */

/* A constant one has no state: its dict is an item. The scale of another one stays in f. */
static int write_scaler(struct making *m)
{
	const struct mfs_dcp_bytes *constant = mfs_dcp_bytes(&m->r->dcp, SCALER);
	uint32_t pairs;
	int rc;

	if (constant && constant->item.file != MFS_DCP_FILE_NONE)
		return copy_item(m, constant, "grad_scaler");
	if (!mfs_plain_scale(m->r))
		return 0;
	mfs_pickle_name(&m->w, "grad_scaler");
	mfs_pickle_dict_begin(&m->w);
	mfs_pickle_name(&m->w, "scale");
	rc = mfs_pickle_copy(&m->w, m->f->doc, mfs_pickle_root(m->f->doc), NULL, m->r->err);
	if (!rc)
		rc = copy_items(m, SCALER ".", &pairs);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

/* ---- parameter groups ---- */

/* param_groups.N.KEY */
static int write_listed(struct making *m)
{
	uint32_t pairs = 1;
	int rc = 0;

	for (unsigned i = 0; i < MAX_GROUPS && pairs && !rc; i++) {
		char prefix[64];

		snprintf(prefix, sizeof(prefix), "%s" GROUPS "%u.", mfs_plain_prefix(m->kind), i);
		pairs = 0;
		for (uint32_t k = 0; k < m->r->dcp.bytes_count && !pairs; k++)
			pairs = after(m->r->dcp.bytes[k].key, prefix) != NULL;
		if (!pairs)
			break;
		mfs_pickle_dict_begin(&m->w);
		rc = copy_items(m, prefix, &pairs);
		mfs_pickle_dict_end(&m->w);
	}
	return rc;
}

/* What tells groups apart. */
struct meta {
	double decay;
	bool decoupled;
};

static int read_number(const struct making *m, const struct mfs_dcp_bytes *b, double *ret)
{
	struct mfs_torch_file f;
	int rc = b->item.file == MFS_DCP_FILE_NONE ? 0 : open_item(m, b, &f);
	bool flag;

	if (rc || b->item.file == MFS_DCP_FILE_NONE)
		return rc;
	if (mfs_value_bool(f.doc, mfs_pickle_root(f.doc), &flag))
		*ret = flag;
	else
		mfs_value_float(f.doc, mfs_pickle_root(f.doc), ret);
	mfs_torch_file_release(&f);
	return 0;
}

/* name: of the parameter, of len bytes. */
static int read_meta(const struct making *m, const struct mfs_dcp_bytes *decay, const char *name,
		     size_t len, struct meta *ret)
{
	const struct mfs_dcp_bytes *b;
	double decoupled = 0;
	char key[MAX_KEY];
	int rc;

	ret->decay = 1;
	rc = read_number(m, decay, &ret->decay);
	snprintf(key, sizeof(key), METAS "%.*s.is_decoupled_lr", (int)len, name);
	b = mfs_dcp_bytes(&m->r->dcp, key);
	if (!rc && b)
		rc = read_number(m, b, &decoupled);
	ret->decoupled = decoupled != 0;
	return rc;
}

/* All experts are in the groups of the first. */
static bool is_later_expert(const char *name, size_t len)
{
	static const char module[] = "module.";
	struct mfs_name parsed;
	char text[MFS_NAME_MAX];

	while (len >= sizeof(module) - 1 && after(name, module)) {
		name += sizeof(module) - 1;
		len -= sizeof(module) - 1;
	}
	if (len >= sizeof(text))
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	mfs_name_parse(text, &parsed);
	return parsed.experts && parsed.expert > 0;
}

static int write_new_group(struct making *m, const char *name, size_t len)
{
	char prefix[MAX_KEY];
	uint32_t pairs;
	int rc;

	snprintf(prefix, sizeof(prefix), METAS "%.*s.", (int)len, name);
	mfs_pickle_dict_begin(&m->w);
	rc = copy_items(m, prefix, &pairs);
	snprintf(prefix, sizeof(prefix), METAS "%.*s.step", (int)len, name);
	if (!mfs_dcp_bytes(&m->r->dcp, prefix))
		write_step(m, "step");
	mfs_pickle_dict_end(&m->w);
	return rc;
}

/* param_to_group_meta.NAME.KEY: the group of each parameter. */
static int write_metas(struct making *m)
{
	struct meta seen[MAX_GROUPS];
	unsigned count = 0;
	int rc = 0;

	for (uint32_t i = 0; i < m->r->dcp.bytes_count && count < MAX_GROUPS && !rc; i++) {
		const struct mfs_dcp_bytes *b = &m->r->dcp.bytes[i];
		const char *name = after(b->key, METAS);
		unsigned k = 0;
		size_t len;

		if (!name || !mfs_str_ends(name, DECAY) || strlen(b->key) >= MAX_KEY)
			continue;
		len = strlen(name) - strlen(DECAY);
		if (is_later_expert(name, len))
			continue;
		rc = read_meta(m, b, name, len, &seen[count]);
		while (k < count && (seen[k].decay != seen[count].decay ||
				     seen[k].decoupled != seen[count].decoupled))
			k++;
		if (rc || k < count)
			continue;
		count++;
		rc = write_new_group(m, name, len);
	}
	return rc;
}

/* ---- the whole ---- */

static int write_torch(struct making *m)
{
	int rc;

	mfs_pickle_dict_begin(&m->w);
	if (m->kind != MFS_PLAIN_NAMED) {
		mfs_pickle_name(&m->w, "state");
		mfs_pickle_dict_begin(&m->w);
		write_step(m, "common_step");
		mfs_pickle_dict_end(&m->w);
	}
	mfs_pickle_name(&m->w, "param_groups");
	mfs_pickle_list_begin(&m->w);
	rc = m->kind == MFS_PLAIN_NAMED ? write_metas(m) : write_listed(m);
	mfs_pickle_list_end(&m->w);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

static int write_optimizer(struct making *m)
{
	int rc;

	mfs_pickle_name(&m->w, "optimizer");
	if (m->kind == MFS_PLAIN_FP32)
		return write_torch(m);
	mfs_pickle_dict_begin(&m->w);
	mfs_pickle_name(&m->w, "optimizer");
	rc = write_torch(m);
	if (!rc)
		rc = write_scaler(m);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

/* Megatron-Bridge has them in a file. */
static int write_config(struct making *m)
{
	struct mfs_pickle *doc = NULL;
	struct mfs_buf bytes = {0};
	int rc = mfs_ckpt_config_args(m->r->ckpt, MFS_RUN_CONFIG, &bytes, m->r->err);

	if (!rc)
		rc = mfs_pickle_parse(bytes.data, bytes.len, MFS_RUN_CONFIG, NULL, &doc, m->r->err);
	if (!rc) {
		mfs_pickle_name(&m->w, "args");
		rc = mfs_pickle_copy(&m->w, doc, mfs_pickle_root(doc), NULL, m->r->err);
	}
	mfs_pickle_free(doc);
	mfs_buf_release(&bytes);
	return rc;
}

static int write_scheduler(struct making *m)
{
	uint32_t pairs;
	int rc;

	mfs_pickle_name(&m->w, "opt_param_scheduler");
	mfs_pickle_dict_begin(&m->w);
	rc = copy_items(m, "opt_param_scheduler.", &pairs);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

static int write_state(struct making *m)
{
	static const char *const names[] = {"args", "iteration",
					    "num_floating_point_operations_so_far"};
	int rc = 0;

	mfs_pickle_dict_begin(&m->w);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names) && !rc; i++) {
		const struct mfs_dcp_bytes *b = mfs_dcp_bytes(&m->r->dcp, names[i]);

		if (b && b->item.file != MFS_DCP_FILE_NONE)
			rc = copy_item(m, b, names[i]);
		else if (!i)
			rc = write_config(m);
	}
	if (!rc)
		rc = write_scheduler(m);
	if (!rc)
		rc = write_optimizer(m);
	mfs_pickle_dict_end(&m->w);
	return rc;
}

static int write(struct making *m, struct mfs_buf *ret)
{
	int rc;

	mfs_pickle_begin(&m->w, ret, 2);
	rc = write_state(m);
	if (!rc)
		return mfs_pickle_end(&m->w, m->r->err);
	mfs_pickle_abandon(&m->w);
	return rc;
}

int mfs_plain_make_state(struct mfs_dist_reader *r, enum mfs_plain_optim_kind kind,
			 struct mfs_torch_file *f, mfs_value *state)
{
	struct making m = {.r = r, .f = f, .kind = kind};
	struct mfs_buf bytes = {0};
	int rc;

	/* Thousands of items are read. */
	mfs_fileset_keep_open(r->ckpt->files, true);
	rc = read_step(&m);
	if (!rc)
		rc = write(&m, &bytes);
	mfs_fileset_keep_open(r->ckpt->files, false);
	if (rc) {
		mfs_buf_release(&bytes);
		return rc;
	}
	rc = mfs_ckpt_replace_doc(f, &bytes, r->index, r->err);
	if (!rc)
		*state = mfs_pickle_root(f->doc);
	return rc;
}
