/* Private to trainer/model: attention's core (core.c), and the ways in which processes that share a
 * sequence compute it. */
#ifndef MFS_TRAINER_MODEL_CORE_H
#define MFS_TRAINER_MODEL_CORE_H

#include "trainer/model/net_i.h"

struct mfs_core_kind {
	/* Asks for scratch, of forward or of backward. */
	void (*plan)(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		     bool backward);
	/* a: of the tokens and heads that the process has, or some of the sequences; but first_key
	 * are positions of the whole sequence. */
	void (*forward)(const struct mfs_net *net, const struct mfs_pass *run,
			const struct mfs_core *core, const struct mfk_attention *a);
	void (*backward)(const struct mfs_net *net, const struct mfs_pass *run,
			 const struct mfs_core *core, const struct mfk_attention *a);
};

extern const struct mfs_core_kind mfs_core_gather; /* core_gather.c */
extern const struct mfs_core_kind mfs_core_ring;   /* core_ring.c */

/* Around a kind that attends with some heads of what neighbours have; core_heads.c. */
int mfs_core_heads_check(const struct mfs_net *net, enum mfs_context_ways way,
			 const struct mfk_attention *shape, struct mfs_error *err);
/* All tokens of neighbours, and some of the heads. */
struct mfk_attention mfs_core_heads_shape(const struct mfs_net *net, enum mfs_context_ways way,
					  const struct mfk_attention *a);
void mfs_core_heads_plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
			 bool backward);
void mfs_core_heads_forward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_core *core, const struct mfk_attention *a);
void mfs_core_heads_backward(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_core *core, const struct mfk_attention *a);

uint64_t mfs_core_work_bytes(const struct mfs_net *net, const struct mfk_attention *a,
			     bool backward);
/* Scratch that the kind has asked for as number `which` of forward or backward. */
void *mfs_core_scratch(const struct mfs_net *net, const struct mfs_core *core, bool backward,
		       unsigned which);
/* y[r] = x[map[r]] for so many rows, of cols elements; map is one of struct mfs_context's. */
void mfs_core_rows(const struct mfs_net *net, const struct mfs_pass *run, uint64_t map,
		   int64_t rows, int64_t cols, const void *x, void *y);

#endif
