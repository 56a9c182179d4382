#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "fs/http/mhd_i.h"

static const char *get_header(const struct mfs_request *q, const char *name)
{
	return q->headers ? MHD_lookup_connection_value((struct MHD_Connection *)q->headers,
							MHD_HEADER_KIND, name)
			  : NULL;
}

/* The library would make a list of the query's pairs, in memory of which a request has little, and
 * loses the request when there is none. They are read by url.h, so it gets an empty query. The
 * bytes are in the library's own buffer, which it writes to itself. */
static void hide_pairs(const char *target)
{
	char *query = strchr(target, '?');

	if (query)
		query[1] = '\0';
}

/* Headers follow, so the request's method is not known yet. target NULL: there is none. NULL: no
 * memory, which mfs_exchange_handle() meets. */
void *mfs_exchange_begin(void *arg, const char *target, struct MHD_Connection *mhd)
{
	struct mfs_peer *peer =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	struct mfs_exchange *x = peer ? calloc(1, sizeof(*x)) : NULL;

	if (!x)
		return NULL;
	mfs_exchange_forget(peer);
	x->http = arg;
	x->peer = peer;
	x->request.headers = mhd;
	x->request.header = get_header;
	x->request.began_ns = mfs_now_ns();
	x->request.target = x->target = strdup(target ? target : "");
	if (!x->target) {
		free(x);
		return NULL;
	}
	x->raw = target;
	x->raw_len = strlen(x->target);
	mfs_address_text(
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr,
		x->request.client, sizeof(x->request.client));
	if (target)
		hide_pairs(target);
	peer->exchange = x;
	return x;
}

static void set_due(const struct mfs_exchange *x, unsigned seconds)
{
	mfs_connection_due(&x->peer->connection, seconds);
}

/* From here on the connection is none that may be closed to make room. */
static void answer(struct mfs_exchange *x)
{
	struct mfs_http *http = x->http;

	x->request.crowded = mfs_deadlines_answers(&http->deadlines, &x->peer->connection,
						   http->config.limits.connections);
	http->config.answer(http->config.arg, &x->request, &x->reply);
}

static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct mfs_exchange *x = arg;
	ssize_t n;

	set_due(x, 0); /* a slow disk is not the client's fault */
	n = x->reply.stream->read(x->reply.object, pos, buf, max);
	if (n <= 0)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	x->sent += (uint64_t)n;
	set_due(x, x->http->stall_seconds);
	return n;
}

static struct MHD_Response *make_response(struct mfs_exchange *x)
{
	struct mfs_reply *a = &x->reply;

	if (a->stream)
		return MHD_create_response_from_callback(
			a->length, mfs_min_u64(a->length + !a->length, MFS_HTTP_BLOCK), read_stream,
			x, NULL);
	return MHD_create_response_from_buffer(a->text.len, a->text.data, MHD_RESPMEM_PERSISTENT);
}

/* The text of a reply lives until the exchange ends, which is after the last byte. */
static enum MHD_Result queue(struct mfs_exchange *x, struct MHD_Connection *mhd)
{
	struct mfs_reply *a = &x->reply;
	struct MHD_Response *response;
	enum MHD_Result result;

	if (a->failed || a->text.failed)
		mfs_reply_error(a, 500, "out of memory");
	response = make_response(x);
	if (!response)
		return MHD_NO;
	for (unsigned i = 0; i < a->header_count; i++)
		MHD_add_response_header(response, a->headers[i].name, a->headers[i].value);
	if (a->type)
		MHD_add_response_header(response, "Content-Type", a->type);
	if (atomic_load(&x->http->ending) || x->request.crowded)
		MHD_add_response_header(response, "Connection", "close");
	x->queued = true;
	set_due(x, x->http->stall_seconds);
	result = MHD_queue_response(mhd, a->status, response);
	MHD_destroy_response(response);
	return result;
}

static enum mfs_method method_of(const char *name)
{
	static const char *const names[] = {"GET", "HEAD", "POST"};

	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return (enum mfs_method)i;
	return MFS_METHOD_OTHER;
}

/* The last one: a proxy appends its own. */
static enum MHD_Result find_forwarded(void *arg, enum MHD_ValueKind kind, const char *name,
				      const char *value)
{
	const char **forwarded = arg;

	(void)kind;
	*forwarded = strcasecmp(name, "X-Forwarded-For") ? *forwarded : value;
	return MHD_YES;
}

/* The headers are there. True: a body may follow, and is wanted. Methods that are not known here
 * are answered without it. */
