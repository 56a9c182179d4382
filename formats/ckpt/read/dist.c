/* `.metadata` says where every chunk of every global tensor lies in `__R_W.distcp`: torch_dist, and
 * torch.distributed.checkpoint without Megatron's own files. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/read/config.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/nemo.h"
#include "formats/ckpt/read/open.h"
#include "formats/ckpt/read/plain.h"

#define COMMON_FILE	  "common.pt"		   /* core <= 0.18 */
#define COMMON_ITEM	  "common_state/shard_0_1" /* core >= 0.19 */
#define NEMO_CONFIG	  "context/model.yaml"
#define MAX_METADATA_JSON (1u << 20)

/* ---- arguments that others tell ---- */

/* folder: of the checkpoint's; NULL: the person's reference. */
static int read_told_by(struct mfs_dist_reader *r, const char *folder)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	int rc = ckpt->told->read(ckpt, ckpt->told, folder, r->err);

	if (rc)
		return rc;
	ckpt->told_by = folder ? mfs_arena_printf(&ckpt->arena, "%s/%s", ckpt->dir, folder)
			       : mfs_arena_printf(&ckpt->arena, "%s", ckpt->told->ref);
	return ckpt->told_by ? 0 : mfs_fail_nomem(r->err);
}

/* A person's word counts before the program's. */
static int read_told(struct mfs_dist_reader *r)
{
	const struct mfs_ckpt_told *told = r->ckpt->told;
	int rc;

	r->maker = r->maker == MFS_DIST_PLAIN ? MFS_DIST_PLAIN : MFS_DIST_BARE;
	r->ckpt->rng_count = 0;
	if (told && told->ref)
		return read_told_by(r, NULL);
	rc = told && r->verl ? read_told_by(r, r->verl->hf) : -ENOENT;
	if (rc != -ENOENT)
		return rc;
	return mfs_fail(r->err, -ENODATA,
			"%s/%s/config.json is missing, which says what model this is (verl); -o "
			"ref=HF_DIR names another",
			r->ckpt->dir, r->verl->hf);
}

/* Whether a state has no arguments, and somebody tells them. */
static bool is_bare(const struct mfs_dist_reader *r, const struct mfs_pickle *doc, mfs_value state)
{
	return r->ckpt->told && r->ckpt->told->ref &&
	       mfs_value_is_none(doc, mfs_value_get(doc, state, "args"));
}

/* ---- non-tensor state ---- */

/* Gives a state what another program has put elsewhere. */
static int complete_state(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
			  mfs_value *state)
{
	switch (r->maker) {
	case MFS_DIST_NEMO:
		return mfs_nemo_make_state(r->ckpt, f, file, NEMO_CONFIG, state, r->err);
	case MFS_DIST_PLAIN:
		return mfs_plain_make_state(r, mfs_plain_optimizer(r), f, state);
	default:
		return mfs_ckpt_complete_state(r->ckpt, f, file, state, r->err);
	}
}

/* src is what begins at base in file id. */
static int read_state_of(struct mfs_dist_reader *r, const struct mfs_source *src, const char *file,
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
	rc = complete_state(r, &f, file, &state);
	if (!rc && is_bare(r, f.doc, state))
		rc = read_told(r);
	else if (!rc) /* plain: they are an item of their own */
		rc = mfs_ckpt_read_args(r->ckpt, f.doc, state,
					r->maker == MFS_DIST_PLAIN ? "args" : file, r->err);
	if (rc || r->maker == MFS_DIST_BARE || !(r->ckpt->what & MFS_CKPT_COMMON)) {
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

		if (b->item.file == MFS_DCP_NO_FILE || !parse_rng_key(b->key, &rng))
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

static int read_common(struct mfs_dist_reader *r)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, COMMON_ITEM);
	struct mfs_source src;
	uint32_t file;
	int rc = mfs_dist_add_file(r, COMMON_FILE, &file, NULL);

	if (!rc) {
		src = mfs_source_file(r->ckpt->files, file);
		return read_state_of(r, &src, COMMON_FILE, file, 0);
	}
	if (!item || item->item.file == MFS_DCP_NO_FILE)
		return mfs_fail(r->err, -ENODATA,
				"%s: neither %s nor the item '%s': the arguments are missing",
				r->ckpt->dir, COMMON_FILE, COMMON_ITEM);
	src = mfs_dist_item(r, &item->item);
	return read_state_of(r, &src, COMMON_ITEM, r->files[item->item.file], item->item.offset);
}

