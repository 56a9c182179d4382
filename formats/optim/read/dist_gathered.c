/*
 * torch_dist: the distributed optimizer's flat buffers as a pickled object for each model-parallel
 * rank (dp_zero_gather_scatter, of core 0.6-0.14 without a fully parallel save): the item
 * [chained_I.]optimizer.distributed.dp_group_idx_M.param_state/shard_0_1 is an archive of [state],
 * and the state what distrib_optim.pt holds (optim/read/gathered_state.h).
 *
 * Source: megatron/core/optimizer/distrib_optimizer.py: sharded_param_state_dp_zero.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/optim/buffers/flat_buffers.h"
#include "formats/optim/read/gathered_state.h"
#include "formats/optim/read/optim_i.h"

#define PARAM_STATE ".param_state/shard_0_1"
#define KEY_SIZE    128

/* One rank's object. */
struct object {
	struct mfs_optim_holder *h;
	char key[KEY_SIZE];
	char where[512]; /* for messages */
	const struct mfs_dcp_item *item;
	struct mfs_torch_file f;
	mfs_value state;
};

static bool is_param_state(const char *key)
{
	return strstr(key, "optimizer.distributed.") && mfs_str_ends(key, PARAM_STATE);
}

bool mfs_optim_has_gathered(const struct mfs_dcp *dcp)
{
	for (uint32_t i = 0; i < dcp->bytes_count; i++)
		if (is_param_state(dcp->bytes[i].key))
			return true;
	return false;
}

/* ---- the object ---- */

static const struct mfs_dcp_bytes *find(struct object *o, bool chained)
{
	const struct mfs_optim_holder *h = o->h;
	char prefix[32] = "";

	if (chained)
		snprintf(prefix, sizeof(prefix), "chained_%u.", h->optimizer);
	snprintf(o->key, sizeof(o->key), "%soptimizer.distributed.dp_group_idx_%u" PARAM_STATE,
		 prefix, h->group);
	return mfs_dcp_bytes(&h->r->dcp, o->key);
}

static int open_object(struct object *o)
{
	struct mfs_optim_holder *h = o->h;
	struct mfs_ckpt *ckpt = h->r->ckpt;
	const struct mfs_dcp_bytes *b = find(o, h->o->chain.count > 1);
	struct mfs_source src;
	int rc;

	if (!b && !h->optimizer)
		b = find(o, h->o->chain.count == 1);
	if (!b || b->item.file == MFS_DCP_FILE_NONE)
		return mfs_fail(h->r->err, -ENODATA,
				"%s/%s: '%s' is missing; the arguments ask for it", ckpt->dir,
				h->r->index, o->key);
	o->item = &b->item;
	src = mfs_dist_item(h->r, o->item);
	snprintf(o->where, sizeof(o->where), "%s: '%s'", ckpt->dir, o->key);
	rc = mfs_torch_file_open(&src, &o->f, h->r->err);
	if (rc) {
		mfs_fail_in(h->r->err, "%s", o->where);
		return rc;
	}
	o->state = mfs_dist_object(h->r, o->f.doc);
	return 0;
}

/* ---- buffers ---- */

static int read_state(struct object *o, uint32_t buffer, enum mfs_state state, mfs_value v)
{
	struct mfs_optim_holder *h = o->h;
	struct mfs_torch_tensor t;
	uint32_t storage;
	int rc = mfs_gathered_tensor(&o->f, v, o->where, &t, h->r->err);

	if (!rc && t.shape[0] != h->o->buffers[buffer].elements)
		rc = mfs_fail(h->r->err, -EINVAL, "%s: expected %llu elements, found %llu",
			      o->where, (unsigned long long)h->o->buffers[buffer].elements,
			      (unsigned long long)t.shape[0]);
	if (!rc)
		rc = mfs_ckpt_add_record(h->r->ckpt, h->r->files[o->item->file], o->item->offset,
					 t.record, t.dtype, &storage, h->r->err);
	for (uint32_t i = 0; i < h->o->count && !rc; i++) {
		const struct mfs_optim_param *p = &h->o->params[i];
		const struct mfs_optim_range range = {.tensor = p->tensor,
						      .state = state,
						      .dtype = t.dtype,
						      .storage = storage,
						      .origin = t.offset + p->in_coalesced,
						      .count = p->elements};

		if (p->buffer == buffer && mfs_optim_represents(p->tensor))
			rc = mfs_optim_add_range(h->r->ckpt, &range, h->r->err);
	}
	return rc;
}

static int read_buffer(struct object *o, uint32_t buffer)
{
	const struct mfs_optim_buffer *b = &o->h->o->buffers[buffer];
	mfs_value tensors = 0;
	int rc = mfs_gathered_buffer(o->f.doc, o->state, b->index, b->param_dtype, o->where,
				     &tensors, o->h->r->err);

	for (enum mfs_state s = MFS_STATE_MAIN; s < MFS_STATE_ADAM_END && !rc; s++)
		rc = read_state(o, buffer, s, mfs_value_get(o->f.doc, tensors, mfs_flat_key(s)));
	return rc;
}

/* Until core 0.7 parameters were not aligned. The size of the first buffer shows it. */
static bool fits(const struct object *o)
{
	const struct mfs_optim *p = o->h->o;
	int64_t found;

	for (uint32_t i = 0; i < p->buffer_count; i++) {
		const struct mfs_optim_buffer *b = &p->buffers[i];
		mfs_value tensors;

		if (b->optimizer != o->h->optimizer)
			continue;
		if (mfs_gathered_buffer(o->f.doc, o->state, b->index, b->param_dtype, o->where,
					&tensors, NULL) ||
		    !mfs_value_int(o->f.doc, mfs_value_get(o->f.doc, tensors, "numel_unpadded"),
				   &found))
			return true; /* reading it says what is wrong */
		return (uint64_t)found == b->elements;
	}
	return true;
}

static int read_object(struct object *o)
{
	struct mfs_optim_holder *h = o->h;
	bool joined;
	int rc = mfs_gathered_joined(o->f.doc, o->state, o->where, &joined, h->r->err);

	if (!rc && !joined)
		rc = mfs_fail(h->r->err, -ENOTSUP, "%s: buckets from before core 0.7 are not read",
			      o->where);
	if (!rc && mfs_gathered_has_fp8(o->f.doc, o->state)) {
		h->rules.fp8_buffers = true;
		rc = mfs_optim_holder_build(h, true);
	}
	if (!rc && !fits(o))
		rc = mfs_optim_holder_build(h, false);
	if (!rc && !fits(o))
		rc = mfs_optim_holder_build(h, true);
	for (uint32_t i = 0; !rc && i < h->o->buffer_count; i++)
		if (h->o->buffers[i].optimizer == h->optimizer)
			rc = read_buffer(o, i);
	return rc;
}

static bool has_buffers(const struct mfs_optim_holder *h)
{
	for (uint32_t i = 0; i < h->o->buffer_count; i++)
		if (h->o->buffers[i].optimizer == h->optimizer)
			return true;
	return false;
}

static int read_holder(struct mfs_optim_holder *h, void *arg)
{
	struct object o = {.h = h};
	int rc = mfs_optim_holder_build(h, true);

	(void)arg;
	/* A stage without experts has nothing of theirs. */
	if (rc || !has_buffers(h))
		return rc;
	rc = open_object(&o);
	if (rc)
		return rc;
	rc = read_object(&o);
	mfs_torch_file_release(&o.f);
	return rc;
}

int mfs_optim_read_gathered(struct mfs_dist_reader *r)
{
	return mfs_optim_each_holder(r, read_holder, NULL);
}
