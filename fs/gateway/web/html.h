/* HTML, piece by piece. Whatever comes from a name, a file or a client goes through these. */
#ifndef MFS_FS_GATEWAY_WEB_HTML_H
#define MFS_FS_GATEWAY_WEB_HTML_H

#include <stddef.h>

#include "formats/base/buf.h"

/*
 * Appends a text of anybody's: what HTML gives a meaning to becomes a reference. Control
 * characters, those that turn the direction of what follows (U+202E and its like), and bytes that
 * are no UTF-8 become U+FFFD: a page shows what is there, and in its order.
 */
void mfs_html_text(struct mfs_buf *b, const char *text);
/* Like mfs_html_text(), of its first bytes. */
void mfs_html_text_part(struct mfs_buf *b, const char *text, size_t len);
/* A name, which is read in its own direction whatever stands around it. */
void mfs_html_name(struct mfs_buf *b, const char *name);
/* <a href="...">NAME</a>. href: a URL whose parts are encoded (formats/net/uri.h). */
void mfs_html_link(struct mfs_buf *b, const char *href, const char *name);
/* A row of what is known, in a <dl>. */
void mfs_html_fact(struct mfs_buf *b, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
