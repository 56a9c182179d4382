/*
 * pytorch_model.bin: what torch.save(state_dict, FILE) writes, laid out before a tensor is read.
 * The state dict is a plain dict of name and tensor; each tensor has a storage of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/model/hf_weights.h"
#include "formats/plan/vfile.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_write.h"

#define PREFIX "pytorch_model" /* torch.save takes the file's name up to its first suffix */

static int write_pickle(const struct mfs_hf_weight *items, uint32_t count, struct mfs_buf *out,
			struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	struct mfs_pickle_writer w;

	mfs_pickle_begin(&w, out, 2);
	mfs_pickle_dict_begin(&w);
	for (uint32_t i = 0; i < count; i++) {
		const struct mfs_target *t = items[i].target;

		mfs_pickle_batch(&w, MFS_OP_SETITEMS, i);
		mfs_target_name(t, name, sizeof(name));
		mfs_pickle_str(&w, name);
		mfs_pickle_tensor(&w, i, t->dtype, t->shape, t->ndim);
	}
	mfs_pickle_dict_end(&w);
	return mfs_pickle_end(&w, err);
}

static int lay_out(const struct mfs_hf_weight *items, uint32_t count, struct mfs_torch_archive *ret,
		   struct mfs_error *err)
{
	struct mfs_torch_payload *payloads = calloc(count + 1u, sizeof(*payloads));
	struct mfs_buf pickle = {0};
	int rc = payloads ? write_pickle(items, count, &pickle, err) : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < count && !rc; i++)
		payloads[i].size = items[i].target->bytes;
	if (!rc)
		rc = mfs_torch_archive(PREFIX, pickle.data, pickle.len, payloads, count, ret, err);
	mfs_buf_release(&pickle);
	free(payloads);
	return rc;
}

static int add_literal(struct mfs_vfile *f, const char *bytes, uint64_t len, struct mfs_error *err)
{
	void *copy = malloc(len + 1);
	int rc;

	if (!copy)
		return mfs_fail_nomem(err);
	memcpy(copy, bytes, len);
	rc = mfs_vfile_add_literal(f, copy, len, err);
	if (rc)
		free(copy);
	return rc;
}

static int add_segments(struct mfs_vfile *f, const struct mfs_torch_archive *a,
			const struct mfs_hf_weight *items, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->count && !rc; i++) {
		const struct mfs_torch_segment *s = &a->segments[i];

		if (s->payload == MFS_TORCH_LITERAL)
			rc = add_literal(f, a->literals.data + s->offset, s->length, err);
		else
			rc = mfs_vfile_add_tensor(f, items[s->payload].target, err);
	}
	return rc;
}

static int bin_file(const struct mfs_hf_weights *w, const struct mfs_hf_shard *shard,
		    struct mfs_vfile **ret, struct mfs_error *err)
{
	const struct mfs_hf_weight *items = w->items + shard->first;
	struct mfs_torch_archive archive;
	struct mfs_vfile *f = NULL;
	int rc = lay_out(items, shard->count, &archive, err);

	if (rc)
		return rc;
	rc = mfs_vfile_new(&f, err);
	if (!rc)
		rc = add_segments(f, &archive, items, err);
	mfs_torch_archive_release(&archive);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

const struct mfs_hf_container mfs_hf_bin = {PREFIX, ".bin", bin_file};
