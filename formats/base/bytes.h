/* Little-endian loads from unaligned memory, and checked arithmetic on sizes and offsets. */
#ifndef MFS_BASE_BYTES_H
#define MFS_BASE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t mfs_le16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t mfs_le32(const void *p)
{
	const uint8_t *b = p;

	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t mfs_le64(const void *p)
{
	return mfs_le32(p) | (uint64_t)mfs_le32((const uint8_t *)p + 4) << 32;
}

static inline void mfs_put_le32(void *p, uint32_t v)
{
	uint8_t *b = p;

	for (int i = 0; i < 4; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

static inline void mfs_put_le64(void *p, uint64_t v)
{
	uint8_t *b = p;

	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

/* True on overflow, like the builtins; the result is written either way. */
static inline bool mfs_add_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_add_overflow(a, b, ret);
}

static inline bool mfs_mul_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_mul_overflow(a, b, ret);
}

/* True if [off, off+len) lies inside [0, size). */
static inline bool mfs_range_ok(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

static inline uint64_t mfs_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t mfs_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The least multiple that is not less than v. The caller knows that it is no overflow. */
static inline uint64_t mfs_round_up(uint64_t v, uint64_t multiple)
{
	return (v + multiple - 1) / multiple * multiple;
}

#endif
