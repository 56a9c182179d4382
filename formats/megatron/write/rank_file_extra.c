/* A legacy file's states of Transformer Engine's modules: those of the source, joined by the rank's
 * experts where their linears are grouped. */
#include <string.h>

#include "formats/base/arena.h"
#include "formats/ckpt/extra_states.h"
#include "formats/megatron/modules.h"
#include "formats/megatron/write/rank_file_i.h"
#include "formats/torch/extra_state.h"

/* How many experts the module is of; 1 also where it is of none. */
static uint32_t experts_of(const struct mfs_rank_writer *r, const struct mfs_rank_tensor *t)
{
	const bool grouped = t->src->expert >= 0 && !t->row->experts;

	return grouped ? (uint32_t)mfs_ckpt_args(r->options->ckpt)->num_experts /
				 r->options->layout.ep
		       : 1;
}

static int read_parts(const struct mfs_rank_writer *r, const struct mfs_rank_tensor *t,
		      uint32_t count, struct mfs_arena *arena, struct mfs_extra_state *ret)
{
	struct mfs_extra_state *parts = mfs_arena_array(arena, count, sizeof(*parts));
	const struct mfs_extra_state **all = mfs_arena_array(arena, count, sizeof(*all));
	int rc = parts && all ? 0 : mfs_fail_nomem(r->err);
	char name[MFS_CKPT_NAME_SIZE];
	bool stateful = false;

	/* Experts of one layer follow one another (ckpt.h). */
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = mfs_ckpt_extra_state(r->options->ckpt, t->src + i, arena, &parts[i], r->err);
		all[i] = &parts[i];
		stateful |= parts[i].products != 0;
	}
	if (rc || !stateful)
		return rc;
	rc = mfs_extra_state_join(all, count, arena, ret, r->err);
	return rc ? mfs_fail_in(r->err, "%s: _extra_state of %u experts, the first is of '%s'",
				mfs_ckpt_dir(r->options->ckpt), count,
				mfs_global_tensor_name(t->src, name, sizeof(name)))
		  : 0;
}

static int read_states(const struct mfs_rank_writer *r, const struct mfs_rank_tensor *t,
		       struct mfs_arena *arena, struct mfs_extra_state *ret)
{
	*ret = (struct mfs_extra_state){0};
	/* Attention's owner is the linear after it, whose state is another module's. */
	if (strstr(t->row->name, "core_attention"))
		return 0;
	return read_parts(r, t, experts_of(r, t), arena, ret);
}

/* A tensor of bytes, over a storage of its own. */
static int write_bytes(struct mfs_rank_writer *r, const struct mfs_buf *bytes)
{
	const uint64_t size = bytes->len;
	struct mfs_rank_storage s = {.size = size};
	void *copy = mfs_arena_alloc(&r->file->arena, size);
	uint32_t number;
	int rc;

	if (!copy)
		return mfs_fail_nomem(r->err);
	memcpy(copy, bytes->data, size);
	s.bytes = copy;
	rc = mfs_rank_add_storage(r, &s, &number);
	if (!rc)
		mfs_pickle_tensor(r->w, number, MFS_U8, &size, 1);
	return rc;
}

int mfs_rank_write_extra(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t)
{
	struct mfs_arena arena = {0};
	struct mfs_extra_state s;
	struct mfs_buf bytes = {0};
	int rc = read_states(r, t, &arena, &s);

	if (!rc)
		rc = mfs_extra_state_write(&s, &bytes, r->err);
	if (!rc && bytes.len)
		rc = write_bytes(r, &bytes);
	else if (!rc)
		mfs_pickle_none(r->w);
	mfs_buf_release(&bytes);
	mfs_arena_release(&arena);
	return rc;
}
