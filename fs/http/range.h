/*
 * The headers that say which bytes of a file are wanted, and of which version of it (RFC 9110,
 * 13.1 and 14.1.2).
 */
#ifndef MFS_FS_HTTP_RANGE_H
#define MFS_FS_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum mfs_range_kind {
	MFS_RANGE_WHOLE,  /* 200: there is no range, or one that a server must ignore */
	MFS_RANGE_PART,	  /* 206 */
	MFS_RANGE_BEYOND, /* 416: no byte of the file lies in it */
};

/* The Range header of a file of size bytes; NULL: it was not sent. *off and *len: the bytes to
 * send; all of them for MFS_RANGE_WHOLE, none for MFS_RANGE_BEYOND. Several ranges in one header
 * count as none: the whole file is a right answer to them. */
enum mfs_range_kind mfs_range_parse(const char *header, uint64_t size, uint64_t *off,
				    uint64_t *len);

/* True if an If-Match or If-None-Match header lists an entity tag, or is "*". etag: without its
 * quotes. weak: W/"x" counts as "x", as it does in If-None-Match. */
bool mfs_etag_listed(const char *header, const char *etag, bool weak);

/* What a GET or HEAD is answered with, by its conditions. Headers that were not sent are NULL. */
struct mfs_conditions {
	const char *match, *none_match, *if_range, *range;
	const char *modified_since;
	const char *modified; /* what Last-Modified says; NULL or "": there is none */
};
struct mfs_wanted {
	unsigned status; /* 200, 206, 304, 412, 416 */
	uint64_t off, len;
};
struct mfs_wanted mfs_conditions_judge(const struct mfs_conditions *c, const char *etag,
				       uint64_t size);

#endif
