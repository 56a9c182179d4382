#include "fs/gateway/access/secrets.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include <openssl/crypto.h>

#include "fs/cli/log.h"
#include "fs/gateway/access/watched.h"

struct mfs_secrets {
	char *path;
	pthread_mutex_t lock; /* of the fields below */
	struct mfs_watched file;
	struct mfs_secret_list now;
};

static int load(const char *path, struct mfs_secret_list *ret, struct stat *st,
		struct mfs_error *err)
{
	size_t len;
	char *text;
	int rc = mfs_watched_read(path, MFS_SECRETS_BYTES, &text, &len, st, err);

	if (rc)
		return rc;
	rc = mfs_secrets_parse(path, text, len, ret, err);
	OPENSSL_cleanse(text, len);
	free(text);
	return rc;
}

/* ---- what is in force ---- */

int mfs_secrets_open(const char *path, struct mfs_secrets **ret, struct mfs_error *err)
{
	struct mfs_secrets *s = calloc(1, sizeof(*s));
	struct stat st;
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&s->lock, NULL);
	s->path = strdup(path);
	rc = s->path ? load(path, &s->now, &st, err) : mfs_fail_nomem(err);
	if (rc) {
		mfs_secrets_free(s);
		return rc;
	}
	s->file.path = s->path;
	mfs_watched_note(&s->file, &st);
	*ret = s;
	return 0;
}

void mfs_secrets_free(struct mfs_secrets *s)
{
	if (!s)
		return;
	mfs_secrets_forget(&s->now);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

/* Under the lock. A file that is wrong is looked at again when it has changed once more. */
static void look(struct mfs_secrets *s)
{
	struct mfs_secret_list list;
	struct mfs_error err;
	struct stat st;

	if (!mfs_watched_changed(&s->file, &st))
		return;
	if (load(s->path, &list, &st, &err)) {
		mfs_log(LOG_ERR, "%s; the secrets stay as they were", err.msg);
	} else {
		s->now = list;
		mfs_log(LOG_NOTICE, "%s: it was read again", s->path);
	}
	mfs_watched_note(&s->file, &st);
	mfs_secrets_forget(&list);
}

void mfs_secrets_now(struct mfs_secrets *s, struct mfs_secret_list *ret)
{
	pthread_mutex_lock(&s->lock);
	look(s);
	*ret = s->now;
	pthread_mutex_unlock(&s->lock);
}
