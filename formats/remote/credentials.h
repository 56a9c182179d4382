/*
 * Who asks S3, as AWS's own programs find it, in their order: the environment (AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN); the shared credentials file (~/.aws/credentials or
 * AWS_SHARED_CREDENTIALS_FILE; profile AWS_PROFILE or "default"); the role of the machine, by the
 * instance metadata service with a session token (IMDSv2), unless AWS_EC2_METADATA_DISABLED is
 * true. What a role gives expires, and is asked for again before it does.
 */
#ifndef MFS_REMOTE_CREDENTIALS_H
#define MFS_REMOTE_CREDENTIALS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

struct curl_slist;
struct mfs_credentials;
struct mfs_curl_request;

/* *ret is NULL if there are none: requests are not signed then, as public buckets have it.
 * -EINVAL: a file or an answer has another form than it should. */
int mfs_credentials_new(struct mfs_credentials **ret, struct mfs_error *err);
void mfs_credentials_free(struct mfs_credentials *c);

/* AWS_REGION, AWS_DEFAULT_REGION, the profile's region in ~/.aws/config, or us-east-1. */
void mfs_credentials_region(char *ret, size_t size);

/* The files of keys and of profiles, which need not be there. False: nothing says where. */
bool mfs_credentials_path(char ret[PATH_MAX]);
bool mfs_credentials_config_path(char ret[PATH_MAX]);

/* Adds the headers of a signature (formats/net/sigv4.h) to a request. Any thread. */
int mfs_credentials_sign(struct mfs_credentials *c, const char *region,
			 const struct mfs_curl_request *r,
			 bool (*add)(struct curl_slist **list, const char *name, const char *value),
			 struct curl_slist **list, struct mfs_error *err);

#endif
