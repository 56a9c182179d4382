/* Replies with bytes of a file of a view. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/plan/vfile.h"
#include "fs/gateway/call/reply.h"
#include "fs/http/range.h"
#include "fs/http/http_server.h"
#include "fs/view/view.h"

#define FIRST_BYTES                                                                                \
	(64u << 10)	  /* that are read before the status is sent: then it can be an error */
#define AHEAD (16u << 20) /* bytes that the kernel is asked for before they are needed */
/* For as much, it holds its sources by descriptors: they can be read to the end though their names
 * are gone. For less, opening them would take longer than reading. */
#define HOLD_BYTES (64u << 20)
#define IOVECS	   (2 * MFS_HTTP_BLOCK / MFS_GATHER_COPY) /* of a block; more are copied */

struct body {
	struct mfs_revision revision;
	struct mfs_vfile *data;
	uint64_t off, len; /* of the file */
	uint64_t asked;	   /* end of what was read ahead, from the start of the range */
	bool holds;
	struct mfs_gather gather; /* of the blocks after the first bytes; iov NULL: none yet */
	size_t first_len;
	uint8_t first[];
};

static void release_body(void *arg)
{
	struct body *b = arg;

	if (b->holds)
		mfs_view_drop_sources(b->revision.view);
	mfs_revision_drop(&b->revision);
	mfs_gather_release(&b->gather);
	free(b);
}

static void read_ahead(struct body *b, uint64_t at)
{
	if (at + AHEAD / 2 < b->asked || b->asked >= b->len)
		return;
	mfs_vfile_willneed(b->data, b->off + b->asked, mfs_min_u64(AHEAD, b->len - b->asked));
	b->asked += mfs_min_u64(AHEAD, b->len - b->asked);
}

/* What fails here cuts the connection: the status was sent long ago. */
static ssize_t read_body(void *arg, uint64_t at, void *buf, size_t len)
{
	struct body *b = arg;
	struct mfs_error err;
	size_t n = 0;
	int rc;

	if (at < b->first_len) {
		n = mfs_min_u64(len, b->first_len - at);
		memcpy(buf, b->first + at, n);
		return (ssize_t)n;
	}
	if (!b->gather.iov && mfs_gather_init(&b->gather, MFS_HTTP_BLOCK, IOVECS))
		return -ENOMEM;
	read_ahead(b, at);
	rc = mfs_vfile_pread_by(b->data, &b->gather, b->off + at, buf,
				mfs_min_u64(len, b->len - at), &n, &err);
	if (rc == -ESTALE)
		mfs_revision_suspect(&b->revision);
	if (rc)
		return rc;
	mfs_vfile_served(b->data, n);
	return n ? (ssize_t)n : -EIO;
}

static const struct mfs_http_stream_ops stream = {read_body, release_body};

int64_t mfs_view_find(const struct mfs_view *view, const char *name)
{
	uint32_t low = 0, high = view->count;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;
		const int order = strcmp(view->files[middle].name, name);

		if (!order)
			return middle;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

static const char *type_of(const char *name)
{
	if (mfs_str_ends(name, ".json"))
		return "application/json";
	if (mfs_str_ends(name, ".txt") || mfs_str_ends(name, ".md") || mfs_str_ends(name, ".jinja"))
		return "text/plain; charset=utf-8";
	return "application/octet-stream";
}

#define DATE 64 /* bytes of a date */

/* The date of a view's newest source. "": it is of this second, in which another change may follow
 * that would have the same date. */
static const char *date_of(const struct mfs_view *view, char ret[DATE])
{
	const time_t seconds = (time_t)(view->mtime_ns / 1000000000);
	struct tm tm;

	if (seconds >= time(NULL) || !gmtime_r(&seconds, &tm) ||
	    !strftime(ret, DATE, "%a, %d %b %Y %H:%M:%S GMT", &tm))
		*ret = '\0';
	return ret;
}

static void add_headers(struct mfs_reply *a, const struct mfs_revision *r, const char *etag)
{
	char date[DATE];

	mfs_reply_header(a, "ETag", "\"%s\"", etag);
	mfs_reply_header(a, "Accept-Ranges", "bytes");
	mfs_reply_header(a, "X-Repo-Commit", "%s", r->commit);
	if (*date_of(r->view, date))
		mfs_reply_header(a, "Last-Modified", "%s", date);
}

/* A body of the bytes that are wanted, the first of which it has. head: none is read. Of a short
 * range, the sources of its first bytes are looked at alone. */
static int open_body(struct mfs_revision *r, uint32_t file, const struct mfs_wanted *w, bool head,
		     struct body **ret, struct mfs_error *err)
{
	const size_t first = head ? 0 : mfs_min_u64(w->len, FIRST_BYTES);
	struct body *b = calloc(1, sizeof(*b) + first);
	int rc = 0;

	if (!b)
		return mfs_fail_nomem(err);
	b->data = r->view->files[file].data;
	b->off = w->off;
	b->len = w->len;
	if (w->status == 200 || w->len >= HOLD_BYTES)
		rc = mfs_view_check_lately(r->view, err);
	if (first && !rc) {
		rc = mfs_vfile_pread(b->data, b->off, b->first, first, &b->first_len, err);
		mfs_vfile_served(b->data, rc ? 0 : b->first_len);
	}
	if (!rc && b->first_len != first)
		rc = mfs_fail(err, -EIO, "%s is shorter than it was", r->view->files[file].name);
	if (rc) {
		free(b);
		return rc;
	}
	b->revision = *r;
	b->holds = !head && w->len >= HOLD_BYTES;
	if (b->holds)
		mfs_view_hold_sources(r->view);
	*ret = b;
	return 0;
}

static void send_part(struct mfs_call *c, struct mfs_revision *r, uint32_t file,
		      const struct mfs_wanted *w, const char *etag)
{
	const uint64_t size = mfs_vfile_size(r->view->files[file].data);
	struct mfs_reply *a = c->reply;
	struct mfs_error err;
	struct body *b;
	int rc = open_body(r, file, w, c->request->method == MFS_METHOD_HEAD, &b, &err);

	if (rc) {
		mfs_reply_failure(a, rc, &err);
		if (rc == -ESTALE)
			mfs_revision_suspect(r);
		mfs_revision_drop(r);
		return;
	}
	a->status = w->status;
	a->type = type_of(r->view->files[file].name);
	add_headers(a, r, etag);
	if (w->status == 206)
		mfs_reply_header(
			a, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)w->off,
			(unsigned long long)(w->off + w->len - 1), (unsigned long long)size);
	a->stream = &stream;
	a->object = b;
	a->length = w->len;
}

