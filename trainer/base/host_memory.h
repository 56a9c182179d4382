/*
 * How much memory of the host a process may still take.
 *
 * Sources: proc(5): /proc/meminfo; cgroups(7); the kernel's admin-guide/cgroup-v2.rst (memory.max,
 * memory.current, memory.stat) and cgroup-v1/memory.rst (memory.limit_in_bytes,
 * memory.usage_in_bytes).
 */
#ifndef MFT_TRAINER_BASE_HOST_MEMORY_H
#define MFT_TRAINER_BASE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes: what the kernel says is available, or less where a cgroup of the process (version 1 or 2,
 * or one above it) has a limit. Page cache that nobody works with counts as free. 0: nobody knows.
 * root: a directory in which /proc and /sys are; "" for the machine's. */
uint64_t mft_host_memory_free(const char *root);

#endif
