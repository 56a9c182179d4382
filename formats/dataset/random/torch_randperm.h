/*
 * torch.randperm on the CPU, to the bit (ATen/native/TensorFactories.cpp: randperm_cpu; its
 * generator is MT19937, seeded with init_genrand as numpy's is, ATen/core/MT19937RNGEngine.h).
 */
#ifndef MFS_DATASET_RANDOM_TORCH_RANDPERM_H
#define MFS_DATASET_RANDOM_TORCH_RANDPERM_H

#include <stdint.h>

/* torch.randperm(count, generator=torch.Generator().manual_seed(seed)); count < 2^32. */
void mfs_torch_randperm(uint32_t seed, uint32_t *ret, uint32_t count);

#endif