/* ---- arguments without a common state ---- */

static bool is_of_optimizer(const char *key)
{
	return !strncmp(key, "optim", 5) || !strncmp(key, "chained_", 8);
}

/* A key of the optimizer's state. NULL: there is none. */
static const char *optimizer_key(const struct mfs_dist_reader *r)
{
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		if (is_of_optimizer(r->dcp.tensors[i].key))
			return r->dcp.tensors[i].key;
	for (uint32_t i = 0; i < r->dcp.bytes_count; i++)
		if (is_of_optimizer(r->dcp.bytes[i].key))
			return r->dcp.bytes[i].key;
	return NULL;
}

/* Plain: the state is flattened, and 'args' is an item of its own. item: see plain_state_item(). */
static int read_plain_state(struct mfs_dist_reader *r, const struct mfs_dcp_bytes *item)
{
	const struct mfs_source src = mfs_dist_item(r, &item->item);

	return read_state_of(r, &src, item->key, r->files[item->item.file], item->item.offset);
}

static bool has_optimizer(const struct mfs_dist_reader *r)
{
	const enum mfs_plain_optim kind = mfs_plain_optimizer(r);

	return kind != MFS_PLAIN_NONE && kind != MFS_PLAIN_UNREAD;
}

/* The item in whose archive a state can be made, where somebody asks for it: a tensor of the state
 * stays there. False: nothing says what model it is but a reference, or there is no optimizer. */
static bool plain_state_item(const struct mfs_dist_reader *r, struct mfs_dcp_bytes *ret)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, "args");
	const struct mfs_dcp_item *scale = mfs_plain_scale(r);
	uint32_t file;

	if (!item && !mfs_fileset_add(r->ckpt->files, MFS_RUN_CONFIG, &file, NULL))
		item = mfs_dcp_bytes(&r->dcp, "iteration");
	if (!item || item->item.file == MFS_DCP_NO_FILE || !has_optimizer(r) ||
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

static int read_args(struct mfs_dist_reader *r)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(&r->dcp, "args");
	struct mfs_dcp_bytes of_state;
	int rc;

	if (r->maker == MFS_DIST_PLAIN && plain_state_item(r, &of_state))
		return read_plain_state(r, &of_state);
	if (r->maker == MFS_DIST_PLAIN && item && item->item.file != MFS_DCP_NO_FILE)
		return read_args_item(r, item);
	if (r->verl)
		return read_told(r);
	/* A state that only the optimizer needs is made where there is one. */
	if (r->maker == MFS_DIST_NEMO && (r->ckpt->what & MFS_CKPT_COMMON) && optimizer_key(r))
		rc = read_common(r);
	else
		rc = mfs_ckpt_read_config(
			r->ckpt, r->maker == MFS_DIST_NEMO ? NEMO_CONFIG : MFS_RUN_CONFIG, r->err);
	if (rc != -ENOENT)
		return rc;
	if (r->maker == MFS_DIST_PLAIN && r->ckpt->told && r->ckpt->told->ref)
		return read_told(r);
	return r->maker == MFS_DIST_NEMO
		       ? mfs_fail(r->err, -ENODATA,
				  "%s/" NEMO_CONFIG " is missing, which says what model this is",
				  r->ckpt->dir)
		       : mfs_fail(
				 r->err, -ENODATA,
				 "%s: neither the item 'args' (Megatron-LM) nor run_config.yaml "
				 "(Megatron-Bridge): the arguments are missing; -o ref=HF_DIR says "
				 "what model it is",
				 r->ckpt->dir);
}

