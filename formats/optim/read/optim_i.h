/* Private to formats/megatron: how an optimizer's tensors are read from a checkpoint. */
#ifndef MFS_OPTIM_READ_OPTIM_I_H
#define MFS_OPTIM_READ_OPTIM_I_H

#include "formats/ckpt/read/dist_i.h"
#include "formats/optim/buffers/optim.h"

/* A parameter that the optimizer knows: not a buffer, of a floating type. */
bool mfs_optim_is_param(const struct mfs_global_tensor *t);

/* A range of a rank's flattened parameter: elements [first, first + count) lie at origin of storage. */
struct mfs_optim_range {
	const struct mfs_rank_tensor *tensor;
	enum mfs_state state;
	enum mfs_dtype dtype;
	uint32_t storage;
	uint64_t origin;
	uint64_t first, count;
};
int mfs_optim_add_range(struct mfs_ckpt *ckpt, const struct mfs_optim_range *range,
			struct mfs_error *err);

/* Whether a rank's copy of a parameter is the one to be read, of several that are alike. */
bool mfs_optim_represents(const struct mfs_rank_tensor *t);

/* A rank that holds flat buffers of one optimizer of a torch_dist save, which names ranks by a number. */
struct mfs_optim_holder {
	struct mfs_ckpt *ckpt;
	const struct mfs_rank_list *list;
	struct mfs_optim_rules rules;
	uint32_t dp, expert_dp;
	uint32_t optimizer;
	uint32_t group;	     /* dp_group_idx: pp * T + tp; of experts (pp * EP + ep) * ETP + etp */
	struct mfs_optim *o; /* once built */
	struct mfs_error *err;
};

/* Builds h->o (again). aligned: parameters begin at multiples of 64 elements. */
int mfs_optim_holder_build(struct mfs_optim_holder *h, bool aligned);
/* Calls read, which builds, for each holder of the layout that the checkpoint was saved at. -ENOTSUP: a
 * layout or fused experts that cannot be followed. */
int mfs_optim_each_holder(struct mfs_ckpt *ckpt, int (*read)(struct mfs_optim_holder *h, void *arg),
			  void *arg, struct mfs_error *err);

/* True if the index has flat buffers (optimizer.distributed.*). */
bool mfs_optim_has_buckets(const struct mfs_dcp *dcp);
/* Reads those of all ranks of the layout that saved them: adds pieces. */
int mfs_optim_read_buckets(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Likewise for flat buffers that are pickled objects. */
bool mfs_optim_has_param_state(const struct mfs_dcp *dcp);
int mfs_optim_read_param_state(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Every parameter has its states, whole; ret_main: fp32 among them. -ENODATA, -EINVAL: which has not. */
int mfs_optim_check(const struct mfs_ckpt *ckpt, bool *ret_main, struct mfs_error *err);
/* fully_reshardable saves of core 0.15 to 0.19 with several buckets are wrong: -EINVAL for one. */
int mfs_optim_check_param(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Fills ckpt->optim_info. */
int mfs_optim_read_info(struct mfs_ckpt *ckpt, enum mfs_optim_kind kind, bool has_main,
			struct mfs_error *err);

#endif
