#include "formats/base/grow.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int mfs_grow_double(void *array, size_t count, size_t most, size_t size)
{
	void *old, *grown;
	size_t bytes;

	if (count > most / 2 ||
	    __builtin_mul_overflow(count ? 2 * count : MFS_GROW_FIRST, size, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return -ENOMEM;
	/* Copied, since a pointer of another type must not be read as a void *. */
	memcpy(&old, array, sizeof(old));
	grown = realloc(old, bytes);
	if (!grown)
		return -ENOMEM;
	memcpy(array, &grown, sizeof(grown));
	return 0;
}
