/* Private to formats/plan: adding stretches of mapped source bytes to a gather (vfile.h). */
#ifndef MFS_PLAN_GATHER_H
#define MFS_PLAN_GATHER_H

#include "formats/plan/vfile.h"

/* len bytes at p, which point into a mapping: referenced if long, copied if short. Copies
 * dereference the mapping, so this is to be called under mfs_guard_run(). */
void mfs_gather_add(struct mfs_gather *g, const uint8_t *p, size_t len);

/* len bytes of zeros. */
void mfs_gather_zeros(struct mfs_gather *g, uint64_t len);

/* Room for len bytes that the caller fills now; they follow what was gathered before. */
uint8_t *mfs_gather_room(struct mfs_gather *g, size_t len);

#endif
