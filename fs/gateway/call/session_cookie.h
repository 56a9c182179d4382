/*
 * Who has signed in on a page: a session (fs/gateway/access/sessions.h) as a cookie that scripts
 * cannot read, and that browsers send to this gateway alone, not with requests that another site's
 * page makes. Programs send their token with each request instead.
 */
#ifndef MFS_FS_GATEWAY_CALL_SESSION_COOKIE_H
#define MFS_FS_GATEWAY_CALL_SESSION_COOKIE_H

#include <stdbool.h>

#include "fs/gateway/call/call.h"

/* Whether a request has a session that holds; *ret: its token's sum. */
bool mfs_call_session(const struct mfs_call *c, uint8_t ret[MFS_TOKEN_SUM]);
/* Gives the client a session of a token. The reply fails if there can be none. */
void mfs_call_begin_session(struct mfs_call *c, const uint8_t sum[MFS_TOKEN_SUM]);
/* Ends the request's session, and has the client forget it. */
void mfs_call_end_session(struct mfs_call *c);
/* NULL if a POST comes from a page of this gateway, or a program; else why it is refused: another
 * site's page has sent it, or a proxy hides that none has. */
const char *mfs_call_other_site(const struct mfs_call *c);

#endif
