#define _GNU_SOURCE
#include "fs/gateway/access/tokens.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "formats/base/clock.h"
#include "fs/cli/log.h"
#include "fs/gateway/access/authorization.h"
#include "fs/gateway/access/watched.h"

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
	struct mfs_watched file;
};

static int read_rules(const char *path, struct stat *st, struct mfs_rules **ret,
		      struct mfs_error *err)
{
	size_t len;
	char *text;
	int rc = mfs_watched_read(path, MFS_TOKENS_BYTES, &text, &len, st, err);

	if (rc)
		return rc;
	rc = mfs_rules_parse(path, text, len, ret, err);
	free(text);
	return rc;
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
	mfs_watched_note(&t->file, &st);
	s->next = t->now;
	t->now = s;
	free_unused(t);
	return 0;
}

/* Under the lock. A file that is wrong is looked at again when it has changed once more. */
static void look(struct mfs_tokens *t)
{
	struct mfs_error err;
	struct stat st;

	if (!mfs_watched_changed(&t->file, &st))
		return;
	if (load(t, &err)) {
		mfs_log(LOG_ERR, "%s; the rules stay as they were", err.msg);
		mfs_watched_note(&t->file, &st);
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
	if (path) {
		t->file.path = t->path = strdup(path);
		t->file.looked = mfs_now_ns();
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

struct mfs_grant mfs_tokens_grant_sum(struct mfs_tokens *t, const uint8_t sum[MFS_TOKEN_SUM],
				      char *name, size_t name_size)
{
	struct mfs_grant g = mfs_tokens_hold(t);

	g.sent = sum;
	*name = '\0';
	if (!g.rules)
		return g;
	g.rule = mfs_rules_find_sum(g.rules, sum);
	g.known = sum && g.rule >= 0;
	snprintf(name, name_size, "%s", mfs_rules_name(g.rules, g.rule));
	return g;
}

struct mfs_grant mfs_tokens_grant(struct mfs_tokens *t, const char *authorization, char *name,
				  size_t name_size)
{
	uint8_t sum[MFS_TOKEN_SUM];
	char *token;

	mfs_authorization_token(authorization, &token);
	if (token)
		mfs_token_sum(token, sum);
	mfs_authorization_forget(token);
	return mfs_tokens_grant_sum(t, token ? sum : NULL, name, name_size);
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
