/*
 * distrib_optim.pt: the distributed optimizer's flat buffers, with their buckets one after the
 * other (optimizer/distrib_optimizer.py: get_parameter_state_dp_zero, save_parameter_state).
 * Parameters lie in reverse order, with gaps that align them. Nobody reads the gaps; they are zeros
 * here.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/write/rank_file_i.h"
#include "formats/optim/buffers/flat_buffers.h"
#include "formats/optim/rules/settings.h"

static int by_place(const void *a, const void *b)
{
	const struct mfs_optim_param *x = *(const struct mfs_optim_param *const *)a;
	const struct mfs_optim_param *y = *(const struct mfs_optim_param *const *)b;

	return (x->in_coalesced > y->in_coalesced) - (x->in_coalesced < y->in_coalesced);
}

/* Lists the parameters of a buffer from front to back. The list lies in the file's arena. */
static int list_params(struct mfs_rank_writer *r, uint32_t buffer,
		       const struct mfs_optim_param ***ret, uint32_t *ret_count)
{
	const struct mfs_optim *o = r->file->optim;
	const struct mfs_optim_param **list =
		mfs_arena_array(&r->file->arena, o->count, sizeof(*list));
	uint32_t count = 0;

	if (!list)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < o->count; i++)
		if (o->params[i].buffer == buffer)
			list[count++] = &o->params[i];
	qsort(list, count, sizeof(*list), by_place);
	*ret = list;
	*ret_count = count;
	return 0;
}

/* The main parameters of an fp32 run are its parameters (distrib_optimizer.py:
 * _build_model_and_main_param_groups: shard_fp32_groups), and a save may have them once. */
static int find_state(struct mfs_rank_writer *r, const struct mfs_optim_param *p,
		      enum mfs_state state, struct mfs_rank_tensor *ret)
{
	if (state != MFS_STATE_MAIN || mfs_optim_info(r->options->ckpt)->has_main)
		return mfs_rank_state(p->tensor, state, ret, r->err);
	*ret = *p->tensor;
	return 0;
}

/* One state of a buffer as a storage: parts of it are of one type, that of the optimizer's
 * tensors. */
static int write_flat(struct mfs_rank_writer *r, const struct mfs_optim_buffer *buffer,
		      const struct mfs_optim_param *const *params, uint32_t count,
		      enum mfs_state state)
{
	struct mfs_rank_tensor *tensors = mfs_arena_array(&r->file->arena, count, sizeof(*tensors));
	struct mfs_rank_storage s = {.segment_count = count + 1};
	const uint64_t shape[] = {buffer->elements};
	uint64_t at = 0, element = 4;
	enum mfs_dtype dtype = MFS_F32;
	uint32_t number;
	int rc = 0;

	s.segments = mfs_arena_array(&r->file->arena, count + 1, sizeof(*s.segments));
	if (!tensors || !s.segments)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = find_state(r, params[i], state, &tensors[i]);
		dtype = tensors[i].base.dtype;
		element = mfs_dtype_size(dtype);
		s.segments[i].gap = (params[i]->in_coalesced - at) * element;
		s.segments[i].tensor = &tensors[i];
		at = params[i]->in_coalesced + params[i]->elements;
	}
	s.segments[count].gap = (buffer->elements - at) * element;
	s.size = buffer->elements * element;
	if (!rc)
		rc = mfs_rank_add_storage(r, &s, &number);
	if (!rc)
		mfs_pickle_tensor(r->w, number, dtype, shape, 1);
	return rc;
}

static int write_buffer(struct mfs_rank_writer *r, uint32_t index)
{
	const struct mfs_optim_buffer *b = &r->file->optim->buffers[index];
	const struct mfs_optim_param **params = NULL;
	uint32_t count = 0;
	int rc = list_params(r, index, &params, &count);

	mfs_pickle_int(r->w, b->index);
	mfs_pickle_dict_begin(r->w);
	mfs_pickle_dtype(r->w, b->param_dtype);
	mfs_pickle_dtype(r->w, b->grad_dtype);
	mfs_pickle_op(r->w, MFS_OP_TUPLE2);
	mfs_pickle_dict_begin(r->w);
	for (enum mfs_state s = MFS_STATE_MAIN; s < MFS_STATE_ADAM_END && !rc; s++) {
		mfs_pickle_name(r->w, mfs_flat_key(s));
		rc = write_flat(r, b, params, count, s);
	}
	mfs_pickle_name(r->w, "numel_unpadded");
	mfs_pickle_uint(r->w, b->elements);
	mfs_pickle_dict_end(r->w);
	mfs_pickle_dict_end(r->w);
	return rc;
}

static int write_optimizer(struct mfs_rank_writer *r, uint32_t optimizer)
{
	const struct mfs_optim *o = r->file->optim;
	int rc = 0;

	mfs_pickle_dict_begin(r->w);
	mfs_pickle_name(r->w, "buckets_coalesced");
	mfs_pickle_bool(r->w, true);
	for (uint32_t i = 0; i < o->buffer_count && !rc; i++)
		if (o->buffers[i].optimizer == optimizer)
			rc = write_buffer(r, i);
	mfs_pickle_dict_end(r->w);
	return rc;
}

int mfs_rank_write_buffers(struct mfs_rank_writer *r)
{
	const uint32_t count = r->file->optim->chain.count;
	int rc = 0;

	if (count > 1)
		mfs_pickle_list_begin(r->w);
	for (uint32_t o = 0; o < count && !rc; o++)
		rc = write_optimizer(r, o);
	if (count > 1)
		mfs_pickle_list_end(r->w);
	return rc;
}
