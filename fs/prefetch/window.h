/*
 * What to fetch for a stream, and when. This is arithmetic without I/O.
 *
 * The window is the rest of the reader's stretch (stream.h) and the next stretch. All of
 * it is fetched, in ranges of MFS_PREFETCH_PIECE, except the marks. Whenever the reader reaches a
 * mark, the window grows by a stretch; so one to two stretches are always ahead of it.
 */
#ifndef MFS_FS_PREFETCH_WINDOW_H
#define MFS_FS_PREFETCH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define MFS_PREFETCH_PIECE (8ull << 20) /* bytes; ranges end at multiples of it */

/* Zero-filled: nothing is to be fetched. */
struct mfs_prefetch_window {
	uint64_t next;	/* fetched or left out up to here */
	uint64_t until; /* to be fetched up to here */
};

/* Moves the window: the reader has asked for bytes up to last of a file of size bytes. */
void mfs_prefetch_extend(struct mfs_prefetch_window *w, uint64_t last, uint64_t size);

/* The next range to fetch. Ranges that the reader has passed are left out. False: there is none. */
bool mfs_prefetch_take(struct mfs_prefetch_window *w, uint64_t last, uint64_t *ret_off,
		       uint64_t *ret_len);

#endif
