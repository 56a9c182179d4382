/* GET /metrics over HTTP. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fs/http/http_server.h"
#include "fs/fuse/metrics.h"
#include "fs/stats/prom.h"

#define CONNECTIONS 32
#define SECONDS	    10 /* that a client may be silent */

struct mfs_metrics_listener {
	struct mfs_http *http;
	const struct mfs_metrics_of *metrics;
};

static void answer(void *arg, const struct mfs_request *q, struct mfs_reply *a)
{
	const struct mfs_metrics_listener *l = arg;

	if (q->method != MFS_METHOD_GET && q->method != MFS_METHOD_HEAD) {
		mfs_reply_error(a, 405, "GET or HEAD");
	} else if (strcmp(q->target, "/metrics")) {
		mfs_reply_error(a, 404, "only /metrics is here");
	} else {
		a->status = 200;
		a->type = MFS_PROM_TYPE;
		mfs_metrics_text(l->metrics, &a->text);
	}
}

static void done(void *arg, const struct mfs_request *q, const struct mfs_reply *a, uint64_t sent,
		 bool whole)
{
	(void)arg, (void)q, (void)a, (void)sent, (void)whole;
}

/* Signals are for other threads than those of the server. */
static int start(const struct mfs_http_config *config, struct mfs_http **ret, struct mfs_error *err)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = mfs_http_start(config, ret, err);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int mfs_listener_start(const char *addr, const struct mfs_metrics_of *m,
		       struct mfs_metrics_listener **ret, struct mfs_error *err)
{
	struct mfs_metrics_listener *l = calloc(1, sizeof(*l));
	const struct mfs_http_config config = {.listen = addr,
					       .limits = {.connections = CONNECTIONS,
							  .idle_seconds = SECONDS,
							  .stall_seconds = SECONDS},
					       .arg = l,
					       .answer = answer,
					       .done = done};
	int rc;

	if (!l)
		return mfs_fail_nomem(err);
	l->metrics = m;
	rc = start(&config, &l->http, err);
	if (rc) {
		free(l);
		return mfs_fail_in(err, "metrics");
	}
	*ret = l;
	return 0;
}

void mfs_listener_stop(struct mfs_metrics_listener *l)
{
	if (!l)
		return;
	mfs_http_stop(l->http, 0);
	free(l);
}
