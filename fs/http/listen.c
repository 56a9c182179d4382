#define _GNU_SOURCE
#include "fs/http/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

void mfs_address_text(const struct sockaddr *address, char *text, size_t size)
{
	char host[INET6_ADDRSTRLEN];

	if (address && address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(text, size, "%s:%u", host, ntohs(in->sin_port));
	} else if (address && address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)address;

		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
		snprintf(text, size, "[%s]:%u", host, ntohs(in->sin6_port));
	} else {
		snprintf(text, size, "unix");
	}
}

static int listen_on(const struct sockaddr *address, socklen_t len, int *ret_fd)
{
	const int on = 1;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, address, len) && !listen(fd, BACKLOG)) {
		*ret_fd = fd;
		return 0;
	}
	rc = -errno;
	close(fd);
	return rc;
}

/* Not another file that bears the name, nor a link to a socket: connect(2) refuses the one and
 * follows the other. */
static void remove_socket(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISSOCK(st.st_mode))
		unlink(path);
}

void mfs_listen_end(const char *address)
{
	if (!strncmp(address, "unix:", 5))
		remove_socket(address + 5);
}

/* A socket file of a server that has ended stands in the way of the next one. */
static void remove_dead(const struct sockaddr_un *un)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (connect(fd, (const void *)un, sizeof(*un)) && errno == ECONNREFUSED)
		remove_socket(un->sun_path);
	close(fd);
}

static int listen_unix(const char *path, int *ret_fd, char *text, struct mfs_error *err)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int rc;

	if (!*path || strlen(path) >= sizeof(un.sun_path))
		return mfs_fail(err, -EINVAL, "the path of a unix socket has 1 to %zu bytes: '%s'",
				sizeof(un.sun_path) - 1, path);
	strcpy(un.sun_path, path);
	remove_dead(&un);
	rc = listen_on((const void *)&un, sizeof(un), ret_fd);
	if (rc)
		return mfs_fail(err, rc, "cannot listen on unix:%s: %s", path, strerror(-rc));
	snprintf(text, MFS_LISTEN_TEXT, "unix:%s", path);
	return 0;
}

/* Cuts "HOST:PORT". False: it has not that form. */
static bool cut(const char *address, char *host, size_t size, const char **ret_port)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (!colon || !colon[1] || len >= size)
		return false;
	if (len > 1 && address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	} else if (memchr(address, ':', len)) {
		return false;
	}
	memcpy(host, address, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return strspn(*ret_port, "0123456789") == strlen(*ret_port);
}

static int listen_inet(const char *address, int *ret_fd, char *text, struct mfs_error *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct sockaddr_storage bound;
	socklen_t bound_len = sizeof(bound);
	struct addrinfo *list;
	char host[256];
	const char *port;
	int rc;

	if (!cut(address, host, sizeof(host), &port))
		return mfs_fail(err, -EINVAL,
				"'%s' is no address to listen on: HOST:PORT, [IPV6]:PORT, :PORT or "
				"unix:PATH is",
				address);
	rc = getaddrinfo(*host ? host : NULL, port, &hints, &list);
	if (rc)
		return mfs_fail(err, -EINVAL, "cannot listen on %s: %s", address, gai_strerror(rc));
	rc = -EADDRNOTAVAIL;
	for (const struct addrinfo *a = list; a && rc; a = a->ai_next)
		rc = listen_on(a->ai_addr, a->ai_addrlen, ret_fd);
	freeaddrinfo(list);
	if (rc)
		return mfs_fail(err, rc, "cannot listen on %s: %s", address, strerror(-rc));
	getsockname(*ret_fd, (void *)&bound, &bound_len);
	mfs_address_text((void *)&bound, text, MFS_LISTEN_TEXT);
	return 0;
}

int mfs_listen(const char *address, int *ret_fd, char ret_text[MFS_LISTEN_TEXT],
	       struct mfs_error *err)
{
	if (!strncmp(address, "unix:", 5))
		return listen_unix(address + 5, ret_fd, ret_text, err);
	return listen_inet(address, ret_fd, ret_text, err);
}
