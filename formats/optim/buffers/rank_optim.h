/*
 * A rank's optimizer: the optimizer and parameter group of each parameter, and its place in the
 * distributed optimizer's flat buffers. Both follow from the order of the rank's parameters
 * (megatron/rank.h), the run's arguments and Megatron's release (optim/rules/optim_rules.h).
 *
 * Sources: megatron/core/optimizer/__init__.py: _get_param_groups, get_megatron_optimizer;
 * optimizer/distrib_optimizer.py and param_layout.py, distributed/param_and_grad_buffer.py,
 * distributed/distributed_data_parallel.py.
 */
#ifndef MFS_OPTIM_BUFFERS_RANK_OPTIM_H
#define MFS_OPTIM_BUFFERS_RANK_OPTIM_H

#include "formats/optim/rules/optim_chain.h"
#include "formats/optim/rules/optim_rules.h"
#include "formats/megatron/rank.h"

#define MFS_OPTIM_NO_BUFFER UINT32_MAX

/* A parameter's place. */
struct mfs_optim_param {
	const struct mfs_rank_tensor *tensor;
	uint32_t optimizer; /* of the chain */
	uint32_t group;	    /* of its optimizer */
	uint32_t index;	    /* in its group */
	uint32_t id;	    /* in the optimizer: torch numbers parameters group by group */
	uint32_t main;	    /* number in the group's 'fp32_from_fp16_params', if has_main */
	bool has_main;	    /* a 16-bit parameter: the optimizer holds an fp32 copy */
	/* distributed optimizer */
	uint32_t buffer;       /* in mfs_optim.buffers; MFS_OPTIM_NO_BUFFER: it is in none */
	uint32_t bucket;       /* of the buffer */
	uint64_t start;	       /* elements from the buffer's start, bucket padding included */
	uint64_t in_bucket;    /* elements from the bucket's start */
	uint64_t in_coalesced; /* elements from the start without the padding at buckets' ends */
	uint64_t elements;
};

/* A parameter group. In files: wd_mult 1.0 or 0.0, is_decoupled_lr, is_expert_parallel. */
struct mfs_optim_group {
	uint32_t optimizer;
	bool muon, experts; /* those of its optimizer */
	bool decay, decoupled;
	uint32_t count; /* parameters of this rank; 0: only other ranks have some */
};

/* A flat buffer: the parameters of one dtype, one model chunk and one optimizer. */
struct mfs_optim_buffer {
	uint32_t optimizer;
	uint32_t index;				/* gbuf_idx: number among its optimizer's */
	uint32_t chunk;				/* model chunk */
	enum mfs_dtype param_dtype, grad_dtype; /* the key (torch.bfloat16, torch.float32) */
	uint32_t bucket_count;
	uint64_t *bucket_elements; /* unpadded, in order: per_bucket_numel_unpadded */
	uint64_t *bucket_padded;   /* with the padding at the end: per_bucket_numel */
	uint64_t elements;	   /* of all buckets, unpadded: numel_unpadded */
};

struct mfs_optim {
	struct mfs_optim_rules rules;
	struct mfs_optim_param *params; /* in the order of the list, which also has buffers */
	uint32_t count;
	struct mfs_optim_chain chain; /* of several optimizers: then the state is a list */
	struct mfs_optim_group *groups;
	/* of each optimizer, in groups */
	uint32_t group_count[MFS_OPTIM_CHAIN], first_group[MFS_OPTIM_CHAIN];
	struct mfs_optim_buffer *buffers; /* by optimizer, then index */
	uint32_t buffer_count;
	struct mfs_arena arena;
};

/*
 * rules NULL: the rules of the run that saved the checkpoint are used (mfs_optim_rules_of). dp:
 * data-parallel size of the dense parameters times context parallelism. expert_dp: the same for
 * experts. Both sizes decide the padding at buckets' ends and the default bucket size. If
 * rules.foreign_groups is set, the groups are not the run's own. -ENOTSUP: a setting that needs
 * another layout.
 */
int mfs_optim_new(const struct mfs_rank_list *list, const struct mfs_optim_rules *rules,
		  uint32_t dp, uint32_t expert_dp, struct mfs_optim **ret, struct mfs_error *err);
void mfs_optim_free(struct mfs_optim *o);

#endif
