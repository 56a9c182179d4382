/* The thread of rank 0 that all processes talk to. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/base/threads.h"
#include "kernels/kernels.h"
#include "trainer/parallel/hostnet_i.h"

/* Connections in addition to those of the world, and how long one of them may be silent. */
#define STRANGERS   64
#define STRANGER_NS (INT64_C(10) * 1000000000)
/* Who cannot be given a descriptor stays at the door for so long. */
#define DEAF_NS INT64_C(100000000)

/* A connection. */
struct peer {
	int fd;
	int64_t came_ns;
	bool is_member; /* it has sent a hello that fits */
	bool has_left;	/* it has sent BYE */
	bool is_gone;	/* it is to be closed */
	uint32_t rank;
	char host[MFT_HOSTNET_NAME];
	union {
		struct mft_hostnet_hello hello;
		struct mft_hostnet_frame frame;
	} head;
	size_t head_len;
	char *body; /* of the frame */
	uint64_t body_len;
	struct mfs_buf out; /* to be sent, from out_at on */
	size_t out_at;
};

/* What the processes of a group bring together. */
struct round {
	uint64_t group, bytes;
	uint32_t what, size, came;
	struct peer **peers; /* by rank in the group; NULL: it has not come */
	char *data;	     /* [size][bytes] */
	struct round *next;
};

struct mft_hostnet_server {
	pthread_t thread;
	int listening;
	uint32_t size;
	uint64_t job;
	int64_t wait_ns;  /* for processes that come, and that go */
	int64_t until_ns; /* all processes must be there then; after BYE of rank 0: gone */
	int64_t deaf_ns;  /* nobody new is heard until then */
	struct peer **peers;
	struct pollfd *polls; /* [0]: listening; then of peers */
	uint32_t count, members, most;
	bool is_complete;  /* all have come */
	bool closes;	   /* rank 0 has gone */
	bool is_late;	   /* others have not when they should have: why says who */
	char why[MFK_WHY]; /* the world has come to its end; "": it has not */
	int64_t failed_ns;
	struct round *rounds;
};

/* ---- what is sent ---- */

static void flush_peer(struct peer *p)
{
	while (p->out_at < p->out.len && !p->is_gone) {
		const ssize_t n = send(p->fd, p->out.data + p->out_at, p->out.len - p->out_at,
				       MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n < 0)
			p->is_gone = true;
		else
			p->out_at += (size_t)n;
	}
	mfs_buf_release(&p->out);
	p->out_at = 0;
}

static void send_to(struct peer *p, uint32_t what, const void *data, uint64_t bytes)
{
	const struct mft_hostnet_frame frame = {.what = what, .bytes = bytes};

	if (p->is_gone)
		return;
	mfs_buf_add(&p->out, &frame, sizeof(frame));
	mfs_buf_add(&p->out, data, bytes);
	if (p->out.failed)
		p->is_gone = true;
	flush_peer(p);
}

static struct peer *member(const struct mft_hostnet_server *s, uint32_t rank)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->peers[i]->is_member && s->peers[i]->rank == rank && !s->peers[i]->is_gone)
			return s->peers[i];
	return NULL;
}

/* The first reason stays. Rank 0 hears it last, as its process may end then. */
__attribute__((format(printf, 2, 3))) static void fail_world(struct mft_hostnet_server *s,
							     const char *fmt, ...)
{
	va_list args;

	if (s->why[0])
		return;
	va_start(args, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, args);
	va_end(args);
	s->failed_ns = mfs_now_ns();
	for (uint32_t rank = s->size; rank-- > 0;) {
		struct peer *p = member(s, rank);

		if (p)
			send_to(p, MFT_HOSTNET_FAILED, s->why, strlen(s->why));
	}
}

/* ---- who comes ---- */

__attribute__((format(printf, 2, 3))) static void refuse(struct peer *p, const char *fmt, ...)
{
	char why[MFK_WHY];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	send_to(p, MFT_HOSTNET_FAILED, why, strlen(why));
	p->is_gone = true;
}

static void welcome(struct mft_hostnet_server *s)
{
	s->is_complete = true;
	for (uint32_t i = 0; i < s->count; i++)
		if (s->peers[i]->is_member)
			send_to(s->peers[i], MFT_HOSTNET_WELCOME, NULL, 0);
}

