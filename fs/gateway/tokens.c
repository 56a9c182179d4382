#define _GNU_SOURCE
#include "fs/gateway/tokens.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"
#include "fs/cli/log.h"

#define LOOK 1000000000ll /* ns between two looks at the file */

/* Rules that are replaced live until the last who uses them has gone. */
struct shared {
	struct mfs_rules *rules;
	unsigned users;
	struct shared *next; /* older ones that are still used */
};

struct mfs_tokens {
	char *path;
	pthread_mutex_t lock; /* of the fields below */
	struct shared *now;
	int64_t looked;
	struct timespec changed, renamed; /* mtime and ctime of the file that was read */
	ino_t ino;
	off_t size;
};

static bool is_same(const struct mfs_tokens *t, const struct stat *st)
{
	return t->ino == st->st_ino && t->size == st->st_size &&
	       mfs_ns(t->changed) == mfs_ns(st->st_mtim) &&
	       mfs_ns(t->renamed) == mfs_ns(st->st_ctim);
}

static int check_mode(const char *path, const struct stat *st, struct mfs_error *err)
{
	if (!(st->st_mode & (S_IWGRP | S_IWOTH | S_IROTH)))
		return 0;
	return mfs_fail(err, -EACCES, "%s: its mode is %03o, but nobody else may %s it: chmod 640",
			path, st->st_mode & 0777,
			st->st_mode & (S_IWGRP | S_IWOTH) ? "write" : "read");
}

static int read_rules(const char *path, struct stat *st, struct mfs_rules **ret,
		      struct mfs_error *err)
{
	char *text = NULL;
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, st);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", path, mfs_open_regular_why(rc));
	rc = check_mode(path, st, err);
	if (!rc && st->st_size > MFS_TOKENS_BYTES)
		rc = mfs_fail(err, -EINVAL, "%s: it has more than %u bytes", path,
			      MFS_TOKENS_BYTES);
	if (!rc && !(text = malloc((size_t)st->st_size + 1)))
		rc = mfs_fail_nomem(err);
	if (!rc && mfs_pread_whole(fd, 0, text, (size_t)st->st_size))
		rc = mfs_fail(err, -EIO, "%s: it cannot be read", path);
	if (!rc)
		rc = mfs_rules_parse(path, text, (size_t)st->st_size, ret, err);
	free(text);
	close(fd);
	return rc;
}

static void note_file(struct mfs_tokens *t, const struct stat *st)
{
	t->changed = st->st_mtim;
	t->renamed = st->st_ctim;
	t->ino = st->st_ino;
	t->size = st->st_size;
}

/* Under the lock. */
static void free_unused(struct mfs_tokens *t)
{
	for (struct shared **at = &t->now; *at;) {
		struct shared *s = *at;

		if (s == t->now || s->users) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		mfs_rules_free(s->rules);
		free(s);
	}
}

static int load(struct mfs_tokens *t, struct mfs_error *err)
{
	struct shared *s = calloc(1, sizeof(*s));
	struct stat st;
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	rc = read_rules(t->path, &st, &s->rules, err);
	if (rc) {
		free(s);
		return rc;
	}
	note_file(t, &st);
	s->next = t->now;
	t->now = s;
	free_unused(t);
	return 0;
}

/* Under the lock. A file that is wrong is looked at again when it has changed once more. */
static void look(struct mfs_tokens *t)
{
	const int64_t now = mfs_now_ns();
	struct mfs_error err;
	struct stat st;

	if (now - t->looked < LOOK)
		return;
	t->looked = now;
	if (stat(t->path, &st) || is_same(t, &st))
		return;
	if (load(t, &err)) {
		mfs_log(LOG_ERR, "%s; the rules stay as they were", err.msg);
		note_file(t, &st);
	} else {
		mfs_log(LOG_NOTICE, "%s: %u rules are in force", t->path,
			mfs_rules_count(t->now->rules));
	}
}

int mfs_tokens_open(const char *path, struct mfs_tokens **ret, struct mfs_error *err)
{
	struct mfs_tokens *t = calloc(1, sizeof(*t));
	int rc = 0;

	if (!t)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&t->lock, NULL);
	t->looked = mfs_now_ns();
	if (path) {
		t->path = strdup(path);
		rc = t->path ? load(t, err) : mfs_fail_nomem(err);
	}
	if (rc) {
		mfs_tokens_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void mfs_tokens_free(struct mfs_tokens *t)
{
	if (!t)
		return;
	while (t->now) {
		struct shared *s = t->now;

		t->now = s->next;
		mfs_rules_free(s->rules);
		free(s);
	}
	pthread_mutex_destroy(&t->lock);
	free(t->path);
	free(t);
}

static const char *bearer(const char *authorization)
{
	if (!authorization || strncasecmp(authorization, "Bearer ", 7))
		return NULL;
	authorization += 7;
	authorization += strspn(authorization, " ");
	return *authorization ? authorization : NULL;
}

struct mfs_grant mfs_tokens_hold(struct mfs_tokens *t)
{
	struct mfs_grant g = {.rule = -1};

	if (!t->path)
		return g;
	pthread_mutex_lock(&t->lock);
	look(t);
	t->now->users++;
	g.rules = t->now->rules;
	pthread_mutex_unlock(&t->lock);
	return g;
}

struct mfs_grant mfs_tokens_grant(struct mfs_tokens *t, const char *authorization, char *name,
				  size_t name_size)
{
	const char *token = bearer(authorization);
	struct mfs_grant g = mfs_tokens_hold(t);

	g.sent = token;
	*name = '\0';
	if (!g.rules)
		return g;
	g.rule = mfs_rules_find(g.rules, token);
	g.known = token && g.rule >= 0;
	snprintf(name, name_size, "%s", mfs_rules_name(g.rules, g.rule));
	return g;
}

void mfs_grant_drop(struct mfs_tokens *t, struct mfs_grant *g)
{
	if (!g->rules)
		return;
	pthread_mutex_lock(&t->lock);
	for (struct shared *s = t->now; s; s = s->next)
		if (s->rules == g->rules)
			s->users--;
	free_unused(t);
	pthread_mutex_unlock(&t->lock);
	g->rules = NULL;
}

bool mfs_grant_allows(const struct mfs_grant *g, const char *what)
{
	return !g->rules || mfs_rules_allow(g->rules, g->rule, what) ||
	       mfs_rules_allow(g->rules, mfs_rules_find(g->rules, NULL), what);
}
