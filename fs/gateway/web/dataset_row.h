/* The part of a dataset's page that shows one of its rows, as text where there is a tokenizer. */
#ifndef MFS_FS_GATEWAY_WEB_DATASET_ROW_H
#define MFS_FS_GATEWAY_WEB_DATASET_ROW_H

#include "fs/gateway/call/call.h"

/* Adds the row that the page's address asks for, "?row=12", or the first one, and ways to others.
 * name: of the dataset, which the client may read. */
void mfs_page_add_row(struct mfs_call *c, const char *name);

#endif
