/*
 * --ckpt-format torch: mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt and distrib_optim.pt.
 *
 * A rank's file has what several processes have: its optimizer's state is divided among the
 * data-parallel ones. So all processes write torch_dist first, each its part and while training
 * goes on, and the first one makes the legacy files of it, as a Megatron view does
 * (formats/megatron/write/torch_view.c). For a while the directory has both. It is still iter_N.tmp
 * then, and gets its name when only the legacy files are left.
 *
 * Source: megatron/training/checkpointing.py: save_checkpoint.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/megatron/rank.h"
#include "formats/optim/read/optim_open.h"
#include "formats/optim/rules/settings.h"
#include "formats/plan/vfile.h"
#include "trainer/ckpt/save_i.h"

struct torch {
	struct mft_saver *s;
	const struct mft_save_place *at;
	struct mfs_io_engine *engine;
	char dir[64]; /* that files were written to last: "mp_rank_00" */
	uint64_t bytes;
};

/* ---- the files ---- */

static int sync_dir(const struct torch *t, struct mfs_error *err)
{
	const struct mft_save_system_ops *sys = &t->s->system;
	int fd, rc;

	if (!t->dir[0])
		return 0;
	rc = sys->open_dir(sys->arg, t->at->fd, t->dir, &fd);
	if (!rc) {
		rc = sys->sync_dir(sys->arg, fd);
		close(fd);
	}
	return rc ? mfs_fail(err, rc, "cannot make '%s/%s' durable: %s", t->at->path, t->dir,
			     strerror(-rc))
		  : 0;
}

/* A rank's files come one after the other. */
static int enter_dir(struct torch *t, const char *path, struct mfs_error *err)
{
	const struct mft_save_system_ops *sys = &t->s->system;
	const int len = (int)strcspn(path, "/");
	int rc;

	if (!strncmp(t->dir, path, (size_t)len) && !t->dir[len])
		return 0;
	rc = sync_dir(t, err);
	if (rc)
		return rc;
	snprintf(t->dir, sizeof(t->dir), "%.*s", len, path);
	rc = sys->mkdir(sys->arg, t->at->fd, t->dir);
	return rc ? mfs_fail(err, rc, "cannot create directory '%s/%s': %s", t->at->path, t->dir,
			     strerror(-rc))
		  : 0;
}

static int read_file(void *arg, uint64_t at, void *to, uint64_t n, struct mfs_error *err)
{
	size_t got = 0;
	const int rc = mfs_vfile_pread(arg, at, to, n, &got, err);

	return rc || got == n ? rc : mfs_fail(err, -EIO, "the save ends early");
}

static int add_file(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *err)
{
	struct torch *t = arg;
	const uint64_t size = mfs_vfile_size(data);
	int rc = enter_dir(t, path, err);

	if (!rc)
		rc = mft_save_write_stream(t->s, t->at, path, size, read_file, data, t->engine,
					   err);
	t->bytes += size;
	mfs_vfile_free(data);
	return rc;
}

static int write_files(struct torch *t, struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const struct mfs_file_sink sink = {add_file, t};
	const struct mfs_megatron_options options = {.ckpt = ckpt,
						     .layout = t->s->params->layout,
						     .spec = mfs_layer_spec_of(ckpt),
						     .number = (int64_t)t->s->progress.iteration,
						     .shares = true,
						     .optimizer = !t->s->config->no_save_optim &&
								  mfs_optim_info(ckpt)->kind !=
									  MFS_OPTIM_NONE};
	struct mfs_megatron_torch *files = NULL;
	const int rc = mfs_megatron_torch_new(&options, &sink, &files, err);

	mfs_megatron_torch_free(files);
	return rc ? rc : sync_dir(t, err);
}

/* ---- what they are made of ---- */

/* By the open directory: its name may be somebody else's by now. */
static int open_saved(const struct torch *t, struct mfs_ckpt **ret, struct mfs_error *err)
{
	char dir[40];

	snprintf(dir, sizeof(dir), "/proc/self/fd/%d", t->at->fd);
	return t->s->config->no_save_optim ? mfs_ckpt_open(dir, MFS_CKPT_COMMON, ret, err)
					   : mfs_optim_open(dir, ret, err);
}

static int remove_file(const struct torch *t, const char *name, struct mfs_error *err)
{
	const struct mft_save_system_ops *sys = &t->s->system;
	const int rc = sys->remove(sys->arg, t->at->fd, name, 0);

	return rc ? mfs_fail(err, rc, "cannot remove '%s/%s': %s", t->at->path, name, strerror(-rc))
		  : 0;
}

static int remove_saved(const struct torch *t, struct mfs_error *err)
{
	static const char *const names[] = {".metadata", "metadata.json", "common.pt"};
	const struct mft_save_plan *p = &t->s->plan;
	char name[MFS_DIST_FILE_NAME_SIZE];
	int rc = 0;

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(names) && !rc; i++)
		rc = remove_file(t, names[i], err);
	for (uint32_t i = 0; i < p->file_count && !rc; i++)
		rc = remove_file(t, p->files[i].name, err);
	for (uint32_t i = 0; i < p->other_count && !rc; i++) {
		mfs_dist_file_name(name, p->others[i].process, p->others[i].number);
		rc = remove_file(t, name, err);
	}
	return rc;
}

int mft_save_torch(struct mft_saver *s, const struct mft_save_place *at,
		   struct mfs_io_engine *engine, uint64_t *ret_bytes, struct mfs_error *err)
{
	struct torch t = {.s = s, .at = at, .engine = engine};
	struct mfs_ckpt *ckpt = NULL;
	int rc = open_saved(&t, &ckpt, err);

	if (!rc)
		rc = write_files(&t, ckpt, err);
	mfs_ckpt_free(ckpt);
	if (!rc)
		rc = remove_saved(&t, err);
	*ret_bytes = t.bytes;
	return rc;
}
