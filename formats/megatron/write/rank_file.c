#include "formats/megatron/write/rank_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/ckpt/rng.h"
#include "formats/megatron/write/copy_values.h"
#include "formats/megatron/write/rank_file_i.h"
#include "formats/optim/buffers/layer_wise.h"
#include "formats/optim/rules/settings.h"

/* ---- storages ---- */

int mfs_rank_add_storage(struct mfs_rank_writer *r, const struct mfs_rank_storage *storage,
			 uint32_t *ret)
{
	struct mfs_rank_file *f = r->file;

	if (mfs_grow(&f->storages, f->storage_count))
		return mfs_fail_nomem(r->err);
	f->storages[f->storage_count] = *storage;
	*ret = f->storage_count++;
	return 0;
}

int mfs_rank_write_tensor(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t)
{
	struct mfs_rank_storage s = {.size = t->base.bytes, .segment_count = 1};
	uint32_t number;
	int rc;

	s.segments = mfs_arena_alloc(&r->file->arena, sizeof(*s.segments));
	if (!s.segments)
		return mfs_fail_nomem(r->err);
	s.segments->tensor = t;
	rc = mfs_rank_add_storage(r, &s, &number);
	if (!rc)
		mfs_pickle_tensor(r->w, number, t->base.dtype, t->base.shape, t->base.ndim);
	return rc;
}

int mfs_rank_write_state(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t,
			 enum mfs_state state)
{
	struct mfs_rank_tensor *of_state = mfs_arena_alloc(&r->file->arena, sizeof(*of_state));
	int rc = of_state ? mfs_rank_state(t, state, of_state, r->err) : mfs_fail_nomem(r->err);

	return rc ? rc : mfs_rank_write_tensor(r, of_state);
}

/* ---- model ---- */

static int write_chunk(struct mfs_rank_writer *r, const struct mfs_model_chunk *chunk)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	mfs_pickle_ordered_dict_begin(r->w);
	for (uint32_t i = 0; i < chunk->count && !rc; i++) {
		const struct mfs_rank_tensor *t = &r->file->list->tensors[chunk->first + i];

		mfs_rank_tensor_name(t, name, sizeof(name));
		mfs_pickle_str(r->w, name);
		if (t->base.ops)
			rc = mfs_rank_write_tensor(r, t);
		else
			rc = mfs_rank_write_extra(r, t);
	}
	mfs_pickle_ordered_dict_end(r->w);
	return rc;
}

static int write_model(struct mfs_rank_writer *r)
{
	const uint32_t chunks = r->file->list->layout.vpp;
	char key[32];
	int rc = 0;

	for (uint32_t vp = 0; vp < chunks && !rc; vp++) {
		snprintf(key, sizeof(key), chunks > 1 ? "model%u" : "model", vp);
		mfs_pickle_str(r->w, key);
		rc = write_chunk(r, &r->file->list->chunks[vp]);
	}
	return rc;
}

/* ---- values of the source's ---- */

static int add_copied(void *arg, const void *bytes, uint64_t size, uint32_t *ret,
		      struct mfs_error *err)
{
	const struct mfs_rank_storage s = {.size = size, .bytes = bytes};

	return mfs_rank_add_storage(arg, &s, ret) ? mfs_fail_nomem(err) : 0;
}

int mfs_rank_copy(struct mfs_rank_writer *r, const struct mfs_torch_file *from, mfs_value value)
{
	const struct mfs_copy_sink to = {
		.w = r->w, .arena = &r->file->arena, .add = add_copied, .arg = r};

	return mfs_copy_value(&to, from, value, r->err);
}

/* A rank of another layout gets the state of the source's rank of its numbers modulo the source's
 * sizes. A run needs one, since --load without --no-load-rng reads it. */
static int write_rng(struct mfs_rank_writer *r)
{
	const struct mfs_ckpt_layout *source = mfs_ckpt_layout(r->options->ckpt);
	const struct mfs_rank *rank = &r->file->list->rank;
	struct mfs_rng rng;
	int rc;

	if (!mfs_rng_there(r->options->ckpt))
		return 0;
	rc = mfs_rng_open(r->options->ckpt, rank->tp % source->tp, rank->pp % source->pp,
			  rank->ep % source->ep, &rng, r->err);
	if (rc)
		return rc;
	mfs_pickle_str(r->w, "rng_state");
	rc = mfs_rank_copy(r, &rng.archive, rng.value);
	mfs_rng_release(&rng);
	return rc;
}

