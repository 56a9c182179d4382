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
	return MHD_lookup_connection_value((struct MHD_Connection *)q->headers, MHD_HEADER_KIND,
					   name);
}

/* Headers follow, so the request's method is not known yet. NULL: no memory, which
 * mfs_exchange_handle() meets. */
void *mfs_exchange_begin(void *arg, const char *target, struct MHD_Connection *mhd)
{
	struct mfs_exchange *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->http = arg;
	x->request.headers = mhd;
	x->request.header = get_header;
	x->request.began_ns = mfs_now_ns();
	x->request.target = x->target = strdup(target);
	x->connection =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	mfs_address_text(
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr,
		x->request.client, sizeof(x->request.client));
	if (x->target)
		return x;
	free(x);
	return NULL;
}

static void set_due(const struct mfs_exchange *x, unsigned seconds)
{
	if (x->connection)
		mfs_connection_due(x->connection, seconds);
}

/* From here on the connection is none that may be closed to make room. */
static void answer(struct mfs_exchange *x)
{
	struct mfs_http *http = x->http;

	if (x->connection)
		x->request.crowded = mfs_deadlines_answers(&http->deadlines, x->connection,
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

/* Headers that say where a request ends and whom it is for. */
struct framing {
	unsigned lengths, codings, hosts;
	bool blank; /* a name has white space */
	const char *forwarded;
};

static enum MHD_Result count_header(void *arg, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	struct framing *f = arg;

	(void)kind;
	f->lengths += !strcasecmp(name, "Content-Length");
	f->codings += !strcasecmp(name, "Transfer-Encoding");
	f->hosts += !strcasecmp(name, "Host");
	f->forwarded = strcasecmp(name, "X-Forwarded-For") ? f->forwarded : value;
	f->blank |= strpbrk(name, " \t") != NULL;
	return MHD_YES;
}

/* Why a proxy in front may have seen another request than this one; NULL: it has not. The library
 * takes the first of two headers, and does not know one whose name ends with a blank. (RFC 9112
 * 3.2, 5.1, 6.1 and 6.3.) */
static const char *why_ambiguous(struct MHD_Connection *mhd, const char *version,
				 const char **ret_forwarded)
{
	struct framing f = {0};

	MHD_get_connection_values(mhd, MHD_HEADER_KIND, count_header, &f);
	*ret_forwarded = f.forwarded;
	if (f.blank)
		return "the name of a header has white space";
	if (f.lengths && f.codings)
		return "Content-Length and Transfer-Encoding are both said";
	if (f.lengths > 1 || f.codings > 1)
		return "the length of the body is said twice";
	if (f.hosts > 1 || (!f.hosts && strcmp(version, MHD_HTTP_VERSION_1_0)))
		return "there must be one Host";
	return NULL;
}

/* The headers are there. True: a body may follow, and is wanted. Methods that are not known here
 * are answered without it. */
static bool begin(struct mfs_exchange *x, struct MHD_Connection *mhd, const char *method,
		  const char *version)
{
	const char *length = get_header(&x->request, "Content-Length");
	const char *ambiguous = why_ambiguous(mhd, version, &x->request.forwarded);
	struct mfs_error err;
	int rc;

	x->begun = true;
	atomic_fetch_add(&x->http->requests, 1);
	x->request.method_name = method;
	x->request.method = method_of(method);
	rc = mfs_url_parse(x->target, &x->request.url, &err);
	if (rc == -ENOMEM)
		mfs_reply_error(&x->reply, 500, "%s", err.msg);
	else if (rc)
		mfs_reply_error(&x->reply, rc == -E2BIG ? 414 : 400, "%s", err.msg);
	else if (ambiguous)
		mfs_reply_error(&x->reply, 400, "%s", ambiguous);
	else if (x->request.method == MFS_METHOD_OTHER)
		answer(x);
	else if (length && strtoull(length, NULL, 10) > MFS_REQUEST_BODY)
		mfs_reply_error(&x->reply, 413, "a body has at most %u bytes", MFS_REQUEST_BODY);
	else
		return true;
	if (ambiguous)
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

void mfs_exchange_end(void *arg, struct MHD_Connection *mhd, void **exchange,
		      enum MHD_RequestTerminationCode how)
{
	struct mfs_exchange *x = *exchange;
	struct mfs_http *http = arg;
	bool whole = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;

	(void)mhd;
	if (!x)
		return;
	*exchange = NULL;
	set_due(x, http->idle_seconds);
	if (x->connection)
		atomic_store(&x->connection->answering, false);
	if (x->begun) {
		if (!x->reply.stream && x->request.method != MFS_METHOD_HEAD)
			x->sent = whole ? x->reply.text.len : 0;
		if (!x->queued)
			x->reply.status = 0; /* the client has gone before the answer */
		http->config.done(http->config.arg, &x->request, &x->reply, x->sent, whole);
		atomic_fetch_sub(&http->requests, 1);
	}
	mfs_reply_release(&x->reply);
	mfs_url_release(&x->request.url);
	mfs_buf_release(&x->request.body);
	free(x->target);
	free(x);
}
