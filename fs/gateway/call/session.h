/*
 * Who has signed in on a page: a session (fs/gateway/access/sessions.h) as a cookie that scripts
 * cannot read, and that browsers send to this gateway alone, not with requests that another site's
 * page makes. Programs send their token with each request instead.
 */
#ifndef MFS_FS_GATEWAY_CALL_SESSION_H
#define MFS_FS_GATEWAY_CALL_SESSION_H

#include <stdbool.h>

#include "fs/gateway/call/call.h"

/* Whether a request has a session that holds; *ret: its token's sum. */
bool mfs_call_session(const struct mfs_call *c, uint8_t ret[MFS_TOKEN_SUM]);
/* Gives the client a session of a token. The reply fails if there can be none. */
void mfs_call_begin_session(struct mfs_call *c, const uint8_t sum[MFS_TOKEN_SUM]);
/* Ends the request's session, and has the client forget it. */
void mfs_call_end_session(struct mfs_call *c);
/* Whether a POST comes from a page of this gateway, or a program: from no other site's page. */
bool mfs_call_is_same_site(const struct mfs_call *c);

#endif
