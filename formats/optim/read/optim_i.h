/* Private to formats/optim/read: how an optimizer's tensors are read from a checkpoint. */
#ifndef MFS_OPTIM_READ_OPTIM_I_H
#define MFS_OPTIM_READ_OPTIM_I_H

#include "formats/ckpt/read/dist.h"
#include "formats/ckpt/read/ckpt_readers.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/optim/rules/settings.h"

/* ---- a checkpoint with its optimizer, of which mfs_ckpt_begin() has chosen the reader ---- */

#define MFS_OPTIM_OPEN_DECLARE(name, optim)                                                        \
	int mfs_optim_open_##optim(struct mfs_ckpt *ckpt, struct mfs_error *err);

MFS_CKPT_READERS(MFS_OPTIM_OPEN_DECLARE)

/* ---- readers of one form each; they add found chunks ---- */

/* Reads legacy files, the model included (legacy.c). */
int mfs_optim_read_legacy(struct mfs_ckpt *ckpt, enum mfs_optim_kind *ret, struct mfs_error *err);

/* Reads tensors that are named after the model's (dist_named.c). *ret is NONE if there are none.
 * With Muon others may have flat buffers. */
int mfs_optim_read_named(struct mfs_dist_reader *r, enum mfs_optim_kind *ret,
			 bool *ret_fully_reshardable);
/* True if there are some. */
bool mfs_optim_has_named(const struct mfs_dcp *dcp);
/* Adds one of these that is flattened. key: of the model. t->original: its shape before
 * flattening. */
int mfs_optim_add_flattened(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
			    const char *key, enum mfs_state state);

/* True if the index has flat buffers (optimizer.distributed.*), a tensor for each bucket
 * (dist_buckets.c). */
bool mfs_optim_has_buckets(const struct mfs_dcp *dcp);
/* Reads the buckets of all ranks of the layout that saved them. The model's tensors determine which
 * parameters lie in them. */
int mfs_optim_read_buckets(struct mfs_dist_reader *r);

/* The same for flat buffers that are pickled objects (dist_gathered.c). */
bool mfs_optim_has_gathered(const struct mfs_dcp *dcp);
int mfs_optim_read_gathered(struct mfs_dist_reader *r);

/* Reads what torch's own DCP has of an optimizer (plain_optim.c), whose state was made
 * (ckpt/read/plain.h). */
int mfs_optim_read_plain(struct mfs_dist_reader *r, enum mfs_optim_kind *ret);

/* Reads what is no tensor (kind, groups, step, grad scaler) for mfs_optim_info(). r NULL: legacy
 * files. */
int mfs_optim_read_settings(struct mfs_ckpt *ckpt, const struct mfs_dist_reader *r,
			    enum mfs_optim_kind kind, bool has_main, struct mfs_error *err);

/* ---- for all readers of flat buffers ---- */

/* A range of a rank's flattened parameter. Elements [first, first + count) begin at origin of
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

/* True if this rank's copy of a parameter is read. Other ranks may have equal copies. */
bool mfs_optim_represents(const struct mfs_rank_tensor *t);

/* A rank with flat buffers of one optimizer of a torch_dist save. The save names ranks by a
 * number. */
struct mfs_optim_holder {
	struct mfs_dist_reader *r;
	const struct mfs_rank_list *list;
	struct mfs_optim_rules rules;
	uint32_t dp, expert_dp;
	uint32_t optimizer;
	uint32_t group;	     /* dp_group_idx: pp * T + tp; experts: (pp * EP + ep) * ETP + etp */
	struct mfs_optim *o; /* NULL until mfs_optim_holder_build() */
};

/* Builds or rebuilds h->o. aligned: parameters begin at multiples of 64 elements. */
int mfs_optim_holder_build(struct mfs_optim_holder *h, bool aligned);
/* Calls read for each holder of the layout that the checkpoint was saved at; read builds h->o.
 * -ENOTSUP: the layout, or fused experts, are not supported. */
int mfs_optim_each_holder(struct mfs_dist_reader *r,
			  int (*read)(struct mfs_optim_holder *h, void *arg), void *arg);

/* ---- checks ---- */

/* Checks that every parameter has all elements of its states. *ret_main: the fp32 parameter is one
 * of these. -ENODATA, -EINVAL: the message names the tensor. */
int mfs_optim_check_whole(const struct mfs_ckpt *ckpt, bool *ret_main, struct mfs_error *err);
/* Compares some weights with their fp32 parameters. fully_reshardable saves of core 0.15 to 0.19
 * with several buckets are corrupt; flat: buffers may have another order of parameters than was
 * computed. -EINVAL: it is so. */
int mfs_optim_check_corrupt(struct mfs_ckpt *ckpt, bool flat, struct mfs_error *err);

#endif
