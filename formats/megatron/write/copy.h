/*
 * Values of the source's pickles in files of Megatron views: random states and the gradient scaler,
 * with the bytes of their tensors, and parameter groups, which have no tensors.
 */
#ifndef MFS_MEGATRON_WRITE_COPY_H
#define MFS_MEGATRON_WRITE_COPY_H

#include "formats/base/arena.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"

/* Where a value goes. */
struct mfs_copy_sink {
	struct mfs_pickle_writer *w;
	struct mfs_arena *arena; /* takes the bytes of storages */
	/* Gives bytes, which lie in the arena, their number in the new archive. */
	int (*add)(void *arg, const void *bytes, uint64_t size, uint32_t *ret,
		   struct mfs_error *err);
	void *arg;
};

/* Writes a value of src's pickle; storages are read now, each once however many tensors share it.
 * -ENOTSUP: larger than any such value is; -EINVAL: damaged. */
int mfs_copy_value(const struct mfs_copy_sink *to, const struct mfs_torch_file *src,
		   mfs_value value, struct mfs_error *err);

/* ---- parameter groups ---- */

bool mfs_copy_is_key(const char *key, size_t len, const char *what);
/* The pair 'step'. */
void mfs_copy_step(struct mfs_pickle_writer *w, double step);
/* The hook 'storage' where no tensors are expected: of their archive nothing is at hand. */
int mfs_copy_refuse(void *arg, mfs_value persid, const char *key, size_t key_len, uint32_t *ret,
		    struct mfs_error *err);

#endif
