/* Where the process of rank 0 is to be found, by what the launcher put into the environment. */
#ifndef MFT_TRAINER_PARALLEL_MASTER_ADDRESS_H
#define MFT_TRAINER_PARALLEL_MASTER_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/parallel/launch.h"

struct mft_address {
	char host[256]; /* a name, or numbers */
	uint16_t port;
	uint64_t job; /* the same in the processes of one run, and another in other runs */
};

/*
 * Host: MASTER_ADDR; of srun the first of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST; 127.0.0.1 if
 * all processes are on this host. Rank 0 is there.
 *
 * Port: MCOREFS_PORT; or MASTER_PORT + 1, as torchrun's own store has MASTER_PORT; or a number made
 * of the job's name, 20000 to 29999. The job's name: TORCHELASTIC_RUN_ID, PMIX_NAMESPACE (Open
 * MPI's job), SLURM_JOB_ID and SLURM_STEP_ID.
 *
 * -EINVAL: nothing says the host, or a number is none.
 */
int mft_address_find(const struct mft_launch *launch, struct mft_address *ret,
		     struct mfs_error *err);

/* The first host of a list as Slurm writes it: "gpu[07-12,15],login", "a1,a2", "rack[1-2]n[0-3]".
 * -EINVAL: it is none. */
int mft_first_host(const char *list, char *ret, size_t size, struct mfs_error *err);

#endif
