/*
 * A model's weights as an engine loads them: safetensors of HuggingFace's names. They are the files
 * of a view or, if SOURCE is a HuggingFace directory and no view is named, its own files as they
 * are.
 */
#ifndef MFS_FS_SOURCE_WEIGHT_FILES_H
#define MFS_FS_SOURCE_WEIGHT_FILES_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"

struct mfs_fileset;
struct mfs_held;
struct mfs_iteration;
struct mfs_root;
struct mfs_vfile;

struct mfs_weight_file {
	const char *name;
	struct mfs_vfile *data;
	uint64_t header;  /* of a file of weights: the bytes before its first tensor's */
	bool has_weights; /* it is one */
};

struct mfs_weight_tensor {
	const char *name;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_MAX_DIMS];
	uint32_t file;
	uint64_t offset, bytes; /* in that file */
};

struct mfs_weight_files {
	struct mfs_iteration *iteration; /* what they are of; the root's */
	const char *view;		 /* "hf"; "": the directory's own files */
	struct mfs_weight_file *files;	 /* in the order of their names */
	uint32_t count;
	struct mfs_weight_tensor *tensors; /* in the order of their names */
	uint32_t tensor_count;
	uint64_t bytes; /* of all tensors */
	uint64_t stamp; /* another one if the bytes may be others; the same on all machines */
	int64_t mtime_ns;
	/* What is released with them. */
	struct mfs_held *held;
	struct mfs_fileset *own; /* the directory's own files; NULL: of a view */
	struct mfs_arena arena;
};

/* view NULL: "hf", or a directory's own files. The root outlives them. -ENODATA: the root has no
 * latest iteration, no model, or no safetensors; -EEXIST: a tensor is there twice. */
int mfs_weight_files_open(struct mfs_root *root, const char *view, struct mfs_weight_files *ret,
			  struct mfs_error *err);
/* A zero-filled one may be released. */
void mfs_weight_files_release(struct mfs_weight_files *f);

/* NULL: there is none of that name. */
const struct mfs_weight_tensor *mfs_weight_files_find(const struct mfs_weight_files *f,
						      const char *name);

/* Copies bytes of a file. Any thread. -EIO: it ends before. */
int mfs_weight_files_read(const struct mfs_weight_files *f, uint32_t file, uint64_t off, void *buf,
			  size_t len, struct mfs_error *err);

#endif
