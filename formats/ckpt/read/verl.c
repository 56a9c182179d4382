#include "formats/ckpt/read/verl.h"
#include "formats/io/directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Newer places first: a save that was moved from the old ones keeps none of them. Training without
 * roles (verl/trainer/sft_trainer.py) has no folder of an actor. */
static const struct mfs_verl places[] = {
	{"model/dist_ckpt", "model/huggingface", "optimizer/dist_ckpt"},
	{"dist_ckpt", "huggingface", NULL},
	{"actor/model/dist_ckpt", "actor/model/huggingface", "actor/optimizer/dist_ckpt"},
	{"actor/dist_ckpt", "actor/huggingface", NULL},
};

#define PLACES (sizeof(places) / sizeof(places[0]))

static bool exists(const char *dir, const char *folder, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s/%s", dir, folder, name) < sizeof(path) &&
	       !stat(path, &st);
}

const struct mfs_verl *mfs_verl_find(const char *dir)
{
	for (size_t i = 0; i < PLACES; i++)
		if (exists(dir, places[i].weights, ".metadata"))
			return &places[i];
	return NULL;
}

bool mfs_verl_has_optim(const char *dir, const struct mfs_verl *verl)
{
	return verl->optim && exists(dir, verl->optim, ".metadata");
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
