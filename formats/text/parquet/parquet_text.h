/*
 * Rows of Parquet files (formats/text/table_rows.h). A page of each column is in memory at a time,
 * and what its dictionary has.
 *
 * Columns are of byte arrays that are UTF-8, once in a row or missing (null), at the top of the
 * schema. If any are wanted: of integers and booleans, and lists and structs of all these. Pages of
 * version 1 and 2; PLAIN, dictionaries, DELTA_LENGTH_BYTE_ARRAY, RLE of booleans; uncompressed,
 * snappy, gzip and zstd.
 */
#ifndef MFS_TEXT_PARQUET_TEXT_H
#define MFS_TEXT_PARQUET_TEXT_H

#include "formats/text/table_rows.h"

extern const struct mfs_table_ops mfs_parquet_table;

#endif
