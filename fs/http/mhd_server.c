#define _GNU_SOURCE
#include "fs/http/http_server.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fs/http/listen.h"
#include "fs/http/mhd_i.h"

/* Threads open checkpoints. What they do not touch of it costs nothing. */
#define STACK (1u << 20)

/* Connections that the library takes above the limit: spare ones, and those that are being closed
 * to make room, of which there may be CLOSING before new ones have to wait. */
#define CLOSING 8
#define ABOVE	(MFS_CONNECTIONS_SPARE + 4 * CLOSING)

/* GnuTLS's own list has TLS 1.0 and 1.1 (RFC 8996: do not use them), and sessions whose keys are
 * sent under the certificate's (RFC 9325 4.1: neither): who gets it reads what he recorded. */
#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA"

static void notify_connection(void *arg, struct MHD_Connection *mhd, void **context,
			      enum MHD_ConnectionNotificationCode what)
{
	struct mfs_http *http = arg;
	const union MHD_ConnectionInfo *info;
	struct mfs_peer *peer = *context;
	unsigned closing;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (!peer)
			return;
		mfs_exchange_forget(peer);
		mfs_deadlines_remove(&http->deadlines, &peer->connection);
		free(peer);
		*context = NULL;
		return;
	}
	info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	*context = peer = calloc(1, sizeof(*peer));
	if (!peer) {
		shutdown(info->connect_fd, SHUT_RDWR);
		return;
	}
	mfs_connection_due(&peer->connection, http->idle_seconds);
	closing = mfs_deadlines_add(&http->deadlines, &peer->connection, info->connect_fd,
				    http->config.limits.connections);
	/* They get the processor, and the library has room for the next one. */
	if (closing > CLOSING)
		usleep((closing - CLOSING) * 2000);
}

/* Targets are decoded by fs/http/url.h, which sees where their slashes were. */
static size_t leave_escaped(void *arg, struct MHD_Connection *mhd, char *text)
{
	(void)arg, (void)mhd;
	return strlen(text);
}

static void set_defaults(struct mfs_http_limits *l)
{
	l->connections = l->connections ? l->connections : 2048;
	l->per_address = l->per_address ? l->per_address : (l->connections + 3) / 4;
	l->idle_seconds = l->idle_seconds ? l->idle_seconds : 75;
	l->stall_seconds = l->stall_seconds ? l->stall_seconds : 60;
	l->header_bytes = l->header_bytes ? l->header_bytes : 16384;
}

void mfs_http_set_times(struct mfs_http *http, const struct mfs_http_limits *limits)
{
	struct mfs_http_limits l = *limits;

	set_defaults(&l);
	atomic_store(&http->idle_seconds, l.idle_seconds);
	atomic_store(&http->stall_seconds, l.stall_seconds);
}

/* certificate: NULL without TLS. */
static int start_daemon(struct mfs_http *http, int listener, const char *certificate,
			const char *key, struct MHD_Daemon **ret, struct mfs_error *err)
{
	const struct mfs_http_limits *l = &http->config.limits;
	const bool tls = certificate;
	struct MHD_OptionItem tls_options[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)certificate},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_VERSIONS},
		{MHD_OPTION_END, 0, NULL},
	};

	if (tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return mfs_fail(err, -ENOTSUP, "this libmicrohttpd has no TLS");
	*ret = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
					MHD_USE_POLL | MHD_USE_ITC | (tls ? MHD_USE_TLS : 0),
				0, NULL, NULL, mfs_exchange_handle, http, MHD_OPTION_LISTEN_SOCKET,
				listener, MHD_OPTION_CONNECTION_LIMIT, l->connections + ABOVE,
				MHD_OPTION_PER_IP_CONNECTION_LIMIT, l->per_address,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)l->header_bytes,
				MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK,
				MHD_OPTION_URI_LOG_CALLBACK, mfs_exchange_begin, http,
				MHD_OPTION_NOTIFY_COMPLETED, mfs_exchange_end, http,
				MHD_OPTION_NOTIFY_CONNECTION, notify_connection, http,
				MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_ARRAY,
				tls ? tls_options : tls_options + 3, MHD_OPTION_END);
	if (!*ret)
		return mfs_fail(err, tls ? -EINVAL : -EIO, "the HTTP server does not start%s",
				tls ? ": certificate and key must be PEM, and fit" : "");
	return 0;
}

static bool is_idle(struct MHD_Daemon *daemon)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

	return info && !info->num_connections;
}

