/* Rewards of a server: a POST for each response, many at a time, as slime's remote_rm does
 * (slime/rollout/rm_hub/__init__.py). */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "trainer/rl/http/http_calls.h"
#include "trainer/rl/reward/reward_i.h"

#define MOST	 64 /* requests at a time */
#define TRIES	 4  /* of one */
#define WAIT_MS	 50
#define FIRST_NS INT64_C(250000000) /* until the second try; until each later one 4 times longer */

struct remote {
	char *url, *key; /* key NULL: none is given */
	long seconds;
};

/* A response that is asked for. */
struct ask {
	unsigned tries;
	bool flies, done;
	int64_t not_before; /* ns */
};

struct round {
	const struct remote *remote;
	const struct mft_reward_row *rows;
	double *ret;
	struct ask *asks; /* [count] */
	size_t count, flying, done;
	struct mft_http *http;
};

static void close_url(void *self)
{
	struct remote *r = self;

	free(r->url);
	free(r->key);
	free(r);
}

static int open_url(const struct mft_reward_config *c, void **ret, struct mfs_error *err)
{
	struct remote *r;

	if (!c->url)
		return mfs_fail(err, -EINVAL, "--rl-reward url: expected --rl-reward-url");
	r = calloc(1, sizeof(*r));
	if (!r)
		return mfs_fail_nomem(err);
	r->seconds = c->seconds > 1 ? (long)c->seconds : 1;
	r->url = strdup(c->url);
	r->key = c->key ? strdup(c->key) : NULL;
	if (!r->url || (c->key && !r->key)) {
		close_url(r);
		return mfs_fail_nomem(err);
	}
	*ret = r;
	return 0;
}

static int send_one(struct round *r, size_t i, struct mfs_error *err)
{
	struct mfs_buf body = {0};
	int rc;

	mft_reward_add_row(&body, &r->rows[i]);
	if (body.failed) {
		mfs_buf_release(&body);
		return mfs_fail_nomem(err);
	}
	rc = mft_http_send(r->http, strdup(r->remote->url), body.data, r->remote->seconds,
			   &r->asks[i], err);
	r->asks[i].flies = !rc;
	r->asks[i].tries++;
	r->flying += !rc;
	return rc;
}

static int send_due(struct round *r, struct mfs_error *err)
{
	const int64_t now = mfs_now_ns();
	int rc = 0;

	for (size_t i = 0; i < r->count && r->flying < MOST && !rc; i++)
		if (!r->asks[i].done && !r->asks[i].flies && r->asks[i].not_before <= now)
			rc = send_one(r, i, err);
	return rc;
}

/* Takes an answer, or puts its request off to a later time. */
static int take(struct round *r, const struct mft_http_call *c, struct mfs_error *err)
{
	struct ask *a = c->arg;
	const size_t i = (size_t)(a - r->asks);
	int rc;

	a->flies = false;
	r->flying--;
	if (c->status < 200 || c->status > 299)
		rc = mft_http_failure(c, err);
	else if ((rc = mft_reward_add_answer(c->reply, r->remote->key, &r->ret[i], err)))
		rc = mfs_fail_in(err, "%s, response %zu", r->remote->url, i);
	a->done = !rc;
	r->done += !rc;
	if (!rc)
		return 0;
	a->not_before = mfs_now_ns() + (FIRST_NS << 2 * (a->tries - 1));
	return a->tries < TRIES ? 0 : mfs_fail_in(err, "after %d tries", TRIES);
}

static int run(struct round *r, struct mfs_error *err)
{
	int rc = 0;

	while (!rc && r->done < r->count) {
		struct mft_http_call *c = NULL;

		rc = send_due(r, err);
		if (!rc && r->flying)
			rc = mft_http_wait(r->http, WAIT_MS, &c, err);
		else if (!rc)
			poll(NULL, 0, WAIT_MS);
		if (c)
			rc = take(r, c, err);
		mft_http_call_free(c);
	}
	return rc;
}

static int score_url(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		     struct mfs_error *err)
{
	struct round r = {.remote = self, .rows = rows, .ret = ret, .count = count};
	int rc;

	r.asks = calloc(count + 1, sizeof(*r.asks));
	if (!r.asks)
		return mfs_fail_nomem(err);
	rc = mft_http_new(&r.http, err);
	if (!rc)
		rc = run(&r, err);
	mft_http_free(r.http);
	free(r.asks);
	return rc;
}

const struct mft_reward_kind mft_reward_url = {
	.name = "url", .open = open_url, .close = close_url, .score = score_url};
