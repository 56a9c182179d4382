/*
 * Arrays of computed numbers as bytes of a file. A range of bytes need not begin or end with an
 * element.
 */
#ifndef MFS_DATASET_FILES_ELEMENTS_H
#define MFS_DATASET_FILES_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/plan/vfile.h"

struct mfs_elements {
	unsigned size; /* bytes of an element, at most 8 */
	/* Elements [first, first+count) of the array, count > 0, into memory that is aligned for
	 * them. Any thread may call it. -ESTALE: what they are made of has changed. */
	int (*get)(const void *object, uint64_t first, uint64_t count, void *ret,
		   struct mfs_error *err);
	const void *object;
};

/* Bytes [off, off+len) of the array. Only elements that have a byte there are asked for. */
int mfs_elements_read(const struct mfs_elements *e, uint64_t off, void *buf, size_t len,
		      struct mfs_error *err);

/* What makes a struct mfs_elements an object of computed parts (vfile.h). */
extern const struct mfs_computed_ops mfs_elements_computed;

#endif
