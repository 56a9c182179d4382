/* Private to formats/ckpt: how the readers of the two formats build a struct mfs_ckpt. */
#ifndef MFS_CKPT_I_H
#define MFS_CKPT_I_H

#include <stdatomic.h>
#include <stdbool.h>

#include "formats/base/arena.h"
#include "formats/ckpt/ckpt.h"
#include "formats/torch_file.h"

/* Bytes of tensors somewhere in a file; the container around them is read on first use. */
struct mfs_storage {
	uint32_t file;
	enum mfs_dtype dtype;
	uint64_t at, length;   /* torch: local header and payload size; torch_dist: the item */
	uint64_t limit;	       /* torch: of the ZIP record (zip.h) */
	const char *record;    /* torch: its name */
	const uint64_t *shape; /* torch_dist: shape of the one tensor in the item */
	uint8_t ndim;	       /* likewise */
	uint32_t crc;	       /* torch: of the payload, 0: not computed; torch_dist: in the item */
	_Atomic uint64_t data; /* file offset of the first element, plus 1; 0: not known yet */
};

/* A chunk and the tensor it is of, before chunks are grouped. */
struct mfs_piece {
	const char *name; /* interned */
	int32_t layer, expert;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_CKPT_DIMS];
	struct mfs_chunk chunk;
};

struct mfs_ckpt {
	char *dir;
	enum mfs_ckpt_format format;
	struct mfs_fileset *files;
	struct mfs_megatron_args args;
	struct mfs_layout layout;
	struct mfs_storage *storages;
	uint32_t storage_count, storage_capacity;
	struct mfs_chunk *chunks;
	struct mfs_global_tensor *tensors;
	uint32_t tensor_count;
	const char **warnings;
	uint32_t warning_count;
	struct mfs_arena arena;
	/* while building */
	struct mfs_piece *pieces;
	uint32_t piece_count, piece_capacity;
	struct intern_entry *names;
};

/* The readers; dir exists and has been found to hold their format. */
int mfs_ckpt_read_torch(struct mfs_ckpt *ckpt, struct mfs_error *err);
int mfs_ckpt_read_dist(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* A ZIP record as a range of its file. */
struct mfs_record {
	uint64_t at, length;
	uint32_t crc; /* 0: the writer did not compute it */
};

/* Finds a torch_dist item's tensor, checking that it is the one promised: the first byte of the tensor
 * in *ret, and the record it lies in in *ret_record. */
int mfs_ckpt_locate_item(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
			 struct mfs_record *ret_record, struct mfs_error *err);

/* One pointer per name. NULL: out of memory. */
const char *mfs_ckpt_intern(struct mfs_ckpt *ckpt, const char *name);
int mfs_ckpt_add_storage(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint32_t *ret,
			 struct mfs_error *err);
int mfs_ckpt_add_piece(struct mfs_ckpt *ckpt, const struct mfs_piece *piece, struct mfs_error *err);
int mfs_ckpt_warn(struct mfs_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads 'args' and checkpoint_version of a state dict into ckpt->args. file is for messages. */
int mfs_ckpt_read_state(struct mfs_ckpt *ckpt, const struct mfs_pickle *doc, mfs_value state,
			const char *file, struct mfs_error *err);

/* Row-major strides of a shape. */
void mfs_ckpt_contiguous(const uint64_t *shape, unsigned ndim, uint64_t *stride);

/* True if linear_fc1 has a gate half and an up half. */
static inline bool mfs_args_gated(const struct mfs_megatron_args *a)
{
	return a->swiglu || a->quick_geglu;
}

#endif