static bool begin(struct mfs_exchange *x, struct MHD_Connection *mhd, const char *method,
		  const char *version)
{
	const char *length = get_header(&x->request, "Content-Length");
	unsigned status = 400;
	const char *unclear = mfs_framing_why(x, mhd, method, version, &status);
	struct mfs_error err;
	int rc;

	x->begun = true;
	atomic_fetch_add(&x->http->requests, 1);
	MHD_get_connection_values(mhd, MHD_HEADER_KIND, find_forwarded, &x->request.forwarded);
	snprintf(x->method, sizeof(x->method), "%s", method);
	x->request.method_name = x->method;
	x->request.method = method_of(method);
	rc = mfs_url_parse(x->target, &x->request.url, &err);
	if (rc == -ENOMEM)
		mfs_reply_error(&x->reply, 500, "%s", err.msg);
	else if (rc)
		mfs_reply_error(&x->reply, rc == -E2BIG ? 414 : 400, "%s", err.msg);
	else if (unclear)
		mfs_reply_error(&x->reply, status, "%s", unclear);
	else if (x->request.method == MFS_METHOD_OTHER)
		answer(x);
	else if (length && strtoull(length, NULL, 10) > MFS_REQUEST_BODY)
		mfs_reply_error(&x->reply, 413, "a body has at most %u bytes", MFS_REQUEST_BODY);
	else
		return true;
	if (unclear)
		mfs_reply_header(&x->reply, "Connection", "close");
	return false;
}

/* What follows is read to its end, so that the client gets the answer, but kept up to a limit. */
static void take_body(struct mfs_exchange *x, const char *data, size_t len)
{
	if (x->request.body.len + len > MFS_REQUEST_BODY)
		x->request.body.failed = true;
	else if (x->request.method == MFS_METHOD_POST)
		mfs_buf_add(&x->request.body, data, len);
}

enum MHD_Result mfs_exchange_handle(void *arg, struct MHD_Connection *mhd, const char *url,
				    const char *method, const char *version, const char *data,
				    size_t *data_len, void **exchange)
{
	struct mfs_exchange *x = *exchange;

	(void)arg, (void)url;
	if (!x || x->queued)
		return x ? MHD_YES : MHD_NO;
	if (!x->begun) {
		set_due(x, x->http->idle_seconds);
		return begin(x, mhd, method, version) ? MHD_YES : queue(x, mhd);
	}
	if (*data_len) {
		take_body(x, data, *data_len);
		*data_len = 0;
		return MHD_YES;
	}
	set_due(x, 0); /* a checkpoint that is opened takes as long as it takes */
	if (x->request.body.failed)
		mfs_reply_error(&x->reply, 413, "a body has at most %u bytes", MFS_REQUEST_BODY);
	else
		answer(x);
	return queue(x, mhd);
}

/* Counts and logs it, and frees it. */
static void finish(struct mfs_exchange *x, bool whole)
{
	struct mfs_http *http = x->http;

	if (!x->reply.stream && x->request.method != MFS_METHOD_HEAD)
		x->sent = whole ? x->reply.text.len : 0;
	if (!x->queued)
		x->reply.status = 0; /* not answered, or by the library */
	if (!x->begun)
		snprintf(x->reply.why, sizeof(x->reply.why),
			 "its headers were too long, broken or not whole");
	http->config.done(http->config.arg, &x->request, &x->reply, x->sent, whole && x->queued);
	if (x->begun)
		atomic_fetch_sub(&http->requests, 1);
	mfs_reply_release(&x->reply);
	mfs_url_release(&x->request.url);
	if (x->request.body.data) /* it may hold a token */
		explicit_bzero(x->request.body.data, x->request.body.cap);
	mfs_buf_release(&x->request.body);
	free(x->target);
	free(x);
}

void mfs_exchange_end(void *arg, struct MHD_Connection *mhd, void **exchange,
		      enum MHD_RequestTerminationCode how)
{
	struct mfs_exchange *x = *exchange;
	struct mfs_http *http = arg;

	(void)mhd;
	if (!x)
		return;
	*exchange = NULL;
	set_due(x, http->idle_seconds);
	atomic_store(&x->peer->connection.answering, false);
	x->peer->exchange = NULL;
	finish(x, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

void mfs_exchange_forget(struct mfs_peer *peer)
{
	struct mfs_exchange *x = peer->exchange;

	if (!x)
		return;
	peer->exchange = NULL;
	x->request.headers = NULL; /* the library has freed them */
	finish(x, false);
}
