/* Private to rank_file*.c: a rank's file whose pickle is being written. */
#ifndef MFS_MEGATRON_WRITE_RANK_FILE_I_H
#define MFS_MEGATRON_WRITE_RANK_FILE_I_H

#include "formats/base/arena.h"
#include "formats/torch/torch_write.h"
#include "formats/megatron/write/rank_file.h"

/* A storage is bytes in memory, or segments: tensors with zeros between them. */
struct mfs_rank_segment {
	uint64_t gap; /* bytes of zeros in front */
	const struct mfs_rank_tensor *tensor;
};

struct mfs_rank_storage {
	uint64_t size; /* bytes */
	const void *bytes;
	struct mfs_rank_segment *segments;
	uint32_t segment_count;
};

struct mfs_rank_file {
	struct mfs_rank_list *list;
	struct mfs_optim *optim; /* NULL: without an optimizer */
	struct mfs_rank_storage *storages;
	uint32_t storage_count;
	struct mfs_arena arena;
};

struct mfs_rank_writer {
	const struct mfs_megatron_options *options;
	struct mfs_rank_file *file;
	struct mfs_pickle_writer *w;
	struct mfs_error *err;
};

/* Adds a storage and writes a contiguous tensor over it. */
int mfs_rank_write_tensor(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t);
/* Like mfs_rank_write_tensor(), for an optimizer state of a parameter. */
int mfs_rank_write_state(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t,
			 enum mfs_state state);
/* storage->segments or bytes lie in the file's arena. */
int mfs_rank_add_storage(struct mfs_rank_writer *r, const struct mfs_rank_storage *storage,
			 uint32_t *ret);

/* Writes an _extra_state (rank_file_extra.c): a tensor of bytes, or None. */
int mfs_rank_write_extra(struct mfs_rank_writer *r, const struct mfs_rank_tensor *t);

/* Copies a value of the source. The storages of its tensors are small and read now. */
int mfs_rank_copy(struct mfs_rank_writer *r, const struct mfs_torch_file *from, mfs_value value);

/* Writes the value of 'optimizer' (rank_file_optim.c). */
int mfs_rank_write_optimizer(struct mfs_rank_writer *r);
/* Writes all of distrib_optim.pt (rank_file_distrib.c). */
int mfs_rank_write_buffers(struct mfs_rank_writer *r);

#endif
