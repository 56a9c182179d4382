/*
 * The file of secrets with which addresses of files are signed (formats/net/signed_url.h), one a
 * line. The first one signs, and what any of them has signed is accepted: so one can be replaced
 * while gateways and data nodes go on. Read again when it changes; one that is wrong then leaves
 * the secrets that there were, and a line in the log.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_SECRETS_H
#define MFS_FS_GATEWAY_ACCESS_SECRETS_H

#include <stddef.h>

#include "formats/base/error.h"

#define MFS_SECRETS_BYTES 4096 /* of the file, at most */
#define MFS_SECRETS_COUNT 8
#define MFS_SECRETS_SHORT 32 /* bytes of a secret, at least */
#define MFS_SECRETS_LONG  256

struct mfs_secret_list {
	char list[MFS_SECRETS_COUNT][MFS_SECRETS_LONG + 1];
	unsigned count; /* at least 1 */
};

/* Reads the text of a file of secrets, one a line; empty lines are passed over. name: the file's,
 * for messages. -EINVAL: a line is no secret (length, or other characters), there are too many, or
 * none; the message names file and line, and never the secret. */
int mfs_secrets_parse(const char *name, const char *text, size_t len, struct mfs_secret_list *ret,
		      struct mfs_error *err);

struct mfs_secrets;

/* Reads the file, and looks again at it later: mfs_secrets_now() follows its changes. -EACCES:
 * others may read or write it; errors of mfs_secrets_parse(); -errno. */
int mfs_secrets_open(const char *path, struct mfs_secrets **ret, struct mfs_error *err);
void mfs_secrets_free(struct mfs_secrets *s);

/* Those that are in force now. The caller calls mfs_secrets_forget() when it has used them. Any
 * thread. */
void mfs_secrets_now(struct mfs_secrets *s, struct mfs_secret_list *ret);
void mfs_secrets_forget(struct mfs_secret_list *list);

#endif
