/*
 * A table of a run as text: CSV with the names of columns in its first line. One column says the
 * iteration ("iteration", "step", "global_step"), one the training loss ("lm loss", "lm_loss",
 * "train_loss", "train/loss", "loss"). Other columns are passed over.
 */
#ifndef MFS_RUN_LOSS_TABLE_H
#define MFS_RUN_LOSS_TABLE_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/run/curve.h"

#define MFS_LOSS_TABLE_BYTES (16u << 20)

/* Adds a text's rows. Lines without both numbers (a run that was cut, rows of validation) are
 * passed over. -EINVAL: there are no such columns, or a NUL is in it; -ENOMEM. */
int mfs_loss_table_read(const char *name, const char *text, size_t len, struct mfs_curve *ret,
			struct mfs_error *err);

/* How well known a name, of len bytes, is as a name of the training loss: the lower, the better.
 * -1: no run gives the loss that name. */
int mfs_loss_rank(const char *name, size_t len);
#define MFS_LOSS_NAMES 8 /* numbers of these are below */

#endif
