/* `.metadata` says where every chunk of every global tensor lies in `__R_W.distcp`: torch_dist, and
 * torch.distributed.checkpoint without Megatron's own files. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/read/args_file.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/marks.h"
#include "formats/ckpt/read/reader.h"

#define COMMON_FILE	  "common.pt"		   /* core <= 0.18 */
#define COMMON_ITEM	  "common_state/shard_0_1" /* core >= 0.19 */
#define MAX_METADATA_JSON (1u << 20)

/* ---- arguments that others tell ---- */

/* A person's word counts before the program's. */
int mfs_dist_read_told(struct mfs_dist_reader *r, const char *folder)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	int rc = ckpt->told->read(ckpt, ckpt->told, folder, r->err);

	if (rc)
		return rc;
	r->bare = !ckpt->format->is_plain;
	ckpt->rng_count = 0;
	ckpt->told_by = folder ? mfs_arena_printf(&ckpt->arena, "%s/%s", ckpt->dir, folder)
			       : mfs_arena_printf(&ckpt->arena, "%s", ckpt->told->ref);
	return ckpt->told_by ? 0 : mfs_fail_nomem(r->err);
}

/* Whether a state has no arguments, and somebody tells them. */
static bool is_bare(const struct mfs_dist_reader *r, const struct mfs_pickle *doc, mfs_value state)
{
	return r->ckpt->told && r->ckpt->told->ref &&
	       mfs_value_is_none(doc, mfs_value_get(doc, state, "args"));
}

/* ---- non-tensor state ---- */

int mfs_dist_read_state(struct mfs_dist_reader *r, const struct mfs_source *src, const char *file,
			uint32_t id, uint64_t base)
{
	struct mfs_torch_file f;
	mfs_value state;
	int rc = mfs_torch_file_open(src, &f, r->err);

	if (rc) {
		mfs_fail_in(r->err, "%s/%s", r->ckpt->dir, file);
		return rc;
	}
	state = mfs_pickle_root(f.doc);
	if (mfs_value_type(f.doc, state) == MFS_V_LIST)
		state = mfs_value_at(f.doc, state, 0); /* a byte item is a list of one object */
	rc = r->maker->complete_state(r, &f, file, &state);
	if (!rc && is_bare(r, f.doc, state))
		rc = mfs_dist_read_told(r, NULL);
	else if (!rc) /* plain: they are an item of their own */
		rc = mfs_ckpt_read_args(r->ckpt, f.doc, state,
					r->ckpt->format->is_plain ? "args" : file, r->err);
	if (rc || r->bare || !(r->ckpt->what & MFS_CKPT_COMMON)) {
		mfs_torch_file_release(&f);
		return rc;
	}
	r->ckpt->state =
		(struct mfs_ckpt_common){.archive = f, .root = state, .file = id, .base = base};
	r->ckpt->has_state = true;
	return 0;
}

/* Parses rng_state/shard_{pp}.{tp}_{P}.{T}. Core 0.16 with EP > 1 has the data-parallel rank after
 * tp; the first one is used for all. */
static bool parse_rng_key(const char *key, struct mfs_ckpt_rng *ret)
{
	unsigned pp, tp, dp = 0, all_pp, all_tp, all_dp = 1;
	int used = 0;

	if (sscanf(key, "rng_state/shard_%u.%u_%u.%u%n", &pp, &tp, &all_pp, &all_tp, &used) != 4 &&
	    sscanf(key, "rng_state/shard_%u.%u.%u_%u.%u.%u%n", &pp, &tp, &dp, &all_pp, &all_tp,
		   &all_dp, &used) != 6)
		return false;
	if (key[used] || pp >= all_pp || tp >= all_tp || dp >= all_dp || dp)
		return false;
	ret->tp = tp;
	ret->pp = pp;
	return true;
}

static int note_rng(struct mfs_dist_reader *r)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	struct mfs_ckpt_rng rng = {0};

	if (!(ckpt->what & MFS_CKPT_COMMON))
		return 0;
	ckpt->rng = mfs_arena_array(&ckpt->arena, r->dcp.bytes_count, sizeof(*ckpt->rng));
	if (!ckpt->rng)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < r->dcp.bytes_count; i++) {
		const struct mfs_dcp_bytes *b = &r->dcp.bytes[i];

		if (b->item.file == MFS_DCP_FILE_NONE || !parse_rng_key(b->key, &rng))
			continue;
		rng.file = r->files[b->item.file];
		rng.at = b->item.offset;
		rng.length = b->item.length;
		ckpt->rng[ckpt->rng_count++] = rng;
	}
	mfs_ckpt_sort_rng(ckpt);
	return 0;
}

