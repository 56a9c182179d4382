/*
 * Megatron views and HF directories without what makes them: included by one file of a test program, it
 * takes the place of fs/view/megatron.c, of mfs_optim_open() and of formats/model/hf_ckpt.c.
 *
 * There are layouts tpT-ppP of digits; T must divide 8. A view has a tracker and a file for each rank. An
 * HF directory is one that holds a link "inside" to an iteration.
 */
#ifndef MFS_TESTS_FAKE_VIEWS_H
#define MFS_TESTS_FAKE_VIEWS_H

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/open.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/open.h"
#include "fs/view/build.h"

static atomic_uint fake_views_built, fake_optims_opened;
static int fake_optim_error;  /* what mfs_optim_open() fails with */
static bool fake_no_megatron; /* mfs_view_megatron_possible() refuses */
static sem_t *fake_begun,
	*fake_go; /* NULL: nobody waits; else torch_dist posts one and waits for the other */

static int fake_parse(const char *name, unsigned *tp, unsigned *pp, struct mfs_error *err)
{
	char again[64];

	*tp = *pp = 1;
	if (!strcmp(name, "torch_dist"))
		return 0;
	if (sscanf(name, "torch/tp%u-pp%u", tp, pp) != 2)
		return mfs_fail(err, -ENOENT, "%s is no layout's name", name);
	snprintf(again, sizeof(again), "torch/tp%u-pp%u", *tp, *pp);
	if (strcmp(name, again))
		return mfs_fail(err, -ENOENT, "%s is no layout's name", name);
	if (!*tp || 8 % *tp)
		return mfs_fail(err, -EINVAL, "8 heads are not divisible by tp %u", *tp);
	return 0;
}

int mfs_view_megatron_check(const struct mfs_ckpt *ckpt, const char *name, struct mfs_error *err)
{
	unsigned tp, pp;

	(void)ckpt;
	return fake_parse(name, &tp, &pp, err);
}

int mfs_view_megatron_possible(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
			       struct mfs_error *err)
{
	(void)ckpt, (void)opt;
	return fake_no_megatron ? mfs_fail(err, -ENOTSUP, "no module has linear_fc3") : 0;
}

int mfs_view_megatron_layouts(struct mfs_ckpt *ckpt, struct mfs_arena *arena,
			      const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	static const char *const names[] = {"tp2-pp2", "tp1-pp1", "tp2-pp1"};

	(void)ckpt, (void)arena, (void)err;
	*ret = names;
	*ret_count = 3;
	return 0;
}

static int fake_add(struct mfs_view *v, const char *name, struct mfs_error *err)
{
	return mfs_view_add_bytes(v, name, strdup(name), strlen(name), err);
}

int mfs_view_megatron(struct mfs_ckpt *ckpt, const char *name, int64_t number,
		      const struct mfs_view_options *opt, struct mfs_view **ret,
		      struct mfs_error *err)
{
	struct mfs_view *v = calloc(1, sizeof(*v));
	char path[128], dir[32] = "release";
	unsigned tp, pp;
	int rc = fake_parse(name, &tp, &pp, err);

	(void)opt;
	if (fake_begun && !strcmp(name, "torch_dist")) {
		sem_post(fake_begun);
		sem_wait(fake_go);
	}
	if (number >= 0)
		snprintf(dir, sizeof(dir), "iter_%07lld", (long long)number);
	for (unsigned i = 0; i < tp * pp && !rc; i++) {
		snprintf(path, sizeof(path), "%s/mp_rank_%02u_%03u/model_optim_rng.pt", dir, i / pp,
			 i % pp);
		rc = fake_add(v, path, err);
	}
	if (!rc)
		rc = fake_add(v, "latest_checkpointed_iteration.txt", err);
	if (!rc)
		rc = mfs_view_finish(v, err);
	if (rc) {
		mfs_view_free(v);
		return rc;
	}
	atomic_fetch_add(&fake_views_built, 1);
	mfs_view_note_sources(v, mfs_ckpt_files(ckpt));
	v->ckpt = ckpt;
	*ret = v;
	return 0;
}

int mfs_optim_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err)
{
	atomic_fetch_add(&fake_optims_opened, 1);
	if (fake_optim_error)
		return mfs_fail(err, fake_optim_error, "the optimizer of %s is damaged", dir);
	return mfs_ckpt_open(dir, MFS_CKPT_COMMON, ret, err);
}

bool mfs_hf_ckpt_looks_like_one(const char *dir)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/inside", dir);
	return !access(path, F_OK);
}

int mfs_hf_ckpt_open(const char *dir, const char *arch, unsigned what, struct mfs_ckpt **ret,
		     struct mfs_error *err)
{
	char path[4096];

	(void)arch;
	snprintf(path, sizeof(path), "%s/inside", dir);
	return mfs_ckpt_open(path, what, ret, err);
}

bool mfs_hf_ckpt_is_untied(const struct mfs_ckpt *ckpt)
{
	(void)ckpt;
	return false;
}

#endif
