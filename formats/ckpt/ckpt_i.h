/* Private to readers: how they build a struct mfs_ckpt (formats/ckpt, and HF directories in formats/model). */
#ifndef MFS_CKPT_CKPT_I_H
#define MFS_CKPT_CKPT_I_H

#include <stdatomic.h>
#include <stdbool.h>

#include "formats/base/arena.h"
#include "formats/ckpt/ckpt.h"
#include "formats/torch/torch_file.h"

enum mfs_container {
	MFS_IN_RECORD, /* of a torch.save archive */
	MFS_IN_ITEM,   /* of a .distcp file: an archive of one tensor */
	MFS_IN_FILE,   /* plainly (safetensors) */
};

/* Bytes of tensors somewhere in a file; the container around them is read on first use. */
struct mfs_storage {
	enum mfs_container container;
	uint32_t file;
	enum mfs_dtype dtype;
	uint64_t at, length;   /* record: local header and payload size; item; plain: the bytes */
	uint64_t limit;	       /* record: of the ZIP record (zip.h) */
	const char *record;    /* record: its name */
	const uint64_t *shape; /* item: shape of the one tensor in it */
	uint8_t ndim;	       /* likewise */
	uint32_t crc;	       /* record: of the payload, 0: not computed; item: in the item */
	_Atomic uint64_t data; /* file offset of the first element, plus 1; 0: not known yet */
};

/* A chunk and the tensor it is of, before chunks are grouped. */
struct mfs_found_chunk {
	const char *name; /* interned */
	int32_t layer, expert;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint8_t state; /* enum mfs_state */
	uint64_t shape[MFS_CKPT_DIMS];
	struct mfs_chunk chunk;
};

/* Where a rank's random states lie: a whole legacy file (length 0), or a byte item, which stands for all
 * expert ranks and says 0. */
struct mfs_ckpt_rng {
	uint32_t tp, pp, ep, file;
	uint64_t at, length;
};

/* How the optimizer's tensors were found. */
enum mfs_optim_form {
	MFS_OPTIM_FORM_NONE,
	MFS_OPTIM_FORM_TORCH,	/* one tensor for each parameter (Float16Optimizer) */
	MFS_OPTIM_FORM_FLAT,	/* legacy flat buffers (distrib_optim.pt) */
	MFS_OPTIM_FORM_SHARDED, /* torch_dist: optimizer.state.exp_avg.* */
	MFS_OPTIM_FORM_PARAM, /* likewise, fully_reshardable: fp32 under optimizer.state.param.* */
	MFS_OPTIM_FORM_FLATTENED, /* likewise, fully_sharded_model_space */
};

struct mfs_dcp;
struct mfs_optim_info;

struct mfs_ckpt {
	char *dir;
	enum mfs_ckpt_format format;
	struct mfs_fileset *files;
	struct mfs_megatron_args args;
	struct mfs_ckpt_layout layout;
	struct mfs_storage *storages;
	uint32_t storage_count;
	struct mfs_chunk *chunks;
	struct mfs_global_tensor *tensors;
	uint32_t tensor_count; /* of all states */
	uint32_t model_count;  /* of the model: the first ones */
	uint32_t chunk_count;
	unsigned what; /* MFS_CKPT_COMMON, MFS_CKPT_OPTIMIZER */
	bool untied;   /* HF: config.json says tied, the weights do not: hf_ckpt.h */
	bool has_state;
	struct mfs_ckpt_common state;
	struct mfs_ckpt_rng *rng; /* in the arena; with MFS_CKPT_COMMON; mfs_ckpt_sort_rng() */
	uint32_t rng_count;
	/* with MFS_CKPT_OPTIMIZER */
	enum mfs_optim_form optim;
	struct mfs_dcp *dcp; /* torch_dist: kept for what reads flat buffers (optim/read/open.c) */
	const uint32_t *dcp_files;	      /* in the set, of dcp's */
	struct mfs_torch_file optim_files[3]; /* parameter groups of two optimizers, grad scaler */
	uint32_t optim_file_count;
	const struct mfs_optim_info *optim_info; /* in the arena */
	const char **warnings;
	uint32_t warning_count;
	struct mfs_arena arena;
	/* while building */
	struct mfs_found_chunk *pieces;
	uint32_t piece_count;
	uint64_t slices; /* torch_dist: what stacked layers and experts may still become */
	struct intern_entry *names;
};

/* An empty checkpoint for a reader to fill; freed by mfs_ckpt_free(). */
int mfs_ckpt_new(const char *dir, unsigned what, enum mfs_ckpt_format format, struct mfs_ckpt **ret,
		 struct mfs_error *err);
/* Pieces added since the last call become tensors. All pieces of one (state, name, layer, expert) must have
 * been added between two calls. Names stay interned until mfs_ckpt_done(), the last call of a reader. */
int mfs_ckpt_group(struct mfs_ckpt *ckpt, struct mfs_error *err);
void mfs_ckpt_done(struct mfs_ckpt *ckpt);

/* The readers; dir exists and has been found to hold their format. */
int mfs_ckpt_read_torch(struct mfs_ckpt *ckpt, struct mfs_error *err);
int mfs_ckpt_read_dist(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Once a reader has noted random states: orders them by pp, tp and ep, each once. */
void mfs_ckpt_sort_rng(struct mfs_ckpt *ckpt);

/* Lets go of a kept index. */
void mfs_ckpt_drop_dcp(struct mfs_ckpt *ckpt);

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
int mfs_ckpt_add_found(struct mfs_ckpt *ckpt, const struct mfs_found_chunk *piece,
		       struct mfs_error *err);
int mfs_ckpt_warn(struct mfs_ckpt *ckpt, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads 'args' and checkpoint_version of a state dict into ckpt->args. file is for messages. */
int mfs_ckpt_read_state(struct mfs_ckpt *ckpt, const struct mfs_pickle *doc, mfs_value state,
			const char *file, struct mfs_error *err);

/* Row-major strides of a shape. */
void mfs_ckpt_contiguous(const uint64_t *shape, unsigned ndim, uint64_t *stride);

#endif