struct mfs_source mfs_dist_item(const struct mfs_dist_reader *r, const struct mfs_dcp_item *item)
{
	const struct mfs_source file = mfs_source_file(r->ckpt->files, r->files[item->file]);

	return mfs_source_range(&file, item->offset, item->length);
}

mfs_value mfs_dist_object(const struct mfs_dist_reader *r, const struct mfs_pickle *doc)
{
	const mfs_value root = mfs_pickle_root(doc);

	return r->arrays ? root : mfs_value_at(doc, root, 0);
}

int mfs_dist_read_common(struct mfs_dist_reader *r)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, COMMON_ITEM);
	struct mfs_source src;
	uint32_t file;
	int rc = mfs_dist_add_file(r, COMMON_FILE, &file, NULL);

	if (!rc) {
		src = mfs_source_file(r->ckpt->files, file);
		return mfs_dist_read_state(r, &src, COMMON_FILE, file, 0);
	}
	if (!item || item->item.file == MFS_DCP_FILE_NONE)
		return mfs_fail(r->err, -ENODATA,
				"%s: neither %s nor the item '%s': the arguments are missing",
				r->ckpt->dir, COMMON_FILE, COMMON_ITEM);
	src = mfs_dist_item(r, &item->item);
	return mfs_dist_read_state(r, &src, COMMON_ITEM, r->files[item->item.file],
				   item->item.offset);
}

/* ---- the optimizer's keys ---- */

static bool is_of_optimizer(const char *key)
{
	return !strncmp(key, "optim", 5) || !strncmp(key, "chained_", 8);
}

const char *mfs_dist_optimizer_key(const struct mfs_dist_reader *r)
{
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		if (is_of_optimizer(r->dcp.tensors[i].key))
			return r->dcp.tensors[i].key;
	for (uint32_t i = 0; i < r->dcp.bytes_count; i++)
		if (is_of_optimizer(r->dcp.bytes[i].key))
			return r->dcp.bytes[i].key;
	return NULL;
}

/* Stages number their layers from 0, so that one stage's tensor hides another's. */
static int check_stages(struct mfs_dist_reader *r)
{
	const int64_t stages = r->ckpt->args.pipeline_model_parallel_size;

	if (!r->ckpt->format->is_plain || stages <= 1)
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s: pipeline-model-parallel-size is %lld, expected 1 of a save of "
			"torch.distributed.checkpoint",
			r->ckpt->dir, (long long)stages);
}

/* Notes the layout that wrote the files. The stored tensors do not depend on it. */
static void note_layout(struct mfs_ckpt *ckpt)
{
	const struct mfs_megatron_args *a = &ckpt->args;

	ckpt->layout = (struct mfs_ckpt_layout){
		.tp = (uint32_t)a->tensor_model_parallel_size,
		.pp = (uint32_t)a->pipeline_model_parallel_size,
		.ep = (uint32_t)a->expert_model_parallel_size,
		.etp = (uint32_t)a->expert_tensor_parallel_size,
		.vpp = (uint32_t)a->virtual_pipeline_model_parallel_size,
	};
}

/* zarr: until core 0.15. */
static int set_backend(struct mfs_dist_reader *r, const char *backend)
{
	if (!strcmp(backend, mfs_dist_zarr.name)) {
		r->arrays = true;
		r->index = "*/.zarray";
		r->ckpt->format = &mfs_dist_zarr;
		return 0;
	}
	if (!strcmp(backend, mfs_dist_format.name))
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s/%smetadata.json: sharded_backend is '%.40s', expected torch_dist or "
			"zarr",
			r->ckpt->dir, r->folder, backend);
}

/* metadata.json names the backend. */
static int check_backend_text(struct mfs_dist_reader *r, const char *text, size_t len)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	const char *backend = json_string_value(json_object_get(root, "sharded_backend"));
	int rc = 0;

	if (!backend)
		rc = mfs_fail(r->err, -ENODATA, "%s/%smetadata.json: %s: the save is incomplete",
			      r->ckpt->dir, r->folder,
			      root ? "it names no sharded_backend" : "it is not JSON (cut short?)");
	else
		rc = set_backend(r, backend);
	json_decref(root);
	return rc;
}

static int check_backend(struct mfs_dist_reader *r)
{
	struct mfs_source src;
	uint32_t file;
	void *text;
	int rc = mfs_dist_add_file(r, "metadata.json", &file, r->err);

	if (rc)
		return rc;
	src = mfs_source_file(r->ckpt->files, file);
	if (src.size > MAX_METADATA_JSON)
		return mfs_fail(r->err, -ENOTSUP, "%s/%smetadata.json: larger than 1 MiB",
				r->ckpt->dir, r->folder);
	rc = mfs_source_slurp(&src, 0, src.size, &text, r->err);
	if (rc)
		return rc;
	rc = check_backend_text(r, text, src.size);
	free(text);
	return rc;
}

