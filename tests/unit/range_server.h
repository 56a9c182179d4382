/*
 * A server of one object over HTTP, in threads of the test, that fails as it is told to. It serves
 * ranges of bytes that follow from their offsets, so that an object may be of any size.
 */
#ifndef MFS_TESTS_RANGE_SERVER_H
#define MFS_TESTS_RANGE_SERVER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum fault {
	FAULT_NONE,
	FAULT_503, /* with Retry-After: 0 */
	FAULT_404,
	FAULT_TRUNCATED,     /* half of the body, then the end */
	FAULT_RESET,	     /* the connection is reset after the headers */
	FAULT_STALL,	     /* half of the body, then nothing */
	FAULT_SILENT,	     /* no answer */
	FAULT_OTHER_RANGE,   /* Content-Range says something else */
	FAULT_SHORT_RANGE,   /* a whole answer, of fewer bytes */
	FAULT_NO_RANGES,     /* 200 and all bytes */
	FAULT_ENCODED,	     /* Content-Encoding: gzip */
	FAULT_OTHER_VERSION, /* another ETag, and If-Match is not looked at */
	FAULT_REDIRECT,	     /* to where it is served */
	FAULT_INWARDS,	     /* a redirect to another address of this machine */
	FAULT_LONG_HEADER,   /* of 4 MiB */
};

struct range_server {
	uint64_t size;
	atomic_uint fault, faults; /* what happens to so many requests */
	atomic_uint requests, version;
	atomic_ullong sent;
	bool weak, no_etag;
	uint16_t port;
	int fd;
	pthread_t thread;
	atomic_bool ending;
	atomic_uint connections;
};

#define RANGE_MIB (1u << 20)

/* Bytes that no two places of an object share for long. */
static uint8_t range_table[2 * RANGE_MIB];

static const uint8_t *range_at(uint64_t off)
{
	return range_table + off % RANGE_MIB + off / RANGE_MIB * 4099 % RANGE_MIB;
}

static inline uint8_t range_byte(uint64_t off)
{
	return *range_at(off);
}

static bool range_send(int fd, const void *bytes, size_t len)
{
	while (len) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes = (const char *)bytes + n;
		len -= (size_t)n;
	}
	return true;
}

static bool range_body(struct range_server *s, int fd, uint64_t off, uint64_t len)
{
	while (len) {
		const size_t rest = RANGE_MIB - off % RANGE_MIB, n = len < rest ? len : rest;

		if (!range_send(fd, range_at(off), n))
			return false;
		atomic_fetch_add(&s->sent, n);
		off += n;
		len -= n;
	}
	return true;
}

/* Takes what is asked for off the count. */
static enum fault range_fault(struct range_server *s)
{
	unsigned left = atomic_load(&s->faults);

	while (left)
		if (atomic_compare_exchange_weak(&s->faults, &left, left - 1))
			return atomic_load(&s->fault);
	return FAULT_NONE;
}

static void range_wait(struct range_server *s, int fd)
{
	char byte;

	while (!atomic_load(&s->ending) && recv(fd, &byte, 1, MSG_DONTWAIT) < 0)
		usleep(10000);
}

