#include "fs/gateway/call/gateway_address.h"

#include <string.h>

#include "formats/base/str.h"
#include "fs/http/http_server.h"

static bool is_host(const char *text)
{
	static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789.-_:[]";

	return text && *text && strspn(text, chars) == strlen(text);
}

static const char *named_by_proxy(const struct mfs_call *c, const char *header)
{
	return mfs_proxies_trust(c->gateway->proxies, c->request->client)
		       ? mfs_request_header(c->request, header)
		       : NULL;
}

bool mfs_call_is_tls(const struct mfs_call *c)
{
	const struct mfs_http *http = c->gateway->http;
	const char *scheme = named_by_proxy(c, "X-Forwarded-Proto");

	if (mfs_str_is(scheme, "http") || mfs_str_is(scheme, "https"))
		return !strcmp(scheme, "https");
	return http && !strncmp(mfs_http_address(http), "https:", 6);
}

const char *mfs_call_host(const struct mfs_call *c)
{
	const char *host = named_by_proxy(c, "X-Forwarded-Host");

	if (!is_host(host))
		host = mfs_request_header(c->request, "Host");
	return is_host(host) ? host : NULL;
}

void mfs_call_add_address(const struct mfs_call *c, struct mfs_buf *b)
{
	const char *host = mfs_call_host(c);

	if (host)
		mfs_buf_printf(b, "%s://%s", mfs_call_is_tls(c) ? "https" : "http", host);
}
