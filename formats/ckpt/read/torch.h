/*
 * The reader of legacy `torch` saves: a file for each model-parallel rank. A callback may read more
 * than the model; it is called once for each rank, while the rank's file is open.
 */
#ifndef MFS_CKPT_READ_TORCH_H
#define MFS_CKPT_READ_TORCH_H

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/names.h"

/* One mp_rank_* directory. */
struct mfs_torch_rank {
	char *name;
	uint32_t number[3]; /* numbers in the name; RANK_NONE: absent */
	uint32_t tp, pp, ep;
	uint32_t file;
	struct mfs_torch_file state; /* open while chunks are counted and read */
};

/* A parameter of one rank. A state dict has the order in which modules register parameters; the
 * optimizer numbers them in this order. */
struct mfs_torch_param {
	const char *key;
	struct mfs_name name;
	struct mfs_torch_tensor t; /* the model's; with scales: bytes */
	enum mfs_dtype dtype;	   /* of the weight */
	uint32_t scales;	   /* of its 8-bit floats, as a chunk has them; 0: none */
	uint32_t chunk;		   /* model chunk: vp * P + pp */
	bool wanted;		   /* the global tensor takes this rank's part */
	bool copy;		   /* a copy of the embedding */
};

struct mfs_torch_params {
	struct mfs_torch_param *list;
	uint32_t count;
	struct mfs_arena arena;
};

/* An archive, and the storages of its records. Each record is added once. */
struct mfs_torch_source {
	const struct mfs_torch_file *state;
	uint32_t file;
	uint32_t *storages; /* [records] number plus 1; 0: not added yet */
};

struct mfs_torch_reader;
struct mfs_torch_embedding;

/* Reads more of a rank's file a. r->params are the rank's parameters. */
typedef int (*mfs_torch_more)(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			      const struct mfs_torch_source *a, void *arg);

/* Rows of q, k and v of n heads with d channels: [n, 3, d], [3, n, d] or [n, d, 3]. */
enum mfs_qkv_order { MFS_QKV_HEADS_FIRST, MFS_QKV_SPLITS_FIRST, MFS_QKV_SPLITS_LAST };

struct mfs_torch_reader {
	struct mfs_ckpt *ckpt;
	struct mfs_torch_rank *ranks; /* sorted by (pp, tp, ep) */
	uint32_t count;
	uint32_t tp, pp, ep, etp, vpp;
	enum mfs_qkv_order qkv_order;
	bool quantised;	       /* a weight has scales */
	uint64_t pieces;       /* how many more found chunks reordered rows may become */
	uint64_t state_bytes;  /* copied from the current rank's pickle (torch_extra.c) */
	uint32_t *first_layer; /* [vpp * pp] global number of each model chunk's first layer */
	uint32_t *layers;      /* [vpp * pp] layers of each model chunk */
	struct mfs_torch_embedding *embeddings; /* [tp] of the first stage */
	mfs_torch_more more;
	void *arg;
	struct mfs_torch_params params; /* of the current rank; only with more */
	struct mfs_error *err;
};

/* Reads found chunks, arguments and layout of the model, and the common state if ckpt->what asks
 * for it. more may be NULL. */
int mfs_torch_read(struct mfs_ckpt *ckpt, mfs_torch_more more, void *arg, struct mfs_error *err);

/* The storage of the record that a tensor lies in. With a distributed optimizer all tensors share
 * one. */
int mfs_torch_storage(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_torch_tensor *t, uint32_t *ret);

/* Adds the found chunks of a rank's part of a parameter, or of its state. t lies in storage. */
int mfs_torch_place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		    const struct mfs_torch_param *p, enum mfs_state state,
		    const struct mfs_torch_tensor *t, uint32_t storage);

#endif
