/*
 * Times by which connections must have gone on. A thread looks once a second, and shuts a
 * connection down whose time is over; its own thread then finds it closed.
 */
#ifndef MFS_FS_HTTP_DEADLINES_H
#define MFS_FS_HTTP_DEADLINES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mfs_connection {
	int fd;
	atomic_llong due; /* monotonic, ns */
	struct mfs_connection *next, **at;
};

struct mfs_deadlines {
	pthread_mutex_t lock; /* of the fields below */
	pthread_cond_t wake;
	struct mfs_connection *first;
	unsigned count;
	bool ending;
	pthread_t thread;
};

/* -errno of pthread_create(3). */
int mfs_deadlines_start(struct mfs_deadlines *d);
/* All connections must be gone. */
void mfs_deadlines_stop(struct mfs_deadlines *d);

/* fd must stay open until the connection is taken off. */
void mfs_deadlines_add(struct mfs_deadlines *d, struct mfs_connection *c, int fd);
void mfs_deadlines_remove(struct mfs_deadlines *d, struct mfs_connection *c);
/* seconds 0: it may take as long as it takes. */
void mfs_connection_due(struct mfs_connection *c, unsigned seconds);

#endif
