/* The kinds of attention, and the tables that they need. Tables are planned before the parts, and
 * filled when memory was placed. */
#ifndef MFS_TRAINER_MODEL_ATTENTION_ATTENTION_H
#define MFS_TRAINER_MODEL_ATTENTION_ATTENTION_H

#include "formats/base/error.h"
#include "trainer/model/base/part.h"

extern const struct mfs_part_kind mfs_part_attention; /* attention.c */
extern const struct mfs_part_kind mfs_part_mla;	      /* mla.c */

/* Processes that share sequences; context.c. */
void mfs_context_find(const struct mfs_parallel *p, int64_t whole, struct mfs_context *ret);
int mfs_context_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_context_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* Makes the context that runs in parallel with the passes. Call it after mfs_memory_place(). */
int mfs_context_beside_begin(struct mfs_net *net, struct mfs_error *err);
/* run->heads_first_key, in one of net->batch_count places. */
void mfs_context_gather_keys(const struct mfs_net *net, struct mfs_pass *run, uint32_t place);

/* Groups of queries that tensor parallel processes share; shared_groups.c. */
int mfs_shared_groups_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_shared_groups_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);

/* Sines and cosines; rope.c. -ENOTSUP: an odd number of elements would turn. */
int mfs_rope_plan(struct mfs_net *net, struct mfs_error *err);
int mfs_rope_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err);

#endif
