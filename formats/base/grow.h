/*
 * Arrays that grow by one element at a time. Their room is stored nowhere, because it follows from
 * the number of elements: whenever that is a power of two, the room doubles.
 *
 *	if (mfs_grow(&list->items, list->count))
 *		return mfs_fail_nomem(err);
 *	list->items[list->count++] = item;
 *
 * The array begins as NULL, nothing else allocates it, and free() ends it. Elements may be taken
 * off its end again. In a stack, where that happens all the time, count must be the most elements
 * that there have been.
 */
#ifndef MFS_BASE_GROW_H
#define MFS_BASE_GROW_H

#include <stddef.h>

#define MFS_GROW_FIRST 4

/* Makes room for element `count` of *array. -ENOMEM, and the array as it was: there is no memory,
 * or count cannot grow. */
#define mfs_grow(array, count)                                                                     \
	mfs_grow_array((array), (count), (__typeof__(count))-1, sizeof(**(array)))

/* array is the address of a pointer of any type, most the largest number that its count can be. */
int mfs_grow_double(void *array, size_t count, size_t most, size_t size);

static inline int mfs_grow_array(void *array, size_t count, size_t most, size_t size)
{
	if (count & (count - 1) || (count && count < MFS_GROW_FIRST))
		return 0;
	return mfs_grow_double(array, count, most, size);
}

#endif
