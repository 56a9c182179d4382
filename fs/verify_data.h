/* `mcorefs verify` of datasets: their indices, and with --deep their tokens. */
#ifndef MFS_FS_VERIFY_DATA_H
#define MFS_FS_VERIFY_DATA_H

#include <stdbool.h>

struct mfs_data;
struct mfs_dataset;

/* Prints what is right on stdout, what is wrong on stderr; the value is the exit code. */
int mfs_verify_dataset(const struct mfs_dataset *d, bool deep);
int mfs_verify_data(const struct mfs_data *data, bool deep);

#endif
