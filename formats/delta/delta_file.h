/*
 * A model's file as a version of a chain has it: the base's bytes, with the changes of all versions
 * up to this one applied when somebody reads them. It is the backing (formats/io/backing.h) of a
 * placeholder of the file's size.
 *
 * A tensor is made whole, since its checksum is of the whole, in windows. It is kept in a sparse
 * file until others need the room. Tensors that are in use stay.
 */
#ifndef MFS_DELTA_FILE_H
#define MFS_DELTA_FILE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_index.h"
#include "formats/io/backing.h"

/* What files of all versions share: room for tensors, in a directory. */
struct mfs_delta_room;

/* dirfd stays the caller's, and open. bytes: of all tensors that are kept. */
int mfs_delta_room_new(int dirfd, uint64_t bytes, struct mfs_delta_room **ret,
		       struct mfs_error *err);
/* After all of its files. */
void mfs_delta_room_free(struct mfs_delta_room *room);

/* A range of a file of the base. */
struct mfs_delta_part {
	const char *name; /* of the tensor; NULL: it is not a tensor, and does not change */
	uint64_t offset, bytes;
	const char *sum; /* of the base's bytes; NULL: not known */
};

/* A file of the base. It outlives all versions of it. */
struct mfs_delta_base_file {
	const char *name;
	uint64_t size;
	const struct mfs_delta_part *parts; /* ascending, without gaps, up to size */
	uint32_t count;
	enum mfs_delta_sum_kind sum; /* of the parts */
	/* Copies bytes of it. Any thread. */
	int (*read)(void *arg, uint64_t off, void *buf, size_t len, struct mfs_error *err);
	void *arg;
};

struct mfs_delta_file;

/* links: the versions in their order, borrowed with the array. number: another one for each file of
 * a room. */
int mfs_delta_file_new(struct mfs_delta_room *room, const struct mfs_delta_base_file *base,
		       const struct mfs_delta *const *links, uint32_t link_count, uint32_t number,
		       struct mfs_delta_file **ret, struct mfs_error *err);
/* Nobody may read it any more. */
void mfs_delta_file_free(struct mfs_delta_file *f);

/* identity: another one if the bytes may be others. acquire() fails with -EIO if a checksum is
 * wrong: of the base, or of a tensor after a change; and with the errors of reading both. */
struct mfs_backing mfs_delta_file_as_backing(struct mfs_delta_file *f, uint64_t identity);

#endif
