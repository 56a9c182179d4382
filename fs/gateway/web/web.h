/* What browsers, scripts and probes read. */
#ifndef MFS_FS_GATEWAY_WEB_WEB_H
#define MFS_FS_GATEWAY_WEB_WEB_H

#include "fs/gateway/call/call.h"

extern const struct mfs_protocol mfs_protocol_files;  /* /files/: plain files by range */
extern const struct mfs_protocol mfs_protocol_home;   /* /: a page of all that is served */
extern const struct mfs_protocol mfs_protocol_repo;   /* /ORG/NAME, /datasets/ORG/NAME: a page */
extern const struct mfs_protocol mfs_protocol_sign;   /* /sign-in, /sign-out */
extern const struct mfs_protocol mfs_protocol_status; /* /healthz, /metrics, texts of pages */

/* Gives a refusal the form that its client wants, when it is complete: a browser gets a page, and
 * with 401 it is asked for a token. */
void mfs_web_dress_refusal(struct mfs_call *c);

#endif
