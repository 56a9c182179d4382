/*
 * Legacy `torch`: the directories mp_rank_TT[_PPP][_EEE] of a save, each of one model-parallel
 * rank, and which rank that is.
 *
 * A name may be ambiguous: _001 may be a pipeline stage or an expert rank. Rank 0's arguments
 * decide. With ETP != TP a stage has only max(TP, EP * ETP) files. Expert weights are those of the
 * expert-tensor rank, which is the tensor rank modulo ETP.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/grow.h"
#include "formats/ckpt/read/reader.h"
#include "formats/ckpt/read/torch_i.h"
#include "formats/io/directory.h"

#define STATE_FILE     "model_optim_rng.pt"
#define OPTIMIZER_FILE "distrib_optim.pt"
#define RANK_NONE      UINT32_MAX
#define MAX_RANKS      1000000 /* of one axis; keeps tp * pp * ep far from overflow */

static bool is_rank_dir(const char *name)
{
	return !strncmp(name, "mp_rank_", 8);
}

static bool parse_rank_name(const char *name, struct mfs_torch_rank *ret)
{
	const char *at = name + 8;

	if (!is_rank_dir(name))
		return false;
	for (int i = 0; i < 3; i++)
		ret->number[i] = RANK_NONE;
	for (int i = 0; i < 3; i++) {
		size_t digits = strspn(at, "0123456789");

		if (!digits || digits > 6)
			return false;
		ret->number[i] = (uint32_t)atoi(at);
		at += digits;
		if (!*at)
			return true;
		if (*at++ != '_')
			return false;
	}
	return false;
}

/* With a distributed optimizer Megatron makes a directory for every rank. It stays empty if another
 * rank saves the weights (training/checkpointing.py: ensure_directory_exists). */
static bool has_state(const struct mfs_torch_reader *r, const char *name)
{
	char path[4096];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s/" STATE_FILE, r->ckpt->dir, name) <
		       sizeof(path) &&
	       !stat(path, &st);
}

static int list_ranks(struct mfs_torch_reader *r)
{
	DIR *dir = mfs_opendir(r->ckpt->dir);
	struct dirent *e;
	int rc = 0;

	if (!dir)
		return mfs_fail_errno(r->err, "%s", r->ckpt->dir);
	while (!rc && (e = readdir(dir))) {
		struct mfs_torch_rank rank = {0};

		if (!parse_rank_name(e->d_name, &rank) || !has_state(r, e->d_name))
			continue;
		rank.name = mfs_grow(&r->ranks, r->count) ? NULL : strdup(e->d_name);
		if (!rank.name)
			rc = mfs_fail_nomem(r->err);
		else
			r->ranks[r->count++] = rank;
	}
	closedir(dir);
	return rc;
}

int mfs_torch_open_rank(struct mfs_torch_reader *r, struct mfs_torch_rank *rank)
{
	char path[512];
	struct mfs_source src;
	int rc;

	snprintf(path, sizeof(path), "%s/" STATE_FILE, rank->name);
	rc = mfs_fileset_add(r->ckpt->files, path, &rank->file, r->err);
	if (rc == -ENOENT)
		return mfs_fail(r->err, -ENODATA, "%s/%s is missing: the save is incomplete",
				r->ckpt->dir, path);
	if (rc)
		return rc;
	src = mfs_source_file(r->ckpt->files, rank->file);
	rc = mfs_torch_file_open(&src, &rank->state, r->err);
	if (rc)
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	const struct mfs_torch_rank *x = a, *y = b;

	for (int i = 0; i < 3; i++)
		if (x->number[i] != y->number[i])
			return x->number[i] < y->number[i] ? -1 : 1;
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct mfs_torch_rank *x = a, *y = b;

	if (x->pp != y->pp)
		return x->pp < y->pp ? -1 : 1;
	if (x->tp != y->tp)
		return x->tp < y->tp ? -1 : 1;
	return (x->ep > y->ep) - (x->ep < y->ep);
}

/* The layout that rank 0's arguments claim. */
static int read_layout(struct mfs_torch_reader *r)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	int rc;

	if (!r->count)
		return mfs_fail(r->err, -ENODATA,
				"%s: no mp_rank_* directory holds a " STATE_FILE
				": the save is incomplete",
				r->ckpt->dir);
	qsort(r->ranks, r->count, sizeof(*r->ranks), by_number);
	rc = mfs_torch_open_rank(r, &r->ranks[0]);
	if (!rc)
		rc = mfs_ckpt_read_args(r->ckpt, r->ranks[0].state.doc,
					mfs_pickle_root(r->ranks[0].state.doc), r->ranks[0].name,
					r->err);
	if (rc)
		return rc;
	if (a->tensor_model_parallel_size > MAX_RANKS ||
	    a->pipeline_model_parallel_size > MAX_RANKS ||
	    a->expert_model_parallel_size > MAX_RANKS ||
	    a->expert_tensor_parallel_size > MAX_RANKS ||
	    a->virtual_pipeline_model_parallel_size * a->pipeline_model_parallel_size > MAX_RANKS)
		return mfs_fail(r->err, -EINVAL, "%s: the arguments claim an impossible layout",
				r->ckpt->dir);
	r->tp = (uint32_t)a->tensor_model_parallel_size;
	r->pp = (uint32_t)a->pipeline_model_parallel_size;
	r->ep = (uint32_t)a->expert_model_parallel_size;
	r->etp = a->num_experts == MFS_ABSENT ? r->tp : (uint32_t)a->expert_tensor_parallel_size;
	r->vpp = (uint32_t)a->virtual_pipeline_model_parallel_size;
	return mfs_torch_read_age(r, &r->ranks[0]);
}

