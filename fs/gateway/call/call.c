#include "fs/gateway/call/call.h"

#include <stdio.h>
#include <string.h>

#define ROUTE_NAME(route, name) name,
const char *const mfs_route_names[] = {MFS_ROUTES(ROUTE_NAME)};

bool mfs_call_allows(const struct mfs_call *c, enum mfs_repo_kind kind, const char *name)
{
	char what[MFS_REPO_NAME + 16], *view = NULL;

	snprintf(what, sizeof(what), "%s%s", kind == MFS_REPO_DATASET ? "datasets/" : "", name);
	for (char *at = what; (at = strstr(at, "__")); at++)
		view = at;
	if (view) /* who may read a repository may read all views of it */
		*view = '\0';
	return mfs_grant_allows(c->grant, what);
}

static void lock(const struct mfs_gateway *g)
{
	if (g->lock)
		pthread_mutex_lock(g->lock);
}

static void unlock(const struct mfs_gateway *g)
{
	if (g->lock)
		pthread_mutex_unlock(g->lock);
}

struct mfs_gateway mfs_gateway_now(struct mfs_gateway *g)
{
	struct mfs_gateway now;

	lock(g);
	now = *g;
	mfs_repos_share(now.repos);
	unlock(g);
	return now;
}

void mfs_gateway_replace(struct mfs_gateway *g, struct mfs_repos *repos, struct mfs_tokens *tokens,
			 const struct mfs_redirects *redirects, const struct mfs_proxies *proxies)
{
	struct mfs_repos *before;

	lock(g);
	before = g->repos;
	g->repos = repos;
	g->tokens = tokens;
	g->redirects = *redirects;
	g->proxies = proxies;
	unlock(g);
	mfs_repos_free(before);
}

bool mfs_gateway_is_crowded(const struct mfs_request *q, struct mfs_reply *a)
{
	const bool state = q->url.count == 1 && (!strcmp(q->url.parts[0], "healthz") ||
						 !strcmp(q->url.parts[0], "metrics"));

	if (!q->crowded || state)
		return false;
	mfs_reply_error(a, 503, "as many connections as there may be are being answered");
	mfs_reply_header(a, "Retry-After", "1");
	return true;
}
