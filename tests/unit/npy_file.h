/* What tests need of numpy's .npy files: a header of 128 bytes, as numpy has written it, and the
 * elements after it. */
#ifndef MFS_TESTS_UNIT_NPY_FILE_H
#define MFS_TESTS_UNIT_NPY_FILE_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NPY_HEADER 128

/* The elements, of the type "<i4", and the length of their first axis. */
static inline void *npy_elements(uint8_t *bytes, size_t len, const char *type, uint64_t *ret_rows)
{
	char found[8];
	unsigned long long rows;

	ck_assert_uint_gt(len, NPY_HEADER);
	ck_assert_int_eq(sscanf((char *)bytes + 10,
				"{'descr': '%3[^']', 'fortran_order': False, 'shape': (%llu,",
				found, &rows),
			 2);
	ck_assert_str_eq(found, type);
	*ret_rows = rows;
	return bytes + NPY_HEADER;
}

#endif
