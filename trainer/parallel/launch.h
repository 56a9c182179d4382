/* Which of how many processes this one is, by what its launcher put into the environment. */
#ifndef MFT_TRAINER_PARALLEL_LAUNCH_H
#define MFT_TRAINER_PARALLEL_LAUNCH_H

#include <stdint.h>

#include "formats/base/error.h"

struct mft_launch {
	uint32_t rank, size;
	/* of the processes on this host; where nothing says it, all are */
	uint32_t local_rank, local_size;
	const char *by; /* "mpirun", "torchrun", "srun"; NULL: it is alone */
	char host[64];
};

/*
 * mpirun: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (Open MPI's documentation).
 * torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torch/distributed/run.py).
 * srun: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID; in a step alone, that is, with SLURM_STEP_ID.
 *
 * The first that is there counts. -EINVAL: a value that is no number, or a rank that is none.
 */
int mft_launch_find(struct mft_launch *ret, struct mfs_error *err);

/* How a process of several begins what it says of itself: "rank 3 on node7: "; of one: "". Returns
 * text. */
#define MFT_LAUNCH_WHO 96
const char *mft_launch_who(const struct mft_launch *launch, char text[MFT_LAUNCH_WHO]);

#endif
