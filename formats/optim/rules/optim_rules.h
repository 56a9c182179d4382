/*
 * The rules by which Megatron sorts parameters into optimizers, groups, buffers and buckets. They
 * follow from the run's arguments and the release (docs/formats/optimizer.md, with sources).
 */
#ifndef MFS_OPTIM_RULES_OPTIM_RULES_H
#define MFS_OPTIM_RULES_OPTIM_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/optim/rules/optimizers.h"

struct mfs_optim_rules {
	/* groups */
	bool sorted_groups; /* decay first (since 0.16); else in the order of a rank's parameters */
	bool decay_qk_norms, skip_embedding_decay, decoupled_lr;
	struct mfs_kept_states kept;
	const char *foreign_groups; /* name of an argument that makes other groups; NULL: none */
	/* experts also have an optimizer of their own if etp != tp (since 0.19), not only if ep
	 * > 1 */
	bool expert_tensor_groups;
	/* layer_wise_optimizer.py: Muon's matrices, experts among them, have no buffers and one
	 * optimizer; buffers have the others. */
	bool layer_wise;
	/* buffers of the distributed optimizer */
	bool grad_fp32;		  /* accumulate_allreduce_grads_in_fp32 */
	bool overlap_grad_reduce; /* if not, only shared embeddings have buckets of their own */
	bool aligned;		  /* parameters begin at multiples of 64 elements (since 0.8) */
	bool pad_high;		  /* ddp_pad_buckets_for_high_nccl_busbw */
	uint64_t bucket_size;	  /* elements; 0: the default of the data-parallel size */
	uint64_t num_buckets;	  /* 0: not given */
	bool quantised_weights;	  /* fp8_param_gather, fp4_: no weight is its parameter, rounded */
	bool fp8_buffers;	  /* 8-bit parameters have buffers of their own, of uint8 */
	uint64_t bf16_start,
		bf16_end; /* first_last_layers_bf16: how many layers have no such parameter */
	const char *unsupported; /* arguments that have another layout; NULL: none */
};

/* The rules of the run that saved a checkpoint; of the newest release if its release is not known.
 * ckpt is opened with MFS_CKPT_COMMON. Without a common state the rules are those of a new bf16
 * run. */
void mfs_optim_rules_of(const struct mfs_ckpt *ckpt, struct mfs_optim_rules *ret);

/* -ENOTSUP: the state of the run's optimizer is not read. */
int mfs_optim_check_read(const struct mfs_ckpt *ckpt, struct mfs_error *err);
/* True if whole parameters were divided among the data-parallel ranks. */
bool mfs_optim_run_is_layer_wise(const struct mfs_ckpt *ckpt);

/* True if a parameter has the optimizer of matrices, Muon or Lion. name: in the rank's state
 * dict, as in the next three. */
bool mfs_optim_is_muon(const struct mfs_optim_rules *rules, const char *name, unsigned ndim);
/* The states that are kept of it in addition to its main parameter (optimizers.h). */
unsigned mfs_optim_kept(const struct mfs_optim_rules *rules, const char *name, unsigned ndim);
/* True if a run with fp8_param_gather keeps a parameter in 8 bits: a matrix of a linear module of
 * Transformer Engine. layer: of layers of the decoder; -1: in none. */
bool mfs_optim_is_fp8(const struct mfs_optim_rules *rules, const char *name, unsigned ndim,
		      int64_t layer, int64_t layers);
/* True if a parameter has weight decay. */
bool mfs_optim_decays(const struct mfs_optim_rules *rules, const char *name, unsigned ndim);
/* True if it has the learning rate of --decoupled-lr. */
bool mfs_optim_decoupled(const struct mfs_optim_rules *rules, const char *name);

/* True if Muon updates a parameter in a run of it, and Adam does not. name: formats/ckpt/names.h.
 * language_module.py: is_embedding_or_output_parameter, which positions are not. */
bool mfs_optim_muon_takes(const char *name, unsigned ndim);

#endif
