/* Private to legacy*.c: the optimizer in the files of a legacy save, rank by rank. */
#ifndef MFS_OPTIM_READ_LEGACY_I_H
#define MFS_OPTIM_READ_LEGACY_I_H

#include "formats/ckpt/read/torch.h"
#include "formats/optim/rules/rules.h"
#include "formats/optim/rules/settings.h"

struct mfs_legacy_optim {
	enum mfs_optim_kind kind; /* of the first rank; the others must agree */
	struct mfs_optim_rules rules;
	bool *dense_done;  /* [pp * tp]: whose flat buffers have been found */
	bool *expert_done; /* [pp * ep * etp] */
};

/* One optimizer of a rank, which keeps a tensor for each parameter. part: 0 all parameters; 1 those
 * of no expert, 2 the experts' (a chain). */
int mfs_legacy_read_float16(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, const struct mfs_torch_source *a,
			    mfs_value one, int part);
/* The flat buffers in a rank's distrib_optim.pt; of the chain's optimizers there are count in the
 * rank's state. Success without the file: another rank's has the same. */
int mfs_legacy_read_distrib(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, uint32_t count);

#endif