static void greet(struct mft_hostnet_server *s, struct peer *p)
{
	const struct mft_hostnet_hello *h = &p->head.hello;
	const struct peer *same;

	p->head_len = 0;
	if (h->magic != MFT_HOSTNET_MAGIC) {
		p->is_gone = true;
		return;
	}
	memcpy(p->host, h->host, sizeof(p->host));
	p->host[sizeof(p->host) - 1] = '\0';
	if (h->size != s->size || h->rank >= s->size) {
		refuse(p, "expected one of %u processes, found rank %u of %u", s->size, h->rank,
		       h->size);
		return;
	}
	if (h->job != s->job) {
		refuse(p, "the processes here are another run's; MCOREFS_PORT gives each run a "
			  "port of its own");
		return;
	}
	if (s->why[0]) {
		refuse(p, "%s", s->why);
		return;
	}
	same = member(s, h->rank);
	if (same || s->is_complete) {
		refuse(p, "rank %u is there already, on %s", h->rank, same ? same->host : "a host");
		return;
	}
	p->rank = h->rank;
	p->is_member = true;
	if (++s->members == s->size)
		welcome(s);
}

/* A peer that cannot be had room for is not there. One that there is no descriptor for stays in the
 * queue, where poll() would find it again at once. */
static void take_new(struct mft_hostnet_server *s)
{
	const int fd = accept4(s->listening, NULL, NULL, SOCK_CLOEXEC);
	struct peer *p = fd >= 0 && s->count < s->most ? calloc(1, sizeof(*p)) : NULL;

	if (fd < 0)
		s->deaf_ns = mfs_now_ns() + DEAF_NS;
	if (!p) {
		if (fd >= 0)
			close(fd);
		return;
	}
	p->fd = fd;
	p->came_ns = mfs_now_ns();
	s->peers[s->count++] = p;
}

/* ---- rounds ---- */

static void round_free(struct mft_hostnet_server *s, struct round *r)
{
	for (struct round **at = &s->rounds; *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	free(r->peers);
	free(r->data);
	free(r);
}

static struct round *round_of(struct mft_hostnet_server *s, const struct mft_hostnet_frame *f)
{
	struct round *r = s->rounds;

	while (r && r->group != f->group)
		r = r->next;
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct round){.group = f->group,
			    .bytes = f->bytes,
			    .what = f->what,
			    .size = f->size,
			    .peers = calloc(f->size, sizeof(struct peer *)),
			    .data = malloc(f->size * f->bytes + 1),
			    .next = s->rounds};
	s->rounds = r;
	if (r->peers && r->data)
		return r;
	round_free(s, r);
	return NULL;
}

static void finish(struct mft_hostnet_server *s, struct round *r)
{
	const uint64_t count = r->bytes / sizeof(double);
	uint64_t bytes = r->bytes;
	double *sum = (double *)r->data;

	if (r->what == MFT_HOSTNET_GATHER)
		bytes *= r->size;
	for (uint32_t rank = 1; rank < r->size && r->what == MFT_HOSTNET_SUM; rank++)
		for (uint64_t i = 0; i < count; i++)
			sum[i] += sum[rank * count + i];
	for (uint32_t rank = 0; rank < r->size; rank++)
		send_to(r->peers[rank], r->what, r->data, bytes);
	round_free(s, r);
}

static void bring(struct mft_hostnet_server *s, struct peer *p, const struct mft_hostnet_frame *f)
{
	struct round *r = round_of(s, f);

	if (!r) {
		fail_world(s, "rank 0 has no memory for what %u processes say", f->size);
		return;
	}
	if (r->what != f->what || r->size != f->size || r->bytes != f->bytes || r->peers[f->rank]) {
		fail_world(s, "rank %u on %s does not say what the others of its group say",
			   p->rank, p->host);
		return;
	}
	memcpy(r->data + f->rank * f->bytes, p->body, f->bytes);
	r->peers[f->rank] = p;
	if (++r->came == r->size)
		finish(s, r);
}

/* ---- what is received ---- */

static bool is_in_a_round(const struct mft_hostnet_server *s, const struct peer *p)
{
	for (const struct round *r = s->rounds; r; r = r->next)
		for (uint32_t rank = 0; rank < r->size; rank++)
			if (r->peers[rank] == p)
				return true;
	return false;
}

