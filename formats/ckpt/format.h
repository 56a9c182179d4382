/* What the files of a checkpoint are, for code that does not read them. The file of each reader has
 * a row, and no other list has names of formats. */
#ifndef MFS_CKPT_FORMAT_H
#define MFS_CKPT_FORMAT_H

#include <stdbool.h>

#include "formats/torch/pickle.h"

struct mfs_ckpt_format {
	const char *name;  /* in tables, JSON and metrics: "torch_dist", "dcp" */
	const char *title; /* in a run's log: "torch_dist", "torch.distributed.checkpoint" */
	/* An HF directory (model/hf_ckpt.h): no run has written it, so it has no arguments, no
	 * optimizer and no random states. */
	bool is_hf;
	/* What torch.distributed.checkpoint saves on its own: there are no flat buffers, and the
	 * model's tensors may be the fp32 main parameters. */
	bool is_plain;
	/* The list of a rank's random states in the document that holds it (rng.h). NULL: no
	 * reader finds random states there. */
	mfs_value (*rng_list)(const struct mfs_pickle *doc);
};

#endif
