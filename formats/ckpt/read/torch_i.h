/* Private to the reader of legacy files: ckpt_torch.c reads the model, ckpt_torch_copies.c compares what stages hold
 * twice, ckpt_torch_optim.c and ckpt_torch_flat.c read the optimizer. */
#ifndef MFS_CKPT_READ_TORCH_I_H
#define MFS_CKPT_READ_TORCH_I_H

#include "formats/ckpt/ckpt_i.h"
#include "formats/ckpt/names.h"
#include "formats/optim/rules/rules.h"
#include "formats/ckpt/stored.h"

/* One mp_rank_* directory. */
struct mfs_torch_rank {
	char *name;
	uint32_t number[3]; /* as in the name; NO_RANK: not there */
	uint32_t tp, pp, ep;
	uint32_t file;
	struct mfs_torch_file state; /* open while chunks are counted and read */
};

/* A tensor of one rank's file, on its way to pieces. */
struct mfs_torch_local {
	const struct mfs_torch_rank *rank;
	const struct mfs_torch_tensor *t;
	const char *key;
	struct mfs_name name;
	struct mfs_found_chunk piece; /* chunk: the whole local tensor at global offset 0 */
	uint32_t part, parts;	      /* tensor-parallel rank among how many */
};

/* A rank's part of the embedding, with which copies of it are compared. */
struct mfs_torch_embedding {
	const struct mfs_torch_rank *rank; /* NULL: not read yet, or not there */
	struct mfs_stored at;
};

/* A parameter of one rank. The order of a state dict is the order in which modules register them, which
 * is what the optimizer numbers them by. */
struct mfs_torch_param {
	const char *key;
	struct mfs_name name;
	struct mfs_torch_tensor t; /* the model's */
	uint32_t chunk;		   /* vp * P + pp */
	bool wanted;		   /* the model's tensor is taken from this rank */
	bool copy;		   /* of the embedding */
};

struct mfs_torch_params {
	struct mfs_torch_param *list;
	uint32_t count;
	struct mfs_arena arena;
};

struct mfs_torch_reader {
	struct mfs_ckpt *ckpt;
	struct mfs_torch_rank *ranks; /* sorted by (pp, tp, ep) */
	uint32_t count;
	uint32_t tp, pp, ep, etp, vpp;
	uint32_t *first_layer; /* [vpp * pp] global number of each chunk's first layer */
	uint32_t *layers;      /* [vpp * pp] layers of each chunk */
	struct mfs_torch_embedding *embeddings; /* [tp] of the first stage */
	struct mfs_error *err;
	/* of the optimizer, if it is read */
	struct mfs_optim_rules rules;
	struct mfs_torch_params params; /* of the rank being read */
	bool *dense_done;		/* [pp * tp]: whose flat buffers have been found */
	bool *expert_done;		/* [pp * ep * etp] */
};

/* One pickled archive and the storages that its records have become, so that each is added once. */
struct mfs_torch_source {
	const struct mfs_torch_file *state;
	uint32_t file;
	uint32_t *storages; /* [records]; 0: none yet, else plus 1 */
};

int mfs_torch_storage(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_torch_tensor *t, uint32_t *ret);

/* Adds the pieces of a rank's tensor of a parameter: t lies in storage. */
int mfs_torch_place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		    const struct mfs_torch_param *p, enum mfs_state state,
		    const struct mfs_torch_tensor *t, uint32_t storage);

/* ckpt_torch_copies.c: whether a tensor of a chunk is a stage's copy of the embedding. */
bool mfs_torch_is_copy(const struct mfs_torch_reader *r, const struct mfs_name *name,
		       uint32_t chunk);
/* Remembers the embedding, and compares a copy of it, which is in model, with it. -EINVAL: they differ. */
int mfs_torch_check_copy(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 const struct mfs_torch_param *p, uint32_t storage, mfs_value model);

/* The optimizer's tensors of a rank whose parameters have been noted. */
int mfs_torch_read_optim(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 const struct mfs_torch_source *a);
/* Those in its distrib_optim.pt; of the chain's optimizers there are count in the rank's state. Success
 * without the file: another rank's has the same. */
int mfs_torch_read_flat(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			uint32_t count);

#endif
