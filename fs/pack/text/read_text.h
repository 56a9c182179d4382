/* Reads inputs one after the other, and cuts them into batches of whole documents. */
#ifndef MFS_FS_PACK_READ_TEXT_H
#define MFS_FS_PACK_READ_TEXT_H

#include "fs/pack/text/ring.h"
#include "fs/pack/text/separator.h"

/* What a file is when the run begins. It must be this whenever it is opened. */
struct mfs_text_state {
	uint64_t size;
	int64_t changed_ns;
};

struct mfs_text_reader {
	const char *const *files; /* NULL: standard input alone */
	const char *const *names; /* of them, for messages */
	const struct mfs_text_state *states;
	size_t count;
	const char *const *columns; /* of tables */
	size_t column_count;
	uint64_t passes; /* over all inputs */
	struct mfs_separator separator;
	struct mfs_text_place start; /* {0}, or where an earlier run has ended */
	struct mfs_text_ring *ring;
	uint64_t read; /* bytes of the inputs before the one at hand */
};

struct stat;
struct mfs_text_state mfs_text_state(const struct stat *st);

/* Fills the ring to the end of the last input, or to the first failure, which is a batch of its
 * own, and closes it. arg: a struct mfs_text_reader. A thread runs this. */
void *mfs_text_read(void *arg);

#endif
