#include "fs/gateway/call/session_cookie.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/base/str.h"
#include "fs/gateway/access/sessions.h"
#include "fs/gateway/call/gateway_address.h"

/* A browser takes the first name from nobody but this very host, by TLS (RFC 6265bis, 4.1.3). */
#define NAME_TLS   "__Host-mcorefs"
#define NAME_PLAIN "mcorefs"

static const char *cookie_name(const struct mfs_call *c)
{
	return mfs_call_is_tls(c) ? NAME_TLS : NAME_PLAIN;
}

/* The secrets that seal; NULL: there are none. mfs_secrets_forget() goes with them. */
static const struct mfs_secret_list *secrets_of(const struct mfs_call *c,
						struct mfs_secret_list *room)
{
	struct mfs_secrets *secrets = c->gateway->redirects.secrets;

	*room = (struct mfs_secret_list){0};
	if (!secrets)
		return NULL;
	mfs_secrets_now(secrets, room);
	return room;
}

/* The text of the request's cookie. False: it has none, or a longer one than any session. */
static bool find_text(const struct mfs_call *c, char text[MFS_SESSION_SIZE])
{
	const char *value;
	size_t len;

	if (!c->gateway->sessions ||
	    !mfs_cookie_find(mfs_request_header(c->request, "Cookie"), cookie_name(c), &value,
			     &len) ||
	    len >= MFS_SESSION_SIZE)
		return false;
	memcpy(text, value, len);
	text[len] = '\0';
	return true;
}

bool mfs_call_session(const struct mfs_call *c, uint8_t ret[MFS_TOKEN_SUM])
{
	char text[MFS_SESSION_SIZE];
	struct mfs_secret_list room;
	bool holds;

	if (!find_text(c, text))
		return false;
	holds = mfs_session_open(c->gateway->sessions, secrets_of(c, &room), time(NULL), text, ret);
	mfs_secrets_forget(&room);
	return holds;
}

static void set_cookie(struct mfs_call *c, const char *value, int seconds)
{
	mfs_reply_header(c->reply, "Set-Cookie",
			 "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax%s", cookie_name(c),
			 value, seconds, mfs_call_is_tls(c) ? "; Secure" : "");
}

void mfs_call_begin_session(struct mfs_call *c, const uint8_t sum[MFS_TOKEN_SUM])
{
	char text[MFS_SESSION_SIZE];
	struct mfs_secret_list room;

	if (mfs_session_begin(c->gateway->sessions, secrets_of(c, &room), time(NULL), sum, text))
		c->reply->failed = true;
	else
		set_cookie(c, text, MFS_SESSION_SECONDS);
	mfs_secrets_forget(&room);
}

void mfs_call_end_session(struct mfs_call *c)
{
	char text[MFS_SESSION_SIZE];
	struct mfs_secret_list room;

	if (find_text(c, text)) {
		mfs_session_end(c->gateway->sessions, secrets_of(c, &room), time(NULL), text);
		mfs_secrets_forget(&room);
	}
	set_cookie(c, "", 0);
}

/* What browsers say of a request's origin (Fetch Metadata, by TLS and on loopback), else Origin,
 * which they send with each POST (Fetch, 3.2). A proxy may speak TLS for us: schemes do not count.
 * Programs say neither, and have no cookies that they were not told to send. */
const char *mfs_call_other_site(const struct mfs_call *c)
{
	static const char other[] = "another site's page has sent this form";
	const char *site = mfs_request_header(c->request, "Sec-Fetch-Site");
	const char *origin = mfs_request_header(c->request, "Origin");
	const char *host = origin ? strstr(origin, "://") : NULL;

	if (site)
		return !strcmp(site, "same-origin") || !strcmp(site, "none") ? NULL : other;
	if (!origin || (host && mfs_str_is(mfs_call_host(c), host + 3)))
		return NULL;
	return host ? "another site's page has sent this form, or a proxy has changed Host: it is "
		      "to pass X-Forwarded-Host, and to be one of trusted_proxies"
		    : other;
}
