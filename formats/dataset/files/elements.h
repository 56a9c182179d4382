/*
 * Arrays of numbers that somebody computes, as bytes of a file: any range of them, whole elements or not.
 */
#ifndef MFS_DATASET_FILES_ELEMENTS_H
#define MFS_DATASET_FILES_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/plan/vfile.h"

struct mfs_elements {
	unsigned size; /* bytes of an element, at most 8 */
	/* Elements [first, first+count), count > 0, which the array has, into memory that is aligned for them. Any
	 * thread. -ESTALE if what they are made of has changed. */
	int (*get)(const void *object, uint64_t first, uint64_t count, void *ret,
		   struct mfs_error *err);
	const void *object;
};

/* Bytes [off, off+len) of the array. No element is asked for that has no byte there. */
int mfs_elements_read(const struct mfs_elements *e, uint64_t off, void *buf, size_t len,
		      struct mfs_error *err);

/* Computed parts (vfile.h) of an object that is a struct mfs_elements. */
extern const struct mfs_computed mfs_elements_computed;

#endif
