/*
 * What modules of Transformer Engine keep next to weights (torch/extra_state.h): of each module by
 * the weight that it owns. Readers note where a state lies; it is read when somebody asks for it.
 * Notes are taken with MFS_CKPT_COMMON.
 */
#ifndef MFS_CKPT_EXTRA_STATES_H
#define MFS_CKPT_EXTRA_STATES_H

#include "formats/ckpt/ckpt.h"
#include "formats/torch/extra_state.h"

struct mfs_ckpt_extra {
	const char *name; /* of the weight, interned; of experts: of those from expert on */
	int32_t layer, expert;
	uint32_t experts; /* whose state is one; 1 where there are none */
	/* NULL: it lies in [at, at + length) of file. Else length bytes in the arena */
	const void *bytes;
	uint32_t file;
	uint64_t at, length;
	bool item;	/* a byte item of torch_dist */
	bool malformed; /* neither: it is refused when somebody asks for it */
};

/* For readers, each module once. */
int mfs_ckpt_note_extra(struct mfs_ckpt *ckpt, const struct mfs_ckpt_extra *extra,
			struct mfs_error *err);
/* Called once, after the last note. */
void mfs_ckpt_sort_extras(struct mfs_ckpt *ckpt);

/*
 * Reads the state of the module that owns a weight; of an expert its own. ret->products is 0 where
 * it has none, or where by its arguments the run computes without 8 bits. Arrays lie in
 * arena. Errors are those of mfs_extra_state_read(), and name the weight. Any thread.
 */
int mfs_ckpt_extra_state(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *weight,
			 struct mfs_arena *arena, struct mfs_extra_state *ret,
			 struct mfs_error *err);

/* The bytes that this state has in the checkpoint, with those of experts whose state is one; 0: it
 * has none. One with another recipe, or with other rows, has another size. */
uint64_t mfs_ckpt_extra_size(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *weight);

#endif
