/* Which device a run uses: --backend, or a GPU if there are any, or the CPU. */
#ifndef MFT_TRAINER_LOOP_DEVICE_H
#define MFT_TRAINER_LOOP_DEVICE_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"

/* The file name of the CUDA backend. It is looked for in the program's directory, and in
 * lib/mcorefs of the prefix that the program is installed in; MCOREFS_CUDA names another file. */
#define MFT_CUDA_FILE "libmcorefs-cuda.so"

/* The file name of the plugin through which CPU processes communicate. It is looked for like the
 * CUDA backend. */
#define MFT_MPI_FILE "libmcorefs-mpi.so"

/* Processors are divided among a host's processes. The GPU is --device, or the only one that
 * CUDA_VISIBLE_DEVICES leaves, or the one that has the process's number on its host. -ENODEV:
 * --backend cuda, and it cannot be used here; the message says why. Without --backend the CPU is
 * used then, unless others of several processes may have a GPU. */
int mft_device_choose(const struct mft_train_config *config, const struct mft_launch *launch,
		      const struct mfk_backend **ret, struct mfk_device **ret_device,
		      struct mfs_error *err);
/* -ENODEV: a run has products of 8 bits, and its GPU has not. */
int mft_device_check(const struct mft_train_config *config, const struct mfk_device_info *info,
		     struct mfs_error *err);

#endif
