/* The CPU backend: threads of its own, and OpenBLAS for products. Operations run at once, in the
 * caller's thread and the device's. */
#ifndef MFK_REF_CPU_H
#define MFK_REF_CPU_H

#include "kernels/kernels.h"

extern const struct mfk_backend mfk_cpu;

/* What groups of processes are made of: libmcorefs-mpi.so at path. -ENOENT: there is no such file;
 * -ENODEV: it cannot be used here, and why says what is missing. It stays loaded. */
int mfk_mpi_load(const char *path, char *why);

#endif
