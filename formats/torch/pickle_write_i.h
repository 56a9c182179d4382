/* Private to formats/torch/pickle_write.c and pickle_copy.c: pieces of values. */
#ifndef MFS_TORCH_PICKLE_WRITE_I_H
#define MFS_TORCH_PICKLE_WRITE_I_H

#include "formats/torch/pickle_write.h"

/* Not NUL-terminated. */
struct mfs_text {
	const char *at;
	size_t len;
};

/* Takes back what was written after the first len bytes of the buffer. */
void mfs_pickle_cut(struct mfs_pickle_writer *w, size_t len);
void mfs_pickle_globaln(struct mfs_pickle_writer *w, struct mfs_text module, struct mfs_text name);
/* Around count values. */
void mfs_pickle_tuple_begin(struct mfs_pickle_writer *w, uint32_t count);
void mfs_pickle_tuple_end(struct mfs_pickle_writer *w, uint32_t count);
/* The number of a storage as the text that names its record. */
void mfs_pickle_storage_key(struct mfs_pickle_writer *w, uint32_t storage);

#endif
