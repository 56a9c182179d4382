/* CRC-32C (Castagnoli): the polynomial 0x1EDC6F41, bits from the lowest on (RFC 3720, B.4). */
#ifndef MFS_BASE_CRC32C_H
#define MFS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t mfs_crc32c(const void *bytes, size_t len);
/* As records of event files and of TFRecord have it: turned, and with a number added
 * (tensorboard/summary/writer/record_writer.py: masked_crc32c). */
uint32_t mfs_crc32c_masked(const void *bytes, size_t len);

#endif
