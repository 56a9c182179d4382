/* `mcorefs verify` of datasets: their indices, and with --deep their tokens. */
#ifndef MFS_FS_VERIFY_DATA_H
#define MFS_FS_VERIFY_DATA_H

#include <jansson.h>
#include <stdbool.h>

struct mfs_data;
struct mfs_dataset;

/* Prints what is right on stdout, what is wrong on stderr; the value is the exit code. json: an
 * array to which an object for each dataset is appended, instead of printing on stdout; NULL:
 * none. */
int mfs_verify_dataset(const struct mfs_dataset *d, bool deep, json_t *json);
int mfs_verify_data(const struct mfs_data *data, bool deep, json_t *json);

#endif