static bool range_answer(struct range_server *s, int fd, const char *request)
{
	const char *range = strstr(request, "\r\nRange: bytes=");
	const char *match = strstr(request, "\r\nIf-Match: ");
	unsigned long long first = 0, last = s->size - 1;
	const bool head = !strncmp(request, "HEAD", 4);
	enum fault fault = head ? FAULT_NONE : range_fault(s);
	char etag[80], headers[800];
	uint64_t len;
	int n;

	atomic_fetch_add(&s->requests, 1);
	snprintf(etag, sizeof(etag), "%s\"v%u\"", s->weak ? "W/" : "",
		 atomic_load(&s->version) + (fault == FAULT_OTHER_VERSION));
	if (range)
		sscanf(range + 15, "%llu-%llu", &first, &last);
	if (last >= s->size)
		last = s->size - 1;
	len = last - first + 1;
	if (fault == FAULT_SILENT) {
		range_wait(s, fd);
		return false;
	}
	if (fault == FAULT_503 || fault == FAULT_404 ||
	    (match && fault != FAULT_OTHER_VERSION && strncmp(match + 12, etag, strlen(etag)))) {
		n = snprintf(headers, sizeof(headers),
			     "HTTP/1.1 %s\r\nContent-Length: 4\r\n\r\noops",
			     fault == FAULT_503	  ? "503 Busy"
			     : fault == FAULT_404 ? "404 Gone"
						  : "412 Precondition Failed");
		return range_send(fd, headers, (size_t)n);
	}
	if (fault == FAULT_LONG_HEADER) {
		n = snprintf(headers, sizeof(headers), "HTTP/1.1 200 OK\r\nX: ");
		if (!range_send(fd, headers, (size_t)n))
			return false;
		memset(headers, 'a', sizeof(headers));
		for (unsigned i = 0; i < 4 * RANGE_MIB / sizeof(headers); i++)
			if (!range_send(fd, headers, sizeof(headers)))
				return false;
		return false;
	}
	if (fault == FAULT_REDIRECT || fault == FAULT_INWARDS) {
		n = snprintf(headers, sizeof(headers),
			     "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.%u:%u/there\r\n"
			     "ETag: \"of-the-redirect\"\r\nContent-Length: 0\r\n\r\n",
			     fault == FAULT_INWARDS ? 2 : 1, s->port);
		return range_send(fd, headers, (size_t)n);
	}
	if (fault == FAULT_NO_RANGES) {
		range = NULL;
		first = 0;
		len = s->size;
		last = len - 1;
	}
	if (fault == FAULT_SHORT_RANGE)
		len /= 2;
	n = snprintf(headers, sizeof(headers),
		     "HTTP/1.1 %s\r\nContent-Length: %llu\r\n%s%s%s"
		     "Last-Modified: Wed, 21 Oct 2015 07:28:0%u GMT\r\n%s",
		     range ? "206 Partial Content" : "200 OK", (unsigned long long)len,
		     s->no_etag ? "" : "ETag: ", s->no_etag ? "" : etag, s->no_etag ? "" : "\r\n",
		     atomic_load(&s->version) % 10,
		     fault == FAULT_ENCODED ? "Content-Encoding: gzip\r\n" : "");
	if (range)
		n += snprintf(headers + n, sizeof(headers) - (size_t)n,
			      "Content-Range: bytes %llu-%llu/%llu\r\n",
			      first / (1 + (fault == FAULT_OTHER_RANGE)),
			      last - (fault == FAULT_OTHER_RANGE), (unsigned long long)s->size);
	n += snprintf(headers + n, sizeof(headers) - (size_t)n, "\r\n");
	if (!range_send(fd, headers, (size_t)n))
		return false;
	if (head)
		return true;
	if (fault == FAULT_RESET) {
		const struct linger now = {1, 0};

		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		return false;
	}
	if (fault == FAULT_TRUNCATED || fault == FAULT_STALL)
		len /= 2;
	if (!range_body(s, fd, first, len))
		return false;
	if (fault == FAULT_STALL)
		range_wait(s, fd);
	return fault != FAULT_TRUNCATED && fault != FAULT_STALL;
}

struct range_connection {
	struct range_server *s;
	int fd;
};

static void *range_serve(void *arg)
{
	struct range_connection *c = arg;
	char request[8192];
	size_t have = 0;
	ssize_t n;

	while ((n = recv(c->fd, request + have, sizeof(request) - 1 - have, 0)) > 0) {
		have += (size_t)n;
		request[have] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		have = 0;
		if (!range_answer(c->s, c->fd, request))
			break;
	}
	close(c->fd);
	atomic_fetch_sub(&c->s->connections, 1);
	free(c);
	return NULL;
}

static void *range_accept(void *arg)
{
	struct range_server *s = arg;
	const struct timeval limit = {.tv_sec = 2};
	pthread_t thread;
	int fd;

	while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
		struct range_connection *c = malloc(sizeof(*c));

		if (atomic_load(&s->ending) || !c) {
			free(c);
			close(fd);
			break;
		}
		*c = (struct range_connection){s, fd};
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		atomic_fetch_add(&s->connections, 1);
		ck_assert_int_eq(pthread_create(&thread, NULL, range_serve, c), 0);
		pthread_detach(thread);
	}
	return NULL;
}

static void range_start(struct range_server *s, uint64_t size)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	for (uint32_t i = 0, x = 1; i < sizeof(range_table); i++, x = x * 1664525 + 1013904223)
		range_table[i] = (uint8_t)(x >> 24);
	s->size = size;
	s->fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_ge(s->fd, 0);
	ck_assert_int_eq(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(s->fd, 64), 0);
	ck_assert_int_eq(getsockname(s->fd, (struct sockaddr *)&at, &len), 0);
	s->port = ntohs(at.sin_port);
	ck_assert_int_eq(pthread_create(&s->thread, NULL, range_accept, s), 0);
}

static void range_stop(struct range_server *s)
{
	atomic_store(&s->ending, true);
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
	for (int i = 0; atomic_load(&s->connections) && i < 500; i++)
		usleep(10000);
}

#endif
