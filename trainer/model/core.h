/* Private to trainer/model: attention's core (core.c), and the ways in which processes that share a
 * sequence compute it. */
#ifndef MFS_TRAINER_MODEL_CORE_H
#define MFS_TRAINER_MODEL_CORE_H

#include "trainer/model/net_i.h"

struct mfs_core_kind {
	/* -ENOTSUP: it does not do the shape. NULL: it does all. */
	int (*check)(const struct mfs_net *net, const struct mfk_attention *shape,
		     struct mfs_error *err);
	/* Asks for scratch, of forward or of backward. */
	void (*plan)(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		     bool backward);
	/* a: of this process's tokens, but for first_key, which are positions of the sequence. */
	void (*forward)(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_core *core, const struct mfk_attention *a);
	void (*backward)(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_core *core, const struct mfk_attention *a);
};

extern const struct mfs_core_kind mfs_core_gather; /* core_gather.c */
extern const struct mfs_core_kind mfs_core_ring;   /* core_ring.c */
extern const struct mfs_core_kind mfs_core_heads;  /* core_heads.c */

uint64_t mfs_core_work_bytes(const struct mfs_net *net, const struct mfk_attention *a,
			     bool backward);
/* Scratch that the kind has asked for as number `which` of forward or backward. */
void *mfs_core_scratch(const struct mfs_net *net, const struct mfs_core *core, bool backward,
		       unsigned which);
/* Of this process. */
int64_t mfs_core_tokens(const struct mfs_core *core);
/* y[r] = x[map[r]] for the rows, of cols elements, of all tokens of the sequences; map is one of
 * struct mfs_context's. */
void mfs_core_rows(const struct mfs_net *net, const struct mfs_pass *run, uint64_t map,
		   int64_t cols, const void *x, void *y);

#endif
