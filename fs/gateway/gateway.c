#include "fs/gateway/gateway.h"

#include "formats/base/clock.h"
#include "fs/gateway/access_log.h"
#include "fs/gateway/call/session_cookie.h"
#include "fs/gateway/hub/hub.h"
#include "fs/gateway/s3/s3.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/gateway/web/web.h"

#define PROTOCOLS 8 /* of a listener, with the NULL that ends them */

/* The first that claims a path has it: the Hub's claims all that begins with a name. */
static const struct mfs_protocol *const protocols[MFS_LISTENERS][PROTOCOLS] = {
	[MFS_LISTENER_WEB] = {&mfs_protocol_status, &mfs_protocol_home, &mfs_protocol_sign,
			      &mfs_protocol_files, &mfs_protocol_repo, &mfs_protocol_hub},
	[MFS_LISTENER_S3] = {&mfs_protocol_s3},
};

static const struct mfs_protocol *find_protocol(enum mfs_listener listener,
						const struct mfs_request *q)
{
	const struct mfs_protocol *const *p = protocols[listener];

	while (*p && !(*p)->claims(q))
		p++;
	return *p;
}

/* Who says who he is by a header is not looked at for a cookie. */
static struct mfs_grant grant_of(const struct mfs_call *c)
{
	struct mfs_tokens *tokens = c->gateway->tokens;
	const char *authorization = mfs_request_header(c->request, "Authorization");
	uint8_t sum[MFS_TOKEN_SUM];
	struct mfs_grant grant;

	if (c->protocol && c->protocol->identify)
		return mfs_tokens_hold(tokens);
	if (authorization || !c->protocol || !c->protocol->is_web || !mfs_call_session(c, sum))
		return mfs_tokens_grant(tokens, authorization, c->reply->who,
					sizeof(c->reply->who));
	grant = mfs_tokens_grant_sum(tokens, sum, c->reply->who, sizeof(c->reply->who));
	grant.session = grant.known;
	return grant;
}

static void answer(struct mfs_call *c, struct mfs_grant *grant)
{
	const struct mfs_protocol *p = c->protocol;
	const struct mfs_request *q = c->request;
	const bool identifies = p && p->identify;
	struct mfs_reply *a = c->reply;

	a->route = mfs_route_names[identifies ? p->route : MFS_ROUTE_NONE];
	if (mfs_gateway_is_crowded(q, a) || (identifies && !p->identify(c, grant)))
		return;
	if (q->method == MFS_METHOD_OTHER && !identifies) {
		mfs_reply_error(a, 405, "%s is not a method here", q->method_name);
		mfs_reply_header(a, "Allow", "GET, HEAD, POST");
	} else if (p) {
		a->route = mfs_route_names[p->route];
		p->answer(c);
	} else {
		a->route = NULL;
		mfs_reply_error(a, 404, "there is nothing here");
	}
}

void mfs_gateway_answer(struct mfs_gateway *gateway, enum mfs_listener listener,
			const struct mfs_request *q, struct mfs_reply *a)
{
	struct mfs_gateway now = mfs_gateway_now(gateway), *g = &now;
	struct mfs_call call = {
		.gateway = g, .request = q, .reply = a, .protocol = find_protocol(listener, q)};
	struct mfs_grant grant = grant_of(&call);

	call.grant = &grant;
	mfs_proxies_client(g->proxies, q->client, q->forwarded, a->from, sizeof(a->from));
	answer(&call, &grant);
	(call.protocol && call.protocol->dress ? call.protocol->dress
					       : mfs_web_dress_refusal)(&call);
	mfs_grant_drop(g->tokens, &grant);
	mfs_repos_free(g->repos);
}

void mfs_gateway_done(struct mfs_gateway *g, const struct mfs_request *q, const struct mfs_reply *a,
		      uint64_t sent, bool whole)
{
	mfs_gateway_count(g->stats, a->route, a->status, whole, sent,
			  (uint64_t)(mfs_now_ns() - q->began_ns));
	if (g->access_log >= 0)
		mfs_access_log(g, q, a, sent, whole);
}
