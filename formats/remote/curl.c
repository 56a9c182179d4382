#define _GNU_SOURCE
#include "formats/remote/curl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <curl/curl.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/net/special.h"
#include "formats/remote/credentials.h"
#include "formats/remote/refusal.h"

#define SECOND	  1000000000ll
#define REDIRECTS 5
/* A server that sends slower than this stands still. curl looks at the mean of five seconds, so it
 * is for those who send a little now and then; of those who send nothing we keep the time. */
#define SLOWEST 1024 /* bytes a second */

/* Addresses of a host that are kept: those that were tried last. */
#define OWN 8

struct mfs_curl {
	CURL *curl;
	struct mfs_curl_options opt;
	struct sockaddr_storage own[OWN]; /* where it went without a redirect, or a proxy is */
	unsigned own_count;
};

/* One attempt. */
struct attempt {
	struct mfs_curl *h;
	struct mfs_curl_request *r;
	struct mfs_headers headers;
	bool begun;
	bool stalled, late;
	int64_t heard; /* when the server has last accepted or sent anything; 0: not yet */
	size_t got;
	char refusal[1024]; /* the beginning of the body of an error */
	int rc;		    /* of begin() and bytes() */
	struct mfs_error *err;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode init_result;

static void init(void)
{
	init_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool is_stopped(const struct mfs_curl *h)
{
	return h->opt.stop && atomic_load_explicit(h->opt.stop, memory_order_relaxed);
}

int mfs_curl_new(const struct mfs_curl_options *opt, struct mfs_curl **ret, struct mfs_error *err)
{
	struct mfs_curl *h;

	pthread_once(&once, init);
	if (init_result)
		return mfs_fail(
			err, -ENOTSUP,
			"URLs cannot be read: libcurl.so.4 is not installed, or does not start");
	h = calloc(1, sizeof(*h));
	if (h)
		h->curl = curl_easy_init();
	if (!h || !h->curl) {
		free(h);
		return mfs_fail_nomem(err);
	}
	h->opt = *opt;
	if (!h->opt.timeout)
		h->opt.timeout = MFS_CURL_TIMEOUT;
	*ret = h;
	return 0;
}

void mfs_curl_free(struct mfs_curl *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->curl);
	free(h);
}

/* ---- what curl calls ---- */

static size_t take_header(char *line, size_t one, size_t len, void *arg)
{
	struct attempt *a = arg;

	a->heard = mfs_now_ns();
	mfs_headers_line(&a->headers, line, one * len);
	return one * len;
}

static bool is_good(const struct mfs_headers *h)
{
	return h->status >= 200 && h->status < 300;
}

static int begin(struct attempt *a)
{
	a->begun = true;
	return a->r->begin ? a->r->begin(a->r->arg, &a->headers, a->err) : 0;
}

static void take_refusal(struct attempt *a, const char *bytes, size_t len)
{
	const size_t room = sizeof(a->refusal) - mfs_min_u64(a->got, sizeof(a->refusal));

	memcpy(a->refusal + sizeof(a->refusal) - room, bytes, mfs_min_u64(len, room));
}

/* The body of an error is not for the caller: it is read and dropped, as far as it is short. */
static size_t take_bytes(char *bytes, size_t one, size_t n, void *arg)
{
	struct attempt *a = arg;
	const size_t len = one * n;

	a->heard = mfs_now_ns();
	if (!is_good(&a->headers))
		take_refusal(a, bytes, len);
	a->got += len;
	if (!is_good(&a->headers))
		return a->got > 65536 ? 0 : len;
	if (!a->begun)
		a->rc = begin(a);
	if (!a->rc && a->r->most && a->got > a->r->most)
		a->rc = mfs_fail(a->err, -EFBIG, "%s: longer than %zu bytes", a->r->url,
				 a->r->most);
	if (!a->rc && a->r->bytes)
		a->rc = a->r->bytes(a->r->arg, (const uint8_t *)bytes, len, a->err);
	return a->rc ? 0 : len;
}

static bool is_own(const struct mfs_curl *h, const struct sockaddr *address)
{
	for (unsigned i = 0; i < OWN && i < h->own_count; i++)
		if (mfs_address_is_same((const struct sockaddr *)&h->own[i], address))
			return true;
	return false;
}

/* Of what is named by the operator, any address will do. A server that leads on may not reach what
 * only this machine can. It is asked of the address itself: names may lead anywhere. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
	struct attempt *a = arg;
	struct mfs_curl *h = a->h;
	char text[MFS_ADDRESS_TEXT];

	(void)purpose;
	if (!a->headers.status && to->addrlen <= sizeof(*h->own)) {
		if (!is_own(h, &to->addr))
			memcpy(&h->own[h->own_count++ % OWN], &to->addr, to->addrlen);
	} else if (!h->opt.private_redirects && mfs_address_is_special(&to->addr) &&
		   !is_own(h, &to->addr)) {
		mfs_address_host(&to->addr, text);
		a->rc = mfs_fail(a->err, -EPERM,
				 "%.*s: a redirect leads to %s, which is this machine or in a "
				 "private network (-o private_redirects follows it)",
				 (int)strcspn(a->r->url, "?"), a->r->url, text);
		return CURL_SOCKET_BAD;
	}
	return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* It is connected, and sends the request. */
static int start_clock(void *arg, char *to, char *from, int to_port, int from_port)
{
	struct attempt *a = arg;

	(void)to, (void)from, (void)to_port, (void)from_port;
	a->heard = mfs_now_ns();
	return CURL_PREREQFUNC_OK;
}

/* Called once a second at least. What is not 0 ends the attempt. */
static int look_at_clock(void *arg, curl_off_t b, curl_off_t c, curl_off_t d, curl_off_t e)
{
	struct attempt *a = arg;

	(void)b, (void)c, (void)d, (void)e;
	a->stalled = a->heard && mfs_now_ns() - a->heard > a->h->opt.timeout * SECOND;
	a->late = a->h->opt.until && mfs_now_ns() > a->h->opt.until;
	return a->stalled || a->late || is_stopped(a->h);
}

/* ---- one attempt ---- */

static bool append(struct curl_slist **list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (longer)
		*list = longer;
	return longer;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
	struct mfs_buf line = {0};
	bool ok;

	mfs_buf_printf(&line, "%s: %s", name, value);
	ok = !line.failed && append(list, line.data);
	if (line.data)
		explicit_bzero(line.data, line.len); /* it may be a token */
	mfs_buf_release(&line);
	return ok;
}

/* Of the token; false: no memory. */
static bool add_bearer(struct curl_slist **list, const char *token)
{
	struct mfs_buf value = {0};
	bool ok;

	mfs_buf_printf(&value, "Bearer %s", token);
	ok = !value.failed && add_header(list, "Authorization", value.data);
	if (value.data)
		explicit_bzero(value.data, value.len);
	mfs_buf_release(&value);
	return ok;
}

static bool add_headers(const struct mfs_curl *h, const struct mfs_curl_request *r,
			struct curl_slist **list)
{
	bool ok = append(list, "Accept-Encoding: identity");

