/*
 * --log-straggler: each rank measures its own microbatches, without the sums of gradients, in which
 * all wait for the slowest; the first rank prints who was slow (trainer/report/straggler_line.h).
 *
 * Megatron times the forward pass by events, and estimates a third of its throughput. Here forward
 * and backward are timed together, and the device is waited for after them.
 *
 * A program that connects to --straggler-ctrlr-port of the first rank switches it on or off, from
 * the next report on (core/utils.py: StragglerDetector._handler, _check_toggle).
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "trainer/loop/trainer_i.h"
#include "trainer/report/straggler_line.h"

#define LOGGER "INFO:megatron.core.utils:"

struct mft_straggler {
	bool on;
	int64_t began_ns; /* of the step's microbatches */
	/* since the last report */
	int64_t ran_ns, data_ns; /* data_ns: the longest */
	double flops;
	/* the first rank's */
	int port; /* that is listened to; -1: none */
	pthread_t thread;
	atomic_bool wanted;  /* to be switched */
	atomic_bool told_on; /* what a client is told that it is */
};

/* ---- switching ---- */

static void answer(struct mft_straggler *s, int client)
{
	const struct timeval patience = {.tv_sec = 5};
	char request[1024], message[96], text[256];
	int length;

	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (recv(client, request, sizeof(request), 0) < 0)
		return;
	s->wanted = true;
	length = snprintf(message, sizeof(message),
			  "Will turn StragglerDetector %s at next logging interval",
			  s->told_on ? "OFF" : "ON");
	snprintf(text, sizeof(text),
		 "HTTP/1.0 200 OK\r\nConnection: Close\r\nContent-length: %d\r\n\r\n%s", length,
		 message);
	/* Whom nobody reads to has switched all the same. */
	(void)!send(client, text, strlen(text), MSG_NOSIGNAL);
	printf(LOGGER "%s\n", message);
	fflush(stdout);
}

/* Until the socket is shut down. */
static void *listen_to(void *arg)
{
	struct mft_straggler *s = arg;
	int client;

	while ((client = accept(s->port, NULL, NULL)) >= 0 || errno == EINTR ||
	       errno == ECONNABORTED) {
		if (client < 0)
			continue;
		answer(s, client);
		close(client);
	}
	return NULL;
}

static int open_port(struct mft_straggler *s, int64_t number)
{
	const struct sockaddr_in at = {.sin_family = AF_INET,
				       .sin_port = htons((uint16_t)number),
				       .sin_addr.s_addr = htonl(INADDR_ANY)};
	const int yes = 1;
	int rc = 0;

	s->port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->port < 0)
		return errno;
	setsockopt(s->port, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(s->port, (const struct sockaddr *)&at, sizeof(at)) || listen(s->port, 128))
		rc = errno;
	if (!rc)
		rc = -mfs_thread_start(&s->thread, "straggler", listen_to, s);
	if (rc) {
		close(s->port);
		s->port = -1;
	}
	return rc;
}

/* ---- life ---- */

int mft_straggler_new(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	struct mft_straggler *s;
	int rc;

	if (!c->log_straggler)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	t->straggler = s;
	s->told_on = !c->disable_straggler_on_startup;
	s->on = s->told_on;
	s->port = -1;
	if (!t->speaks)
		return 0;
	rc = open_port(s, c->straggler_ctrlr_port);
	if (rc)
		fprintf(stderr,
			"mcorefs-train: --straggler-ctrlr-port %lld: %s; the report cannot be "
			"switched\n",
			(long long)c->straggler_ctrlr_port, strerror(rc));
	else
		printf(LOGGER "Controller ready to recv commands on port %lld. Current state %s\n",
		       (long long)c->straggler_ctrlr_port, s->on ? "ON" : "OFF");
	return 0;
}

void mft_straggler_free(struct mft_straggler *s)
{
	if (s && s->port >= 0) {
		shutdown(s->port, SHUT_RDWR);
		pthread_join(s->thread, NULL);
		close(s->port);
	}
	free(s);
}

/* ---- measuring ---- */

void mft_straggler_begin(struct mft_trainer *t)
{
	if (t->straggler)
		t->straggler->began_ns = mfs_now_ns();
}

void mft_straggler_waited(struct mft_trainer *t, int64_t ns)
{
	if (t->straggler && ns > t->straggler->data_ns)
		t->straggler->data_ns = ns;
}

int mft_straggler_end(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_straggler *s = t->straggler;
	char why[MFK_WHY];
	int rc;

	if (!s || !s->on)
		return 0;
	rc = t->backend->device->sync(t->ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s: %s", t->backend->name, why);
	s->ran_ns += mfs_now_ns() - s->began_ns;
	return 0;
}

/* ---- reporting ---- */

static int gather(struct mft_trainer *t, const struct mft_straggler_rank *own,
		  struct mfs_error *err)
{
	const uint32_t count = t->parallel.group[MFT_GROUP_WORLD].size;
	struct mft_straggler_rank *all = calloc(count, sizeof(*all));
	struct mfs_buf b = {0};
	int rc;

	if (!all)
		return mfs_fail_nomem(err);
	rc = mft_parallel_gather(&t->parallel, MFT_GROUP_WORLD, all, own, sizeof(*own), err);
	if (!rc && t->speaks &&
	    mft_report_straggler(&b, time(NULL), all, count, t->config->straggler_minmax_count))
		mft_log_text(t, &b);
	free(all);
	return rc;
}

/* All switch at once, when the first has been asked to. */
static int agree(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_straggler *s = t->straggler;
	struct mfs_buf b = {0};
	uint32_t first;
	const bool wanted = atomic_exchange(&s->wanted, false);
	const int rc = mft_parallel_first(&t->parallel, MFT_GROUP_WORLD, wanted, &first, err);

	if (rc || first == MFT_RANK_NONE)
		return rc;
	s->on = !s->on;
	s->told_on = s->on;
	mfs_buf_printf(&b, LOGGER "Toggling StragglerDetector State %s\n", s->on ? "ON" : "OFF");
	mft_log_text(t, &b);
	return 0;
}

int mft_straggler_step(struct mft_trainer *t, const struct mft_step *step, struct mfs_error *err)
{
	const int64_t interval = t->config->log_interval;
	struct mft_straggler *s = t->straggler;
	int rc = 0;

	if (!s)
		return 0;
	s->flops += mft_step_flops(t, step->batch);
	if (interval <= 0 || t->progress.iteration % (uint64_t)interval)
		return 0;
	if (s->on && s->ran_ns > 0) {
		const double ms = (double)s->ran_ns / 1e6 / (double)interval;
		const double world = t->parallel.group[MFT_GROUP_WORLD].size;
		const struct mft_straggler_rank own = {.rtt_ms = ms,
						       .data_ms = (double)s->data_ns / 1e6,
						       .tflops = s->flops / (double)interval /
								 (ms * 1e9 * world)};

		rc = gather(t, &own, err);
	}
	s->flops = 0;
	s->ran_ns = s->data_ns = 0;
	return rc ? rc : agree(t, err);
}
