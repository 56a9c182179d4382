/*
 * How readers build a checkpoint. A reader opens the files, adds storages and found chunks in any
 * order, and fills in arguments and layout. The found chunks become tensors here. This code knows
 * no reader: each storage has the function of its reader that finds its first byte.
 */
#ifndef MFS_CKPT_CKPT_BUILD_H
#define MFS_CKPT_CKPT_BUILD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "formats/base/arena.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/delta.h"
#include "formats/ckpt/language_part.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/proof.h"
#include "formats/ckpt/told.h"
#include "formats/torch/torch_file.h"

struct mfs_storage;

/* A ZIP record as a range of its file. */
struct mfs_record {
	uint64_t at, length;
	uint32_t crc; /* 0: the writer did not compute it */
};

/* Finds the first byte of a storage's tensor in its file, and the record that it lies in. -EINVAL:
 * the container holds something else than the index says. Any thread. */
typedef int (*mfs_locate)(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
			  struct mfs_record *ret_record, struct mfs_error *err);

/* Bytes of tensors somewhere in a file; the container around them is read on first use. */
struct mfs_storage {
	mfs_locate locate; /* NULL: no container (safetensors, torch before 1.6): bytes are at at */
	uint32_t file;
	enum mfs_dtype dtype;
	uint64_t at,
		length; /* of the bytes; record: local header and payload size; item: the item */
	uint64_t limit; /* record: of the ZIP record (zip.h) */
	const char *record;    /* record: its name */
	const uint64_t *shape; /* item: shape of the one tensor in it */
	uint8_t ndim;	       /* likewise */
	uint32_t crc;	       /* record: of the payload, 0: not computed; item: in the item */
	_Atomic uint64_t data; /* file offset of the first element, plus 1; 0: not known yet */
};

/* A chunk with its tensor's name, shape and dtype, before chunks are grouped by tensor. */
struct mfs_found_chunk {
	const char *name; /* interned */
	int32_t layer, expert;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint8_t state; /* enum mfs_state */
	bool whole_norm;
	uint64_t shape[MFS_CKPT_DIMS];
	struct mfs_chunk chunk;
};

/* Where a rank's random states lie: in a whole legacy file (length 0), or in a byte item. A byte
 * item is for all expert ranks, and its ep is 0. */
struct mfs_ckpt_rng {
	uint32_t tp, pp, ep, file;
	uint64_t at, length;
};

struct mfs_ckpt_extra;
struct mfs_ckpt_reader;
struct mfs_optim_info;

struct mfs_ckpt {
	char *dir;
	const struct mfs_ckpt_format *format;
	const struct mfs_ckpt_reader *reader; /* read/reader.h; NULL: mfs_ckpt_begin() chose none */
	struct mfs_fileset *files;
	struct mfs_megatron_args args;
	struct mfs_ckpt_layout layout;
	struct mfs_storage *storages;
	uint32_t storage_count;
	struct mfs_ckpt_scales *scales;
	uint32_t scales_count;
	struct mfs_ckpt_delta *deltas; /* ordered by tensor */
	uint32_t delta_count;
	struct mfs_ckpt *adapter; /* owned; NULL: there is none */
	struct mfs_chunk *chunks;
	struct mfs_global_tensor *tensors;
	uint32_t tensor_count; /* of all states */
	uint32_t model_count;  /* of the model; these come first */
	uint32_t chunk_count;
	unsigned what; /* MFS_CKPT_COMMON */
	bool untied;   /* HF: config.json says tied, the weights are not (hf_ckpt.h) */
	const struct mfs_ckpt_part_ops *parts; /* for the reader; NULL: no family is known */
	const struct mfs_ckpt_part *part; /* what was chosen of Megatron's files; NULL: all of it */
	bool language;			  /* it is the language model of a vision-language one */
	const struct mfs_ckpt_told *told; /* for the reader; NULL: nobody says what it is */
	const char *told_by; /* config.json's directory, in the arena; NULL: its own files say it */
	bool has_state;
	struct mfs_ckpt_common state;
	struct mfs_ckpt_rng *rng; /* in the arena; with MFS_CKPT_COMMON; mfs_ckpt_sort_rng() */
	uint32_t rng_count;
	struct mfs_ckpt_extra *extras; /* extra_states.h */
	uint32_t extra_count;
	/* What the reader of an optimizer has found (optim/rules/settings.h), in the arena, and the
	 * archives that this points into: parameter groups of two optimizers, grad scaler. */
	const struct mfs_optim_info *optim_info;
	struct mfs_torch_file optim_files[3];
	uint32_t optim_file_count;
	struct mfs_proof *proof; /* NULL: bytes are believed */
	const char **warnings;
	uint32_t warning_count;
	struct mfs_arena arena;
	/* while building */
	struct mfs_found_chunk *found;
	uint32_t found_count;
	struct intern_entry *names;
};

