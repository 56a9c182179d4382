/*
 * Rows of Arrow IPC streams and files (formats/text/table_rows.h; docs/formats/hf-datasets.md). A
 * piece of each buffer is in memory at a time; dictionaries are as a whole, and so are buffers that
 * are compressed (zstd), up to 1 GiB each.
 *
 * Columns are of strings, large strings and string views, dictionary-encoded or not. If any are
 * wanted: of integers, booleans and nulls, and lists and structs of all these.
 */
#ifndef MFS_TEXT_ARROW_TEXT_H
#define MFS_TEXT_ARROW_TEXT_H

#include "formats/text/table_rows.h"

extern const struct mfs_table_ops mfs_arrow_table;

#endif
