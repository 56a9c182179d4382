/*
 * Many small reads of one file, mostly forwards: the descriptor stays open, and what lies behind each piece is
 * read along with it. For walks of headers while a source is opened; one thread.
 */
#ifndef MFS_IO_WINDOW_H
#define MFS_IO_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/source.h"

#define MFS_WINDOW_BYTES 8192

struct mfs_window {
	struct mfs_fileset *set;
	uint32_t file;
	int fd;
	uint64_t at; /* of the bytes that are here */
	size_t len;
	uint8_t bytes[MFS_WINDOW_BYTES];
};

/* A file of a set, which must outlive it. */
int mfs_window_open(struct mfs_fileset *set, uint32_t file, struct mfs_window *ret,
		    struct mfs_error *err);
/* The whole file, by the name that messages are to have; w must outlive it and stay where it is. */
struct mfs_source mfs_window_source(struct mfs_window *w, const char *name);
/* -ESTALE: it is another file by now than the one that was added to the set, so what was read is worth nothing. */
int mfs_window_close(struct mfs_window *w, struct mfs_error *err);

#endif
