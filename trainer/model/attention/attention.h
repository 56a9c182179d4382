/* The kinds of attention, and the tables that they need. Tables are planned before the parts, and
 * filled when memory was placed. */
#ifndef MFT_TRAINER_MODEL_ATTENTION_ATTENTION_H
#define MFT_TRAINER_MODEL_ATTENTION_ATTENTION_H

#include "formats/base/error.h"
#include "trainer/model/base/part.h"

extern const struct mft_part_kind mft_part_attention; /* attention.c */
extern const struct mft_part_kind mft_part_mla;	      /* mla.c */
extern const struct mft_part_kind mft_part_delta_net; /* gated_delta.c */

/* Processes that share sequences; context.c. */
void mft_context_find(const struct mft_parallel *p, int64_t whole, struct mft_context *ret);
int mft_context_plan(struct mft_net *net, struct mfs_error *err);
int mft_context_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* Makes the context that runs in parallel with the passes. Call it after mft_memory_place(). */
int mft_context_side_begin(struct mft_net *net, struct mfs_error *err);
/* run->heads_first_key, in one of net->batch_count places. */
void mft_context_gather_keys(const struct mft_net *net, struct mft_pass *pass, uint32_t place);

/* Groups of queries that tensor parallel processes share; shared_groups.c. */
int mft_shared_groups_plan(struct mft_net *net, struct mfs_error *err);
int mft_shared_groups_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);

/* Sines and cosines; rope.c. -ENOTSUP: an odd number of elements would turn. */
int mft_rope_plan(struct mft_net *net, struct mfs_error *err);
int mft_rope_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err);
/* Of a net that generates: tokens turn by the positions of the pass's batch. */
void mft_rope_turn_by(const struct mft_net *net, const struct mft_pass *pass);

#endif
