/*
 * A virtual file: ordered parts, each of which says where its bytes come from.
 *
 *   literal   bytes in memory (a safetensors header, config.json)
 *   file      a range of a source file, unchanged (tokenizer.json)
 *   zeros
 *   tensor    a tensor of the view, planned (plan.h) when it is first read
 *   computed  bytes that a function computes whenever they are read (offsets of rows, an index)
 *
 * A view builds the file once. Any number of threads then read it without a lock: a
 * compare-and-swap publishes the plan of a tensor. No call holds a lock across I/O. The parts of a
 * lazy file are made when it is first read, and are published in the same way.
 */
#ifndef MFS_PLAN_VFILE_H
#define MFS_PLAN_VFILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "formats/base/error.h"
#include "formats/io/present.h"

struct mfs_fileset;
struct mfs_target;
struct mfs_vfile;

int mfs_vfile_new(struct mfs_vfile **ret, struct mfs_error *err);
void mfs_vfile_free(struct mfs_vfile *f);

/* Adds the parts of a lazy file to an empty one. Two threads may call it at once; one result is
 * kept. */
typedef int (*mfs_vfile_build)(void *arg, struct mfs_vfile *parts, struct mfs_error *err);
/* A lazy file of size bytes. arg must outlive the file. If the parts do not add up to size, the
 * call that needs them fails with -EINVAL. */
int mfs_vfile_new_lazy(uint64_t size, mfs_vfile_build build, void *arg, struct mfs_vfile **ret,
		       struct mfs_error *err);
/* Hands over an object that parts point into. mfs_vfile_free() releases it after the parts. A file
 * keeps at most one. */
void mfs_vfile_keep(struct mfs_vfile *f, void *what, void (*release)(void *what));

/* Each of these appends a part. A literal's bytes belong to the file on success. A fileset and a
 * target must outlive the file. */
int mfs_vfile_add_literal(struct mfs_vfile *f, void *bytes, uint64_t len, struct mfs_error *err);
/* The bytes stay the caller's and must outlive the file. Many files and parts may share them. */
int mfs_vfile_add_shared(struct mfs_vfile *f, const void *bytes, uint64_t len,
			 struct mfs_error *err);
int mfs_vfile_add_zeros(struct mfs_vfile *f, uint64_t len, struct mfs_error *err);
int mfs_vfile_add_file(struct mfs_vfile *f, struct mfs_fileset *set, uint32_t file, uint64_t off,
		       uint64_t len, struct mfs_error *err);
int mfs_vfile_add_tensor(struct mfs_vfile *f, const struct mfs_target *t, struct mfs_error *err);

/*
 * Computed bytes: [from, from+len) of an object. read() fills all len bytes at any offset, in any
 * thread, and keeps nothing. It returns -ESTALE if a source has changed since it was opened.
 * willneed may be NULL. The object must outlive the file.
 */
struct mfs_computed_ops {
	int (*read)(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err);
	void (*willneed)(void *object, uint64_t off, uint64_t len);
};
int mfs_vfile_add_computed(struct mfs_vfile *f, const struct mfs_computed_ops *ops, void *object,
			   uint64_t from, uint64_t len, struct mfs_error *err);

uint64_t mfs_vfile_size(const struct mfs_vfile *f);
/* A hash of the size, the parts that are made, and the bytes of literals. It tells files of one
 * size apart. */
uint64_t mfs_vfile_stamp(const struct mfs_vfile *f);

/*
 * What a read becomes: iovecs in file order. Ranges of MFS_GATHER_COPY bytes or more point into
 * mapped sources. Shorter ones are copied to scratch, where neighbours share one iovec. The caller
 * owns the arrays and may use them again after mfs_gather_reset(). An iovec that points into a
 * mapping must be handed to the kernel or copied under io/guard.h, never dereferenced directly.
 */
#define MFS_GATHER_COPY 4096

struct mfs_gather {
	struct iovec *iov;
	unsigned count, capacity;
	uint8_t *scratch;
	size_t scratch_used, scratch_size;
	size_t bytes; /* gathered so far */
	/* What iovecs point to stays until mfs_gather_reset(). */
	struct mfs_present present;
};

/* Allocates room for requests of up to max_bytes in at most max_iov iovecs (UIO_MAXIOV for
 * writev). */
int mfs_gather_init(struct mfs_gather *g, size_t max_bytes, unsigned max_iov);
void mfs_gather_reset(struct mfs_gather *g);
void mfs_gather_release(struct mfs_gather *g);

/*
 * Gathers [off, off+len), cut at the end of the file. g->bytes says how much there was; it is 0
 * beyond the end. len must not exceed the gather's max_bytes. -ESTALE: a source file has changed
 * since it was opened; -EIO; -EINVAL: a tensor of a source is not what its index says; -ENOMEM.
 */
int mfs_vfile_gather(struct mfs_vfile *f, uint64_t off, size_t len, struct mfs_gather *g,
		     struct mfs_error *err);

/* Like mfs_vfile_gather(), copied into buf. *ret_len: bytes copied, less than len only at the end
 * of the file. */
int mfs_vfile_pread(struct mfs_vfile *f, uint64_t off, void *buf, size_t len, size_t *ret_len,
		    struct mfs_error *err);

/* Like mfs_vfile_pread(), for who reads again and again: by a gather of his own, which is empty
 * before and after, and may be of any size. */
int mfs_vfile_pread_by(struct mfs_vfile *f, struct mfs_gather *g, uint64_t off, void *buf,
		       size_t len, size_t *ret_len, struct mfs_error *err);

/* The tensors of a file, in its order: *at begins at 0 and is left after the one that is found.
 * *ret_offset: of its first byte in the file. 1; 0: there are no more; errors of a lazy file. */
int mfs_vfile_next_tensor(struct mfs_vfile *f, uint32_t *at, const struct mfs_target **ret,
			  uint64_t *ret_offset, struct mfs_error *err);

/*
 * Plans every part from *start on: all source records are found, shapes and dtypes agree, every
 * byte has one source. No tensor data is read. The first failure is returned, and *start is set to
 * the part after the failed one, so that a caller can go on and list all failures. start NULL: from
 * the first.
 */
int mfs_vfile_check(struct mfs_vfile *f, uint32_t *start, struct mfs_error *err);

/* Asks the kernel to read the sources of a byte range ahead. Best effort. */
void mfs_vfile_willneed(struct mfs_vfile *f, uint64_t off, uint64_t len);

/* Counts bytes that a reader has been given: see mfs_fileset_served(). */
void mfs_vfile_served(struct mfs_vfile *f, uint64_t bytes);

#endif
