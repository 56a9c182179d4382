/*
 * What to fetch for a stream, and when: arithmetic alone.
 *
 * In front of the reader lie the rest of his stretch (fs/mount/stream.h) and the next one, fetched
 * in pieces but for the marks. So between one and two stretches are ahead of him, whatever he does,
 * and a new stretch is asked for each time he reaches a mark.
 */
#ifndef MFS_FS_MOUNT_PREFETCH_WINDOW_H
#define MFS_FS_MOUNT_PREFETCH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define MFS_PREFETCH_PIECE (8ull << 20) /* bytes; pieces end at multiples of it */

/* Zero-filled: nothing is to be fetched. */
struct mfs_prefetch_window {
	uint64_t next;	/* fetched, or left out, up to here */
	uint64_t until; /* and to be fetched up to here */
};

/* The stream goes on: its reader has asked for bytes up to last, of a file of size. */
void mfs_prefetch_extend(struct mfs_prefetch_window *w, uint64_t last, uint64_t size);

/* The next piece to fetch. Where the reader has overtaken it, one farther on; false: none. */
bool mfs_prefetch_take(struct mfs_prefetch_window *w, uint64_t last, uint64_t *ret_off,
		       uint64_t *ret_len);

#endif
