/* Private to formats/load: a load while it runs. */
#ifndef MFS_LOAD_BOX_LOAD_I_H
#define MFS_LOAD_BOX_LOAD_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/threads.h"
#include "formats/io/io_engine.h"
#include "formats/load/box_load.h"
#include "formats/plan/vfile.h"

struct mfs_fileset;

#define MFS_LOAD_PAGE 4096 /* what O_DIRECT is aligned to */

/* ---- what is to be done (boxes.c, job.c) ---- */

/* Rows of a box: where they are in the virtual file, and where they go. */
struct mfs_load_rows {
	uint64_t at, rows, width, step; /* struct mfs_rectangle */
	uint8_t *to;
	int64_t to_row, to_item; /* bytes from row to row, from element to element */
};

typedef int mfs_load_visit(void *arg, const struct mfs_load_rows *rows);

/* Checks a box, and visits its rows. */
int mfs_load_box_check(const struct mfs_load_box *box, struct mfs_error *err);
int mfs_load_box_rows(const struct mfs_load_box *box, mfs_load_visit *visit, void *arg);
/* Bytes of the box. */
uint64_t mfs_load_box_bytes(const struct mfs_load_box *box);

/* Where pieces come from. */
struct mfs_load_source {
	struct mfs_vfile *vfile; /* what it gathers is of it; NULL: it is a file */
	struct mfs_fileset *files;
	uint32_t file;
	uint64_t size;
	/* of a file, opened under the load's lock (load_fetch.c) */
	int fd, direct_fd;	 /* -1: not open */
	bool is_open, in_memory; /* in_memory: a file system of memory */
	void *gds;		 /* gds.c, opened under the load's gds_lock; NULL: not open */
	atomic_bool no_gds;	 /* it cannot be read that way, or a read has failed */
	atomic_bool no_direct;	 /* the disk has refused a read past the page cache */
	atomic_bool no_nowait;	 /* the file system does not tell what it has cached */
	atomic_uint left;	 /* chunks; after the last it is closed */
};

struct mfs_load_piece {
	uint64_t off, row_step; /* in the source */
	uint64_t rows, width;
	uint8_t *to;
	int64_t to_row, to_item;
	uint32_t source, box;
	uint32_t item;
};

/* Pieces that are read at once. */
struct mfs_load_chunk {
	uint32_t source;
	uint32_t first, count; /* pieces */
	uint64_t from, len;    /* the stretch of the file that holds them */
	uint64_t bytes;	       /* of the pieces */
};

struct mfs_load_job {
	struct mfs_load_source *sources;
	uint32_t source_count;
	struct mfs_load_piece *pieces;
	uint32_t piece_count;
	struct mfs_load_chunk *chunks;
	uint32_t chunk_count;
	uint64_t bytes;
};

/* Has several threads plan the tensors of boxes. */
void mfs_load_make_plans(const struct mfs_load_box *boxes, size_t count, unsigned threads);
/* Cuts boxes into chunks of at most chunk bytes. */
int mfs_load_job_make(struct mfs_load_job *job, const struct mfs_load_box *boxes, size_t count,
		      uint64_t chunk, struct mfs_error *err);
void mfs_load_job_release(struct mfs_load_job *job);

/* ---- CUDA (cuda.c) ---- */

struct mfs_cuda;

/* A stream and the events of a thread's slots. */
struct mfs_cuda_stream;

/* Rows of bytes from the host into the device. */
struct mfs_cuda_rows {
	uint8_t *to;
	const uint8_t *from;
	uint64_t rows, width, to_step, from_step; /* bytes; steps are at least width */
};

/* Loads the driver, and retains the device's primary context, which torch and others use, too.
 * -ENODEV. One object for each device; it stays until the process ends. */
int mfs_cuda_open(int device, struct mfs_cuda **ret, struct mfs_error *err);
/* -EINVAL: p is no memory of the device. */
int mfs_cuda_check(struct mfs_cuda *c, const void *p, struct mfs_error *err);
/* The NUMA node of the host next to the device; -1: not known. */
int mfs_cuda_node(struct mfs_cuda *c);
int mfs_cuda_pin(struct mfs_cuda *c, void *p, size_t size, struct mfs_error *err);
void mfs_cuda_unpin(struct mfs_cuda *c, void *p);
/* For the calling thread, with so many events. */
int mfs_cuda_stream_new(struct mfs_cuda *c, unsigned events, struct mfs_cuda_stream **ret,
			struct mfs_error *err);
void mfs_cuda_stream_free(struct mfs_cuda_stream *s);
/* Starts a copy. from stays until the event that is recorded next has come. */
int mfs_cuda_copy(struct mfs_cuda_stream *s, const struct mfs_cuda_rows *rows,
		  struct mfs_error *err);
int mfs_cuda_record(struct mfs_cuda_stream *s, unsigned event, struct mfs_error *err);
/* 0: it has come; -EAGAIN: it has not (wait: it is waited for). */
int mfs_cuda_come(struct mfs_cuda_stream *s, unsigned event, bool wait, struct mfs_error *err);

/* ---- GPUDirect Storage (gds.c) ---- */

/* "/proc" and "/sys"; tests have their own. */
extern const char *mfs_gds_proc, *mfs_gds_sys;

/* NULL: *ret reads the file of a direct descriptor into a GPU, the context of which is the calling
 * thread's. Else why not, as words. */
const char *mfs_gds_open(int direct_fd, void **ret);
void mfs_gds_close(void *file);
/* -EIO; then what is at `to` is undefined. */
int mfs_gds_read(void *file, uint8_t *to, uint64_t off, uint64_t len);

/* ---- buffers (buffers.c) ---- */