	if (ok && r->if_match)
		ok = add_header(list, "If-Match", r->if_match);
	if (ok && r->if_unmodified)
		ok = add_header(list, "If-Unmodified-Since", r->if_unmodified);
	for (unsigned i = 0; ok && i < 4 && r->headers[i]; i++)
		ok = append(list, r->headers[i]);
	return ok && (!h->opt.token || add_bearer(list, h->opt.token));
}

static bool is_https(const char *url)
{
	return !strncmp(url, "https:", 6);
}

static void set_up(struct mfs_curl *h, struct attempt *a, struct curl_slist *list, char *why)
{
	const struct mfs_curl_request *r = a->r;
	const char *bundle = getenv("CURL_CA_BUNDLE");
	CURL *c = h->curl;
	char range[64];

	curl_easy_reset(c); /* connections stay open */
	curl_easy_setopt(c, CURLOPT_URL, r->url);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "mcorefs");
	curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
	/* A redirect never leads from https to where everybody can listen, nor to another scheme.
	 * */
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, is_https(r->url) ? "https" : "http,https");
	/* What is signed is signed for one host. */
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, h->opt.credentials ? 0L : 1L);
	curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)h->opt.timeout);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST);
	/* Later than ours, which says more: the two are looked at in one moment. */
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)h->opt.timeout + 1);
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L << 10);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, a);
	curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, start_clock);
	curl_easy_setopt(c, CURLOPT_PREREQDATA, a);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, look_at_clock);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, a);
	if (bundle && *bundle)
		curl_easy_setopt(c, CURLOPT_CAINFO, bundle);
	if (r->method && !strcmp(r->method, "HEAD"))
		curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
	else if (r->method)
		curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
	if (!r->has_range)
		return;
	snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)r->first,
		 (unsigned long long)r->last);
	curl_easy_setopt(c, CURLOPT_RANGE, range);
}

