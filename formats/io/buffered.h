/*
 * Many small reads of one file, mostly forwards. The descriptor stays open, and each read also
 * takes the bytes that follow. For walks of headers while a source is opened. One thread.
 */
#ifndef MFS_IO_BUFFERED_H
#define MFS_IO_BUFFERED_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/source.h"

#define MFS_BUFFERED_BYTES 8192

struct mfs_buffered {
	struct mfs_fileset *set;
	uint32_t file;
	int fd;
	uint64_t at; /* of the bytes that are here */
	size_t len;
	uint8_t bytes[MFS_BUFFERED_BYTES];
};

/* Opens a file of a set. The set must outlive *ret. */
int mfs_buffered_open(struct mfs_fileset *set, uint32_t file, struct mfs_buffered *ret,
		      struct mfs_error *err);
/* The whole file as a source. name: for messages. w must outlive the source and stay where it
 * is. */
struct mfs_source mfs_buffered_source(struct mfs_buffered *w, const char *name);
/* Closes the file. -ESTALE: it is no longer the one that was added to the set, so what was read is
 * worth nothing. */
int mfs_buffered_close(struct mfs_buffered *w, struct mfs_error *err);

#endif
