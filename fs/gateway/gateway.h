/*
 * The gateway: requests to replies. A protocol is a row that a folder below has, and a line in the
 * list of one of the listeners (gateway.c).
 */
#ifndef MFS_FS_GATEWAY_GATEWAY_H
#define MFS_FS_GATEWAY_GATEWAY_H

#include "fs/gateway/call/call.h"
#include "fs/gateway/gateway_config.h"

/* Answers a request that has come to a listener, by the first of its protocols that claims it. Any
 * thread. */
void mfs_gateway_answer(struct mfs_gateway *g, enum mfs_listener listener,
			const struct mfs_request *q, struct mfs_reply *a);
/* Counts and logs a reply that has ended. */
void mfs_gateway_done(struct mfs_gateway *g, const struct mfs_request *q, const struct mfs_reply *a,
		      uint64_t sent, bool whole);

#endif
