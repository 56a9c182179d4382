/*
 * The token in a request's Authorization header (RFC 9110, 11.6.2): "Bearer TOKEN", as programs
 * send it, or "Basic BASE64" of USER:TOKEN (RFC 7617), which browsers and `curl -u` send. The user
 * may be anybody: a token says who it is.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_AUTHORIZATION_H
#define MFS_FS_GATEWAY_ACCESS_AUTHORIZATION_H

#include "formats/base/error.h"

/* *ret: the token, which the caller gives to mfs_authorization_forget(); NULL: there is none, or
 * the header has neither form. authorization may be NULL. -ENOMEM. */
int mfs_authorization_token(const char *authorization, char **ret);
void mfs_authorization_forget(char *token);

#endif