/* ---- the state dict ---- */

static int write_state_dict(struct mfs_rank_writer *r)
{
	/* One that has no name is the source's own: its arguments stay as they are. */
	const struct mfs_layout *layout =
		r->options->layout.chunk_layers ? NULL : &r->options->layout;
	const struct mfs_common_options options = {.layout = layout,
						   .vocab = r->file->list->vocab,
						   .spec = r->options->spec,
						   .spec_given = r->options->spec_given,
						   .has_optimizer = r->options->optimizer,
						   .has_rng = mfs_rng_there(r->options->ckpt),
						   .hybrid = r->options->layout.hybrid,
						   .format = "torch"};
	int rc;

	mfs_pickle_dict_begin(r->w);
	rc = mfs_common_write(r->w, r->options->ckpt, &options, r->options->number, r->err);
	if (!rc)
		rc = write_model(r);
	if (!rc && r->options->optimizer) {
		mfs_pickle_str(r->w, "optimizer");
		rc = mfs_rank_write_optimizer(r);
	}
	if (!rc)
		rc = write_rng(r);
	mfs_pickle_dict_end(r->w);
	return rc;
}

/* ---- the file ---- */

static int add_segment(struct mfs_vfile *data, const struct mfs_rank_segment *segment,
		       struct mfs_error *err)
{
	int rc = 0;

	if (segment->gap)
		rc = mfs_vfile_add_zeros(data, segment->gap, err);
	if (!rc && segment->tensor)
		rc = mfs_vfile_add_tensor(data, &segment->tensor->base, err);
	return rc;
}

static int add_storage(struct mfs_vfile *data, const struct mfs_rank_storage *s,
		       struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->segment_count && !rc; i++)
		rc = add_segment(data, &s->segments[i], err);
	return rc;
}

static int add_segments(struct mfs_rank_file *f, const struct mfs_torch_archive *a,
			const uint8_t *literals, struct mfs_vfile *data, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->count && !rc; i++) {
		const struct mfs_torch_segment *s = &a->segments[i];

		if (s->payload == MFS_TORCH_LITERAL)
			rc = mfs_vfile_add_shared(data, literals + s->offset, s->length, err);
		else
			rc = add_storage(data, &f->storages[s->payload], err);
	}
	return rc;
}

static int make_archive(struct mfs_rank_file *f, const char *stem, const struct mfs_buf *pickle,
			struct mfs_torch_archive *ret, struct mfs_error *err)
{
	struct mfs_torch_payload *payloads = calloc(f->storage_count + 1u, sizeof(*payloads));
	int rc;

	if (!payloads)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < f->storage_count; i++)
		payloads[i] = (struct mfs_torch_payload){f->storages[i].size, f->storages[i].bytes};
	rc = mfs_torch_archive(stem, pickle->data, pickle->len, payloads, f->storage_count, ret,
			       err);
	free(payloads);
	return rc;
}

/* Literals are copied to the file's arena, and parts point there. */
static int assemble(struct mfs_rank_file *f, const char *stem, const struct mfs_buf *pickle,
		    struct mfs_vfile *parts, struct mfs_error *err)
{
	struct mfs_torch_archive a;
	void *literals;
	int rc = make_archive(f, stem, pickle, &a, err);

	if (rc)
		return rc;
	literals = mfs_arena_alloc(&f->arena, a.literals.len);
	if (literals) {
		memcpy(literals, a.literals.data, a.literals.len);
		rc = add_segments(f, &a, literals, parts, err);
	} else {
		rc = mfs_fail_nomem(err);
	}
	mfs_torch_archive_release(&a);
	return rc;
}

static int write_value(struct mfs_rank_writer *r, enum mfs_rank_file_kind kind)
{
	switch (kind) {
	case MFS_RANK_FILE_OPTIMIZER:
		return mfs_rank_write_buffers(r);
	case MFS_RANK_FILE_SHARE:
		return mfs_rank_write_optimizer(r);
	default:
		return write_state_dict(r);
	}
}

static int write_file(struct mfs_rank_writer *r, const struct mfs_rank_file_id *id,
		      struct mfs_vfile *parts)
{
	char stem[MFS_RANK_FILE_STEM];
	struct mfs_pickle_writer w;
	struct mfs_buf pickle = {0};
	int rc;

