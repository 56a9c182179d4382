/*
 * What processes send each other through TCP, in host memory: backends whose library has device
 * memory alone begin and count with it (kernels/kernels.h: struct mfk_host_net_ops).
 *
 * The process of rank 0 has a thread that all connect to. It puts together what the processes of a
 * group bring, and hears when one of them ends: all are told which one that was. Messages are
 * neither secret nor signed, as with torchrun's store: it is for a cluster's own network.
 *
 * One thread of a process brings values; any may look.
 */
#ifndef MFT_TRAINER_PARALLEL_HOSTNET_H
#define MFT_TRAINER_PARALLEL_HOSTNET_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/master_address.h"
#include "trainer/parallel/launch.h"

struct mft_hostnet;

/* Waits until all processes of the launch have come. -ETIMEDOUT: some have not within so many
 * seconds, and the message names their ranks; -EPROTO: rank 0 has refused this one, and says why.
 */
int mft_hostnet_open(const struct mft_address *at, const struct mft_launch *launch,
		     unsigned seconds, struct mft_hostnet **ret, struct mfs_error *err);
/* What has been agreed on is not needed any more. Rank 0 waits for all others to say so, as long as
 * it did in the beginning. -ETIMEDOUT: some have not, and the message names their ranks. */
int mft_hostnet_close(struct mft_hostnet *n, struct mfs_error *err);

struct mfk_host_net_ops *mft_hostnet_table(struct mft_hostnet *n);

#endif
