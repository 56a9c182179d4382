/*
 * A virtual file: ordered parts, each of which says where its bytes come from.
 *
 *   literal   bytes in memory (a safetensors header, config.json)
 *   file      a range of a source file, unchanged (tokenizer.json)
 *   zeros
 *   tensor    a tensor of the view, planned (plan.h) on first touch
 *   computed  bytes that somebody computes whenever they are read (offsets of rows, an index)
 *
 * Built once by a view, then read by any number of threads without a lock: the plan of a tensor is
 * published with a compare-and-swap. No call holds a lock across I/O. A file of very many parts may
 * have them made on first touch (lazy), and published likewise.
 */
#ifndef MFS_PLAN_VFILE_H
#define MFS_PLAN_VFILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "formats/base/error.h"

struct mfs_fileset;
struct mfs_target;
struct mfs_vfile;

int mfs_vfile_new(struct mfs_vfile **ret, struct mfs_error *err);
void mfs_vfile_free(struct mfs_vfile *f);

/* Adds the parts of a lazy file to an empty one. Any thread; should two be at it, one's result is
 * kept. */
typedef int (*mfs_vfile_build)(void *arg, struct mfs_vfile *parts, struct mfs_error *err);
/* A file whose size (bytes) is known and whose parts are made when they are first needed. arg must
 * outlive the file. Parts of another size than promised are -EINVAL when they are needed. */
int mfs_vfile_new_lazy(uint64_t size, mfs_vfile_build build, void *arg, struct mfs_vfile **ret,
		       struct mfs_error *err);
/* What parts point into, released with the file, behind its parts; one a file. */
void mfs_vfile_keep(struct mfs_vfile *f, void *what, void (*release)(void *what));

/* Appends a part; the order of calls is the order in the file. Bytes are taken over (freed with the
 * file) on success; a fileset and a target must
 * outlive the file. */
int mfs_vfile_add_literal(struct mfs_vfile *f, void *bytes, uint64_t len, struct mfs_error *err);
/* Bytes that stay the caller's and must outlive the file: many files, or many parts, may share
 * them. */
int mfs_vfile_add_shared(struct mfs_vfile *f, const void *bytes, uint64_t len,
			 struct mfs_error *err);
int mfs_vfile_add_zeros(struct mfs_vfile *f, uint64_t len, struct mfs_error *err);
int mfs_vfile_add_file(struct mfs_vfile *f, struct mfs_fileset *set, uint32_t file, uint64_t off,
		       uint64_t len, struct mfs_error *err);
int mfs_vfile_add_tensor(struct mfs_vfile *f, const struct mfs_target *t, struct mfs_error *err);

/*
 * Computed bytes: those of [from, from+len) of an object that read() knows. read() fills all of
 * what it is asked for, at any offset and from any thread, without keeping what it has computed; it
 * sees to it that sources are still the ones that were opened (-ESTALE). willneed may be NULL. The
 * object must outlive the file.
 */
struct mfs_computed {
	int (*read)(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err);
	void (*willneed)(void *object, uint64_t off, uint64_t len);
};
int mfs_vfile_add_computed(struct mfs_vfile *f, const struct mfs_computed *ops, void *object,
			   uint64_t from, uint64_t len, struct mfs_error *err);

uint64_t mfs_vfile_size(const struct mfs_vfile *f);
/* Tells apart files of one size by their parts as far as they are made, and the bytes of those in
 * memory. */
uint64_t mfs_vfile_stamp(const struct mfs_vfile *f);

/*
 * What a read becomes: iovecs in file order. Pieces of MFS_GATHER_COPY bytes or more point into
 * mapped sources, smaller ones are copied to scratch, neighbours there merged into one iovec.
 * The caller owns the arrays and may use them again after mfs_gather_reset(). Iovecs that point
 * into mappings must be handed to the kernel or copied under guard.h, never dereferenced plainly.
 */
#define MFS_GATHER_COPY 4096

struct mfs_gather {
	struct iovec *iov;
	unsigned count, capacity;
	uint8_t *scratch;
	size_t scratch_used, scratch_size;
	size_t bytes; /* gathered so far */
};

/* Room for requests of up to max_bytes, as at most max_iov iovecs (UIO_MAXIOV for writev). */
int mfs_gather_init(struct mfs_gather *g, size_t max_bytes, unsigned max_iov);
void mfs_gather_reset(struct mfs_gather *g);
void mfs_gather_release(struct mfs_gather *g);

/*
 * Gathers [off, off+len), cut at the end of the file (g->bytes says how much; 0 beyond the end).
 * len must not exceed the gather's max_bytes. Every source file touched is checked against what the
 * plan was built from. -ESTALE, -EIO, -EINVAL (a source's tensor is not what its index said),
 * -ENOMEM.
 */
int mfs_vfile_gather(struct mfs_vfile *f, uint64_t off, size_t len, struct mfs_gather *g,
		     struct mfs_error *err);

/* The same, copied into buf. *ret_len: bytes copied, short only at the end of the file. */
int mfs_vfile_pread(struct mfs_vfile *f, uint64_t off, void *buf, size_t len, size_t *ret_len,
		    struct mfs_error *err);

/* Plans every part: all source records found, shapes and dtypes agreeing, every byte covered once.
 * Reads no tensor data. The first failure is returned; start (NULL, or 0 to begin with) is the part
 * to go on from, and is set behind the failed one so that a caller can list them all. */
int mfs_vfile_check(struct mfs_vfile *f, uint32_t *start, struct mfs_error *err);

/* Asks the kernel for the sources of a range ahead of its being read. Best effort. */
void mfs_vfile_willneed(struct mfs_vfile *f, uint64_t off, uint64_t len);

/* Counts bytes served to a reader: see mfs_fileset_served(). */
void mfs_vfile_served(struct mfs_vfile *f, uint64_t bytes);

#endif
