/*
 * Times by which connections must have gone on. A thread looks once a second, and shuts a
 * connection down whose time is over; its own thread then finds it closed.
 *
 * When more are open than there may be, the one that has waited longest for a request is shut down:
 * clients that say nothing keep nobody out. If all are being answered, the new one is spare: a few
 * of these are taken, so that a look at whether the server lives gets its answer.
 */
#ifndef MFS_FS_HTTP_DEADLINES_H
#define MFS_FS_HTTP_DEADLINES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MFS_CONNECTIONS_SPARE 16

struct mfs_connection {
	int fd;
	atomic_llong due;      /* monotonic, ns */
	atomic_bool answering; /* a whole request is there; else the client has the word */
	atomic_bool spare;
	bool closing; /* under the list's lock: it was shut down to make room */
	struct mfs_connection *next, **at;
};

struct mfs_deadlines {
	pthread_mutex_t lock; /* of the fields below */
	pthread_cond_t wake;
	struct mfs_connection *first;
	unsigned count, closing;
	bool ending;
	pthread_t thread;
};

/* Starts the thread that closes connections whose time is up. Errors of mfs_thread_start(). */
int mfs_deadlines_start(struct mfs_deadlines *d);
/* All connections must be gone. */
void mfs_deadlines_stop(struct mfs_deadlines *d);

/* fd must stay open until the connection is taken off; its due is set. most: how many may be open.
 * Returns how many were shut down and are not taken off yet. */
unsigned mfs_deadlines_add(struct mfs_deadlines *d, struct mfs_connection *c, int fd,
			   unsigned most);
void mfs_deadlines_remove(struct mfs_deadlines *d, struct mfs_connection *c);
/* seconds 0: it may take as long as it takes. */
void mfs_connection_due(struct mfs_connection *c, unsigned seconds);

/* Its request is there and is answered from now on. True: more than most are open, and this one is
 * spare. */
bool mfs_deadlines_answers(struct mfs_deadlines *d, struct mfs_connection *c, unsigned most);

#endif
