/* Private to formats/optim/read: how an optimizer's tensors are read from a checkpoint. */
#ifndef MFS_OPTIM_READ_OPTIM_I_H
#define MFS_OPTIM_READ_OPTIM_I_H

#include "formats/ckpt/read/dist.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/optim/rules/settings.h"

/* ---- readers, each of one form; they add found chunks ---- */

/* Legacy files (legacy.c): reads the model with them. */
int mfs_optim_read_legacy(struct mfs_ckpt *ckpt, enum mfs_optim_kind *ret, struct mfs_error *err);

/* Tensors that are named after the model's (dist_named.c); *ret is NONE if there are none. */
int mfs_optim_read_named(struct mfs_dist_reader *r, enum mfs_optim_kind *ret,
			 bool *ret_fully_reshardable);
/* One of them that is flattened: of the model's key, t->original is its shape. */
int mfs_optim_add_flattened(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
			    const char *key, enum mfs_state state);

/* True if the index has flat buffers (optimizer.distributed.*), a tensor for each bucket
 * (dist_buckets.c). */
bool mfs_optim_has_buckets(const struct mfs_dcp *dcp);
/* Reads those of all ranks of the layout that saved them. The model's tensors say what lies in
 * them. */
int mfs_optim_read_buckets(struct mfs_dist_reader *r);

/* Likewise for flat buffers that are pickled objects (dist_gathered.c). */
bool mfs_optim_has_gathered(const struct mfs_dcp *dcp);
int mfs_optim_read_gathered(struct mfs_dist_reader *r);

/* The rest: kind, groups, step, grad scaler become mfs_optim_info(). r: NULL of legacy files. */
int mfs_optim_read_settings(struct mfs_ckpt *ckpt, const struct mfs_dist_reader *r,
			    enum mfs_optim_kind kind, bool has_main, struct mfs_error *err);

/* ---- what readers of flat buffers share ---- */

/* A range of a rank's flattened parameter: elements [first, first + count) lie at origin of
 * storage. */
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

/* A rank that holds flat buffers of one optimizer of a torch_dist save, which names ranks by a
 * number. */
struct mfs_optim_holder {
	struct mfs_dist_reader *r;
	const struct mfs_rank_list *list;
	struct mfs_optim_rules rules;
	uint32_t dp, expert_dp;
	uint32_t optimizer;
	uint32_t group;	     /* dp_group_idx: pp * T + tp; of experts (pp * EP + ep) * ETP + etp */
	struct mfs_optim *o; /* once built */
};

/* Builds h->o (again). aligned: parameters begin at multiples of 64 elements. */
int mfs_optim_holder_build(struct mfs_optim_holder *h, bool aligned);
/* Calls read, which builds, for each holder of the layout that the checkpoint was saved at.
 * -ENOTSUP: a layout or fused experts that cannot be followed. */
int mfs_optim_each_holder(struct mfs_dist_reader *r,
			  int (*read)(struct mfs_optim_holder *h, void *arg), void *arg);

/* ---- checks ---- */

/* Every parameter has its states, whole; ret_main: fp32 among them. -ENODATA, -EINVAL: which has
 * not. */
int mfs_optim_check_whole(const struct mfs_ckpt *ckpt, bool *ret_main, struct mfs_error *err);
/* fully_reshardable saves of core 0.15 to 0.19 with several buckets are wrong: -EINVAL for one. */
int mfs_optim_check_corrupt(struct mfs_ckpt *ckpt, struct mfs_error *err);

#endif
