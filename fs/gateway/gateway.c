#define _GNU_SOURCE
#include "fs/gateway/gateway.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "fs/cli/log.h"
#include "fs/gateway/metrics.h"

/* The first that claims a path has it: the Hub's claims all that begins with a name. */
static const struct mfs_protocol *const protocols[] = {
	&mfs_protocol_status,
	&mfs_protocol_files,
	&mfs_protocol_hub,
};

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

#define AGAIN 60000000000ll /* ns after which one sentence is logged again */

/* The access log has the reason of each reply; here a sentence stands once a minute. */
static void log_failure(const char *sentence)
{
	static _Atomic uint64_t last;
	static _Atomic int64_t when;
	const uint64_t hash = mfs_hash(sentence, strlen(sentence));
	const int64_t now = mfs_now_ns();

	if (atomic_exchange(&last, hash) == hash && now - atomic_load(&when) < AGAIN)
		return;
	atomic_store(&when, now);
	mfs_log(LOG_ERR, "%s", sentence);
}

/* The length of a path or URL that begins here, up to where the sentence goes on; 0: neither. */
static size_t place_length(const char *text, char before)
{
	const bool quoted = before == '\'' || before == '"';
	const char quote[] = {before, '\0'};
	const size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");
	const bool url = scheme && !strncmp(text + scheme, "://", 3);
	size_t len;

	if (!strchr(" '\"(=,", before) || (*text != '/' && !url))
		return 0;
	len = strcspn(text, quoted ? quote : url ? " '\"()," : " '\"(),:;");
	while (!quoted && len && strchr(":;", text[len - 1]))
		len--;
	return len;
}

void mfs_hide_directories(char *text)
{
	char before = ' ', *to = text;

	for (const char *from = text; *from;) {
		const size_t len = place_length(from, before);
		const char *last = len ? memrchr(from, '/', len) : NULL;

		if (last && last + 1 < from + len)
			from = last + 1;
		before = *from;
		*to++ = *from++;
	}
	*to = '\0';
}

void mfs_reply_unlisted(struct mfs_reply *a, int rc)
{
	struct mfs_error err;

	mfs_error_set(&err, rc, "a directory of repositories cannot be listed: %s", strerror(-rc));
	mfs_reply_failure(a, rc, &err);
}

void mfs_reply_failure(struct mfs_reply *a, int rc, const struct mfs_error *err)
{
	const bool passes = rc == -ESTALE || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE ||
			    rc == -EAGAIN || rc == -ETIMEDOUT;
	char text[sizeof(err->msg)];

	memcpy(text, err->msg, sizeof(text));
	mfs_hide_directories(text);
	mfs_reply_error(a, passes ? 503 : 500, "%s", text);
	if (passes)
		mfs_reply_header(a, "Retry-After", "1");
	log_failure(err->msg);
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
