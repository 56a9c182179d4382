/* The server's connections, when there are more than it takes: fs/http/http_server.h,
 * deadlines.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/http/deadlines.h"
#include "fs/http/http_server.h"

#define MOST	4
#define WAIT_MS 60000 /* for what must come; a test that waits so long fails */

static struct mfs_error err;
static struct mfs_http *http;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned held;	    /* requests that wait for may_go */
static unsigned ended;	    /* requests */
static unsigned unanswered; /* of these */
static bool may_go;

static void hold(void)
{
	pthread_mutex_lock(&lock);
	held++;
	pthread_cond_broadcast(&changed);
	while (!may_go)
		pthread_cond_wait(&changed, &lock);
	held--;
	pthread_mutex_unlock(&lock);
}

/* "/hold" is answered when the test says so. */
static void answer(void *arg, const struct mfs_request *q, struct mfs_reply *a)
{
	(void)arg;
	if (!strcmp(q->target, "/hold"))
		hold();
	a->status = q->crowded ? 503 : 200;
	a->type = "text/plain";
	mfs_buf_adds(&a->text, "x");
}

static void done(void *arg, const struct mfs_request *q, const struct mfs_reply *a, uint64_t sent,
		 bool whole)
{
	(void)arg, (void)sent, (void)whole;
	/* What the log asks for is there, or is known not to be. */
	ck_assert_ptr_nonnull(q->target);
	ck_assert(!mfs_request_header(q, "X-Not-Sent"));
	ck_assert(!q->method_name || *q->method_name);
	pthread_mutex_lock(&lock);
	ended++;
	unanswered += !a->status;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* So many have ended for the server, too: its clients may know sooner. */
static void wait_for_ends(unsigned count)
{
	pthread_mutex_lock(&lock);
	while (ended < count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void setup(void)
{
	const struct mfs_http_config config = {
		.listen = "127.0.0.1:0",
		.limits = {.connections = MOST, .per_address = 1000},
		.answer = answer,
		.done = done,
	};

	held = ended = unanswered = 0;
	may_go = false;
	unit_ok(mfs_http_start(&config, &http, &err), &err);
}

static void teardown(void)
{
	mfs_http_stop(http, 10);
}

static int dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(mfs_http_address(http), ':') + 1));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (void *)&to, sizeof(to)), 0);
	return fd;
}

static void ask(int fd, const char *target)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target);

	ck_assert_int_eq(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
}

