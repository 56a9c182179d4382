#include "formats/ckpt/read/verl.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/read/marks.h"
#include "formats/ckpt/read/plain.h"
#include "formats/ckpt/read/reader.h"
#include "formats/io/directory.h"

struct mfs_verl {
	const char *weights; /* folder of torch_dist's files: "actor/dist_ckpt" */
	const char *hf;	     /* folder of config.json: "actor/huggingface" */
	const char *optim;   /* folder of the optimizer's state; NULL: it is among the weights */
};

/* Newer places first: a save that was moved from the old ones keeps none of them. Training without
 * roles (verl/trainer/sft_trainer.py) has no folder of an actor. */
static const struct mfs_verl places[] = {
	{"model/dist_ckpt", "model/huggingface", "optimizer/dist_ckpt"},
	{"dist_ckpt", "huggingface", NULL},
	{"actor/model/dist_ckpt", "actor/model/huggingface", "actor/optimizer/dist_ckpt"},
	{"actor/dist_ckpt", "actor/huggingface", NULL},
};

#define PLACES MFS_ARRAY_SIZE(places)

static bool exists(const char *dir, const char *folder, const char *name)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) < sizeof(path) &&
	       mfs_ckpt_dir_has(dir, path);
}

/* What of verl lies below dir, which may be a step or its actor. NULL: no .metadata does. */
static const struct mfs_verl *find_place(const char *dir)
{
	for (size_t i = 0; i < PLACES; i++)
		if (exists(dir, places[i].weights, METADATA))
			return &places[i];
	return NULL;
}

/* A directory mp_rank_* in a folder: the first releases had these below model/. */
static bool has_rank_dirs(const char *dir, const char *folder)
{
	char path[PATH_MAX];
	struct dirent *e;
	bool found = false;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, folder) >= sizeof(path))
		return false;
	d = mfs_opendir(path);
	while (d && !found && (e = readdir(d)))
		found = !strncmp(e->d_name, "mp_rank_", 8);
	if (d)
		closedir(d);
	return found;
}

int mfs_verl_refuse(const char *dir, struct mfs_error *err)
{
	static const char *const ranks[] = {"model", "actor/model"};

	for (size_t i = 0; i < 2; i++)
		if (has_rank_dirs(dir, ranks[i]))
			return mfs_fail(err, -ENOTSUP,
					"%s: %s/mp_rank_* is of a verl before its dist_ckpt/, "
					"which is not read: SOURCE can be the HuggingFace model "
					"that verl's model_merger makes of it",
					dir, ranks[i]);
	for (size_t i = 0; i < PLACES; i++)
		if (exists(dir, places[i].hf, "config.json"))
			return mfs_fail(err, -ENODATA,
					"%s: verl has saved no %s here: SOURCE can be %s/%s, "
					"if it saved its weights there (hf_model, or mbridge)",
					dir, places[i].weights, dir, places[i].hf);
	return 0;
}

/* ---- the rows ---- */

static int find(struct mfs_dist_reader *r)
{
	r->verl = find_place(r->ckpt->dir);
	if (!r->verl)
		return mfs_fail(r->err, -ENODATA, "%s: " METADATA " has just been removed",
				r->ckpt->dir);
	if (r->verl->optim && exists(r->ckpt->dir, r->verl->optim, METADATA))
		r->unread = r->verl->optim;
	r->folder = mfs_arena_printf(&r->ckpt->arena, "%s/", r->verl->weights);
	return r->folder ? 0 : mfs_fail_nomem(r->err);
}

/* Where verl saves its weights as HuggingFace files, these hold the optimizer alone. */
static int check(struct mfs_dist_reader *r)
{
	return mfs_dist_has_model(r)
		       ? 0
		       : mfs_fail(r->err, -ENODATA,
				  "%s: %s holds no tensor of a model: SOURCE can be %s/%s, where "
				  "verl saves the weights then",
				  r->ckpt->dir, r->verl->weights, r->ckpt->dir, r->verl->hf);
}

