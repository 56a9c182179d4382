/* Private to fs/lib: what the opaque structs of mcorefs.h hold. */
#ifndef MFS_FS_LIB_LIB_I_H
#define MFS_FS_LIB_LIB_I_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "fs/cli/options.h"
#include "fs/lib/mcorefs.h"
#include "fs/source/root.h"

struct mfs_held;

struct mcorefs_source {
	pid_t pid; /* of who opened it */
	struct mfs_options options;
	struct mfs_root *root;
	pthread_mutex_t lock; /* held while the root is looked at */
};

struct mfs_lib_tensor {
	const char *name;
	enum mfs_dtype dtype;
	unsigned ndim;
	uint64_t shape[MFS_MAX_DIMS];
	uint64_t bytes, off;
	uint32_t file;
};

struct mcorefs_view {
	struct mcorefs_source *source;
	struct mfs_held *held;
	struct mfs_view *view;
	char name[MFS_PLACE_NAME];
	char identity[17];    /* digits */
	pthread_mutex_t lock; /* held while tensors are listed */
	struct mfs_arena arena;
	struct mfs_lib_tensor *tensors; /* NULL: not listed yet */
	uint32_t tensor_count;
	uint32_t *firsts;  /* of each file, its first tensor; and one more, tensor_count */
	uint32_t *by_name; /* numbers of tensors, by strcmp() of their names */
};

/* 0, or -EINVAL in a child of the process that opened the source. */
int mfs_lib_check(const struct mcorefs_source *source, struct mfs_error *err);
/* Copies an error for the caller, who may pass NULL. Returns code. */
int mfs_lib_tell(struct mcorefs_error *ret, int code, const struct mfs_error *err);
/* -ENOENT: there are fewer. */
int mfs_lib_check_file(const struct mcorefs_view *view, size_t file, struct mfs_error *err);
/* Lists the tensors, unless they are. */
int mfs_lib_list_tensors(struct mcorefs_view *view, struct mfs_error *err);
/* -ENOENT: there are fewer. */
int mfs_lib_tensor_at(struct mcorefs_view *view, size_t tensor, const struct mfs_lib_tensor **ret,
		      struct mfs_error *err);

#endif