/* A URL for messages: after '?' there may be a signature. */
static int shown(const char *url)
{
	return (int)strcspn(url, "?");
}

#define URL(r) shown((r)->url), (r)->url

/* " (access denied: SignatureDoesNotMatch)", as far as it is known. */
static void say_why(const struct attempt *a, int rc, char ret[128])
{
	const char *kind = rc == -ENOENT ? "not found" : rc == -EACCES ? "access denied" : "";
	const bool unsigned_s3 = a->h->opt.region && !a->h->opt.credentials;
	char code[MFS_REFUSAL];

	mfs_refusal_read(a->refusal, mfs_min_u64(a->got, sizeof(a->refusal)), code);
	*ret = '\0';
	if (*kind || *code)
		snprintf(ret, 128, " (%s%s%s%s)", kind, *kind && *code ? ": " : "", code,
			 rc == -EACCES && unsigned_s3
				 ? "; no keys were found, so nothing was signed"
				 : "");
}

static int by_status(const struct attempt *a, struct mfs_error *err)
{
	const unsigned status = a->headers.status;
	const int rc = status == 404 || status == 410	? -ENOENT
		       : status == 401 || status == 403 ? -EACCES
		       : status == 412			? -ESTALE
							: -EIO;
	char why[128];

	if (rc == -ESTALE)
		return mfs_fail(err, rc, "%.*s: changed on the server since it was listed (412)",
				URL(a->r));
	if (*a->headers.region && (status == 301 || status == 400 || status == 307))
		return mfs_fail(err, rc, "%.*s: the bucket lies in region %s (set AWS_REGION)",
				URL(a->r), a->headers.region);
	say_why(a, rc, why);
	return mfs_fail(err, rc, "%.*s: the server answers %u%s", URL(a->r), status, why);
}

/* curl has no other word for a header that is too long for it (before 8.6 at least). */
static bool has_long_header(const struct attempt *a, CURLcode code)
{
	curl_off_t first_byte = 0;

	curl_easy_getinfo(a->h->curl, CURLINFO_STARTTRANSFER_TIME_T, &first_byte);
	return code == CURLE_OUT_OF_MEMORY && first_byte && !a->begun;
}

static int by_curl(const struct attempt *a, CURLcode code, const char *why, struct mfs_error *err)
{
	if (a->late)
		return mfs_fail(err, -ETIMEDOUT, "%.*s: there was no more time for it", URL(a->r));
	if (has_long_header(a, code))
		return mfs_fail(err, -EIO, "%.*s: the answer has a header that is too long",
				URL(a->r));
	if (a->stalled)
		return mfs_fail(err, -ETIMEDOUT, "%.*s: the server has sent nothing for %u s",
				URL(a->r), a->h->opt.timeout);
	if (code == CURLE_OPERATION_TIMEDOUT)
		return mfs_fail(err, -ETIMEDOUT, "%.*s: the server does not answer in time (%s)",
				URL(a->r), *why ? why : curl_easy_strerror(code));
	if (code == CURLE_OUT_OF_MEMORY)
		return mfs_fail_nomem(err);
	return mfs_fail(err, -EIO, "%.*s: %s", URL(a->r), *why ? why : curl_easy_strerror(code));
}

/* What may be better the next time. */
static bool passes(CURLcode code, const struct attempt *a)
{
	const unsigned status = a->headers.status;

	if (a->rc)
		return false;
	if (a->late)
		return false;
	if (a->stalled)
		return true;
	switch (code) {
	case CURLE_OK:
	case CURLE_WRITE_ERROR: /* the body of an error was too long to be read over */
		return status == 408 || status == 429 || status == 500 || status == 502 ||
		       status == 503 || status == 504;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_PARTIAL_FILE:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
	case CURLE_WEIRD_SERVER_REPLY:
		return true;
	default:
		return false;
	}
}

