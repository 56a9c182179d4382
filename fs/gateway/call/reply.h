/* Replies that all protocols have. */
#ifndef MFS_FS_GATEWAY_CALL_REPLY_H
#define MFS_FS_GATEWAY_CALL_REPLY_H

#include "fs/gateway/call/call.h"

/*
 * Answers with a file of a revision, or with what its conditions and ranges say instead: 200, 206,
 * 304, 412, 416; and 503, with the revision suspected, if its sources have changed. Takes the
 * revision over. file: its number in the view.
 */
void mfs_reply_file(struct mfs_call *c, struct mfs_revision *r, uint32_t file);
/* Like mfs_reply_file(), for one who is to ask elsewhere: 302 with that address, 304 or 412. url:
 * the address; it is taken over, and NULL if there was no memory for it. */
void mfs_reply_elsewhere(struct mfs_call *c, struct mfs_revision *r, uint32_t file, char *url);
/* The number of a file in a view; -1: there is none. */
int64_t mfs_view_find(const struct mfs_view *view, const char *name);
/* 503 for what may pass, with Retry-After; 403 for a link out of a source; else 500. Paths are
 * logged; the client gets their last parts. */
void mfs_reply_failure(struct mfs_reply *a, int rc, const struct mfs_error *err);
/* Like mfs_reply_failure(), where names cannot be listed. */
void mfs_reply_unlisted(struct mfs_reply *a, int rc);
/* Cuts absolute paths in a sentence down to their last parts: clients need not know the others. */
void mfs_hide_directories(char *text);

#endif
