/* Legacy `torch`: where the states of Transformer Engine's modules lie. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/extra_states.h"
#include "formats/ckpt/read/torch_i.h"

#define EXTRA "._extra_state"

/* Copies the bytes of a BytesIO. Keys may share one by the pickle's memo, but no run saves so: the
 * copies of a rank are not larger than its pickle. */
static int copy_buffer(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, mfs_value v,
		       struct mfs_ckpt_extra *e)
{
	const struct mfs_pickle *doc = rank->state.doc;
	size_t len = 0;

	e->bytes = mfs_extra_state_buffer(doc, v, &r->ckpt->arena, &len);
	e->malformed = !e->bytes;
	e->length = e->bytes ? len : 0;
	r->state_bytes += e->length;
	if (r->state_bytes <= mfs_pickle_length(doc))
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: modules have more than %zu bytes of _extra_state, which is all "
			"that their pickle has",
			r->ckpt->dir, rank->name, mfs_pickle_length(doc));
}

/* Bytes of a tensor in its record, or of a BytesIO in the pickle. e->length stays 0 where it has
 * none. */
static int find_bytes(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, mfs_value v,
		      struct mfs_ckpt_extra *e)
{
	const struct mfs_torch_file *f = &rank->state;
	struct mfs_torch_tensor t;
	uint64_t at;
	int rc;

	if (!mfs_torch_is_tensor(f, v))
		return copy_buffer(r, rank, v, e);
	e->malformed = true;
	if (mfs_torch_tensor(f, v, &t, NULL) || t.dtype != MFS_U8 || t.ndim != 1 ||
	    (t.shape[0] > 1 && t.stride[0] != 1))
		return 0;
	e->malformed = false;
	rc = mfs_zip_locate(&f->zip.src, t.record, &at, r->err);
	e->file = rank->file;
	e->at = at + t.offset;
	e->length = t.shape[0];
	return rc;
}

/* The name of the weight that the module owns, and how many experts it is of. A grouped linear has
 * weight0, weight1 and so on. */
static bool name_owner(const struct mfs_torch_reader *r, const char *key, struct mfs_name *ret,
		       uint32_t *ret_experts)
{
	const int module = (int)(strlen(key) - strlen(EXTRA));
	const int64_t total = r->ckpt->args.num_experts;
	char text[MFS_NAME_MAX];

	snprintf(text, sizeof(text), "%.*s.weight", module, key);
	mfs_name_parse(text, ret);
	*ret_experts = 1;
	if (ret->known && (!ret->experts || ret->expert >= 0))
		return true;
	snprintf(text, sizeof(text), "%.*s.weight0", module, key);
	mfs_name_parse(text, ret);
	*ret_experts = total > 0 ? (uint32_t)(total / r->ep) : 0;
	return ret->known && ret->experts && *ret_experts;
}

/* The expert's number in the model; -1: it is of none. */
static int number_expert(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 const char *key, const struct mfs_name *name, struct mfs_ckpt_extra *e)
{
	const int64_t given = r->ckpt->args.num_experts, total = given > 0 ? given : 0;
	const int64_t each = total / r->ep;

	if (!name->experts)
		return 0;
	if (name->expert >= each || total % r->ep)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: '%s' is not of one of %lld experts on %u ranks",
				r->ckpt->dir, rank->name, key, (long long)total, r->ep);
	e->expert = (int32_t)(name->expert + each * rank->ep);
	return 0;
}

/* Where the module is: its expert, its layer, and the weight that it owns. */
static int place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, uint32_t chunk,
		 const char *key, const struct mfs_name *name, struct mfs_ckpt_extra *e)
{
	int rc = number_expert(r, rank, key, name, e);

	if (rc)
		return rc;
	e->name = mfs_ckpt_intern(r->ckpt, name->canonical);
	if (!e->name)
		return mfs_fail_nomem(r->err);
	e->layer = mfs_torch_layer(r, name, chunk);
	return mfs_ckpt_block(r->ckpt, name, rank->name, key, &e->layer, r->err);
}

int mfs_torch_note_extra(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 uint32_t chunk, const char *key, mfs_value v)
{
	struct mfs_ckpt_extra e = {.expert = -1};
	struct mfs_name name;
	int rc;

	if (!(r->ckpt->what & MFS_CKPT_COMMON) || mfs_value_is_none(rank->state.doc, v) ||
	    !mfs_str_ends(key, EXTRA) || !name_owner(r, key, &name, &e.experts) ||
	    rank->tp % (name.experts ? r->etp : r->tp) || !mfs_torch_is_wanted(r, rank, &name))
		return 0;
	rc = place(r, rank, chunk, key, &name, &e);
	if (!rc)
		rc = find_bytes(r, rank, v, &e);
	if (rc || (!e.length && !e.malformed))
		return rc;
	return mfs_ckpt_note_extra(r->ckpt, &e, r->err);
}
