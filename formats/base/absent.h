/*
 * Values that are absent: an argument that was not given or is None, a field that a file leaves
 * out. Pointers are NULL then.
 */
#ifndef MFS_BASE_ABSENT_H
#define MFS_BASE_ABSENT_H

#include <stdint.h>

#define MFS_ABSENT     (-1)	  /* of a number that is 0 or more otherwise */
#define MFS_ABSENT_U64 UINT64_MAX /* of an unsigned one */

#endif
