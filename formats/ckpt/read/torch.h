/*
 * The reader of legacy `torch` saves: one file of each model-parallel rank. Who wants more of these
 * files than the model is called once for each rank, while its file is open.
 */
#ifndef MFS_CKPT_READ_TORCH_H
#define MFS_CKPT_READ_TORCH_H

#include "formats/ckpt/build.h"
#include "formats/ckpt/names.h"

/* One mp_rank_* directory. */
struct mfs_torch_rank {
	char *name;
	uint32_t number[3]; /* as in the name; NO_RANK: not there */
	uint32_t tp, pp, ep;
	uint32_t file;
	struct mfs_torch_file state; /* open while chunks are counted and read */
};

/* A parameter of one rank. The order of a state dict is the order in which modules register them,
 * which is what the optimizer numbers them by. */
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

/* One pickled archive and the storages that its records have become, so that each is added once. */
struct mfs_torch_source {
	const struct mfs_torch_file *state;
	uint32_t file;
	uint32_t *storages; /* [records]; 0: none yet, else plus 1 */
};

struct mfs_torch_reader;
struct mfs_torch_embedding;

/* Reads what else a rank's file a holds; r->params are the rank's. */
typedef int (*mfs_torch_more)(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			      const struct mfs_torch_source *a, void *arg);

struct mfs_torch_reader {
	struct mfs_ckpt *ckpt;
	struct mfs_torch_rank *ranks; /* sorted by (pp, tp, ep) */
	uint32_t count;
	uint32_t tp, pp, ep, etp, vpp;
	uint32_t *first_layer; /* [vpp * pp] global number of each chunk's first layer */
	uint32_t *layers;      /* [vpp * pp] layers of each chunk */
	struct mfs_torch_embedding *embeddings; /* [tp] of the first stage */
	mfs_torch_more more;
	void *arg;
	struct mfs_torch_params params; /* of the rank being read, if there is more */
	struct mfs_error *err;
};

/* Reads the model, and the state if ckpt->what says so: found chunks, arguments, layout. more may
 * be NULL. */
int mfs_torch_read(struct mfs_ckpt *ckpt, mfs_torch_more more, void *arg, struct mfs_error *err);

/* The storage of the record that a tensor lies in: with a distributed optimizer all tensors share
 * one. */
int mfs_torch_storage(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_torch_tensor *t, uint32_t *ret);

/* Adds the found chunks of a rank's tensor of a parameter: t lies in storage. */
int mfs_torch_place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		    const struct mfs_torch_param *p, enum mfs_state state,
		    const struct mfs_torch_tensor *t, uint32_t storage);

#endif
