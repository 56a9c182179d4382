/*
 * Megatron views and HF directories without what makes them: included by one file of a test
 * program, it takes the place of fs/view/megatron.c, of mfs_optim_open() and of
 * formats/model/hf_ckpt.c.
 *
 * There are layouts tpT-ppP of digits; T must divide 8. A view has a tracker and a file for each
 * rank. An HF directory is one that holds a link "inside" to an iteration.
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
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/optim_open.h"
#include "fs/view/build.h"
#include "fs/view/kind.h"

static atomic_uint fake_views_built, fake_optims_opened;
static int fake_optim_error;  /* what mfs_optim_open() fails with */
static bool fake_no_megatron; /* there are no Megatron views */
static bool fake_no_dist;     /* nor, of these, torch_dist */
static sem_t *fake_begun,
	*fake_go; /* NULL: nobody waits; else torch_dist posts one and waits for the other */

static int fake_parse(const char *name, unsigned *tp, unsigned *pp, struct mfs_error *err)
{
	char again[64];

	*tp = *pp = 1;
	if (!*name)
		return 0;
	if (sscanf(name, "tp%u-pp%u", tp, pp) != 2)
		return mfs_fail(err, -ENOENT, "torch/%s is no layout's name", name);
	snprintf(again, sizeof(again), "tp%u-pp%u", *tp, *pp);
	if (strcmp(name, again))
		return mfs_fail(err, -ENOENT, "torch/%s is no layout's name", name);
	if (!*tp || 8 % *tp)
		return mfs_fail(err, -EINVAL, "8 heads are not divisible by tp %u", *tp);
	return 0;
}

static int fake_check(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err)
{
	unsigned tp, pp;

	(void)s;
	return fake_parse(spec, &tp, &pp, err);
}

static int fake_possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	(void)s;
	return fake_no_megatron ? mfs_fail(err, -ENOTSUP, "no module has linear_fc3") : 0;
}

static int fake_dist_possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	return fake_no_dist ? mfs_fail(err, -ENOTSUP, "no torch_dist") : fake_possible(s, err);
}

static int fake_never(const struct mfs_view_origin *s, struct mfs_error *err)
{
	(void)s;
	return mfs_fail(err, -ENOTSUP, "no HybridModel");
}

static int fake_list(const struct mfs_view_origin *s, struct mfs_arena *arena,
		     const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	static const char *const names[] = {"tp2-pp2", "tp1-pp1", "tp2-pp1"};

	(void)s, (void)arena, (void)err;
	*ret = names;
	*ret_count = 3;
	return 0;
}

static int fake_add(struct mfs_view *v, const char *name, struct mfs_error *err)
{
	return mfs_view_add_bytes(v, name, strdup(name), strlen(name), err);
}

static int fake_open(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct mfs_view *v = calloc(1, sizeof(*v));
	char path[128], dir[32] = "release";
	unsigned tp, pp;
	int rc = fake_parse(spec, &tp, &pp, err);

	if (fake_begun && !*spec) {
		sem_post(fake_begun);
		sem_wait(fake_go);
	}
	if (s->number >= 0)
		snprintf(dir, sizeof(dir), "iter_%07lld", (long long)s->number);
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
	mfs_view_note_sources(v, mfs_ckpt_files(s->ckpt));
	v->ckpt = s->ckpt;
	*ret = v;
	return 0;
}

const struct mfs_view_kind mfs_view_kind_megatron_torch = {
	.name = "megatron/torch",
	.spec = "tp2-pp1",
	.help = "",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.possible = fake_possible,
	.check = fake_check,
	.list = fake_list,
	.open = fake_open,
};

const struct mfs_view_kind mfs_view_kind_megatron_torch_dist = {
	.name = "megatron/torch_dist",
	.help = "",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.possible = fake_dist_possible,
	.open = fake_open,
};

const struct mfs_view_kind mfs_view_kind_megatron_hybrid_torch = {
	.name = "megatron/hybrid_torch",
	.help = "",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.is_extra = true,
	.possible = fake_never,
	.open = fake_open,
};

const struct mfs_view_kind mfs_view_kind_megatron_hybrid_torch_dist = {
	.name = "megatron/hybrid_torch_dist",
	.help = "",
	.of = MFS_VIEW_OF_FULL,
	.nested = true,
	.is_extra = true,
	.possible = fake_never,
	.open = fake_open,
};

int mfs_optim_open_told(const char *dir, const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
			struct mfs_error *err)
{
	atomic_fetch_add(&fake_optims_opened, 1);
	if (fake_optim_error)
		return mfs_fail(err, fake_optim_error, "the optimizer of %s is damaged", dir);
	return mfs_ckpt_open_part(dir, MFS_CKPT_COMMON, NULL, told, ret, err);
}

int mfs_optim_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return mfs_optim_open_told(dir, NULL, ret, err);
}

const struct mfs_ckpt_format mfs_ckpt_format_hf = {.name = "hf", .title = "hf", .is_hf = true};

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
