#include "trainer/config/dests.h"

#include <stddef.h>

const char *mft_dest_name(enum mft_dest dest)
{
	static const char *const names[] = {
		NULL,
#define DEST(name, dest) dest,
#include "flag_dests.h"
#undef DEST
	};

	return names[dest];
}
