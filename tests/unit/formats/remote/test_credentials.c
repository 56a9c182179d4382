/* Keys of a machine's role, from a metadata service that fails, and what is signed:
 * formats/remote/credentials.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/net/sigv4.h"
#include "formats/remote/credentials.h"
#include "formats/remote/curl.h"

#define TOKEN 6000 /* bytes: more than a line of a header once had */

enum fault { FAULT_NONE, FAULT_NO_SECRET, FAULT_LONG_TOKEN, FAULT_DENIED };

/* The service: one connection at a time, one request each. */
static struct service {
	int fd;
	pthread_t thread;
	atomic_uint fault, asked; /* how often for a token: once for each renewal */
	atomic_int lives;	  /* seconds, of the next key */
	atomic_char name;	  /* all of the next key is made of it */
} service;

static struct mfs_credentials *credentials;
static struct mfs_error err;

static void send_text(int fd, const char *status, const char *text)
{
	char *answer;
	int n = asprintf(&answer,
			 "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
			 status, strlen(text), text);

	send(fd, answer, (size_t)n, MSG_NOSIGNAL);
	free(answer);
}

static void send_key(int fd)
{
	const time_t end = time(NULL) + atomic_load(&service.lives);
	const enum fault fault = atomic_load(&service.fault);
	const int length = fault == FAULT_LONG_TOKEN ? 20000 : TOKEN;
	const char name = (char)atomic_load(&service.name);
	char until[40], *token = malloc((size_t)length + 1), *text;
	struct tm tm;

	strftime(until, sizeof(until), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &tm));
	memset(token, name, (size_t)length);
	token[length] = '\0';
	ck_assert_int_gt(
		asprintf(&text,
			 "{\"AccessKeyId\": \"%c%c%c%c\", \"%s\": \"%c%c\", \"Token\": \"%s\", "
			 "\"Expiration\": \"%s\"}",
			 name, name, name, name,
			 fault == FAULT_NO_SECRET ? "Other" : "SecretAccessKey", name, name, token,
			 until),
		0);
	send_text(fd, "200 OK", text);
	free(text);
	free(token);
}

static void answer(int fd)
{
	char request[4096];
	ssize_t n = recv(fd, request, sizeof(request) - 1, 0);

	if (n <= 0)
		return;
	request[n] = '\0';
	if (!strncmp(request, "PUT ", 4)) {
		atomic_fetch_add(&service.asked, 1);
		if (atomic_load(&service.fault) == FAULT_DENIED)
			send_text(fd, "403 Forbidden", "");
		else
			send_text(fd, "200 OK", "token");
	} else if (strstr(request, "security-credentials/role ")) {
		send_key(fd);
	} else {
		send_text(fd, "200 OK", "role");
	}
}

static void *serve(void *arg)
{
	int fd;

	(void)arg;
	while ((fd = accept(service.fd, NULL, NULL)) >= 0) {
		answer(fd);
		close(fd);
	}
	return NULL;
}

static void setup(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	char url[60];

	service.fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(service.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(service.fd, 8), 0);
	ck_assert_int_eq(getsockname(service.fd, (struct sockaddr *)&at, &len), 0);
	ck_assert_int_eq(pthread_create(&service.thread, NULL, serve, NULL), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(at.sin_port));
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SHARED_CREDENTIALS_FILE");
	unsetenv("AWS_EC2_METADATA_DISABLED");
	unsetenv("http_proxy");
	setenv("HOME", unit_tmpdir(), 1);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
	service.lives = 200; /* less than what a key is renewed before its end */
	service.name = 'A';
	service.fault = FAULT_NONE;
	unit_ok(mfs_credentials_new(&credentials, &err), &err);
	ck_assert_ptr_nonnull(credentials);
	service.asked = 0;
}

static void teardown(void)
{
	mfs_credentials_free(credentials);
	shutdown(service.fd, SHUT_RDWR);
	pthread_join(service.thread, NULL);
	close(service.fd);
}

static char used_id, used_token;

/* Takes a signature's headers: whose key, and whose token. */
static bool note(struct curl_slist **list, const char *name, const char *value)
{
	const char *id = strstr(value, "Credential=");

	(void)list;
	if (!strcmp(name, "Authorization") && id)
		used_id = id[11];
	if (!strcmp(name, "x-amz-security-token")) {
		ck_assert_uint_eq(strlen(value), TOKEN);
		used_token = *value;
	}
	return true;
}

