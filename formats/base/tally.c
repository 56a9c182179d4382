#include "formats/base/tally.h"

#include <stdatomic.h>

#define SHARDS 16 /* threads that share one are rare */

static _Alignas(64) struct shard {
	_Alignas(64) _Atomic uint64_t cells[MFS_TALLIES];
} shards[SHARDS];

/* Threads are dealt over the shards in the order of their first event. */
static struct shard *own(void)
{
	static _Thread_local struct shard *mine;
	static atomic_uint next;

	if (!mine)
		mine = &shards[atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SHARDS];
	return mine;
}

void mfs_tally_add(enum mfs_tally of, uint64_t n)
{
	atomic_fetch_add_explicit(&own()->cells[of], n, memory_order_relaxed);
}

uint64_t mfs_tally_sum(enum mfs_tally of)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < SHARDS; i++)
		n += atomic_load_explicit(&shards[i].cells[of], memory_order_relaxed);
	return n;
}
