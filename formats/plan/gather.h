/* Private to formats/plan: adds ranges of mapped source bytes to a gather (vfile.h). */
#ifndef MFS_PLAN_GATHER_H
#define MFS_PLAN_GATHER_H

#include "formats/plan/vfile.h"

/* Adds len bytes at p, which points into a mapping. Long ranges are referenced, short ones copied.
 * A copy touches the mapping, so the caller must be under mfs_guard_run(). */
void mfs_gather_add(struct mfs_gather *g, const uint8_t *p, size_t len);

/* Adds len bytes of zeros. */
void mfs_gather_zeros(struct mfs_gather *g, uint64_t len);

/* Adds len bytes and returns where they lie; the caller fills them now. */
uint8_t *mfs_gather_room(struct mfs_gather *g, size_t len);

#endif
