/* A line for each reply: text, or an object of JSON (-o log_format=json). */
#define _GNU_SOURCE
#include "fs/gateway/access_log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"

/* Text of a client, so that a line of the log stays one line and its quotes stay quotes. */
static void add_quoted(struct mfs_buf *b, const char *text)
{
	mfs_buf_adds(b, "\"");
	for (const char *c = text ? text : "-"; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '"' || *c == '\\')
			mfs_buf_printf(b, "\\x%02x", (unsigned char)*c);
		else
			mfs_buf_add(b, c, 1);
	}
	mfs_buf_adds(b, "\"");
}

static void add_time(struct mfs_buf *b)
{
	struct timespec now;
	struct tm tm;
	char text[40];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	mfs_buf_printf(b, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

/* Writes a target without the values that give rights: readers of the log must not have them. */
static void write_target(struct mfs_buf *text, const char *target)
{
	const char *query = strchr(target, '?');

	mfs_buf_add(text, target, query ? (size_t)(query - target) : strlen(target));
	for (const char *p = query; p && *p;) {
		const size_t len = 1 + strcspn(p + 1, "&"), name = strcspn(p, "=");

		if (name < len && mfs_url_is_secret(p + 1, name - 1))
			mfs_buf_printf(text, "%.*s=*", (int)name, p);
		else
			mfs_buf_add(text, p, len);
		p += len;
	}
	mfs_buf_add(text, "", 1);
}

/* A reply, for a line. NULL: there is no such thing. */
struct line {
	const struct mfs_request *q;
	const struct mfs_reply *a;
	const char *target, *who, *range, *agent, *why;
	uint64_t sent;
	bool whole;
	double seconds;
};

/* The address of the client, also if a trusted proxy has passed the request on. */
static const char *client_of(const struct line *l)
{
	return *l->a->from ? l->a->from : l->q->client;
}

/* time client who "method target" status bytes seconds route "range" "agent" "why" */
static void add_text(struct mfs_buf *b, const struct line *l)
{
	add_time(b);
	mfs_buf_printf(b, " %s %s ", client_of(l), l->who ? l->who : "-");
	add_quoted(b, l->q->method_name);
	mfs_buf_adds(b, " ");
	add_quoted(b, l->target);
	mfs_buf_printf(b, " %u %llu%s %.3f %s ", l->a->status, (unsigned long long)l->sent,
		       l->whole ? "" : "(cut)", l->seconds, l->a->route ? l->a->route : "-");
	add_quoted(b, l->range);
	mfs_buf_adds(b, " ");
	add_quoted(b, l->agent);
	mfs_buf_adds(b, " ");
	add_quoted(b, l->why);
	mfs_buf_adds(b, "\n");
}

/* Bytes beyond ASCII become the characters of these numbers: what clients send may be no UTF-8. */
static void add_field(struct mfs_buf *b, const char *name, const char *text)
{
	mfs_buf_printf(b, text ? ",\"%s\":\"" : ",\"%s\":null", name);
	for (const char *c = text; c && *c; c++) {
		if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
			mfs_buf_printf(b, "\\u%04x", (unsigned char)*c);
		else if (*c == '"' || *c == '\\')
			mfs_buf_printf(b, "\\%c", *c);
		else
			mfs_buf_add(b, c, 1);
	}
	if (text)
		mfs_buf_adds(b, "\"");
}

static void add_json(struct mfs_buf *b, const struct line *l)
{
	mfs_buf_adds(b, "{\"time\":\"");
	add_time(b);
	mfs_buf_adds(b, "\"");
	add_field(b, "client", client_of(l));
	add_field(b, "who", l->who);
	add_field(b, "method", l->q->method_name);
	add_field(b, "target", l->target);
	mfs_buf_printf(b, ",\"status\":%u,\"bytes\":%llu,\"whole\":%s,\"seconds\":%.3f",
		       l->a->status, (unsigned long long)l->sent, l->whole ? "true" : "false",
		       l->seconds);
	add_field(b, "route", l->a->route);
	add_field(b, "range", l->range);
	add_field(b, "agent", l->agent);
	add_field(b, "why", l->why);
	mfs_buf_adds(b, "}\n");
}

/* One write: lines of several threads do not mix. The header with the token is not among these. */
void mfs_access_log(const struct mfs_gateway *g, const struct mfs_request *q,
		    const struct mfs_reply *a, uint64_t sent, bool whole)
{
	struct mfs_buf b = {0}, target = {0};
	struct line l = {
		.q = q,
		.a = a,
		.who = *a->who ? a->who : NULL,
		.range = mfs_request_header(q, "Range"),
		.agent = mfs_request_header(q, "User-Agent"),
		.why = *a->why ? a->why : NULL,
		.sent = sent,
		.whole = whole,
		.seconds = (double)(mfs_now_ns() - q->began_ns) / 1e9,
	};
	ssize_t n;

	write_target(&target, q->target);
	l.target = target.failed ? NULL : target.data;
	if (g->log_json)
		add_json(&b, &l);
	else
		add_text(&b, &l);
	if (!b.failed) {
		n = write(g->access_log, b.data, b.len);
		(void)n; /* a full disk must not end the service */
	}
	mfs_buf_release(&target);
	mfs_buf_release(&b);
}