/* A person's word counts before the program's. */
static int read_args(struct mfs_dist_reader *r)
{
	const struct mfs_ckpt_told *told = r->ckpt->told;
	int rc;

	if (told && told->ref)
		return mfs_dist_read_told(r, NULL);
	rc = told ? mfs_dist_read_told(r, r->verl->hf) : -ENOENT;
	if (rc != -ENOENT)
		return rc;
	return mfs_fail(r->err, -ENODATA,
			"%s/%s/config.json is missing, which says what model this is (verl); -o "
			"ref=HF_DIR names another",
			r->ckpt->dir, r->verl->hf);
}

static int read_args_dcp(struct mfs_dist_reader *r)
{
	bool found;
	int rc = mfs_plain_read_items(r, &found);

	return found ? rc : read_args(r);
}

static const char *model_key(const char *key)
{
	return mfs_name_is_model(key) ? key : NULL;
}

static const struct mfs_dist_maker maker = {
	.prefix = "",
	.find = find,
	.check = check,
	.read_args = read_args,
	.model_key = model_key,
};

static const struct mfs_dist_maker maker_dcp = {
	.prefix = "",
	.find = find,
	.check = mfs_plain_check,
	.read_args = read_args_dcp,
	.complete_state = mfs_plain_complete_state,
	.reads_optimizer = mfs_plain_reads_optimizer,
	.model_key = mfs_plain_model_key,
};

static bool looks_like(const char *dir)
{
	const struct mfs_verl *verl = find_place(dir);

	return verl && exists(dir, verl->weights, "metadata.json");
}

static bool looks_like_dcp(const char *dir)
{
	return find_place(dir);
}

/* The files that make a directory of verl's an iteration. name: the folder that has them. */
static int add_marks(const char *dir, const char *name, struct mfs_marks *marks)
{
	const struct mfs_verl *verl = NULL;
	const size_t len = strlen(name);
	char path[128];
	int rc = 0;

	for (size_t i = 0; i < PLACES && !verl; i++)
		if (!strncmp(places[i].weights, name, len) &&
		    (places[i].weights[len] == '/' || !places[i].weights[len]))
			verl = find_place(dir);
	const struct {
		const char *folder, *name;
	} files[] = {{verl ? verl->weights : "", METADATA},
		     {verl ? verl->weights : "", "metadata.json"},
		     {verl ? verl->hf : "", "config.json"}};
	for (size_t i = 0; verl && i < MFS_ARRAY_SIZE(files) && !rc; i++) {
		snprintf(path, sizeof(path), "%s/%s", files[i].folder, files[i].name);
		if (mfs_ckpt_dir_has(dir, path))
			rc = mfs_marks_add(marks, path);
	}
	return rc;
}

/* The weights' file, as for other saves in torch_dist. */
static bool last(const char *dir, char *name, size_t size)
{
	const struct mfs_verl *verl = find_place(dir);
	char path[128];

	if (!verl)
		return false;
	snprintf(path, sizeof(path), "%s/metadata.json", verl->weights);
	if (mfs_ckpt_dir_last(dir, path, name, size))
		return true;
	snprintf(path, sizeof(path), "%s/" METADATA, verl->weights);
	return mfs_ckpt_dir_last(dir, path, name, size);
}

const struct mfs_ckpt_reader mfs_ckpt_reader_verl = {
	.format = &mfs_dist_format,
	.maker = &maker,
	.looks_like = looks_like,
	.refuse = mfs_verl_refuse,
	.read = mfs_dist_read_model,
	.add_marks = add_marks,
	.last = last,
};

const struct mfs_ckpt_reader mfs_ckpt_reader_verl_dcp = {
	.format = &mfs_plain_format,
	.maker = &maker_dcp,
	.looks_like = looks_like_dcp,
	.read = mfs_dist_read_model,
};
