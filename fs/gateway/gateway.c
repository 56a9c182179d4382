#include "fs/gateway/gateway.h"

#include "formats/base/clock.h"
#include "fs/gateway/access_log.h"
#include "fs/gateway/hub/hub.h"
#include "fs/gateway/web/metrics.h"
#include "fs/gateway/web/web.h"

/* The first that claims a path has it: the Hub's claims all that begins with a name. */
static const struct mfs_protocol *const protocols[] = {
	&mfs_protocol_status,
	&mfs_protocol_files,
	&mfs_protocol_hub,
};

void mfs_gateway_answer(void *arg, const struct mfs_request *q, struct mfs_reply *a)
{
	struct mfs_gateway now = mfs_gateway_now(arg), *g = &now;
	struct mfs_grant grant = mfs_tokens_grant(g->tokens, mfs_request_header(q, "Authorization"),
						  a->who, sizeof(a->who));
	struct mfs_call call = {.gateway = g, .request = q, .grant = &grant, .reply = a};

	mfs_proxies_client(g->proxies, q->client, q->forwarded, a->from, sizeof(a->from));
	if (mfs_gateway_is_crowded(q, a)) {
		a->route = "none";
	} else if (q->method == MFS_METHOD_OTHER) {
		mfs_reply_error(a, 405, "%s is not a method here", q->method_name);
		mfs_reply_header(a, "Allow", "GET, HEAD, POST");
		a->route = "none";
	}
	for (size_t i = 0; !a->route && i < sizeof(protocols) / sizeof(*protocols); i++) {
		if (!protocols[i]->claims(q))
			continue;
		a->route = protocols[i]->name;
		protocols[i]->answer(&call);
	}
	mfs_grant_drop(g->tokens, &grant);
	mfs_repos_free(g->repos);
	if (!a->route)
		mfs_reply_error(a, 404, "there is nothing here");
}

void mfs_gateway_done(void *arg, const struct mfs_request *q, const struct mfs_reply *a,
		      uint64_t sent, bool whole)
{
	struct mfs_gateway *g = arg;

	mfs_gateway_count(g->stats, a->route, a->status, whole, sent,
			  (uint64_t)(mfs_now_ns() - q->began_ns));
	if (g->access_log >= 0)
		mfs_access_log(g, q, a, sent, whole);
}