static int attempt(struct mfs_curl *h, struct attempt *a, bool *ret_passes, struct mfs_error *err)
{
	char why[CURL_ERROR_SIZE] = "";
	struct curl_slist *list = NULL;
	CURLcode code;
	int rc = 0;

	*ret_passes = false;
	if (h->opt.credentials) {
		rc = mfs_credentials_sign(h->opt.credentials, h->opt.region, a->r, add_header,
					  &list, err);
	}
	if (!rc && !add_headers(h, a->r, &list))
		rc = mfs_fail_nomem(err);
	if (!rc) {
		set_up(h, a, list, why);
		code = curl_easy_perform(h->curl);
		if (code == CURLE_OK && is_good(&a->headers) && !a->begun)
			a->rc = begin(a); /* no body */
		*ret_passes = passes(code, a);
		if (a->rc)
			rc = a->rc;
		else if (a->headers.status && !is_good(&a->headers) &&
			 (code == CURLE_OK || code == CURLE_WRITE_ERROR))
			rc = by_status(a, err);
		else if (code != CURLE_OK)
			rc = by_curl(a, code, why, err);
	}
	curl_slist_free_all(list);
	return rc;
}

/* ---- attempts ---- */

static void nap(const struct mfs_curl *h, int64_t ns)
{
	const int64_t end = mfs_now_ns() + ns;

	while (mfs_now_ns() < end && !is_stopped(h)) {
		const struct timespec little = {0, 20000000};

		nanosleep(&little, NULL);
	}
}

/* 0.1 s, 0.2 s, ... 5 s, give or take a half, so that many who failed at once do not come back at
 * once; or what the server has asked for. */
static int64_t pause_before(unsigned tried, const struct mfs_headers *h)
{
	const unsigned doubled = tried < 6 ? 100u << tried : 5000;
	const int64_t ms = doubled / 2 + (unsigned)(mfs_now_ns() / 1000) % doubled;

	return h->retry_after ? h->retry_after * SECOND : ms * 1000000;
}

int mfs_curl_do(struct mfs_curl *h, struct mfs_curl_request *r, struct mfs_headers *ret,
		struct mfs_error *err)
{
	int64_t until = mfs_now_ns() + 2 * h->opt.timeout * SECOND;
	struct mfs_error own;
	int rc;

	for (unsigned tried = 0;; tried++) {
		struct attempt a = {.h = h, .r = r, .err = err ? err : &own};
		int64_t wait, rest;
		bool again;

		rc = attempt(h, &a, &again, a.err);
		if (ret)
			*ret = a.headers;
		if (!rc || !again || is_stopped(h))
			return rc;
		if (r->again && r->again(r->arg, r)) {
			until = mfs_now_ns() + 2 * h->opt.timeout * SECOND;
			tried = 0;
		}
		if (h->opt.until && mfs_now_ns() > h->opt.until)
			return rc;
		wait = pause_before(tried, &a.headers);
		rest = until - mfs_now_ns();
		if (rest <= 0 || a.headers.retry_after * SECOND >= rest)
			return rc;
		nap(h, wait < rest ? wait : rest); /* the last attempt begins when the time is up */
	}
}

/* ---- a body in memory ---- */

static int begin_body(void *arg, const struct mfs_headers *h, struct mfs_error *err)
{
	struct mfs_buf *b = arg;

	(void)err;
	(void)h;
	b->len = 0;
	return 0;
}

static int add_to_body(void *arg, const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_buf *b = arg;

	mfs_buf_add(b, bytes, len);
	return b->failed ? mfs_fail_nomem(err) : 0;
}

int mfs_curl_body(struct mfs_curl *h, struct mfs_curl_request *r, struct mfs_buf *ret,
		  struct mfs_headers *headers, struct mfs_error *err)
{
	r->begin = begin_body;
	r->bytes = add_to_body;
	r->arg = ret;
	ret->len = 0;
	mfs_buf_adds(ret, "");
	return ret->failed ? mfs_fail_nomem(err) : mfs_curl_do(h, r, headers, err);
}

int mfs_curl_get(struct mfs_curl *h, const char *url, size_t most, char **ret, size_t *ret_len,
		 struct mfs_headers *headers, struct mfs_error *err)
{
	struct mfs_curl_request r = {.url = url, .most = most};
	struct mfs_buf b = {0};
	int rc = mfs_curl_body(h, &r, &b, headers, err);

	if (rc) {
		mfs_buf_release(&b);
		return rc;
	}
	*ret = b.data;
	*ret_len = b.len;
	return 0;
}
