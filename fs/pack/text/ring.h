/*
 * Batches on their way: one thread fills them, several encode them, and one takes them in the order
 * in which they were filled. There are no more than a fixed number, so memory is bounded; a lock is
 * taken by the batch, never by the document.
 *
 * Documents may be huge: the filler waits while the texts on their way exceed budget, and a large
 * buffer is released after it is written.
 */
#ifndef MFS_FS_PACK_RING_H
#define MFS_FS_PACK_RING_H

#include <pthread.h>

#include "fs/pack/text/batch.h"

struct mfs_text_ring {
	pthread_mutex_t lock;
	pthread_cond_t can_fill, can_encode, can_write;
	struct mfs_text_batch *batches;
	uint64_t count;
	uint64_t filled, taken, written; /* batches so far */
	uint64_t bytes, budget;		 /* of the texts that are filled and not yet written */
	bool closed;			 /* the filler has ended */
	bool stopped;			 /* everybody is to end */
};

/* With a budget that suits most. -ENOMEM. */
int mfs_text_ring_init(struct mfs_text_ring *r, unsigned count, struct mfs_error *err);
void mfs_text_ring_release(struct mfs_text_ring *r);

/* The filler's: an empty batch, or NULL if it is to end; what it has filled; that this was all. */
struct mfs_text_batch *mfs_text_ring_to_fill(struct mfs_text_ring *r);
void mfs_text_ring_filled(struct mfs_text_ring *r);
void mfs_text_ring_close(struct mfs_text_ring *r);

/* An encoder's: the next batch, or NULL if there is none any more; that it is encoded. */
struct mfs_text_batch *mfs_text_ring_to_encode(struct mfs_text_ring *r);
void mfs_text_ring_encoded(struct mfs_text_ring *r, struct mfs_text_batch *batch);

/* The writer's: the next batch, or NULL if it has not come for a second, or if there is none any
 * more (*ret_end); that it is written. */
struct mfs_text_batch *mfs_text_ring_to_write(struct mfs_text_ring *r, bool *ret_end);
void mfs_text_ring_written(struct mfs_text_ring *r);
/* Has all others end. */
void mfs_text_ring_stop(struct mfs_text_ring *r);
bool mfs_text_ring_stopped(struct mfs_text_ring *r);

#endif
