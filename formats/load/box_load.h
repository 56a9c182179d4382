/*
 * Loads: boxes of tensors of virtual files into memory of the host or of a GPU, in one pass over
 * the sources.
 *
 * A reader of a virtual file goes through it in its own order, and through the sources in whatever
 * order follows. A load turns that around. All boxes are cut into pieces of source files
 * (plan/pieces.h), these are sorted as the files have them, and neighbours make chunks of a few
 * MiB. Threads take chunks in this order. A chunk that the page cache has is copied at once; others
 * are asked for by io_uring, several at a time, with O_DIRECT where the storage is local and the
 * load is large. From the buffer each piece goes where it belongs: rows by memcpy, or by an
 * asynchronous copy in two dimensions into a GPU. What has to be computed (casts, floats of 8 bits,
 * adapters) or comes from another machine is gathered into the buffer as any reader gets it. A few
 * bytes for the host are read in the caller's thread, before a thread could have started (small.c).
 *
 *   boxes (boxes.c) -> pieces, chunks (job.c) -> threads (worker.c) -> sources (load_fetch.c)
 *                                                                   -> destinations (deliver.c)
 */
#ifndef MFS_LOAD_BOX_LOAD_H
#define MFS_LOAD_BOX_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_vfile;

/* A box of a tensor that lies in a virtual file in C order. */
struct mfs_load_box {
	const char *name; /* of the tensor, for messages */
	struct mfs_vfile *file;
	uint64_t at;   /* offset of its first byte in the file */
	unsigned item; /* bytes of an element */
	unsigned ndim;
	const uint64_t *shape;	     /* elements */
	const uint64_t *begin, *end; /* [begin, end) of each axis; NULL: the whole axis */
	uint8_t *to;		     /* where element (0, ..., 0) of the box goes */
	uint64_t room;		     /* bytes from there on */
	const int64_t *strides;	     /* bytes; NULL: C order without gaps */
};

enum mfs_load_direct { MFS_LOAD_DIRECT_AUTO, MFS_LOAD_DIRECT_NEVER, MFS_LOAD_DIRECT_ALWAYS };

struct mfs_load_options {
	int device;	  /* CUDA's number; -1: memory of the host */
	unsigned threads; /* 0: MFS_LOAD_THREADS, and not more than there are processors */
	uint64_t memory;  /* of all buffers, bytes; 0: MFS_LOAD_MEMORY */
	enum mfs_load_direct direct;
	bool is_remote; /* sources are on other machines: the caller does not wait for them */
};

#define MFS_LOAD_THREADS 16
#define MFS_LOAD_MEMORY	 (128ull << 20)

struct mfs_load_state {
	uint64_t bytes, done;	 /* of all boxes; that have arrived */
	uint64_t read;		 /* from files */
	uint64_t cached, direct; /* of these: that the page cache had; that O_DIRECT has read */
	uint64_t gathered;	 /* bytes of boxes that were gathered */
	unsigned threads;	 /* 0: it was small, and done by its caller */
	const char *engine;
	uint64_t buffers; /* bytes */
	/* whether GPUDirect Storage has read anything, or why not; NULL: not into a GPU */
	const char *gds;
	uint64_t gds_bytes;
};

struct mfs_load;

/* Starts. Boxes and what they point to are not needed afterwards, but for files and destinations.
 * -EINVAL: a box is not in its tensor, does not fit its room, or has strides that cannot be;
 * -ENODEV: there is no such GPU, or `to` is no memory of it; errors of mfs_vfile_pieces(). */
int mfs_load_start(const struct mfs_load_box *boxes, size_t count,
		   const struct mfs_load_options *options, struct mfs_load **ret,
		   struct mfs_error *err);

/* 1: box *ret is done; 0: all are, and no source has changed meanwhile; -EAGAIN: none within
 * timeout_ms (-1: for ever); -ECANCELED; the load's error. */
int mfs_load_next(struct mfs_load *load, int timeout_ms, size_t *ret, struct mfs_error *err);
/* Waits for all boxes. 0, or the error of mfs_load_next(). */
int mfs_load_wait(struct mfs_load *load, struct mfs_error *err);
void mfs_load_cancel(struct mfs_load *load);
void mfs_load_tell(struct mfs_load *load, struct mfs_load_state *ret);
/* Cancels, waits for the threads, frees. NULL is permitted. */
void mfs_load_free(struct mfs_load *load);

/* Buffers that GPUs copy from are costly to make: the last ones stay for the next load. Frees
 * them. */
void mfs_load_forget(void);

#endif