/* Numbers in a name are tp, then pp if P > 1, then ep if EP > 1. */
static int assign_ranks(struct mfs_torch_reader *r)
{
	const unsigned expected = 1 + (r->pp > 1) + (r->ep > 1);

	for (uint32_t i = 0; i < r->count; i++) {
		struct mfs_torch_rank *d = &r->ranks[i];
		unsigned found = 1 + (d->number[1] != RANK_NONE) + (d->number[2] != RANK_NONE);

		d->tp = d->number[0];
		d->pp = r->pp > 1 ? d->number[1] : 0;
		d->ep = r->ep > 1 ? d->number[expected - 1] : 0;
		if (found != expected || d->tp >= r->tp || d->pp >= r->pp || d->ep >= r->ep)
			return mfs_fail(
				r->err, -EINVAL,
				"%s/%s: not a rank of the layout TP%u PP%u EP%u in the arguments",
				r->ckpt->dir, d->name, r->tp, r->pp, r->ep);
	}
	qsort(r->ranks, r->count, sizeof(*r->ranks), by_rank);
	return 0;
}

const struct mfs_torch_rank *mfs_torch_find_rank(const struct mfs_torch_reader *r, uint32_t pp,
						 uint32_t tp)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->ranks[i].pp == pp && r->ranks[i].tp == tp)
			return &r->ranks[i];
	return NULL;
}

/* The file whose expert weights stand for (stage, expert rank, expert-tensor rank). */
const struct mfs_torch_rank *mfs_torch_find_expert_rank(const struct mfs_torch_reader *r,
							uint32_t pp, uint32_t ep, uint32_t etp)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->ranks[i].pp == pp && r->ranks[i].ep == ep && r->ranks[i].tp % r->etp == etp)
			return &r->ranks[i];
	return NULL;
}

static int missing(struct mfs_torch_reader *r, uint32_t tp, uint32_t pp, uint32_t ep)
{
	char name[64];
	size_t used = (size_t)snprintf(name, sizeof(name), "mp_rank_%02u", tp);

	if (r->pp > 1)
		used += (size_t)snprintf(name + used, sizeof(name) - used, "_%03u", pp);
	if (r->ep > 1)
		snprintf(name + used, sizeof(name) - used, "_%03u", ep);
	return mfs_fail(r->err, -ENODATA,
			"%s/%s/" STATE_FILE " is missing: the save is incomplete (TP%u PP%u EP%u)",
			r->ckpt->dir, name, r->tp, r->pp, r->ep);
}

static int check_grid(struct mfs_torch_reader *r)
{
	/* A claimed size that is too large ends the loop at the first missing directory. */
	for (uint32_t pp = 0; pp < r->pp; pp++) {
		for (uint32_t tp = 0; tp < r->tp; tp++)
			if (!mfs_torch_find_rank(r, pp, tp))
				return missing(r, tp, pp, 0);
		for (uint32_t ep = 0; ep < r->ep; ep++)
			for (uint32_t etp = 0; etp < r->etp; etp++)
				if (!mfs_torch_find_expert_rank(r, pp, ep, etp))
					return missing(r, etp, pp, ep);
	}
	return 0;
}

int mfs_torch_find_ranks(struct mfs_torch_reader *r)
{
	int rc = list_ranks(r);

	if (!rc)
		rc = read_layout(r);
	if (!rc)
		rc = assign_ranks(r);
	return rc ? rc : check_grid(r);
}

void mfs_torch_release_ranks(struct mfs_torch_reader *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		mfs_torch_file_release(&r->ranks[i].state);
		free(r->ranks[i].name);
	}
	free(r->ranks);
}

/* ---- the reader's row ---- */

bool mfs_torch_looks_like(const char *dir)
{
	DIR *d = mfs_opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = is_rank_dir(e->d_name);
	if (d)
		closedir(d);
	return found;
}

int mfs_torch_add_marks(const char *dir, const char *name, struct mfs_marks *marks)
{
	static const char *const files[] = {STATE_FILE, OPTIMIZER_FILE};
	char path[NAME_MAX + sizeof("/" STATE_FILE)];
	int rc = 0;

	(void)dir;
	for (size_t i = 0; i < 2 && is_rank_dir(name) && !rc; i++) {
		snprintf(path, sizeof(path), "%s/%s", name, files[i]);
		rc = mfs_marks_add(marks, path);
	}
	return rc;
}

/* Ranks write at the same time, so one file is as good as another. */
bool mfs_torch_last(const char *dir, char *name, size_t size)
{
	char path[NAME_MAX + sizeof("/" STATE_FILE)];
	DIR *d = mfs_opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/" STATE_FILE, e->d_name);
		if (is_rank_dir(e->d_name) && (!found || strcmp(path, name) < 0))
			found |= mfs_ckpt_dir_last(dir, path, name, size);
	}
	if (d)
		closedir(d);
	return found;
}
