#include "formats/plan/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

#define SLACK 64 /* whole elements around a range that begins and ends inside one (plan_read.c) */

int mfs_gather_init(struct mfs_gather *g, size_t max_bytes, unsigned max_iov)
{
	*g = (struct mfs_gather){.capacity = max_iov, .scratch_size = max_bytes};
	g->iov = calloc(max_iov, sizeof(*g->iov));
	g->scratch = malloc(max_bytes + SLACK);
	if (!g->iov || !g->scratch) {
		mfs_gather_release(g);
		return -ENOMEM;
	}
	return 0;
}

void mfs_gather_reset(struct mfs_gather *g)
{
	mfs_present_drop(&g->present);
	g->count = 0;
	g->scratch_used = 0;
	g->bytes = 0;
}

void mfs_gather_release(struct mfs_gather *g)
{
	mfs_present_release(&g->present);
	free(g->iov);
	free(g->scratch);
	*g = (struct mfs_gather){0};
}

/* Extends the last iovec if p continues it; else begins another. */
static void append(struct mfs_gather *g, const uint8_t *p, size_t len)
{
	struct iovec *last = g->count ? &g->iov[g->count - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += len;
	else
		g->iov[g->count++] = (struct iovec){(void *)(uintptr_t)p, len};
	g->bytes += len;
}

uint8_t *mfs_gather_room(struct mfs_gather *g, size_t len)
{
	uint8_t *room = g->scratch + g->scratch_used;

	g->scratch_used += len;
	append(g, room, len);
	return room;
}

void mfs_gather_add(struct mfs_gather *g, const uint8_t *p, size_t len)
{
	/* The last iovec is kept for scratch, so that a request of many ranges never runs out. */
	if (len >= MFS_GATHER_COPY && g->count + 1 < g->capacity)
		append(g, p, len);
	else
		memcpy(mfs_gather_room(g, len), p, len);
}

#define ZEROS (1u << 16) /* bytes of one iovec */

static const uint8_t zeros[ZEROS];

void mfs_gather_zeros(struct mfs_gather *g, uint64_t len)
{
	for (uint64_t n; len; len -= n) {
		n = mfs_min_u64(ZEROS, len);
		mfs_gather_add(g, zeros, n);
	}
}
