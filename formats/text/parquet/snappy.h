/* Snappy's raw format (google/snappy: format_description.txt), unpacked. */
#ifndef MFS_TEXT_PARQUET_SNAPPY_H
#define MFS_TEXT_PARQUET_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Unpacks all of in into out. False: it is damaged, or is not exactly out_len bytes. */
bool mfs_snappy_unpack(const uint8_t *in, size_t len, uint8_t *out, size_t out_len);

#endif