/* The status of the reply that comes; 0: the connection was closed. */
static int status_of(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[4096];
	ssize_t n;

	ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
	n = recv(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	ck_assert_int_eq(strncmp(text, "HTTP/1.1 ", 9), 0);
	return atoi(text + 9);
}

static bool is_open(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return !poll(&p, 1, 0);
}

/* As many connections as there may be, each with its request. */
static void fill(int fds[MOST])
{
	for (int i = 0; i < MOST; i++) {
		fds[i] = dial();
		ask(fds[i], "/hold");
	}
	pthread_mutex_lock(&lock);
	while (held < MOST)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void release(void)
{
	pthread_mutex_lock(&lock);
	may_go = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Clients that say nothing keep nobody out: those that have waited longest are closed. */
START_TEST(silent_clients_keep_nobody_out)
{
	int silent[40 * MOST], good;

	for (int i = 0; i < 40 * MOST; i++)
		silent[i] = dial();
	good = dial();
	ask(good, "/");
	ck_assert_int_eq(status_of(good), 200);
	for (int i = 0; i < 40 * MOST - MOST; i++)
		ck_assert_int_eq(status_of(silent[i]), 0);
	/* The latest is one of those that are kept. */
	ck_assert(is_open(silent[40 * MOST - 1]));
	ask(silent[40 * MOST - 1], "/");
	ck_assert_int_eq(status_of(silent[40 * MOST - 1]), 200);
	for (int i = 0; i < 40 * MOST; i++)
		close(silent[i]);
	close(good);
}
END_TEST

/* A connection that has had its reply, and half a request, count as silent, too. */
START_TEST(kept_alive)
{
	int fds[MOST], fd;

	for (int i = 0; i < MOST; i++) {
		fds[i] = dial();
		ask(fds[i], "/");
		ck_assert_int_eq(status_of(fds[i]), 200);
		wait_for_ends((unsigned)i + 1); /* so that they wait in this order */
	}
	ck_assert_int_eq(send(fds[1], "GET / HT", 8, MSG_NOSIGNAL), 8);
	ask(fds[0], "/"); /* the second one has waited longest now */
	ck_assert_int_eq(status_of(fds[0]), 200);
	wait_for_ends(MOST + 1);
	fd = dial();
	ask(fd, "/");
	ck_assert_int_eq(status_of(fd), 200);
	ck_assert_int_eq(status_of(fds[1]), 0);
	ck_assert(is_open(fds[0]) && is_open(fds[2]) && is_open(fds[3]));
	for (int i = 0; i < MOST; i++)
		close(fds[i]);
	close(fd);
}
END_TEST

/* What is being answered is never closed. Who comes then is told so, and is let in afterwards. */
START_TEST(all_are_answered)
{
	int fds[MOST], silent[5 * MFS_CONNECTIONS_SPARE], late, again;

	fill(fds);
	for (int i = 0; i < 5 * MFS_CONNECTIONS_SPARE; i++)
		silent[i] = dial();
	late = dial();
	ask(late, "/");
	ck_assert_int_eq(status_of(late), 503);
	ck_assert_int_eq(status_of(silent[0]), 0);
	release();
	for (int i = 0; i < MOST; i++) {
		ck_assert_int_eq(status_of(fds[i]), 200);
		close(fds[i]);
	}
	for (int i = 0; i < 5 * MFS_CONNECTIONS_SPARE; i++)
		close(silent[i]);
	close(late);
	do { /* until the last of these is taken off */
		again = dial();
		ask(again, "/");
		_i = status_of(again);
		close(again);
	} while (_i == 503);
	ck_assert_int_eq(_i, 200);
}
END_TEST

/* ---- odd requests ---- */

static void send_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		const ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0) /* it has heard enough, and closed */
			return;
		bytes += n;
		len -= (size_t)n;
	}
}

/* The status of a request of one text and count times another, with an end. */
static int status_of_many(const char *before, const char *many, unsigned count, const char *after)
{
	const int fd = dial();
	int status;

	send_all(fd, before, strlen(before));
	for (unsigned i = 0; i < count; i++)
		send_all(fd, many, strlen(many));
	send_all(fd, after, strlen(after));
	status = status_of(fd);
	close(fd);
	return status;
}

#define HOST " HTTP/1.1\r\nHost: x\r\n"

/* What is too much is refused or cut, and told to who counts. LeakSanitizer looks at what stays. */
START_TEST(too_much)
{
	static const struct {
		const char *before, *many, *after;
		unsigned count;
		int status; /* 0: any refusal, or none */
	} cases[] = {
		{"GET /?", "a=b&", HOST "\r\n", 2000, 414},
		{"GET /?", "a&", HOST "\r\n", 4000, 414},
		{"GET /?a=", "b", HOST "\r\n", 8000, 200},
		{"GET /", "a", HOST "\r\n", 9000, 414},
		{"GET /", "a/", HOST "\r\n", 2000, 414},
		{"GET /", "?a=b&c", HOST "\r\n", 1000, 414},
		{"GET /" HOST, "a:\r\n", "\r\n", 2500, 431},
		{"GET /" HOST "Cookie: ", "a=b; ", "\r\n\r\n", 2000, 0},
		{"GET /" HOST "Cookie: ", "a;", "\r\n\r\n", 4000, 0},
		{"POST /" HOST "Content-Type: application/x-www-form-urlencoded\r\n"
		 "Content-Length: 20000\r\n\r\n",
		 "a=b&", "", 5000, 200},
		{"GET /?", "a=b&", "", 2000, 0},
	};
	unsigned answered = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		int status;

		if (!*cases[i].after) { /* it hangs up in the middle of its first line */
			const int fd = dial();

			send_all(fd, cases[i].before, strlen(cases[i].before));
			close(fd);
			continue;
		}
		status = status_of_many(cases[i].before, cases[i].many, cases[i].count,
					cases[i].after);
		if (cases[i].status)
			ck_assert_msg(status == cases[i].status, "case %zu: %d", i, status);
		else
			ck_assert_msg(status == 0 || status >= 400, "case %zu: %d", i, status);
		wait_for_ends(++answered);
	}
	ck_assert_uint_ge(unanswered, 2); /* the headers, and a cookie */
}
END_TEST

