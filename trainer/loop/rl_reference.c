/*
 * The reference, whose weights do not change. They lie in the host's memory, and change places with
 * the policy's for a pass.
 *
 * It is what --pretrained-checkpoint has, or else what the run began with.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "trainer/base/dtype.h"
#include "trainer/loop/rl_i.h"

#define AT_ONCE (UINT64_C(64) << 20) /* bytes that change places */

/* What is kept of a net: its weights, and then the buffers that no gradient trains. */
static uint64_t weight_bytes(const struct mft_params *p)
{
	return mft_params_weight_elements(p) * mfs_dtype_size(p->weight_type);
}

static uint64_t buffer_bytes(const struct mft_params *p)
{
	return p->buffer_elements * sizeof(float);
}

static int wait(struct mft_trainer *t, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = t->backend->device->sync(t->ctx, why);

	return rc ? mfs_fail(err, rc, "%s: %s", t->backend->name, why) : 0;
}

/* ---- what the reference is ---- */

static uint64_t kept_bytes(const struct mft_trainer *t)
{
	return weight_bytes(t->params) + buffer_bytes(t->params);
}

uint64_t mft_reference_bytes(const struct mft_trainer *t)
{
	return kept_bytes(t) + mfs_min_u64(kept_bytes(t), AT_ONCE);
}

int mft_reference_new(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_reference *r = &t->reference;

	r->bytes = kept_bytes(t);
	r->some_bytes = mfs_min_u64(r->bytes, AT_ONCE);
	r->weights = t->backend->device->host_alloc(t->device, r->bytes);
	r->some = t->backend->device->host_alloc(t->device, r->some_bytes);
	return r->weights && r->some
		       ? 0
		       : mfs_fail(err, -ENOMEM,
				  "the reference needs %llu bytes of the host's memory; "
				  "--grpo-kl-beta 0 needs none",
				  (unsigned long long)r->bytes);
}

void mft_reference_release(struct mft_trainer *t)
{
	struct mft_reference *r = &t->reference;

	if (r->weights)
		t->backend->device->host_free(t->device, r->weights, r->bytes);
	if (r->some)
		t->backend->device->host_free(t->device, r->some, r->some_bytes);
	*r = (struct mft_reference){0};
}

int mft_reference_take(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = t->backend->device;
	const struct mft_params *p = t->params;

	dev->copy_out(t->ctx, t->reference.weights, p->weights, weight_bytes(p));
	if (buffer_bytes(p))
		dev->copy_out(t->ctx, t->reference.weights + weight_bytes(p), p->buffers,
			      buffer_bytes(p));
	t->reference.taken = true;
	return wait(t, err);
}

int mft_reference_load(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_train_config config = *t->config;
	struct mft_progress none = {0};
	struct mft_load *load = NULL;
	bool optimizer;
	int rc;

	if (!config.pretrained_checkpoint)
		return 0;
	config.load = NULL;
	config.finetune = true;
	rc = mft_load_open(&config, &load, err);
	if (!rc && !load)
		rc = mfs_fail(err, -ENODATA, "--pretrained-checkpoint: there is nothing in '%s'",
			      config.pretrained_checkpoint);
	if (!rc)
		rc = mft_load_state(load, &config, t->params, t->backend, t->device, t->ctx, &none,
				    &optimizer, err);
	mft_load_free(load);
	return rc ? rc : mft_reference_take(t, err);
}

/* ---- a pass with it ---- */

static int exchange(struct mft_trainer *t, char *device, char *host, uint64_t bytes,
		    struct mfs_error *err)
{
	const struct mfk_device_ops *dev = t->backend->device;
	char *some = t->reference.some;
	int rc = 0;

	for (uint64_t at = 0, n; at < bytes && !rc; at += n) {
		n = mfs_min_u64(bytes - at, t->reference.some_bytes);
		dev->copy_out(t->ctx, some, device + at, n);
		dev->copy_in(t->ctx, device + at, host + at, n);
		rc = wait(t, err);
		if (!rc)
			memcpy(host + at, some, n);
	}
	return rc;
}

static int change_places(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_params *p = t->params;
	char *host = t->reference.weights;
	const int rc = exchange(t, p->weights, host, weight_bytes(p), err);

	return rc ? rc
		  : exchange(t, (char *)p->buffers, host + weight_bytes(p), buffer_bytes(p), err);
}

int mft_rl_reference(struct mft_trainer *t, struct mfs_error *err)
{
	int rc;

	mft_sync_await(t->sync, t->ctx);
	/* A save in flight still reads the policy's. */
	if (t->saver)
		mft_saver_fence(t->saver, t->ctx, 0, t->params->elements);
	rc = change_places(t, err);
	if (!rc)
		rc = mft_rl_log_probs(t, t->rl->rollout.reference, err);
	return rc ? rc : change_places(t, err);
}
