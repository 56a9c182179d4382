/* Plain HTML pages: no scripts, nothing from elsewhere. */
#ifndef MFS_FS_GATEWAY_WEB_HTML_H
#define MFS_FS_GATEWAY_WEB_HTML_H

#include "fs/http/message.h"

/* Begins a page with status 200. */
void mfs_html_begin(struct mfs_reply *a, const char *title);
void mfs_html_end(struct mfs_reply *a);
/* Appends text with what HTML gives a meaning to taken out of it. */
void mfs_html_text(struct mfs_buf *b, const char *text);

#endif
