#ifndef MFS_BASE_ARRAY_H
#define MFS_BASE_ARRAY_H

/* The number of elements of an array. gcc warns where it is a pointer (-Wsizeof-pointer-div). */
#define MFS_ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#endif
