/* Datasets in `mcorefs inspect`, as a table and as JSON. Private to fs/inspect. */
#ifndef MFS_FS_INSPECT_INSPECT_DATA_H
#define MFS_FS_INSPECT_INSPECT_DATA_H

#include <jansson.h>

#include "fs/data/data.h"
#include "fs/cli/text.h"

/* data may be NULL: nothing is drawn. */
void mfs_inspect_data_rows(struct mfs_frame *frame, const struct mfs_data *data);
/* An array with an object for each dataset; [] for NULL, or without memory. */
json_t *mfs_inspect_data_json(const struct mfs_data *data);

#endif
