/* What goes through the connections: a hello, followed by frames. All hosts are of one kind. */
#ifndef MFT_TRAINER_PARALLEL_HOSTNET_I_H
#define MFT_TRAINER_PARALLEL_HOSTNET_I_H

#include <stdint.h>

#include "formats/base/error.h"

/* Another form of what is below has another number. */
#define MFT_HOSTNET_MAGIC UINT64_C(0x3154454e53464d7f)
#define MFT_HOSTNET_NAME  64

struct mft_hostnet_hello {
	uint64_t magic, job;
	uint32_t rank, size; /* in the world */
	char host[MFT_HOSTNET_NAME];
};

enum mft_hostnet_message_kind {
	/* to the server: doubles, bytes; from it: their sum, or all of them by rank */
	MFT_HOSTNET_SUM,
	MFT_HOSTNET_GATHER,
	/* to the server: nothing more comes; the run ends for all */
	MFT_HOSTNET_BYE,
	MFT_HOSTNET_END,
	/* from the server: all are there; a sentence, after which nothing else comes */
	MFT_HOSTNET_WELCOME,
	MFT_HOSTNET_FAILED,
};

/* bytes of data follow it. */
struct mft_hostnet_frame {
	uint32_t what;
	uint32_t rank, size; /* in the group */
	int32_t code;	     /* of END: the exit status */
	uint64_t group, bytes;
};

/* What all processes of a group may bring together. */
#define MFT_HOSTNET_MOST (UINT64_C(1) << 30)

/* ---- hostnet_server.c: the thread of rank 0 ---- */

struct mft_hostnet_server;

/* listening becomes the server's. The world has so many processes. They come within seconds, and go
 * within seconds when rank 0 has gone. */
int mft_hostnet_serve(int listening, uint32_t size, uint64_t job, unsigned seconds,
		      struct mft_hostnet_server **ret, struct mfs_error *err);
/* Waits until all processes have gone. -ETIMEDOUT: the message names those that are late. */
int mft_hostnet_server_join(struct mft_hostnet_server *s, struct mfs_error *err);

#endif