/* Others may still have something to do, as long as they might have had in the beginning. */
static void leave(struct mft_hostnet_server *s, struct peer *p)
{
	p->has_left = true;
	if (p->rank)
		return;
	s->closes = true;
	s->until_ns = mfs_now_ns() + s->wait_ns;
}

static void hear(struct mft_hostnet_server *s, struct peer *p)
{
	const struct mft_hostnet_frame f = p->head.frame;

	if (f.what == MFT_HOSTNET_BYE)
		leave(s, p);
	else if (f.what == MFT_HOSTNET_END)
		fail_world(s, "rank %u on %s has failed, and ends the run with status %d", p->rank,
			   p->host, f.code);
	else if (!s->why[0])
		bring(s, p, &f);
	free(p->body);
	p->body = NULL;
	p->head_len = 0;
	p->body_len = 0;
}

/* A member waits for the end of a round, so it says one thing at a time; but another of its threads
 * may end the run. */
static bool is_sense(const struct mft_hostnet_server *s, const struct peer *p)
{
	const struct mft_hostnet_frame *f = &p->head.frame;

	if (f->what == MFT_HOSTNET_END)
		return !f->bytes;
	if (p->has_left || is_in_a_round(s, p))
		return false;
	if (f->what == MFT_HOSTNET_BYE)
		return !f->bytes;
	return s->is_complete && (f->what == MFT_HOSTNET_SUM || f->what == MFT_HOSTNET_GATHER) &&
	       f->size && f->size <= s->size && f->rank < f->size &&
	       f->bytes <= MFT_HOSTNET_MOST / f->size &&
	       (f->what == MFT_HOSTNET_GATHER || f->bytes % sizeof(double) == 0);
}

/* The head is whole. */
static void begin_body(struct mft_hostnet_server *s, struct peer *p)
{
	if (!p->is_member) {
		greet(s, p);
		return;
	}
	if (is_sense(s, p))
		p->body = malloc(p->head.frame.bytes + 1);
	else
		fail_world(s, "rank %u on %s says what nobody understands", p->rank, p->host);
	if (!p->body)
		p->is_gone = true;
	else if (!p->head.frame.bytes)
		hear(s, p);
}

/* Bytes that have come into [at, at + want). 0: none; the peer may be gone. */
static size_t take(struct peer *p, void *at, size_t want)
{
	const ssize_t n = recv(p->fd, at, want, MSG_DONTWAIT);

	if (n > 0)
		return (size_t)n;
	if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		p->is_gone = true;
	return 0;
}

static void receive(struct mft_hostnet_server *s, struct peer *p)
{
	const size_t head = p->is_member ? sizeof(p->head.frame) : sizeof(p->head.hello);

	if (p->body) {
		const uint64_t want = p->head.frame.bytes;

		p->body_len += take(p, p->body + p->body_len, want - p->body_len);
		if (p->body_len == want)
			hear(s, p);
		return;
	}
	p->head_len += take(p, (char *)&p->head + p->head_len, head - p->head_len);
	if (p->head_len == head)
		begin_body(s, p);
}

/* ---- who goes ---- */

/* Who waits for a round does so at its end alone: a round never outlives a failure. */
static void drop_rounds(struct mft_hostnet_server *s)
{
	while (s->rounds)
		round_free(s, s->rounds);
}

static void peer_free(struct peer *p)
{
	close(p->fd);
	free(p->body);
	mfs_buf_release(&p->out);
	free(p);
}

/* Says first that they are gone, and frees them then. */
static void drop_gone(struct mft_hostnet_server *s)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct peer *p = s->peers[i];

		if (!p->is_gone || !p->is_member)
			continue;
		if (s->is_complete && !p->has_left)
			fail_world(s, "rank %u on %s has ended", p->rank, p->host);
	}
	if (s->why[0])
		drop_rounds(s);
	for (uint32_t i = 0; i < s->count; i++) {
		struct peer *p = s->peers[i];

		if (!p->is_gone) {
			s->peers[left++] = p;
			continue;
		}
		s->members -= p->is_member;
		peer_free(p);
	}
	s->count = left;
}

/* Ranks whose process is there, or is not, as many as there is room for. */
#define RANKS 96
static const char *list_ranks(const struct mft_hostnet_server *s, bool there, char text[RANKS])
{
	size_t len = 0;

	for (uint32_t rank = 0; rank < s->size; rank++) {
		if (!member(s, rank) == there)
			continue;
		if (len > RANKS - 20) {
			snprintf(text + len, RANKS - len, " and others");
			break;
		}
		len += (size_t)snprintf(text + len, RANKS - len, "%s%u", len ? ", " : "", rank);
	}
	return text;
}

