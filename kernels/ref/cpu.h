/* The CPU backend: threads of its own, and OpenBLAS for products. Operations run at once, in the
 * caller's thread and the device's. */
#ifndef MFK_REF_CPU_H
#define MFK_REF_CPU_H

#include "kernels/kernels.h"

extern const struct mfk_backend mfk_cpu;

#endif
