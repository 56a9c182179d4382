/* What is read of the headers of an answer (RFC 9110). They come from outside: every value is
 * checked here, and a header of another form counts as none. */
#ifndef MFS_REMOTE_HEADERS_H
#define MFS_REMOTE_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mfs_headers {
	unsigned status;	/* 200; 0: no status line yet */
	char etag[256];		/* with its quotes, and W/ of a weak one; "": none */
	char last_modified[64]; /* as it was sent; "": none */
	int64_t mtime;		/* the same, seconds since the epoch; 0: none */
	char type[64];		/* of the content, without parameters, lower case */
	char region[32];	/* x-amz-bucket-region */
	uint64_t first, last;	/* Content-Range, both inclusive */
	uint64_t total;		/* size of the whole, by Content-Range */
	bool has_range, has_length;
	bool encoded; /* the content has an encoding, so its bytes are not the file's */
	uint64_t length;
	unsigned retry_after; /* seconds; 0: not given */
};

/* Reads one line, with or without its end. A status line begins a new answer: the headers before it
 * (of a redirect) are forgotten. */
void mfs_headers_line(struct mfs_headers *h, const char *line, size_t len);

/* Whether an ETag can be compared byte by byte (RFC 9110, 8.8.3.2: a weak one cannot). */
bool mfs_etag_is_strong(const char *etag);
/* What is between W/ and the end of one, quotes included: servers give a file that was changed in
 * this second a weak ETag, and a second later the same one as a strong one. */
const char *mfs_etag_opaque(const char *etag);

#endif
