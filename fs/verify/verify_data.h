/* `mcorefs verify` for datasets: it checks indices, and with --deep all tokens. */
#ifndef MFS_FS_VERIFY_VERIFY_DATA_H
#define MFS_FS_VERIFY_VERIFY_DATA_H

#include <jansson.h>
#include <stdbool.h>

struct mfs_data;
struct mfs_dataset;

/* Prints what is right on stdout and problems on stderr; returns the exit code. json: an array that
 * gets an object for each dataset, in place of the text on stdout. NULL: text. */
int mfs_verify_dataset(const struct mfs_dataset *d, bool deep, json_t *json);
int mfs_verify_data(const struct mfs_data *data, bool deep, json_t *json);

#endif
