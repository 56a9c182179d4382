/* What a process has of the host net: its connection to rank 0. */
#include "trainer/parallel/hostnet.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "trainer/parallel/hostnet_i.h"

struct mft_hostnet {
	struct mfk_host_net_ops table; /* the first: who has it has this */
	int fd;
	uint32_t rank, size;
	char host[256];	      /* of rank 0 */
	pthread_mutex_t lock; /* the connection's, and: */
	char why[MFK_WHY];    /* the world has come to its end; "": it has not */
	struct mft_hostnet_server *server;
};

/* ---- the connection ---- */

/* A host that is cut off is noticed within a minute. */
static void keep_alive(int fd)
{
	const int on = 1, idle = 20, interval = 10, count = 3;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* connect() and recv() give up after so long; 0: never. */
static void limit_time(int fd, int64_t ns)
{
	const struct timeval t = {.tv_sec = ns / 1000000000, .tv_usec = ns / 1000 % 1000000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

static bool send_all(int fd, const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		const ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* errno is 0 if the other end has been closed. */
static bool receive_all(int fd, void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		const ssize_t n = recv(fd, (char *)data + done, bytes - done, 0);

		if (!n)
			errno = 0;
		if (!n || (n < 0 && errno != EINTR))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* ---- a frame from rank 0 ---- */

/* Rank 0 has gone without a word. */
static int lost(struct mft_hostnet *n)
{
	if (!n->why[0])
		snprintf(n->why, sizeof(n->why), "rank 0 on %.100s has ended: %s", n->host,
			 errno ? strerror(errno) : "its connection was closed");
	return -EIO;
}

/* A sentence of so many bytes. */
static int read_why(struct mft_hostnet *n, uint64_t bytes)
{
	char text[MFK_WHY] = "";

	if (bytes >= sizeof(text) || !receive_all(n->fd, text, bytes))
		return lost(n);
	snprintf(n->why, sizeof(n->why), "%s", text);
	return -ECANCELED;
}

/* A frame of this kind, with so many bytes. -ECANCELED: rank 0 says that the world has come to its
 * end; -EIO: it has gone. */
static int read_frame(struct mft_hostnet *n, uint32_t what, void *to, uint64_t bytes)
{
	struct mft_hostnet_frame f;

	if (!receive_all(n->fd, &f, sizeof(f)))
		return lost(n);
	if (f.what == MFT_HOSTNET_FAILED)
		return read_why(n, f.bytes);
	if (f.what != what || f.bytes != bytes) {
		snprintf(n->why, sizeof(n->why), "rank 0 on %.100s says what nobody has asked",
			 n->host);
		return -EPROTO;
	}
	return receive_all(n->fd, to, bytes) ? 0 : lost(n);
}

/* ---- what the table has ---- */

static int bring(struct mft_hostnet *n, uint32_t what, const struct mfk_host_group *g, void *to,
		 const void *from, uint64_t bytes, char *why)
{
	const struct mft_hostnet_frame f = {
		.what = what, .rank = g->rank, .size = g->size, .group = g->id, .bytes = bytes};
	int rc = -EIO;

	pthread_mutex_lock(&n->lock);
	if (!n->why[0]) {
		/* If it cannot be sent, there may be a last word. */
		if (send_all(n->fd, &f, sizeof(f)))
			send_all(n->fd, from, bytes);
		rc = read_frame(n, what, to, what == MFT_HOSTNET_GATHER ? bytes * g->size : bytes);
	}
	if (rc)
		snprintf(why, MFK_WHY, "%s", n->why);
	pthread_mutex_unlock(&n->lock);
	return rc;
}

static int net_sum(struct mfk_host_net_ops *net, const struct mfk_host_group *g, double *values,
		   unsigned count, char *why)
{
	return bring((struct mft_hostnet *)net, MFT_HOSTNET_SUM, g, values, values,
		     count * sizeof(*values), why);
}

static int net_gather(struct mfk_host_net_ops *net, const struct mfk_host_group *g, void *to,
		      const void *from, size_t bytes, char *why)
{
	return bring((struct mft_hostnet *)net, MFT_HOSTNET_GATHER, g, to, from, bytes, why);
}

/* While another thread waits for values, it hears what there is to hear. */
static int net_look(struct mfk_host_net_ops *net, char *why)
{
	struct mft_hostnet *n = (struct mft_hostnet *)net;
	struct pollfd p = {.fd = n->fd, .events = POLLIN};
	int rc = 0;

	if (pthread_mutex_trylock(&n->lock))
		return 0;
	if (!n->why[0] && poll(&p, 1, 0) > 0)
		read_frame(n, MFT_HOSTNET_FAILED, NULL, 0);
	if (n->why[0]) {
		snprintf(why, MFK_WHY, "%s", n->why);
		rc = -EIO;
	}
	pthread_mutex_unlock(&n->lock);
	return rc;
}

/* Rank 0 is told last, so its process may end when it knows. Another thread may wait for values,
 * and hear of it in place of this one. */
static void net_end_all(struct mfk_host_net_ops *net, int code)
{
	struct mft_hostnet *n = (struct mft_hostnet *)net;
	const struct mft_hostnet_frame end = {.what = MFT_HOSTNET_END, .code = code};
	const struct timespec pause = {.tv_nsec = 500000000};
	const bool is_mine = !pthread_mutex_trylock(&n->lock);
	char word[sizeof(end) + MFK_WHY];

	limit_time(n->fd, INT64_C(2000000000));
	if (!is_mine && send_all(n->fd, &end, sizeof(end)))
		nanosleep(&pause, NULL);
	else if (is_mine && !n->why[0] && send_all(n->fd, &end, sizeof(end)))
		recv(n->fd, word, sizeof(word), 0);
	_exit(code);
}

struct mfk_host_net_ops *mft_hostnet_table(struct mft_hostnet *n)
{
	return &n->table;
}

/* ---- the beginning ---- */

/* Of IPv4 and of IPv6, where there is such. */
static int listen_at(uint16_t port, int *ret, struct mfs_error *err)
{
	struct sockaddr_in6 any6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
	const int on = 1, off = 0;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = -1;

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		rc = bind(fd, (struct sockaddr *)&any6, sizeof(any6));
	}
	if (rc && (fd < 0 || errno == EADDRNOTAVAIL)) {
		if (fd >= 0)
			close(fd);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0) {
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
			rc = bind(fd, (struct sockaddr *)&any, sizeof(any));
		}
	}
	if (!rc)
		rc = listen(fd, SOMAXCONN);
	if (rc) {
		rc = mfs_fail_errno(err,
				    "port %u, at which processes find each other "
				    "(MCOREFS_PORT, or MASTER_PORT + 1)",
				    port);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	keep_alive(fd); /* connections inherit it */
	*ret = fd;
	return 0;
}

/* One attempt at each of the host's addresses. *why: what the last one met. */
static int connect_once(const char *host, uint16_t port, int64_t until_ns, const char **why)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	char service[8];
	int fd = -1, rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc) {
		*why = gai_strerror(rc);
		return -1;
	}
	for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		const int64_t left = until_ns - mfs_now_ns();

		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		limit_time(fd, left < 5000000000 ? (left > 1000000 ? left : 1000000) : 5000000000);
		if (!connect(fd, a->ai_addr, a->ai_addrlen))
			break;
		*why = strerror(errno);
		close(fd);
		fd = -1;
	}
	freeaddrinfo(list);
	return fd;
}

/* Says hello, and waits until all are there. *again: the connection was closed without a word. */
static int greet(struct mft_hostnet *n, const struct mft_address *at, int64_t until_ns, bool *again)
{
	struct mft_hostnet_hello hello = {
		.magic = MFT_HOSTNET_MAGIC, .job = at->job, .rank = n->rank, .size = n->size};
	const int64_t left = until_ns - mfs_now_ns();
	int rc;

	gethostname(hello.host, sizeof(hello.host) - 1);
	/* Rank 0 knows who is missing: its word comes first. */
	limit_time(n->fd, (left > 0 ? left : 0) + INT64_C(10000000000));
	rc = send_all(n->fd, &hello, sizeof(hello)) ? read_frame(n, MFT_HOSTNET_WELCOME, NULL, 0)
						    : lost(n);
	limit_time(n->fd, 0);
	*again = rc == -EIO;
	return rc;
}

static int join(struct mft_hostnet *n, const struct mft_address *at, unsigned seconds,
		struct mfs_error *err)
{
	const int64_t until_ns = mfs_now_ns() + (int64_t)seconds * 1000000000;
	const struct timespec pause = {.tv_nsec = 50000000};
	const char *host = n->server ? "127.0.0.1" : at->host;
	const char *why = "it does not answer";
	bool again = true;

	while (again) {
		n->why[0] = '\0';
		n->fd = connect_once(host, at->port, until_ns, &why);
		if (n->fd >= 0) {
			keep_alive(n->fd);
			if (!greet(n, at, until_ns, &again))
				return 0;
			close(n->fd);
			n->fd = -1;
			why = n->why;
		}
		if (again && mfs_now_ns() >= until_ns)
			return mfs_fail(err, -ETIMEDOUT,
					"rank %u does not reach rank 0 at %s, port %u, within %u "
					"s: %s",
					n->rank, host, at->port, seconds, why);
		if (again)
			nanosleep(&pause, NULL);
	}
	return mfs_fail(err, -EPROTO, "%s", n->why);
}

static int hostnet_free(struct mft_hostnet *n, struct mfs_error *err)
{
	int rc = 0;

	if (n->fd >= 0)
		close(n->fd);
	if (n->server)
		rc = mft_hostnet_server_join(n->server, err);
	pthread_mutex_destroy(&n->lock);
	free(n);
	return rc;
}

int mft_hostnet_open(const struct mft_address *at, const struct mft_launch *launch,
		     unsigned seconds, struct mft_hostnet **ret, struct mfs_error *err)
{
	struct mft_hostnet *n = calloc(1, sizeof(*n));
	struct mfs_error ignored;
	int listening = -1, rc = 0;

	if (!n)
		return mfs_fail_nomem(err);
	n->table = (struct mfk_host_net_ops){
		.sum = net_sum, .gather = net_gather, .look = net_look, .end_all = net_end_all};
	n->fd = -1;
	n->rank = launch->rank;
	n->size = launch->size;
	snprintf(n->host, sizeof(n->host), "%s", at->host);
	pthread_mutex_init(&n->lock, NULL);
	if (!n->rank)
		rc = listen_at(at->port, &listening, err);
	if (!rc && !n->rank)
		rc = mft_hostnet_serve(listening, n->size, at->job, seconds, &n->server, err);
	if (!rc)
		rc = join(n, at, seconds, err);
	if (rc)
		hostnet_free(n, &ignored);
	else
		*ret = n;
	return rc;
}

int mft_hostnet_close(struct mft_hostnet *n, struct mfs_error *err)
{
	const struct mft_hostnet_frame bye = {.what = MFT_HOSTNET_BYE};

	if (!n)
		return 0;
	send_all(n->fd, &bye, sizeof(bye));
	return hostnet_free(n, err);
}
