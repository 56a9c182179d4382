/* Whether the library, a proxy in front and the client mean the same request. */
#define _GNU_SOURCE
#include <string.h>
#include <strings.h>

#include "fs/http/mhd_i.h"

/* Headers that say where a request ends and whom it is for. */
struct framing {
	unsigned lengths, codings, hosts;
	bool blank;		     /* a name has white space */
	const char *coding, *expect; /* NULL: not sent */
	/* Where the last byte of the line before ends; a NUL in a line lies between two. */
	const char *end;
	bool cut;
};

/* The library ends a text at its first NUL, so it ignores what the client has sent after it. In
 * release 0.9 lines stay where they came, with zeros for their ends, so the bytes after a NUL in a
 * line are a gap. Lines that go on in the next one, which nobody has to take (RFC 9112 5.2), look
 * the same. Later releases refuse a NUL. */
static bool finds_nul(void)
{
	return !strncmp(MHD_get_version(), "0.", 2);
}

/* Whether from most to at least bytes are between the two. */
static bool is_gap(const char *from, const char *to, uintptr_t least, uintptr_t most)
{
	const uintptr_t gap = (uintptr_t)to - (uintptr_t)from;

	return gap >= least && gap <= most;
}

static enum MHD_Result add_header(void *arg, enum MHD_ValueKind kind, const char *name,
				  const char *value)
{
	struct framing *f = arg;

	(void)kind;
	f->lengths += !strcasecmp(name, "Content-Length");
	f->codings += !strcasecmp(name, "Transfer-Encoding");
	f->hosts += !strcasecmp(name, "Host");
	f->coding = strcasecmp(name, "Transfer-Encoding") ? f->coding : value;
	f->expect = strcasecmp(name, "Expect") ? f->expect : value;
	f->blank |= strpbrk(name, " \t") != NULL;
	f->cut |= !is_gap(f->end, name, 1, 2); /* LF, or CR and LF */
	f->end = value + strlen(value);
	return MHD_YES;
}

/* Whether the request has a NUL before its body. */
static bool has_nul(const struct mfs_exchange *x, struct MHD_Connection *mhd,
		    const struct framing *f, const char *method, const char *version)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	if (!finds_nul() || !x->raw || !size)
		return false;
	return f->cut || !is_gap(x->raw + x->raw_len, version, 1, 1) ||
	       !is_gap(f->end, method + size->header_size, 2, 4);
}

/* (RFC 9112 3.2, 5.1, 6.1 and 6.3; RFC 9110 10.1.1.) The library takes the first of two headers,
 * does not know one whose name ends with a blank, and waits for bodies that it cannot read. */
const char *mfs_framing_why(const struct mfs_exchange *x, struct MHD_Connection *mhd,
			    const char *method, const char *version, unsigned *ret_status)
{
	struct framing f = {.end = version + strlen(version)};
	const bool old = !strcmp(version, MHD_HTTP_VERSION_1_0);

	MHD_get_connection_values(mhd, MHD_HEADER_KIND, add_header, &f);
	*ret_status = 400;
	if (has_nul(x, mhd, &f, method, version))
		return "the request has a NUL, or a header that goes on in the next line";
	if (f.blank)
		return "the name of a header has white space";
	if (f.lengths && f.codings)
		return "Content-Length and Transfer-Encoding are both given";
	if (f.lengths > 1 || f.codings > 1)
		return "the length of the body is given twice";
	if (f.hosts > 1 || (!f.hosts && !old))
		return "there must be one Host";
	*ret_status = 501;
	if (f.coding && strcasecmp(f.coding, "chunked") != 0)
		return "Transfer-Encoding is chunked, or is absent";
	*ret_status = 417;
	if (f.expect && !old && strcasecmp(f.expect, "100-continue") != 0)
		return "Expect is 100-continue, or is absent";
	return NULL;
}