/* Memory for the slots of all threads, a part each, in parts of one size. Where a GPU is given, it
 * is pinned as it is used. */
struct mfs_load_buffers {
	uint8_t *memory;
	size_t part, slot; /* bytes */
	unsigned parts;
	struct mfs_cuda *cuda;		 /* NULL: it is not pinned */
	uint8_t pinned[MFS_THREADS_MAX]; /* of each part: 1: its first slot, 2: the others */
};

/* Parts of so many slots, of slot bytes each. */
int mfs_load_buffers_take(struct mfs_load_buffers *b, unsigned parts, unsigned slots, size_t slot,
			  struct mfs_cuda *cuda, struct mfs_error *err);
static inline uint8_t *mfs_load_buffers_part(const struct mfs_load_buffers *b, unsigned number)
{
	return b->memory + number * b->part;
}
/* A GPU will copy from this slot of a part. The part is its thread's alone. What is pinned stays so
 * for the next load. */
int mfs_load_buffers_pin(struct mfs_load_buffers *b, unsigned number, unsigned slot,
			 struct mfs_error *err);
void mfs_load_buffers_give(struct mfs_load_buffers *b);

/* ---- threads (box_load.c, worker.c) ---- */

struct mfs_load {
	struct mfs_load_job job;
	struct mfs_load_options options;
	struct mfs_cuda *cuda; /* NULL: into the host's memory */
	struct mfs_load_buffers buffers;
	unsigned slots; /* of each thread */
	uint64_t chunk, slot_size;
	pthread_t *threads;
	unsigned thread_count; /* that were started */
	atomic_uint numbers;   /* that threads have taken */
	atomic_uint next;      /* chunk */
	atomic_bool stop, uses_uring;
	atomic_ullong done, read, cached, direct, gds, gathered; /* bytes */
	_Atomic(const char *) gds_why; /* GPUDirect Storage is not used, as far as is known */
	atomic_bool gds_failed;	       /* a read by it */
	pthread_mutex_t gds_lock;      /* of files that it opens */
	size_t box_count;
	uint64_t *left;	      /* bytes of each box that have not arrived; under the lock */
	pthread_mutex_t lock; /* of what follows, and of sources that are opened */
	pthread_cond_t changed;
	uint32_t *arrived; /* boxes in the order in which they were done */
	size_t arrived_count, told_count;
	unsigned running; /* threads */
	int rc;
	struct mfs_error err;
};

/* A thread has ended; the first failure ends the others. */
void mfs_load_ended(struct mfs_load *load, int rc, const struct mfs_error *err);
/* Pieces of a chunk have arrived. */
void mfs_load_arrived(struct mfs_load *load, const struct mfs_load_chunk *chunk);
/* A thread of the load. */
void *mfs_load_work(void *load);

/* ---- small loads (small.c) ---- */

/* Whether boxes are few bytes, which are read sooner than a thread starts. Their job tells more. */
bool mfs_load_may_be_small(const struct mfs_load *load, const struct mfs_load_box *boxes,
			   size_t count);
bool mfs_load_is_small(const struct mfs_load *load);
/* Does the whole load in the calling thread. A failure is the load's own, and is told by
 * mfs_load_next(). */
void mfs_load_run_here(struct mfs_load *load);

/* ---- reading (load_fetch.c) ---- */

/* A buffer of a thread, and the chunk that is in it or on its way. */
struct mfs_load_slot {
	enum { SLOT_FREE, SLOT_READING, SLOT_LEAVING } state;
	unsigned number;
	uint64_t turn; /* of one that is leaving: which came before it */
	uint8_t *memory;
	const struct mfs_load_chunk *chunk;
	uint8_t *data; /* where the chunk's first byte is */
	bool in_place; /* it was read to where it goes */
	struct mfs_io io;
	struct iovec iov;
	bool is_direct; /* the rest is read by O_DIRECT */
	uint64_t tail;	/* bytes at the end that O_DIRECT cannot read */
};

int mfs_load_source_open(struct mfs_load *load, struct mfs_load_source *s, struct mfs_error *err);
/* One chunk less is to be read of it. */
void mfs_load_source_done(struct mfs_load_source *s);
void mfs_load_source_close(struct mfs_load_source *s);

/* Reads what the page cache has. 1: all of it; 0: begin() has to be called. */
int mfs_load_fetch_cached(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err);
/* Reads all of a chunk, whether the page cache has it or not, through descriptors that are open
 * anyway. */
int mfs_load_fetch_now(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err);
/* Has the disk write into the GPU, if it can: then the chunk is where it goes. */
bool mfs_load_fetch_gds(struct mfs_load *load, const struct mfs_load_slot *slot);
/* How it goes with GPUDirect Storage: struct mfs_load_state. */
const char *mfs_load_gds_words(struct mfs_load *load);
/* Prepares slot->io, and end() takes what it has read. */
void mfs_load_fetch_begin(struct mfs_load *load, struct mfs_load_slot *slot);
int mfs_load_fetch_end(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_error *err);
/* Fills the slot with the pieces of a chunk, one after the other: of what is computed, and of a
 * file of which little is wanted. */
int mfs_load_gather(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_gather *g,
		    struct mfs_error *err);
bool mfs_load_is_gathered(const struct mfs_load *load, const struct mfs_load_chunk *chunk);

/* ---- destinations (deliver.c) ---- */

/* Brings a slot's pieces to where they go; into a GPU: begins to. stream NULL: the host's
 * memory. */
int mfs_load_deliver(struct mfs_load *load, struct mfs_load_slot *slot,
		     struct mfs_cuda_stream *stream, struct mfs_error *err);

#endif
