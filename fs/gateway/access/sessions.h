/*
 * Sessions of people who have signed in with a token on a page. A session is a text, which the
 * browser keeps as a cookie: the token's SHA-256 and the time of signing in, sealed with
 * AES-256-GCM under a key that nobody else has. So a gateway keeps no list of them, a cookie does
 * not tell the token, and a session ends with the token's rule.
 *
 * The key follows from the first secret of `url_secret` (secrets.h): then all gateways that have
 * it take each other's sessions, and the older secrets are still accepted. Without one it is random
 * and ends with the program.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_SESSIONS_H
#define MFS_FS_GATEWAY_ACCESS_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/gateway/access/secrets.h"
#include "fs/gateway/access/tokens.h"

#define MFS_SESSION_SECONDS (12 * 3600)
#define MFS_SESSION_SIZE    137 /* of its text: digits, and a NUL */
/* Sessions that were signed out and could still be replayed. Of more, all that began before the
 * oldest of them end, too. */
#define MFS_SESSIONS_ENDED 1024

struct mfs_sessions;

/* Makes an empty set of sessions with a random key of its own. -ENOMEM; -EIO: there are no random
 * numbers. */
int mfs_sessions_new(struct mfs_sessions **ret, struct mfs_error *err);
void mfs_sessions_free(struct mfs_sessions *s);

/* A new session of a token. now: seconds since 1970. secrets may be NULL. -EIO: there are no random
 * numbers. Any thread may call this and the functions below. */
int mfs_session_begin(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		      const uint8_t sum[MFS_TOKEN_SUM], char ret[MFS_SESSION_SIZE]);
/* Whether a text is a session that holds; *ret: its token's sum. */
bool mfs_session_open(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		      const char *text, uint8_t ret[MFS_TOKEN_SUM]);
/* Signs out: the text is no session from now on, for this gateway. */
void mfs_session_end(struct mfs_sessions *s, const struct mfs_secret_list *secrets, int64_t now,
		     const char *text);

/* The value of a cookie in a Cookie header (RFC 6265, 4.2), inside of it. False: there is none of
 * that name. header may be NULL. */
bool mfs_cookie_find(const char *header, const char *name, const char **ret, size_t *ret_len);

#endif