/* An empty checkpoint, which a reader fills. mfs_ckpt_free() frees it. */
int mfs_ckpt_new(const char *dir, unsigned what, const struct mfs_ckpt_format *format,
		 struct mfs_ckpt **ret, struct mfs_error *err);
/* Makes tensors of the found chunks that were added since the last call. All chunks of a tensor
 * (state, name, layer, expert) must be added before the same call. Names stay interned until
 * mfs_ckpt_end(). -ENODATA: no tensor is of the model. */
int mfs_ckpt_group(struct mfs_ckpt *ckpt, struct mfs_error *err);
/* The last call of a reader. rc: its result, which is returned. 0: *ret is the checkpoint; else the
 * checkpoint is freed. */
int mfs_ckpt_end(struct mfs_ckpt *ckpt, int rc, struct mfs_ckpt **ret);

/* Sorts the random states that a reader has noted by pp, tp and ep, and drops duplicates. */
void mfs_ckpt_sort_rng(struct mfs_ckpt *ckpt);

/* Interns a name: equal names have one pointer. NULL: no memory. */
const char *mfs_ckpt_intern(struct mfs_ckpt *ckpt, const char *name);
int mfs_ckpt_add_storage(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint32_t *ret,
			 struct mfs_error *err);
/* Adds a record of a torch.save archive as a storage. The archive begins at base of file. */
int mfs_ckpt_add_record(struct mfs_ckpt *ckpt, uint32_t file, uint64_t base,
			const struct mfs_zip_entry *e, enum mfs_dtype dtype, uint32_t *ret,
			struct mfs_error *err);
/* *ret: what chunks of the matrix with these scales have as theirs. A chunk that has scales makes
 * its tensor one of 8-bit floats, which dtype is not the type of. */
int mfs_ckpt_add_scales(struct mfs_ckpt *ckpt, const struct mfs_ckpt_scales *scales, uint32_t *ret,
			struct mfs_error *err);
int mfs_ckpt_add_found(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *found,
		       struct mfs_error *err);
int mfs_ckpt_warn(struct mfs_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The layer that a name's tensor is of, which files number as layer. Of a hybrid model that is read
 * as a GPTModel it is the block (formats/args/fields.h: hybrid_form). -EINVAL: the pattern has
 * another sublayer there. file, key: for messages.
 */
int mfs_ckpt_block(const struct mfs_ckpt *ckpt, const struct mfs_name *name, const char *file,
		   const char *key, int32_t *layer, struct mfs_error *err);

/* Reads 'args' of a state dict into ckpt->args. file is for messages. */
int mfs_ckpt_read_args(struct mfs_ckpt *ckpt, const struct mfs_pickle *doc, mfs_value state,
		       const char *file, struct mfs_error *err);

/* Call it after mfs_ckpt_group(). If a person or a program has told which model it is, the tensors
 * must be that model's. */
int mfs_ckpt_check_told(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Orders two struct mfs_global_tensor by state, name, layer and expert, for qsort() and
 * bsearch(). */
int mfs_global_tensor_order(const void *a, const void *b);

/* Row-major strides of a shape. */
void mfs_ckpt_contiguous(const uint64_t *shape, unsigned ndim, uint64_t *stride);

#endif
