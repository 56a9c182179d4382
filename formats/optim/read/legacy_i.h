/* Private to legacy*.c: the optimizer in the files of a legacy save, rank by rank. */
#ifndef MFS_OPTIM_READ_LEGACY_I_H
#define MFS_OPTIM_READ_LEGACY_I_H

#include "formats/ckpt/read/torch.h"
#include "formats/optim/rules/optim_chain.h"
#include "formats/optim/rules/optim_rules.h"
#include "formats/optim/rules/settings.h"

struct mfs_legacy_optim {
	enum mfs_optim_kind kind; /* of the first rank; the others must agree */
	struct mfs_optim_rules rules;
	bool *dense_done;  /* [pp * tp]: the flat buffers were found */
	bool *expert_done; /* [pp * ep * etp] */
};

/* Reads the optimizers of a rank that keep a tensor for each parameter. value: of the state dict;
 * count: optimizers in it. */
int mfs_legacy_read_float16(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, const struct mfs_torch_source *a,
			    mfs_value optimizer, uint32_t count);
/* Reads the flat buffers in a rank's distrib_optim.pt. count: optimizers in the rank's state. A
 * missing file is no failure, since another rank has the same buffers. */
int mfs_legacy_read_distrib(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, uint32_t count);

#endif
