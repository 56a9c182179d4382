#include "trainer/config/settle/dests_i.h"

#include <stddef.h>

const char *mft_settle_name(enum dest dest)
{
	static const char *const names[] = {
		NULL,
#define DEST(name, dest) dest,
#include "flag_dests.h"
#undef DEST
	};

	return names[dest];
}
