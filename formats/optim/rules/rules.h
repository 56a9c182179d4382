/*
 * What decides how Megatron sorts parameters into optimizers, groups, buffers and buckets: the
 * run's arguments and the release; and the arithmetic of it, for parameters in registration order
 * (docs/formats/optimizer.md, with sources).
 */
#ifndef MFS_OPTIM_RULES_RULES_H
#define MFS_OPTIM_RULES_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_optim_rules {
	/* groups */
	bool sorted_groups; /* decay first, since 0.16; else as a rank's parameters bring them up */
	bool decay_qk_norms, skip_embedding_decay, decoupled_lr;
	const char *foreign_groups; /* name of an argument that makes other groups; NULL: none */
	/* experts have an optimizer of their own if ep > 1; since 0.19 also if etp != tp */
	bool expert_tensor_groups;
	/* buffers of the distributed optimizer */
	bool grad_fp32;		  /* accumulate_allreduce_grads_in_fp32 */
	bool overlap_grad_reduce; /* else one bucket, but for shared embeddings */
	bool aligned;		  /* parameters begin at multiples of 64 elements, since 0.8 */
	bool pad_high;		  /* ddp_pad_buckets_for_high_nccl_busbw */
	uint64_t bucket_size;	  /* elements; 0: the default of the data-parallel size */
	uint64_t num_buckets;	  /* 0: not given */
	const char *unsupported;  /* name of an argument with another layout; NULL: none */
};

/* The rules of the run that wrote a checkpoint, of the newest release where it does not say. ckpt
 * was opened with MFS_CKPT_COMMON; without a state the rules are those of a fresh bf16 run. */
void mfs_optim_rules_of(const struct mfs_ckpt *ckpt, struct mfs_optim_rules *ret);

/* Is a parameter in a group with weight decay? name as the rank's modules have it. */
bool mfs_optim_decays(const struct mfs_optim_rules *rules, const char *name, unsigned ndim);
/* Has it --decoupled-lr's learning rate? */
bool mfs_optim_decoupled(const struct mfs_optim_rules *rules, const char *name);

#endif