	r->w = &w;
	mfs_pickle_begin(&w, &pickle, 2);
	rc = write_value(r, id->kind);
	if (rc)
		mfs_pickle_abandon(&w);
	else
		rc = mfs_pickle_end(&w, r->err);
	if (!rc)
		rc = assemble(r->file, mfs_rank_file_stem(id, stem), &pickle, parts, r->err);
	mfs_buf_release(&pickle);
	return rc;
}

uint32_t mfs_rank_file_shares(const struct mfs_megatron_options *options)
{
	const struct mfs_layout *p = &options->layout;

	if (!options->optimizer || !mfs_optim_run_is_layer_wise(options->ckpt) || p->etp != p->tp ||
	    mfs_optim_info(options->ckpt)->kind == MFS_OPTIM_DISTRIBUTED)
		return 0;
	return mfs_common_replicas(options->ckpt, p);
}

/* The state of a rank of a layer-wise optimizer. Ranks with the same experts follow at steps of as
 * many as there are ranks of experts. */
static int open_share(struct mfs_rank_writer *r, uint32_t ranks, uint32_t number)
{
	const uint32_t ep = r->options->layout.ep;
	const struct mfs_layer_share share = {.rank = number,
					      .ranks = ranks,
					      .expert_rank = number / ep,
					      .expert_ranks = ranks / ep};
	struct mfs_optim_rules rules;
	int rc;

	mfs_optim_rules_of(r->options->ckpt, &rules);
	rules.layer_wise = true;
	rc = mfs_optim_new(r->file->list, &rules, 1, 1, &r->file->optim, r->err);
	return rc ? rc : mfs_layer_share_take(r->file->optim, &share, r->err);
}

static int open_lists(struct mfs_rank_writer *r, const struct mfs_rank_file_id *id)
{
	const struct mfs_megatron_options *v = r->options;
	const int64_t dp = mfs_ckpt_args(v->ckpt)->data_parallel_size;
	const uint32_t shares = mfs_rank_file_shares(v);
	int rc = mfs_rank_list_new(v->ckpt, &v->layout, &id->rank, v->spec, v->vocab,
				   &r->file->list, r->err);

	if (rc || !v->optimizer)
		return rc;
	if (id->kind == MFS_RANK_FILE_SHARE)
		return open_share(r, shares, id->number);
	if (v->shares && shares)
		return open_share(r, shares, id->rank.ep);
	/* Padding at a bucket's end depends on the data-parallel size. It is not stored. */
	return mfs_optim_new(r->file->list, NULL, dp > 0 ? (uint32_t)dp : 1,
			     dp > 0 ? (uint32_t)dp : 1, &r->file->optim, r->err);
}

int mfs_rank_file_new(const struct mfs_megatron_options *options, const struct mfs_rank_file_id *id,
		      struct mfs_vfile *parts, struct mfs_rank_file **ret, struct mfs_error *err)
{
	struct mfs_rank_file *file = calloc(1, sizeof(*file));
	struct mfs_rank_writer r = {.options = options, .file = file, .err = err};
	int rc = file ? open_lists(&r, id) : mfs_fail_nomem(err);

	if (!rc && id->kind == MFS_RANK_FILE_OPTIMIZER && !file->optim->buffer_count) {
		mfs_rank_file_free(file);
		*ret = NULL;
		return 0;
	}
	if (!rc)
		rc = write_file(&r, id, parts);
	if (rc) {
		mfs_rank_file_free(file);
		return rc;
	}
	*ret = file;
	return 0;
}

void mfs_rank_file_free(struct mfs_rank_file *f)
{
	if (!f)
		return;
	mfs_optim_free(f->optim);
	mfs_rank_list_free(f->list);
	free(f->storages);
	mfs_arena_release(&f->arena);
	free(f);
}

const char *mfs_rank_file_stem(const struct mfs_rank_file_id *id, char stem[MFS_RANK_FILE_STEM])
{
	if (id->kind == MFS_RANK_FILE_SHARE)
		snprintf(stem, MFS_RANK_FILE_STEM, "layer_wise_optimizer_%u", id->number);
	else
		snprintf(stem, MFS_RANK_FILE_STEM, "%s",
			 id->kind == MFS_RANK_FILE_MODEL ? "model_optim_rng" : "distrib_optim");
	return stem;
}
