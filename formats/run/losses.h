/*
 * The training loss of a run, as files below its directory tell it: TensorBoard's event files, else
 * loss.csv (loss_table.h). They are looked for in the directory itself and in those where programs
 * put them. Links are not followed.
 */
#ifndef MFS_RUN_LOSSES_H
#define MFS_RUN_LOSSES_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/run/curve.h"

#define MFS_LOSSES_FILES 64	     /* that are read: the newest by their names */
#define MFS_LOSSES_BYTES (64u << 20) /* of all of these */

/* A hash of the names, sizes and times of what would be read. 0: there is nothing. */
uint64_t mfs_losses_stamp(const char *dir);
/* Adds the points of dir's tables; *ret is finished. A fault of one file is reported in note ("":
 * there is none), and its points before the fault count. -ENOMEM. */
int mfs_losses_read(const char *dir, struct mfs_curve *ret, struct mfs_error *note);

#endif
