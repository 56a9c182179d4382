#define _GNU_SOURCE
#include "formats/remote/headers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define LINE_MAX_BYTES 1024

static bool read_number(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t v = 0;

	for (; isdigit((unsigned char)*p); p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	if (p == *text)
		return false;
	*text = p;
	*ret = v;
	return true;
}

/* "bytes 0-99/1000" */
static void read_range(struct mfs_headers *h, const char *v)
{
	uint64_t first, last, total;

	if (strncasecmp(v, "bytes ", 6))
		return;
	v += 6;
	if (!read_number(&v, &first) || *v++ != '-' || !read_number(&v, &last) || *v++ != '/' ||
	    !read_number(&v, &total) || *v || first > last || last >= total)
		return;
	h->first = first;
	h->last = last;
	h->total = total;
	h->has_range = true;
}

static void read_length(struct mfs_headers *h, const char *v)
{
	h->has_length = read_number(&v, &h->length) && !*v;
}

static void read_retry(struct mfs_headers *h, const char *v)
{
	uint64_t seconds;

	if (read_number(&v, &seconds) && !*v)
		h->retry_after = seconds > 3600 ? 3600 : (unsigned)seconds;
}

/* "Wed, 21 Oct 2015 07:28:00 GMT" */
static void read_time(struct mfs_headers *h, const char *v)
{
	struct tm tm = {0};
	const char *end = strptime(v, "%a, %d %b %Y %H:%M:%S GMT", &tm);

	if (!end || *end || strlen(v) >= sizeof(h->last_modified))
		return;
	snprintf(h->last_modified, sizeof(h->last_modified), "%s", v);
	h->mtime = timegm(&tm);
}

bool mfs_etag_is_strong(const char *etag)
{
	return *etag == '"';
}

const char *mfs_etag_opaque(const char *etag)
{
	return strncmp(etag, "W/", 2) ? etag : etag + 2;
}

/* [W/]"...": no other quotes, and only bytes that can be sent back in a header. */
static void read_etag(struct mfs_headers *h, const char *v)
{
	const char *p = mfs_etag_opaque(v);
	const size_t len = strlen(p);

	if (strlen(v) >= sizeof(h->etag) || len < 2 || *p != '"' || p[len - 1] != '"')
		return;
	for (size_t i = 1; i + 1 < len; i++)
		if (p[i] == '"' || (unsigned char)p[i] <= ' ' || p[i] == 0x7f)
			return;
	snprintf(h->etag, sizeof(h->etag), "%s", v);
}

static void read_word(char *to, size_t size, const char *v)
{
	size_t n = strcspn(v, "; \t");

	if (n >= size)
		return;
	for (size_t i = 0; i < n; i++)
		to[i] = (char)tolower((unsigned char)v[i]);
	to[n] = '\0';
}

static void read_header(struct mfs_headers *h, const char *name, const char *v)
{
	if (!strcasecmp(name, "etag"))
		read_etag(h, v);
	else if (!strcasecmp(name, "last-modified"))
		read_time(h, v);
	else if (!strcasecmp(name, "content-range"))
		read_range(h, v);
	else if (!strcasecmp(name, "content-length"))
		read_length(h, v);
	else if (!strcasecmp(name, "content-type"))
		read_word(h->type, sizeof(h->type), v);
	else if (!strcasecmp(name, "content-encoding"))
		h->encoded = *v && strcasecmp(v, "identity");
	else if (!strcasecmp(name, "retry-after"))
		read_retry(h, v);
	else if (!strcasecmp(name, "x-amz-bucket-region"))
		read_word(h->region, sizeof(h->region), v);
}

/* "HTTP/1.1 206 Partial Content", "HTTP/2 206" */
static void read_status(struct mfs_headers *h, const char *line)
{
	const char *code = strchr(line, ' ');
	uint64_t status;

	memset(h, 0, sizeof(*h));
	if (code && code++ && read_number(&code, &status) && status < 1000)
		h->status = (unsigned)status;
}

void mfs_headers_line(struct mfs_headers *h, const char *bytes, size_t len)
{
	char line[LINE_MAX_BYTES], *colon, *v;

	while (len && strchr("\r\n \t", bytes[len - 1]) && bytes[len - 1])
		len--;
	/* CR, LF and NUL within a line are invalid (RFC 9110, 5.5), and strptime() takes the
	 * first two for blanks. */
	if (!len || len >= sizeof(line) || memchr(bytes, '\0', len) || memchr(bytes, '\r', len) ||
	    memchr(bytes, '\n', len))
		return;
	memcpy(line, bytes, len);
	line[len] = '\0';
	if (!strncmp(line, "HTTP/", 5)) {
		read_status(h, line);
		return;
	}
	colon = strchr(line, ':');
	if (!colon || colon == line)
		return;
	*colon = '\0';
	v = colon + 1 + strspn(colon + 1, " \t");
	read_header(h, line, v);
}