/* The optimizer's state of some programs is not read, which is no reason to keep anybody from the
 * weights. Who resumes a run from them should know. */
static int warn_of_optimizer(struct mfs_dist_reader *r)
{
	const char *key = mfs_dist_optimizer_key(r);

	if (!key)
		key = r->unread;
	if (!key || (!r->bare && r->maker->reads_optimizer && r->maker->reads_optimizer(r)))
		return 0;
	return mfs_ckpt_warn(r->ckpt,
			     "the optimizer's state, such as '%.120s', is not read: Megatron views "
			     "have the weights alone",
			     key)
		       ? mfs_fail_nomem(r->err)
		       : 0;
}

int mfs_dist_read(struct mfs_ckpt *ckpt, struct mfs_dist_reader *r, struct mfs_error *err)
{
	const struct mfs_dist_maker *maker = ckpt->reader->maker;
	int rc;

	*r = (struct mfs_dist_reader){.ckpt = ckpt,
				      .maker = maker,
				      .folder = maker->folder,
				      .index = METADATA,
				      .err = err};
	rc = maker->find ? maker->find(r) : 0;
	if (!rc && !ckpt->format->is_plain)
		rc = check_backend(r);
	if (!rc)
		rc = mfs_dist_open_index(r);
	if (!rc && maker->check)
		rc = maker->check(r);
	if (!rc && maker->has_random_states)
		rc = note_rng(r);
	if (!rc)
		rc = maker->read_args(r);
	if (!rc)
		rc = check_stages(r);
	if (!rc)
		rc = mfs_dist_add_tensors(r);
	if (!rc)
		rc = mfs_dist_note_extras(r);
	if (!rc)
		rc = warn_of_optimizer(r);
	if (!rc)
		note_layout(ckpt);
	return rc;
}

void mfs_dist_release(struct mfs_dist_reader *r)
{
	mfs_dcp_release(&r->dcp);
}

/* ---- the row of torch_dist ---- */

mfs_value mfs_dist_rng_list(const struct mfs_pickle *doc)
{
	return mfs_value_at(doc, mfs_pickle_root(doc), 0);
}

const struct mfs_ckpt_format mfs_dist_format = {
	.name = "torch_dist", .title = "torch_dist", .rng_list = mfs_dist_rng_list};

static const char *model_key(const char *key)
{
	return mfs_name_is_model(key) ? key : NULL;
}

/* Whatever it is, it is read or refused. */
bool mfs_dist_reads_optimizer(const struct mfs_dist_reader *r)
{
	(void)r;
	return true;
}

static int complete_state(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
			  mfs_value *state)
{
	return mfs_ckpt_complete_state(r->ckpt, f, file, state, r->err);
}

static const struct mfs_dist_maker maker = {
	.folder = "",
	.prefix = "",
	.has_random_states = true,
	.read_args = mfs_dist_read_common,
	.complete_state = complete_state,
	.reads_optimizer = mfs_dist_reads_optimizer,
	.model_key = model_key,
};

static bool looks_like(const char *dir)
{
	return mfs_ckpt_dir_has(dir, "metadata.json");
}

static int refuse(const char *dir, struct mfs_error *err)
{
	if (!mfs_ckpt_dir_has(dir, METADATA ".tmp") && !mfs_ckpt_dir_has(dir, COMMON_FILE))
		return 0;
	return mfs_fail(err, -ENODATA, "%s: " METADATA " is missing: the save did not finish", dir);
}

static int add_marks(const char *dir, const char *name, struct mfs_marks *marks)
{
	(void)dir;
	return !strcmp(name, METADATA) || !strcmp(name, "metadata.json") ||
			       !strcmp(name, MFS_RUN_CONFIG) || mfs_str_ends(name, ".distcp")
		       ? mfs_marks_add(marks, name)
		       : 0;
}

static bool last(const char *dir, char *name, size_t size)
{
	return mfs_ckpt_dir_last(dir, "metadata.json", name, size);
}

int mfs_dist_read_model(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_dist_reader r;
	int rc = mfs_dist_read(ckpt, &r, err);

	mfs_dist_release(&r);
	return rc;
}

const struct mfs_ckpt_reader mfs_ckpt_reader_torch_dist = {
	.format = &mfs_dist_format,
	.maker = &maker,
	.looks_like = looks_like,
	.refuse = refuse,
	.read = mfs_dist_read_model,
	.add_marks = add_marks,
	.last = last,
};