/* Ends the retired daemons without connections; all of them if the others are to be cut. */
static void stop_retired(struct mfs_http *http, bool cut)
{
	struct mfs_retired **at = &http->retired;

	for (struct mfs_retired *r; (r = *at);) {
		if (!cut && !is_idle(r->daemon)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		MHD_stop_daemon(r->daemon);
		close(r->listener);
		free(r);
	}
}

/* A daemon has one certificate: another daemon takes its place at the same socket. Both listen for
 * a moment, so that no client is refused. */
static int replace_daemon(struct mfs_http *http, struct mfs_retired *r, int listener,
			  const char *certificate, const char *key, struct mfs_error *err)
{
	struct MHD_Daemon *daemon;
	int rc = start_daemon(http, listener, certificate, key, &daemon, err);

	if (rc)
		return rc;
	*r = (struct mfs_retired){http->daemon, http->listener, http->retired};
	http->retired = r;
	http->daemon = daemon;
	MHD_quiesce_daemon(r->daemon);
	http->listener = listener;
	return 0;
}

int mfs_http_set_certificate(struct mfs_http *http, const char *certificate, const char *key,
			     struct mfs_error *err)
{
	struct mfs_retired *r;
	int listener, rc;

	stop_retired(http, false);
	listener = fcntl(http->listener, F_DUPFD_CLOEXEC, 0);
	if (listener < 0)
		return mfs_fail_errno(err, "a second socket");
	r = calloc(1, sizeof(*r));
	if (!r) {
		close(listener);
		return mfs_fail_nomem(err);
	}
	/* A daemon that does not start has closed its socket: the number may be another thread's
	 * file by now, and is not even looked at. */
	rc = replace_daemon(http, r, listener, certificate, key, err);
	if (rc)
		free(r);
	return rc;
}

int mfs_http_bind(const struct mfs_http_config *config, struct mfs_http **ret,
		  struct mfs_error *err)
{
	struct mfs_http *http = calloc(1, sizeof(*http));
	char text[MFS_LISTEN_TEXT];
	int rc;

	if (!http)
		return mfs_fail_nomem(err);
	http->config = *config;
	set_defaults(&http->config.limits);
	mfs_http_set_times(http, &config->limits);
	rc = mfs_listen(config->listen ? config->listen : MFS_HTTP_LISTEN, &http->listener, text,
			err);
	if (rc) {
		free(http);
		return rc;
	}
	snprintf(http->address, sizeof(http->address), "%s%s",
		 !strncmp(text, "unix:", 5) ? ""
		 : config->certificate	    ? "https://"
					    : "http://",
		 text);
	*ret = http;
	return 0;
}

int mfs_http_run(struct mfs_http *http, struct mfs_error *err)
{
	int rc = mfs_deadlines_start(&http->deadlines);

	if (rc)
		return mfs_fail(err, rc, "no thread: %s", strerror(-rc));
	rc = start_daemon(http, http->listener, http->config.certificate, http->config.key,
			  &http->daemon, err);
	if (rc)
		mfs_deadlines_stop(&http->deadlines);
	return rc;
}

int mfs_http_start(const struct mfs_http_config *config, struct mfs_http **ret,
		   struct mfs_error *err)
{
	/* The daemon's threads may ask for it at once. */
	int rc = mfs_http_bind(config, ret, err);

	if (rc)
		return rc;
	rc = mfs_http_run(*ret, err);
	if (rc) {
		mfs_http_stop(*ret, 0);
		*ret = NULL;
	}
	return rc;
}

const char *mfs_http_address(const struct mfs_http *http)
{
	return http->address;
}

struct mfs_http_state mfs_http_state(const struct mfs_http *http)
{
	struct mfs_http *h = (struct mfs_http *)http;
	struct mfs_http_state s = {0};

	if (!h)
		return s;
	s.requests = atomic_load(&h->requests);
	pthread_mutex_lock(&h->deadlines.lock);
	s.connections = h->deadlines.count;
	pthread_mutex_unlock(&h->deadlines.lock);
	return s;
}

void mfs_http_stop(struct mfs_http *http, unsigned grace_seconds)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	int listener = http->listener;

	atomic_store(&http->ending, true);
	if (http->daemon) {
		listener = MHD_quiesce_daemon(http->daemon);
		for (unsigned i = 0; i < grace_seconds * 50 && atomic_load(&http->requests); i++)
			nanosleep(&pause, NULL);
		MHD_stop_daemon(http->daemon);
		stop_retired(http, true);
		mfs_deadlines_stop(&http->deadlines);
	}
	if (listener != MHD_INVALID_SOCKET)
		close(listener);
	mfs_listen_end(http->address);
	free(http);
}
