/*
 * The target of a request (RFC 9112, 3.2): "/org/model/resolve/main/a%2Fb?recursive=true".
 *
 * The path is cut at its slashes first, and its parts are decoded after that, so a part may hold a
 * slash that was sent as %2F: clients of the HuggingFace Hub send paths and revisions in this way.
 * What could leave a directory is refused and never repaired: "." and "..", empty names, NUL and
 * control characters, also those that stand between decoded slashes.
 */
#ifndef MFS_FS_HTTP_URL_H
#define MFS_FS_HTTP_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

#define MFS_URL_PARTS 64
#define MFS_URL_QUERY 32
#define MFS_URL_BYTES 8192 /* of a target, at most */

struct mfs_url_pair {
	const char *name, *value;
};

struct mfs_url {
	const char *parts[MFS_URL_PARTS]; /* decoded */
	unsigned count;
	bool slash; /* the path ends with '/': a directory is meant. True of "/" */
	struct mfs_url_pair query[MFS_URL_QUERY];
	unsigned query_count;
	char *path;   /* all parts with '/' before each; "/" for none */
	char *memory; /* what parts and pairs point into */
};

/* Takes the target of a request apart, decoded. -EINVAL: it breaks a rule above; -E2BIG: it has too
 * many parts or pairs, or is too long; -ENOMEM. After a failure there is nothing to release. */
int mfs_url_parse(const char *target, struct mfs_url *ret, struct mfs_error *err);
void mfs_url_release(struct mfs_url *url);

/* The first value of that name; NULL: none. */
const char *mfs_url_query(const struct mfs_url *url, const char *name);
/* "1", "true", "True": Python's clients write booleans in several ways. */
bool mfs_url_truth(const struct mfs_url *url, const char *name);

/* The rest of the path, from part number from on, with '/' between the parts. It points into the
 * URL. "": there is no such part. */
const char *mfs_url_rest(const struct mfs_url *url, unsigned from);

/* The path and query of a target, inside of it. Proxies, and AWS's C client, ask with the whole
 * address (RFC 9112, 3.2.2); its authority is no concern of ours. */
const char *mfs_url_without_authority(const char *target);

/* Whether a name of a query, as it was sent, is of a value that gives rights: "signature",
 * "X-Amz-Signature", "Signature", "token". */
bool mfs_url_is_secret(const char *name, size_t len);

/* Decodes a form (application/x-www-form-urlencoded), pair by pair. text is written over. Stops
 * when each() returns non-zero, and returns that value. -EINVAL: a bad escape, or a NUL. */
int mfs_form_each(char *text, int (*each)(void *arg, const char *name, const char *value),
		  void *arg, struct mfs_error *err);

#endif
