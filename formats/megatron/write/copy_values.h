/*
 * Copies values of the source's pickles into files of Megatron views: random states and the
 * gradient scaler with the bytes of their tensors, and parameter groups, which have no tensors.
 */
#ifndef MFS_MEGATRON_WRITE_COPY_VALUES_H
#define MFS_MEGATRON_WRITE_COPY_VALUES_H

#include "formats/base/arena.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"

/* Where a value goes. */
struct mfs_copy_sink {
	struct mfs_pickle_writer *w;
	struct mfs_arena *arena; /* takes the bytes of storages */
	/* Adds a storage of bytes in the arena; *ret is its number in the new archive. */
	int (*add)(void *arg, const void *bytes, uint64_t size, uint32_t *ret,
		   struct mfs_error *err);
	void *arg;
};

/* Writes a value of src's pickle. Its storages are read now, each one once. -ENOTSUP: the value is
 * larger than any of its kind; -EINVAL: it is damaged. */
int mfs_copy_value(const struct mfs_copy_sink *to, const struct mfs_torch_file *src,
		   mfs_value value, struct mfs_error *err);

/* ---- parameter groups ---- */

bool mfs_copy_is_key(const char *key, size_t len, const char *what);
/* The pair 'step'. */
void mfs_copy_step(struct mfs_pickle_writer *w, double step);
/* A hook 'storage' for values that cannot have tensors: it fails. */
int mfs_copy_refuse(void *arg, mfs_value persid, const char *key, size_t key_len, uint32_t *ret,
		    struct mfs_error *err);

#endif
