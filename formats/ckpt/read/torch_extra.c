/* Legacy `torch`: where the states of Transformer Engine's modules lie. */
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/extra_states.h"
#include "formats/ckpt/read/torch_i.h"

#define EXTRA "._extra_state"

/* Bytes of a tensor in its record, or of a BytesIO in the pickle. e->length stays 0: it is neither,
 * or has none. */
static int find_bytes(struct mfs_torch_reader *r, const struct mfs_torch_source *a, mfs_value v,
		      struct mfs_ckpt_extra *e)
{
	struct mfs_torch_tensor t;
	size_t len = 0;
	uint64_t at;
	int rc;

	if (!mfs_torch_is_tensor(a->state, v)) {
		e->bytes = mfs_extra_state_buffer(a->state->doc, v, &r->ckpt->arena, &len);
		e->length = len;
		return 0;
	}
	if (mfs_torch_tensor(a->state, v, &t, NULL) || t.dtype != MFS_U8 || t.ndim != 1 ||
	    !t.shape[0] || (t.shape[0] > 1 && t.stride[0] != 1))
		return 0;
	rc = mfs_zip_locate(&a->state->zip.src, t.record, &at, r->err);
	e->file = a->file;
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

int mfs_torch_note_extra(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 uint32_t chunk, const char *key, mfs_value v,
			 const struct mfs_torch_source *a)
{
	struct mfs_ckpt_extra e = {.expert = -1};
	struct mfs_name name;
	int rc;

	if (!(r->ckpt->what & MFS_CKPT_COMMON) || mfs_value_is_none(a->state->doc, v) ||
	    !mfs_str_ends(key, EXTRA) || !name_owner(r, key, &name, &e.experts) ||
	    rank->tp % (name.experts ? r->etp : r->tp) || !mfs_torch_is_wanted(r, rank, &name))
		return 0;
	rc = find_bytes(r, a, v, &e);
	if (rc || !e.length)
		return rc;
	e.name = mfs_ckpt_intern(r->ckpt, name.canonical);
	if (!e.name)
		return mfs_fail_nomem(r->err);
	e.layer = mfs_torch_layer(r, &name, chunk);
	if (name.experts)
		e.expert = name.expert + (int32_t)(r->ckpt->args.num_experts / r->ep * rank->ep);
	return mfs_ckpt_note_extra(r->ckpt, &e, r->err);
}
