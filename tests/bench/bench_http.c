/*
 * A client of plain HTTP/1.1 with a thread for each connection, for tests/bench/gateway.sh.
 *
 *   bench_http PORT PATH SIZE CONNECTIONS SECONDS [RANGE]   GETs of a file of SIZE bytes, or of
 *       ranges of RANGE bytes of it, one after the other; prints bytes a second, requests a
 *       second, and p99 in ms
 *   bench_http PORT PATH SIZE CONNECTIONS 0                 one GET on each, then waits for a line
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_TIMES 200000 /* of one connection */

static int port;
static const char *path;
static uint64_t size, range;
static double seconds;
static atomic_bool ending;

struct client {
	pthread_t thread;
	int fd;
	unsigned number;
	uint64_t bytes;
	float *times; /* ms */
	unsigned count;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static int dial(void)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (const void *)&to, sizeof(to)))
		fail("connect");
	return fd;
}

/* Reads a reply with 200 or 206 and its Content-Length. */
static uint64_t take_reply(int fd, char *buf, size_t room)
{
	size_t have = 0;
	char *end = NULL, *length;
	uint64_t want, got;

	while (!end) {
		ssize_t n = recv(fd, buf + have, room - 1 - have, 0);

		if (n <= 0)
			fail("recv");
		have += (size_t)n;
		buf[have] = '\0';
		end = strstr(buf, "\r\n\r\n");
	}
	length = strcasestr(buf, "\r\ncontent-length:");
	if (strncmp(buf, "HTTP/1.1 20", 11) || !length || length > end) {
		fprintf(stderr, "%.200s\n", buf);
		exit(EXIT_FAILURE);
	}
	want = strtoull(length + 17, NULL, 10);
	got = have - (size_t)(end + 4 - buf);
	while (got < want) {
		ssize_t n = recv(fd, buf, room, 0);

		if (n <= 0)
			fail("recv");
		got += (uint64_t)n;
	}
	return want;
}

static void ask(struct client *c, char *buf, size_t room)
{
	const uint64_t ranges = range ? size / range : 1;
	const uint64_t off = range * ((c->count * 7919ull + c->number * 104729ull) % ranges);
	char request[512], head[64] = "";
	int len;

	if (range)
		snprintf(head, sizeof(head), "Range: bytes=%llu-%llu\r\n", (unsigned long long)off,
			 (unsigned long long)(off + range - 1));
	len = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path,
		       head);
	if (send(c->fd, request, (size_t)len, MSG_NOSIGNAL) != len)
		fail("send");
	c->bytes += take_reply(c->fd, buf, room);
}

static void *run(void *arg)
{
	const size_t room = 256 << 10;
	struct client *c = arg;
	char *buf = malloc(room + 1);

	c->times = calloc(MOST_TIMES, sizeof(*c->times));
	if (!buf || !c->times)
		fail("malloc");
	while (!atomic_load(&ending) && c->count < MOST_TIMES) {
		const double began = now();

		ask(c, buf, room);
		c->times[c->count++] = (float)((now() - began) * 1e3);
	}
	free(buf);
	return NULL;
}

static int by_time(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void report(const struct client *clients, int count, double took)
{
	uint64_t bytes = 0, requests = 0;
	float *all;

	for (int i = 0; i < count; i++) {
		bytes += clients[i].bytes;
		requests += clients[i].count;
	}
	all = malloc((requests + 1) * sizeof(*all));
	requests = 0;
	for (int i = 0; i < count; i++) {
		memcpy(all + requests, clients[i].times, clients[i].count * sizeof(*all));
		requests += clients[i].count;
	}
	qsort(all, requests, sizeof(*all), by_time);
	printf("%.0f %.0f %.3f\n", (double)bytes / took, (double)requests / took,
	       (double)all[requests * 99 / 100]);
	free(all);
}

static void idle(struct client *clients, int count)
{
	static char buf[64 << 10];

	for (int i = 0; i < count; i++)
		ask(&clients[i], buf, sizeof(buf));
	puts("idle");
	fflush(stdout);
	getchar();
}

int main(int argc, char **argv)
{
	struct client *clients;
	double began;
	int count;

	if (argc < 6)
		return EXIT_FAILURE;
	port = atoi(argv[1]);
	path = argv[2];
	size = strtoull(argv[3], NULL, 10);
	count = atoi(argv[4]);
	seconds = atof(argv[5]);
	range = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
	clients = calloc((size_t)count, sizeof(*clients));
	for (int i = 0; i < count; i++)
		clients[i] = (struct client){.fd = dial(), .number = (unsigned)i};
	if (seconds <= 0) {
		idle(clients, count);
		return EXIT_SUCCESS;
	}
	began = now();
	for (int i = 0; i < count; i++)
		pthread_create(&clients[i].thread, NULL, run, &clients[i]);
	usleep((unsigned)(seconds * 1e6));
	atomic_store(&ending, true);
	for (int i = 0; i < count; i++)
		pthread_join(clients[i].thread, NULL);
	report(clients, count, now() - began);
	return EXIT_SUCCESS;
}
