#include "trainer/parallel/exposure.h"

#include <stdbool.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* A step's stamps. The context may still be writing those of one step when the next one begins, so
 * there are two of them. */
struct step {
	int64_t (*at)[2];  /* [MFT_EXPOSURE_PAIRS], pinned: ns */
	unsigned char *of; /* [MFT_EXPOSURE_PAIRS]: enum mft_group */
	uint32_t count;	   /* pairs */
	uint64_t left_out;
};

struct mft_exposure {
	const struct mfk_backend *backend;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct step steps[2];
	uint32_t now, kept; /* of steps; NONE */
	unsigned open;	    /* pairs that have begun */
};

#define STAMPS_BYTES (MFT_EXPOSURE_PAIRS * sizeof(int64_t[2]))

int mft_exposure_new(const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, struct mft_exposure **ret, struct mfs_error *err)
{
	struct mft_exposure *e = calloc(1, sizeof(*e));
	bool room = e;

	if (!e)
		return mfs_fail_nomem(err);
	e->backend = backend;
	e->device = device;
	e->ctx = ctx;
	e->now = e->kept = NONE;
	for (int i = 0; i < 2; i++) {
		e->steps[i].at = backend->device->host_alloc(device, STAMPS_BYTES);
		e->steps[i].of = malloc(MFT_EXPOSURE_PAIRS);
		room &= e->steps[i].at && e->steps[i].of;
	}
	if (room) {
		*ret = e;
		return 0;
	}
	mft_exposure_free(e);
	return mfs_fail_nomem(err);
}

void mft_exposure_free(struct mft_exposure *e)
{
	if (!e)
		return;
	for (int i = 0; i < 2; i++) {
		if (e->steps[i].at)
			e->backend->device->host_free(e->device, e->steps[i].at, STAMPS_BYTES);
		free(e->steps[i].of);
	}
	free(e);
}

/* ---- a step ---- */

void mft_exposure_begin(struct mft_exposure *e)
{
	if (!e)
		return;
	e->now = e->kept == 0;
	e->steps[e->now].count = 0;
	e->steps[e->now].left_out = 0;
	e->open = 0;
}

void mft_exposure_keep(struct mft_exposure *e)
{
	if (!e)
		return;
	e->kept = e->now;
	e->now = NONE;
}

/* ---- stamps ---- */

/* The step that is under way, if the passes stand still for what the context does. */
static struct step *step_of(struct mft_exposure *e, const struct mfk_ctx *c)
{
	if (!e || e->now == NONE || (c != e->ctx && !e->backend->device->at_once))
		return NULL;
	return &e->steps[e->now];
}

void mft_exposure_stops(struct mft_exposure *e, const struct mfk_ctx *c, enum mft_group g)
{
	struct step *s = step_of(e, c);

	if (!s || e->open++)
		return;
	if (s->count == MFT_EXPOSURE_PAIRS) {
		s->left_out++;
		return;
	}
	s->of[s->count] = (unsigned char)g;
	e->backend->device->stamp(e->ctx, &s->at[s->count][0]);
}

void mft_exposure_goes_on(struct mft_exposure *e, const struct mfk_ctx *c)
{
	struct step *s = step_of(e, c);

	if (!s || --e->open || s->count == MFT_EXPOSURE_PAIRS)
		return;
	e->backend->device->stamp(e->ctx, &s->at[s->count][1]);
	s->count++;
}

int mft_exposure_sum(struct mft_exposure *e, struct mft_exposed *ret, struct mfs_error *err)
{
	const struct step *s = e->kept == NONE ? NULL : &e->steps[e->kept];
	char why[MFK_WHY];
	int rc = e->backend->device->sync(e->ctx, why);

	*ret = (struct mft_exposed){.left_out = s ? s->left_out : 0};
	if (rc)
		return mfs_fail(err, rc, "%s: %s", e->backend->name, why);
	for (uint32_t i = 0; s && i < s->count; i++)
		ret->seconds[s->of[i]] += (double)(s->at[i][1] - s->at[i][0]) / 1e9;
	return 0;
}