static void refuse_match(struct mfs_reply *a, const char *etag)
{
	mfs_reply_error(a, 412, "the file is another one: its ETag is \"%s\"", etag);
}

/* 304 and 412 are known without the file's bytes. */
void mfs_reply_elsewhere(struct mfs_call *c, struct mfs_revision *r, uint32_t file, char *url)
{
	char date[DATE];
	const struct mfs_conditions conditions = {
		.match = mfs_request_header(c->request, "If-Match"),
		.none_match = mfs_request_header(c->request, "If-None-Match"),
		.modified_since = mfs_request_header(c->request, "If-Modified-Since"),
		.modified = date_of(r->view, date),
	};
	const uint64_t size = mfs_vfile_size(r->view->files[file].data);
	struct mfs_reply *a = c->reply;
	char etag[MFS_COMMIT_SIZE];
	struct mfs_wanted w;

	mfs_revision_etag(r, r->view->files[file].name, etag);
	w = mfs_conditions_judge(&conditions, etag, size);
	if (w.status == 412) {
		refuse_match(a, etag);
	} else if (w.status == 304) {
		a->status = 304;
	} else {
		a->status = 302;
		mfs_reply_header(a, "Location", "%s", url ? url : "");
		mfs_reply_header(a, "X-Linked-Size", "%llu", (unsigned long long)size);
		mfs_reply_header(a, "X-Linked-ETag", "\"%s\"", etag);
	}
	a->failed |= !url;
	add_headers(a, r, etag);
	free(url);
	mfs_revision_drop(r);
}

void mfs_reply_file(struct mfs_call *c, struct mfs_revision *r, uint32_t file)
{
	const struct mfs_request *q = c->request;
	char date[DATE];
	const struct mfs_conditions conditions = {
		.match = mfs_request_header(q, "If-Match"),
		.none_match = mfs_request_header(q, "If-None-Match"),
		.modified_since = mfs_request_header(q, "If-Modified-Since"),
		.modified = date_of(r->view, date),
		.if_range = mfs_request_header(q, "If-Range"),
		/* of GET alone (RFC 9110 14.2) */
		.range = q->method == MFS_METHOD_GET ? mfs_request_header(q, "Range") : NULL,
	};
	const uint64_t size = mfs_vfile_size(r->view->files[file].data);
	char etag[MFS_COMMIT_SIZE];
	struct mfs_wanted w;

	mfs_revision_etag(r, r->view->files[file].name, etag);
	w = mfs_conditions_judge(&conditions, etag, size);
	switch (w.status) {
	case 200:
	case 206:
		send_part(c, r, file, &w, etag);
		return;
	case 412:
		refuse_match(c->reply, etag);
		break;
	case 416:
		mfs_reply_error(c->reply, 416, "the file has %llu bytes", (unsigned long long)size);
		mfs_reply_header(c->reply, "Content-Range", "bytes */%llu",
				 (unsigned long long)size);
		break;
	default:
		c->reply->status = w.status;
		break;
	}
	add_headers(c->reply, r, etag);
	mfs_revision_drop(r);
}
