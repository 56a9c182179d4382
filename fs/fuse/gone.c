#include "fs/fuse/gone.h"

#include <poll.h>
#include <stdlib.h>

#include "formats/base/clock.h"
#include "fs/tree/tree.h"

#define MOST	 64	    /* names at once */
#define PATIENCE 1000000000 /* ns for all of them */

/* False: it has ended, or takes too long. */
static bool ask_for(struct mfs_gone *g, const char *path, int64_t until)
{
	struct pollfd p = {.fd = g->fetcher.fd, .events = POLLIN};
	const int64_t left = until - mfs_now_ns();
	int result;

	if (left <= 0 || mfs_fetcher_send(&g->fetcher, path, 0, 1))
		return false;
	g->asked = true;
	if (poll(&p, 1, (int)(left / 1000000)) <= 0 || mfs_fetcher_result(&g->fetcher, &result))
		return false;
	g->asked = false;
	return true;
}

/* True: the fetcher can be asked. */
static bool begin(struct mfs_gone *g, const char *mountpoint, dev_t dev)
{
	int result;

	if (g->kept) { /* it may still be at what was asked for the last time */
		g->asked = g->asked && mfs_fetcher_result(&g->fetcher, &result);
		return !g->asked;
	}
	g->leaving = !mfs_fetcher_start(mountpoint, dev, &g->fetcher);
	g->asked = false;
	return g->leaving;
}

void mfs_gone_forget(struct mfs_gone *g, struct mfs_tree *tree, const char *mountpoint, dev_t dev)
{
	const int64_t until = mfs_now_ns() + PATIENCE;
	char *paths[MOST];
	unsigned count;
	bool goes_on;

	if (g->leaving && !mfs_fetcher_reap(&g->fetcher, false))
		return;
	g->leaving = false;
	count = mfs_tree_gone(tree, paths, MOST);
	goes_on = count && begin(g, mountpoint, dev);
	for (unsigned i = 0; i < count; i++) {
		goes_on = goes_on && ask_for(g, paths[i], until);
		free(paths[i]);
	}
	if (g->leaving)
		mfs_fetcher_stop(&g->fetcher);
}

int mfs_gone_keep(struct mfs_gone *g, const char *mountpoint, dev_t dev)
{
	int rc = mfs_fetcher_start(mountpoint, dev, &g->fetcher);

	g->kept = !rc;
	return rc;
}

void mfs_gone_end(struct mfs_gone *g)
{
	if (!g->kept)
		return;
	mfs_fetcher_stop(&g->fetcher);
	mfs_fetcher_reap(&g->fetcher, true);
	g->kept = false;
}
