#include "fs/gateway/gateway.h"

#include "formats/base/clock.h"
#include "fs/gateway/access_log.h"
#include "fs/gateway/call/session.h"
#include "fs/gateway/hub/hub.h"
#include "fs/gateway/web/metrics.h"
#include "fs/gateway/web/web.h"

/* The first that claims a path has it: the Hub's claims all that begins with a name. */
static const struct mfs_protocol *const protocols[] = {
	&mfs_protocol_status, &mfs_protocol_home, &mfs_protocol_sign,
	&mfs_protocol_files,  &mfs_protocol_repo, &mfs_protocol_hub,
};

static const struct mfs_protocol *find_protocol(const struct mfs_request *q)
{
	for (size_t i = 0; i < sizeof(protocols) / sizeof(*protocols); i++)
		if (protocols[i]->claims(q))
			return protocols[i];
	return NULL;
}

/* Who says who he is by a header is not looked at for a cookie. */
static struct mfs_grant grant_of(const struct mfs_call *c)
{
	struct mfs_tokens *tokens = c->gateway->tokens;
	const char *authorization = mfs_request_header(c->request, "Authorization");
	uint8_t sum[MFS_TOKEN_SUM];
	struct mfs_grant grant;

	if (authorization || !c->protocol || !c->protocol->is_web || !mfs_call_session(c, sum))
		return mfs_tokens_grant(tokens, authorization, c->reply->who,
					sizeof(c->reply->who));
	grant = mfs_tokens_grant_sum(tokens, sum, c->reply->who, sizeof(c->reply->who));
	grant.session = grant.known;
	return grant;
}

static void answer(struct mfs_call *c)
{
	const struct mfs_request *q = c->request;
	struct mfs_reply *a = c->reply;

	a->route = "none";
	if (mfs_gateway_is_crowded(q, a))
		return;
	if (q->method == MFS_METHOD_OTHER) {
		mfs_reply_error(a, 405, "%s is not a method here", q->method_name);
		mfs_reply_header(a, "Allow", "GET, HEAD, POST");
	} else if (c->protocol) {
		a->route = c->protocol->name;
		c->protocol->answer(c);
	} else {
		a->route = NULL;
		mfs_reply_error(a, 404, "there is nothing here");
	}
}

void mfs_gateway_answer(void *arg, const struct mfs_request *q, struct mfs_reply *a)
{
	struct mfs_gateway now = mfs_gateway_now(arg), *g = &now;
	struct mfs_call call = {
		.gateway = g, .request = q, .reply = a, .protocol = find_protocol(q)};
	struct mfs_grant grant = grant_of(&call);

	call.grant = &grant;
	mfs_proxies_client(g->proxies, q->client, q->forwarded, a->from, sizeof(a->from));
	answer(&call);
	mfs_web_dress_refusal(&call);
	mfs_grant_drop(g->tokens, &grant);
	mfs_repos_free(g->repos);
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
