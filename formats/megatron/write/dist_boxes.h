/*
 * A torch_dist checkpoint that several processes write, each its own files: boxes of tensors,
 * wherever they begin and end, and objects. Items are added file by file; each has its place then.
 * .metadata names all that were added (docs/formats/torch-dist.md).
 *
 * A program that loads such a checkpoint takes any boxes that together are a tensor
 * (torch/distributed/checkpoint/planner_helpers.py: create_read_items_for_chunk_list).
 */
#ifndef MFS_MEGATRON_WRITE_DIST_BOXES_H
#define MFS_MEGATRON_WRITE_DIST_BOXES_H

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/megatron/rank.h"
#include "formats/torch/torch_write.h"

struct mfs_dist_boxes;

struct mfs_dist_boxes_options {
	struct mfs_ckpt *ckpt; /* the whole model, whose tensors the boxes are of */
	enum mfs_layer_spec spec;
	bool optimizer;	  /* its tensors are saved */
	bool distributed; /* by Megatron's DistributedOptimizer */
	bool hybrid;	  /* keys are a HybridModel's (megatron/layout.h) */
};

int mfs_dist_boxes_new(const struct mfs_dist_boxes_options *options, struct mfs_dist_boxes **ret,
		       struct mfs_error *err);
void mfs_dist_boxes_free(struct mfs_dist_boxes *b);

#define MFS_DIST_FILE_NAME_SIZE 32
/* "__3_0.distcp": the first file of process 3. */
void mfs_dist_file_name(char name[MFS_DIST_FILE_NAME_SIZE], uint32_t process, uint32_t number);

/* What follows is added to the end of this file. */
void mfs_dist_boxes_file(struct mfs_dist_boxes *b, uint32_t process, uint32_t number,
			 uint64_t size);

/* An item, the box's elements in row-major order between head and tail. Both live as long as b. Of
 * a tensor that has sections (formats/ckpt/sections.h), a box is in one of them. */
int mfs_dist_boxes_add(struct mfs_dist_boxes *b, const struct mfs_global_tensor *t,
		       const uint64_t *lo, const uint64_t *size, struct mfs_torch_item *ret,
		       struct mfs_error *err);
/* The items of _extra_state that follow one another for a tensor of the model. */
struct mfs_dist_extras {
	uint32_t count;
	uint32_t own; /* which of them is of the module that owns the tensor; count: none is */
	const struct mfs_buf *none; /* the bytes of each of the others */
};

/* Adds them. length: bytes of the module's own state as an item (extra_items.h), which the caller
 * writes in the place of item own; 0: it has none, and its item has the bytes of the others. */
int mfs_dist_boxes_add_extras(struct mfs_dist_boxes *b, const struct mfs_global_tensor *t,
			      uint64_t length, struct mfs_dist_extras *ret, struct mfs_error *err);
/* A pickled object of so many bytes. */
int mfs_dist_boxes_add_object(struct mfs_dist_boxes *b, const char *key, uint64_t length,
			      struct mfs_error *err);

/* Appends .metadata. */
int mfs_dist_boxes_index(struct mfs_dist_boxes *b, struct mfs_buf *out, struct mfs_error *err);

#endif
