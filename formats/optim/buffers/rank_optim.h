/*
 * The optimizer's side of a rank: which parameters are in which optimizer and parameter group, and
 * where each lies in the distributed optimizer's flat buffers. Both follow from the order of the
 * rank's parameters (rank.h), the run's arguments and Megatron's release alone
 * (optim/rules/rules.h).
 *
 * Sources: megatron/core/optimizer/__init__.py: _get_param_groups, get_megatron_optimizer;
 * optimizer/distrib_optimizer.py and param_layout.py, distributed/param_and_grad_buffer.py,
 * distributed/distributed_data_parallel.py.
 */
#ifndef MFS_OPTIM_BUFFERS_RANK_OPTIM_H
#define MFS_OPTIM_BUFFERS_RANK_OPTIM_H

#include "formats/optim/rules/rules.h"
#include "formats/megatron/rank.h"

/* A parameter's place. */
struct mfs_optim_param {
	const struct mfs_rank_tensor *tensor;
	uint32_t optimizer; /* 0 dense, 1 experts (of a rank with two) */
	uint32_t group;	    /* of its optimizer */
	uint32_t index;	    /* in its group */
	uint32_t id;	    /* in the optimizer: torch numbers parameters group by group */
	uint32_t main; /* which of the group's 'fp32_from_fp16_params' it is; an fp32 one: none */
	bool has_main; /* a 16-bit parameter, of which the optimizer holds an fp32 copy */
	/* distributed optimizer */
	uint32_t buffer;       /* in mfs_optim.buffers */
	uint32_t bucket;       /* of the buffer */
	uint64_t start;	       /* elements from the buffer's start, bucket padding included */
	uint64_t in_bucket;    /* elements from the bucket's start */
	uint64_t in_coalesced; /* elements from the start without the padding at buckets' ends */
	uint64_t elements;
};

/* A parameter group. In files: wd_mult 1.0 or 0.0, is_decoupled_lr, is_expert_parallel. */
struct mfs_optim_group {
	uint32_t optimizer;
	bool decay, decoupled;
	uint32_t count; /* parameters of this rank in it: may be 0: ranks have each other's */
};

/* A flat buffer: one dtype of one chunk's parameters of one optimizer. */
struct mfs_optim_buffer {
	uint32_t optimizer;
	uint32_t index;				/* gbuf_idx: among its optimizer's */
	uint32_t chunk;				/* virtual */
	enum mfs_dtype param_dtype, grad_dtype; /* the key (torch.bfloat16, torch.float32) */
	uint32_t bucket_count;
	uint64_t *bucket_elements; /* unpadded, in order: per_bucket_numel_unpadded */
	uint64_t *bucket_padded;   /* likewise with the padding at the end: per_bucket_numel */
	uint64_t elements;	   /* of all buckets, unpadded: numel_unpadded */
};

struct mfs_optim {
	struct mfs_optim_rules rules;
	struct mfs_optim_param *params; /* the list's parameters (buffers left out), in its order */
	uint32_t count;
	uint32_t optimizers; /* 1, or 2: then the state is a list of two */
	struct mfs_optim_group *groups;
	uint32_t group_count[2], first_group[2]; /* of each optimizer, in groups */
	struct mfs_optim_buffer *buffers;	 /* by optimizer, then index */
	uint32_t buffer_count;
	struct mfs_arena arena;
};

/*
 * rules: NULL for those of the run that wrote the list's checkpoint (mfs_optim_rules_of). dp: size
 * of the dense parameters' data-parallel group times context parallelism; expert_dp: of the
 * experts'. They decide the padding at buckets' ends and the default bucket size. -ENOTSUP: a
 * setting that is not laid out here. Groups are not the run's own where rules.foreign_groups says
 * so.
 */
int mfs_optim_new(const struct mfs_rank_list *list, const struct mfs_optim_rules *rules,
		  uint32_t dp, uint32_t expert_dp, struct mfs_optim **ret, struct mfs_error *err);
void mfs_optim_free(struct mfs_optim *o);

#endif