/* Stages number their layers from 0, so that one stage's tensor hides another's. */
static int check_stages(struct mfs_dist_reader *r)
{
	const int64_t stages = r->ckpt->args.pipeline_model_parallel_size;

	if (r->maker != MFS_DIST_PLAIN || stages <= 1)
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
	if (!strcmp(backend, "zarr")) {
		r->arrays = true;
		r->index = "*/.zarray";
		r->ckpt->format = MFS_CKPT_ZARR;
		return 0;
	}
	if (!strcmp(backend, "torch_dist"))
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

/* Plain saves have no metadata.json. One of torch_dist without it looks the same, but for its
 * names. */
static int check_plain(struct mfs_dist_reader *r)
{
	return mfs_dist_has_model(r)
		       ? 0
		       : mfs_fail(r->err, -ENODATA,
				  "%s: metadata.json is missing (the save did not finish), and no "
				  "tensor is named 'model....' (torch_dcp, fsdp_dtensor)",
				  r->ckpt->dir);
}

/* Where verl saves its weights as HuggingFace files, these hold the optimizer alone. */
static int check_verl(struct mfs_dist_reader *r)
{
	return mfs_dist_has_model(r)
		       ? 0
		       : mfs_fail(r->err, -ENODATA,
				  "%s: %s holds no tensor of a model: SOURCE can be %s/%s, where "
				  "verl saves the weights then",
				  r->ckpt->dir, r->verl->weights, r->ckpt->dir, r->verl->hf);
}

/* Sets maker and folder. */
static int find_maker(struct mfs_dist_reader *r)
{
	const bool plain = r->ckpt->format == MFS_CKPT_DCP;
	uint32_t file;

	r->folder = "";
	r->maker = plain ? MFS_DIST_PLAIN : MFS_DIST_MEGATRON;
	if (mfs_fileset_add(r->ckpt->files, plain ? METADATA : "metadata.json", &file, NULL) !=
	    -ENOENT)
		return 0;
	r->verl = mfs_verl_find(r->ckpt->dir);
	if (!r->verl) {
		r->maker = MFS_DIST_NEMO;
		r->folder = MFS_NEMO_WEIGHTS "/";
		return 0;
	}
	if (!plain)
		r->maker = MFS_DIST_BARE;
	r->folder = mfs_arena_printf(&r->ckpt->arena, "%s/", r->verl->weights);
	return r->folder ? 0 : mfs_fail_nomem(r->err);
}

/* The optimizer's state of some programs is not read, which is no reason to keep anybody from the
 * weights. Who resumes a run from them should know. */
static int warn_of_optimizer(struct mfs_dist_reader *r)
{
	const char *key = optimizer_key(r);

	if (r->maker == MFS_DIST_PLAIN && (has_optimizer(r) && !r->ckpt->told_by))
		return 0;
	if (!key && r->verl && mfs_verl_has_optim(r->ckpt->dir, r->verl))
		key = r->verl->optim;
	if (r->maker == MFS_DIST_MEGATRON || r->maker == MFS_DIST_NEMO || !key)
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
	int rc;

	*r = (struct mfs_dist_reader){.ckpt = ckpt, .index = METADATA, .err = err};
	rc = find_maker(r);
	if (!rc && r->maker != MFS_DIST_PLAIN)
		rc = check_backend(r);
	if (!rc)
		rc = mfs_dist_open_index(r);
	if (!rc && r->maker == MFS_DIST_PLAIN)
		rc = check_plain(r);
	if (!rc && r->verl)
		rc = check_verl(r);
	if (!rc && r->maker == MFS_DIST_MEGATRON)
		rc = note_rng(r);
	if (!rc)
		rc = r->maker == MFS_DIST_MEGATRON ? read_common(r) : read_args(r);
	if (!rc)
		rc = check_stages(r);
	if (!rc)
		rc = mfs_dist_add_tensors(r);
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
