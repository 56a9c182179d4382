/*
 * A small torch.save archive in memory: common.pt, or random states. Values may be copied from
 * archives of the source with the bytes of their tensors.
 */
#ifndef MFS_MEGATRON_WRITE_DIST_ARCHIVE_H
#define MFS_MEGATRON_WRITE_DIST_ARCHIVE_H

#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"
#include "formats/torch/torch_write.h"

struct mfs_dist_archive {
	struct mfs_pickle_writer w; /* data.pkl */
	struct mfs_buf pickle;
	struct mfs_torch_payload *payloads;
	uint32_t count;
	struct mfs_arena arena;
};

void mfs_dist_archive_begin(struct mfs_dist_archive *a);
/* Ends the pickle, whose stack holds one value, and appends the archive to out. rc: result of the
 * writes before; it is returned if it is not 0. The archive is released in any case. */
int mfs_dist_archive_end(struct mfs_dist_archive *a, const char *prefix, int rc,
			 struct mfs_buf *out, struct mfs_error *err);

/* Writes a tensor without axes. */
int mfs_dist_archive_scalar(struct mfs_dist_archive *a, float value, struct mfs_error *err);
/* Writes a tensor with one axis of one element. */
int mfs_dist_archive_number(struct mfs_dist_archive *a, float value, struct mfs_error *err);
/* Writes a tensor of uint8 with one axis. */
int mfs_dist_archive_bytes(struct mfs_dist_archive *a, const void *bytes, uint64_t size,
			   struct mfs_error *err);
/* Copies a value of src's pickle with its storages. */
int mfs_dist_archive_copy(struct mfs_dist_archive *a, const struct mfs_torch_file *src,
			  mfs_value value, struct mfs_error *err);

#endif
