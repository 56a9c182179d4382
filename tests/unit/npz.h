/* What tests need of numpy's .npz files: the elements of one array, inflated. */
#ifndef MFS_TESTS_UNIT_NPZ_H
#define MFS_TESTS_UNIT_NPZ_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/base/bytes.h"
#include "tests/unit/npy_file.h"
#include "tests/unit/unit.h"

/* The entry of the central directory that has the name; its fields are in APPNOTE 4.3.12. */
static inline const uint8_t *npz_entry(const uint8_t *zip, size_t len, const char *name)
{
	const size_t n = strlen(name);

	for (size_t i = 0; i + 46 + n <= len; i++)
		if (mfs_le32(zip + i) == 0x02014b50 && mfs_le16(zip + i + 28) == n &&
		    !memcmp(zip + i + 46, name, n))
			return zip + i;
	ck_abort_msg("no %s", name);
	return NULL;
}

/* The .npy file NAME of an archive, to be freed. */
static inline uint8_t *npz_member(const char *path, const char *name, size_t *ret_len)
{
	size_t len;
	uint8_t *zip = unit_slurp(path, &len);
	const uint8_t *entry = npz_entry(zip, len, name);
	const uint8_t *local = zip + mfs_le32(entry + 42);
	const uint8_t *data = local + 30 + mfs_le16(local + 26) + mfs_le16(local + 28);
	const uint32_t size = mfs_le32(entry + 24);
	uint8_t *to = malloc(size);
	z_stream z = {.next_in = (uint8_t *)data,
		      .avail_in = mfs_le32(entry + 20),
		      .next_out = to,
		      .avail_out = size};

	ck_assert_uint_eq(mfs_le16(entry + 10), 8); /* deflated */
	ck_assert_int_eq(inflateInit2(&z, -MAX_WBITS), Z_OK);
	ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
	ck_assert_uint_eq(z.total_out, size);
	inflateEnd(&z);
	free(zip);
	*ret_len = size;
	return to;
}

#endif
