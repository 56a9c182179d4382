/* Private to legacy*.c: the optimizer in the files of a legacy save, rank by rank. */
#ifndef MFS_OPTIM_READ_LEGACY_I_H
#define MFS_OPTIM_READ_LEGACY_I_H

#include "formats/ckpt/read/torch.h"
#include "formats/optim/buffers/layer_wise.h"
#include "formats/optim/rules/optim_chain.h"
#include "formats/optim/rules/optim_rules.h"
#include "formats/optim/rules/settings.h"

struct mfs_legacy_optim {
	enum mfs_optim_kind kind; /* of the first rank; the others must agree */
	struct mfs_optim_rules rules;
	bool *dense_done;  /* [pp * tp]: the flat buffers were found */
	bool *expert_done; /* [pp * ep * etp] */
};

/* ---- readers ---- */

/* Where optimizers are. */
struct mfs_legacy_source {
	const struct mfs_torch_rank *rank;
	const struct mfs_torch_source *model; /* its parameters */
	const struct mfs_torch_source *optim; /* the archive of the optimizers */
	mfs_value optimizer;		      /* of that archive: one, or a chain */
	uint32_t count;			      /* optimizers in it */
	const struct mfs_layer_share *share;  /* NULL: it has all parameters of the rank */
};

/* Reads optimizers that keep a tensor for each parameter. */
int mfs_legacy_read_float16(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_legacy_source *source);
/* Reads layer_wise_optimizer_N.pt of a directory. -ENODATA: some are missing; -ENOENT:
 * all are, and there is no message. */
int mfs_legacy_read_layer_wise(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			       const struct mfs_torch_rank *rank,
			       const struct mfs_torch_source *model);
/* Reads the flat buffers in a rank's distrib_optim.pt. count: optimizers in the rank's state. A
 * missing file is no failure, since another rank has the same buffers. */
int mfs_legacy_read_distrib(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, uint32_t count);

#endif