/* Bytes that the library would not see, and what it would wait for. */
START_TEST(requests_that_are_unclear_are_refused)
{
#define CASE(text, status)                                                                         \
	{                                                                                          \
		text, sizeof(text) - 1, status                                                     \
	}
	static const struct {
		const char *text;
		size_t len;
		int status;
	} cases[] = {
		CASE("GET /" HOST "\r\n", 200),
		CASE("GET /" HOST "A:\r\nB: \r\nC: c\r\n\r\n", 200),
		CASE("GET / HTTP/1.1\nHost: x\nA: b \n\n", 200),
		CASE("GET / HTTP/1.0\r\n\r\n", 200),
		CASE("\r\nGET /" HOST "\r\n", 200),
		CASE("GET /\0x" HOST "\r\n", 400),
		CASE("GET /\0" HOST "\r\n", 400),
		CASE("GET /?a=\0b" HOST "\r\n", 400),
		CASE("GET /?\0" HOST "\r\n", 400),
		CASE("GET /" HOST "A: b\0c\r\n\r\n", 400),
		CASE("GET /" HOST "A: b\0c\r\nD: e\r\n\r\n", 400),
		CASE("GET /" HOST "A: \0c\r\nD: e\r\n\r\n", 400),
		CASE("GET /" HOST "A: b\0\r\n\r\n", 400),
		CASE("GET /" HOST "A\0: b\r\n\r\n", 400),
		CASE("GET /" HOST "\0A: b\r\n\r\n", 400),
		CASE("GET /" HOST "\0\r\nA: b\r\n\r\n", 400),
		CASE("GET / HTTP/1.1\r\nHost: x\0y\r\n\r\n", 400),
		CASE("GET /" HOST "A: b\r\n c\r\n\r\n", 400),
		CASE("POST /" HOST "Transfer-Encoding: gzip\r\n\r\n", 501),
		CASE("POST /" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
		CASE("POST /" HOST "Transfer-Encoding: identity\r\n\r\n", 501),
		CASE("POST /" HOST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", 200),
		CASE("POST /" HOST "Expect: 200-ok\r\nContent-Length: 4\r\n\r\n", 417),
		CASE("GET /" HOST "Expect: \r\n\r\n", 417),
		CASE("GET /" HOST "Expect: 100-Continue\r\n\r\n", 100),
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const int fd = dial();
		int status;

		send_all(fd, cases[i].text, cases[i].len);
		status = status_of(fd);
		ck_assert_msg(status == cases[i].status, "case %zu: %d", i, status);
		close(fd);
		wait_for_ends((unsigned)i + 1);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("http_server");
	TCase *c = tcase_create("connections");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, silent_clients_keep_nobody_out);
	tcase_add_test(c, kept_alive);
	tcase_add_test(c, all_are_answered);
	tcase_add_test(c, too_much);
	tcase_add_test(c, requests_that_are_unclear_are_refused);
	suite_add_tcase(s, c);
	return s;
}
