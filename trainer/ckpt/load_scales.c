/* Scales of 8-bit products that follow from earlier passes: all that the process has, or none. */
#include <errno.h>
#include <float.h>
#include <stdio.h>

#include "formats/ckpt/extra_states.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/ckpt/module_state.h"

struct reader {
	struct mft_load *load;
	const struct mft_params *params;
	struct mfs_extra_state wanted; /* of the run's recipe */
	unsigned char *host;	       /* of mft_scales_copy() */
	char *why;
};

/* Whether it is of the run's recipe; sets why. How the next scales follow may be another way. */
static bool fits(const struct reader *r, const struct mfs_extra_state *s, const char *name)
{
	const double *most = r->wanted.most;

	if (!s->products)
		snprintf(r->why, MFT_SCALES_WHY, "the checkpoint has none of '%s'", name);
	else if (s->length != r->wanted.length)
		snprintf(r->why, MFT_SCALES_WHY,
			 "the checkpoint's are of --fp8-amax-history-len %u, the run's of %u",
			 s->length, r->wanted.length);
	else if (s->most[MFS_FP8_FORWARD] != most[MFS_FP8_FORWARD] ||
		 s->most[MFS_FP8_BACKWARD] != most[MFS_FP8_BACKWARD])
		snprintf(r->why, MFT_SCALES_WHY,
			 "the checkpoint's are of another --fp8-format, whose greatest elements "
			 "are %g and %g",
			 s->most[MFS_FP8_FORWARD], s->most[MFS_FP8_BACKWARD]);
	return !r->why[0];
}

/* A scale that no numbers can have. */
static int check(const struct reader *r, const struct mfs_extra_state *s, const char *name,
		 struct mfs_error *err)
{
	for (enum mfs_fp8_direction d = 0; d < MFS_FP8_DIRECTIONS; d++)
		for (uint32_t i = 0; i < mfs_extra_state_columns(s, d); i++)
			if (!(s->scale[d][i] > 0 && s->scale[d][i] <= FLT_MAX))
				return mfs_fail(
					err, -EINVAL,
					"%s: _extra_state of the module of '%s': expected a "
					"scale above 0, found %g",
					mfs_ckpt_dir(r->load->ckpt), name, (double)s->scale[d][i]);
	return 0;
}

/* State of a recipe that is not known is none. */
static int read_module(const struct reader *r, uint32_t param, struct mfs_arena *arena,
		       struct mfs_error *err)
{
	const struct mfs_global_tensor *t = r->params->list[param].tensor;
	char name[MFS_CKPT_NAME_SIZE];
	struct mfs_extra_state s;
	const int rc = mfs_ckpt_extra_state(r->load->ckpt, t, arena, &s, err);

	if (rc == -ENOTSUP)
		snprintf(r->why, MFT_SCALES_WHY, "%s", err->msg);
	if (rc)
		return rc == -ENOTSUP ? 0 : rc;
	mfs_global_tensor_name(t, name, sizeof(name));
	if (!fits(r, &s, name))
		return 0;
	if (check(r, &s, name, err))
		return -EINVAL;
	mft_module_state_put(r->params->scales, r->host, param, &s);
	return 0;
}

static int read_all(struct reader *r, struct mfs_error *err)
{
	const struct mft_params *p = r->params;
	int rc = 0;

	for (uint32_t i = 0; i < p->count && !rc && !r->why[0]; i++) {
		struct mfs_arena arena = {0};

		if (p->scales->places[i].exists)
			rc = read_module(r, i, &arena, err);
		mfs_arena_release(&arena);
	}
	return rc;
}

static int copy_back(const struct reader *r, const struct mfk_device_ops *device,
		     struct mfk_ctx *ctx, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	int rc;

	mft_scales_copy(r->params->scales, device, ctx, r->host, true);
	rc = device->sync(ctx, why);
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

int mft_load_scales(struct mft_load *l, const struct mft_train_config *config,
		    const struct mft_params *params, const struct mfk_backend *backend,
		    struct mfk_device *device, struct mfk_ctx *ctx, char why[MFT_SCALES_WHY],
		    struct mfs_error *err)
{
	const uint64_t bytes = mft_scales_bytes(params->scales);
	struct reader r = {.load = l,
			   .params = params,
			   .host = backend->device->host_alloc(device, bytes),
			   .why = why};
	struct mfs_arena arena = {0};
	int rc =
		r.host ? mft_module_state_new(config, &arena, &r.wanted, err) : mfs_fail_nomem(err);

	why[0] = '\0';
	if (!rc)
		rc = read_all(&r, err);
	if (!rc && !why[0])
		rc = copy_back(&r, backend->device, ctx, err);
	mfs_arena_release(&arena);
	if (r.host)
		backend->device->host_free(device, r.host, bytes);
	return rc;
}