static void fail_missing(struct mft_hostnet_server *s)
{
	char ranks[RANKS] = "";

	fail_world(s, "%u of %u processes have not come in time: rank %s", s->size - s->members,
		   s->size, list_ranks(s, false, ranks));
}

/* Processes that are still there do not end. Rank 0 ends, and a launcher ends the others after
 * it. */
static void give_up_stragglers(struct mft_hostnet_server *s)
{
	char ranks[RANKS] = "";

	s->is_late = !s->why[0];
	fail_world(s, "%u of %u processes have not ended in time: rank %s", s->members, s->size,
		   list_ranks(s, true, ranks));
	for (uint32_t i = 0; i < s->count; i++)
		s->peers[i]->is_gone = true;
}

static void look_at_clock(struct mft_hostnet_server *s)
{
	const int64_t now = mfs_now_ns();

	if (!s->is_complete && now >= s->until_ns)
		fail_missing(s);
	else if (s->closes && s->members && now >= s->until_ns)
		give_up_stragglers(s);
	for (uint32_t i = 0; i < s->count; i++) {
		struct peer *p = s->peers[i];

		if (!p->is_member && now - p->came_ns > STRANGER_NS)
			p->is_gone = true;
		if (s->why[0] && !s->is_complete && now - s->failed_ns > STRANGER_NS)
			p->is_gone = true;
	}
}

static bool is_done(const struct mft_hostnet_server *s)
{
	return (s->is_complete || s->why[0]) && !s->members;
}

static void turn(struct mft_hostnet_server *s)
{
	const uint32_t count = s->count;

	/* poll() skips what is negative */
	s->polls[0] = (struct pollfd){.fd = mfs_now_ns() < s->deaf_ns ? -1 : s->listening,
				      .events = POLLIN};
	for (uint32_t i = 0; i < count; i++)
		s->polls[i + 1] = (struct pollfd){
			.fd = s->peers[i]->fd,
			.events = (short)(POLLIN | (s->peers[i]->out.len ? POLLOUT : 0))};
	if (poll(s->polls, count + 1, 200) > 0) {
		for (uint32_t i = 0; i < count; i++) {
			struct peer *p = s->peers[i];

			if (s->polls[i + 1].revents & POLLOUT)
				flush_peer(p);
			if (s->polls[i + 1].revents & ~POLLOUT && !p->is_gone)
				receive(s, p);
		}
		if (s->polls[0].revents)
			take_new(s);
	}
	look_at_clock(s);
	drop_gone(s);
}

/* ---- life ---- */

static void server_free(struct mft_hostnet_server *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		peer_free(s->peers[i]);
	drop_rounds(s);
	close(s->listening);
	free(s->peers);
	free(s->polls);
	free(s);
}

static void *serve(void *arg)
{
	struct mft_hostnet_server *s = arg;

	while (!is_done(s))
		turn(s);
	return NULL;
}

int mft_hostnet_serve(int listening, uint32_t size, uint64_t job, unsigned seconds,
		      struct mft_hostnet_server **ret, struct mfs_error *err)
{
	struct mft_hostnet_server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		close(listening);
		return mfs_fail_nomem(err);
	}
	s->listening = listening;
	s->size = size;
	s->job = job;
	s->wait_ns = (int64_t)seconds * 1000000000;
	s->until_ns = mfs_now_ns() + s->wait_ns;
	s->most = size + STRANGERS;
	s->peers = calloc(s->most, sizeof(struct peer *));
	s->polls = calloc(s->most + 1, sizeof(*s->polls));
	rc = s->peers && s->polls ? mfs_thread_start(&s->thread, "hostnet", serve, s) : -ENOMEM;
	if (rc) {
		server_free(s);
		return mfs_fail(err, rc, "no thread for the processes to talk to: %s",
				strerror(-rc));
	}
	*ret = s;
	return 0;
}

int mft_hostnet_server_join(struct mft_hostnet_server *s, struct mfs_error *err)
{
	int rc;

	pthread_join(s->thread, NULL);
	rc = s->is_late ? mfs_fail(err, -ETIMEDOUT, "%s", s->why) : 0;
	server_free(s);
	return rc;
}