static int sign(void)
{
	const struct mfs_curl_request r = {.url = "http://host/bucket/object"};

	used_id = used_token = 0;
	return mfs_credentials_sign(credentials, "us-east-1", &r, note, NULL, &err);
}

static void signs_with(char name)
{
	unit_ok(sign(), &err);
	ck_assert_int_eq(used_id, name);
	ck_assert_int_eq(used_token, name);
}

START_TEST(renewed_before_its_end)
{
	service.name = 'B';
	service.lives = 4000;
	for (int i = 0; i < 5; i++)
		signs_with('B');
	ck_assert_uint_eq(atomic_load(&service.asked), 1);
}
END_TEST

/* An answer that is not whole changes nothing, and is not asked for at each request. */
START_TEST(old_key_stays)
{
	service.name = 'B';
	service.fault = FAULT_NO_SECRET + (unsigned)_i;
	for (int i = 0; i < 5; i++)
		signs_with('A');
	ck_assert_uint_eq(atomic_load(&service.asked), 1);
}
END_TEST

START_TEST(credentials_that_expired_sign_nothing)
{
	mfs_credentials_free(credentials);
	service.lives = 1;
	unit_ok(mfs_credentials_new(&credentials, &err), &err);
	service.fault = FAULT_DENIED;
	sleep(2);
	unit_fails(sign(), &err, -EACCES, "403");
	unit_fails(sign(), &err, -EACCES, "has expired");
}
END_TEST

static char signed_text[512], signed_date[32];

static bool keep(struct curl_slist **list, const char *name, const char *value)
{
	(void)list;
	if (!strcmp(name, "Authorization"))
		snprintf(signed_text, sizeof(signed_text), "%s", value);
	if (!strcmp(name, "x-amz-date"))
		snprintf(signed_date, sizeof(signed_date), "%s", value);
	return true;
}

/* URLs, and what libcurl sends as Host for them. */
static const char *const hosts[][2] = {
	{"http://127.0.0.1:80/b/o", "127.0.0.1"}, {"http://127.0.0.1:0080/b/o", "127.0.0.1"},
	{"http://127.0.0.1:/b/o", "127.0.0.1"},	  {"http://127.0.0.1:443/b/o", "127.0.0.1:443"},
	{"http://host:8080/b/o", "host:8080"},	  {"https://host:443/b/o", "host"},
	{"HTTPS://host:443/b/o", "host"},	  {"https://host:80/b/o", "host:80"},
	{"http://[::1]:80/b/o", "[::1]"},	  {"http://[fe80::80]/b/o", "[fe80::80]"},
	{"https://[::1]:8443/b/o", "[::1]:8443"},
};

START_TEST(the_host_is_signed_with_its_port)
{
	struct mfs_credentials *keys;
	const struct mfs_curl_request r = {.url = hosts[_i][0]};
	const struct mfs_sigv4_key key = {"AKID", "secret", "us-east-1", "s3"};
	const struct mfs_sigv4_header headers[] = {{"host", hosts[_i][1]},
						   {"x-amz-content-sha256", MFS_SIGV4_EMPTY},
						   {"x-amz-date", signed_date}};
	const struct mfs_sigv4_request q = {.method = "GET",
					    .path = "/b/o",
					    .headers = headers,
					    .header_count = 3,
					    .payload = MFS_SIGV4_EMPTY,
					    .time = signed_date};
	char *expected;

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	unsetenv("AWS_SESSION_TOKEN");
	unit_ok(mfs_credentials_new(&keys, &err), &err);
	unit_ok(mfs_credentials_sign(keys, "us-east-1", &r, keep, NULL, &err), &err);
	unit_ok(mfs_sigv4_authorization(&key, &q, &expected, &err), &err);
	ck_assert_str_eq(signed_text, expected);
	free(expected);
	mfs_credentials_free(keys);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("credentials");
	TCase *c = tcase_create("role");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, renewed_before_its_end);
	tcase_add_loop_test(c, old_key_stays, 0, 3);
	tcase_add_test(c, credentials_that_expired_sign_nothing);
	suite_add_tcase(s, c);
	c = tcase_create("signatures");
	tcase_add_loop_test(c, the_host_is_signed_with_its_port, 0, MFS_ARRAY_SIZE(hosts));
	suite_add_tcase(s, c);
	return s;
}
