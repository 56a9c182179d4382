/*
 * A legacy save with pipeline stages has copies of the embedding: a tied model's last stage has one
 * as its head, and a stage with MTP has one for its own use. Megatron keeps them equal from the
 * first step on (language_module.py: setup_embeddings_and_output_layer; finalize_model_grads.py:
 * _allreduce_word_embedding_grads). If they differ, the save is not of one model.
 */
#include <errno.h>
#include <string.h>

#include "formats/ckpt/read/torch_i.h"

#define EMBEDDING "embedding.word_embeddings.weight"

/* The first model chunk of the first stage has the original. */
bool mfs_torch_is_copy(const struct mfs_torch_reader *r, const struct mfs_name *name,
		       uint32_t chunk)
{
	if (!strcmp(name->canonical, "output_layer.weight"))
		return r->ckpt->args.tied;
	return chunk && !strcmp(name->canonical, EMBEDDING);
}

/* True for a head of a model that uses its embedding as the head. It is not used, and not kept
 * equal to the embedding (gpt_model.py: shared_embedding_or_output_weight). */
static bool is_unused(const struct mfs_torch_rank *rank, const struct mfs_torch_param *p,
		      mfs_value model)
{
	const struct mfs_pickle *doc = rank->state.doc;

	return strcmp(p->name.canonical, EMBEDDING) &&
	       !mfs_value_is_none(doc, mfs_value_get(doc, model, EMBEDDING));
}

static struct mfs_stored stored(const struct mfs_torch_param *p, uint32_t storage)
{
	return (struct mfs_stored){.name = p->copy ? p->key : EMBEDDING,
				   .storage = storage,
				   .dtype = p->t.dtype,
				   .ndim = p->t.ndim,
				   .shape = {p->t.shape[0], p->t.shape[1]},
				   .stride = {p->t.stride[0], p->t.stride[1]},
				   .origin = p->t.offset};
}

/* Ranks are read in the order of stages, so the original is read before its copies. */
int mfs_torch_check_copy(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 const struct mfs_torch_param *p, uint32_t storage, mfs_value model)
{
	struct mfs_torch_embedding *original = &r->embeddings[rank->tp];
	const struct mfs_stored found = stored(p, storage);
	uint64_t row;
	int rc;

	if (!p->copy && !strcmp(p->name.canonical, EMBEDDING))
		*original = (struct mfs_torch_embedding){rank, found};
	if (!p->copy || !original->rank || is_unused(rank, p, model))
		return 0;
	rc = mfs_stored_compare(r->ckpt, &found, &original->at, &row, r->err);
	if (rc || row == MFS_SAME)
		return rc;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: tensor '%s' differs from '" EMBEDDING
			"' of %s in row %llu: both must be copies of one embedding",
			r->ckpt->dir, rank->name, p->key, original->rank->name,
			(unsigned long long)row);
}
