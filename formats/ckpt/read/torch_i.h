/* Private to torch*.c, the reader of legacy files. */
#ifndef MFS_CKPT_READ_TORCH_I_H
#define MFS_CKPT_READ_TORCH_I_H

#include "formats/ckpt/read/marks.h"
#include "formats/ckpt/read/torch.h"
#include "formats/ckpt/stored.h"

/* ---- torch_ranks.c ---- */

/* Lists the ranks, reads arguments and layout from the first one, and checks that none is
 * missing. */
int mfs_torch_find_ranks(struct mfs_torch_reader *r);
void mfs_torch_release_ranks(struct mfs_torch_reader *r);
int mfs_torch_open_rank(struct mfs_torch_reader *r, struct mfs_torch_rank *rank);
const struct mfs_torch_rank *mfs_torch_find_rank(const struct mfs_torch_reader *r, uint32_t pp,
						 uint32_t tp);
/* The rank whose file is read for the experts of (pp, ep, etp). */
const struct mfs_torch_rank *mfs_torch_find_expert_rank(const struct mfs_torch_reader *r,
							uint32_t pp, uint32_t ep, uint32_t etp);

/* What the reader's row says (reader.h). */
bool mfs_torch_looks_like(const char *dir);
int mfs_torch_add_marks(const char *dir, const char *name, struct mfs_marks *marks);
bool mfs_torch_last(const char *dir, char *name, size_t size);

/* ---- torch_dict.c ---- */

/* The state dict of model chunk vp; none if the stage is empty. */
mfs_value mfs_torch_model(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			  uint32_t vp);
/* Once for each rank, before its dicts are walked through. -EINVAL: two model chunks share one. */
int mfs_torch_check_models(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank);
/* Called with each value of a model chunk's dict, and with its key. Keys of dicts in dicts are
 * joined by dots. A result other than 0 ends the walk. */
typedef int (*mfs_torch_visit)(void *arg, const char *key, mfs_value v);
int mfs_torch_each(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, uint32_t vp,
		   mfs_torch_visit visit, void *arg);

/* ---- torch_layers.c ---- */

/* Opens a rank of each stage, and fills layers and first_layer. */
int mfs_torch_number_layers(struct mfs_torch_reader *r);

/* ---- torch_qkv.c ---- */

/* Reads how old the save is: what its arguments mean by default, and the order of its rows of q, k
 * and v. */
int mfs_torch_read_age(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank);
/* True if the tensor's rows have another order in the file than in global tensors. */
bool mfs_torch_reorders(const struct mfs_torch_reader *r, const struct mfs_name *name);
/* Adds the found chunks of such a tensor. local: a rank's part of it, already at its place in the
 * global tensor; it is one of parts. */
int mfs_torch_place_qkv(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			const char *key, const struct mfs_found_chunk *local, uint32_t parts);

/* ---- torch_quantised.c ---- */

/* Reads the tensor of a parameter, which may be one of 8-bit floats with scales: into p->t, dtype
 * and scales. */
int mfs_torch_read_value(struct mfs_torch_reader *r, const struct mfs_torch_source *a, mfs_value v,
			 struct mfs_torch_param *p);

/* ---- torch_extra.c ---- */

/* Notes the state of a module (ckpt/extra_states.h), the value v under a key of a model chunk. */
int mfs_torch_note_extra(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 uint32_t chunk, const char *key, mfs_value v);

/* ---- torch_place.c ---- */

/* The number of a parameter's layer in the model; -1: it is in none. */
int32_t mfs_torch_layer(const struct mfs_torch_reader *r, const struct mfs_name *name,
			uint32_t chunk);

/* True if the global tensor takes this rank's part of a tensor of that name. */
bool mfs_torch_is_wanted(const struct mfs_torch_reader *r, const struct mfs_torch_rank *d,
			 const struct mfs_name *name);

/* ---- torch_copies.c ---- */

/* A rank's part of the embedding. Copies of it are compared with it. */
struct mfs_torch_embedding {
	const struct mfs_torch_rank *rank; /* NULL: not read yet, or absent */
	struct mfs_stored at;
};

/* True if a tensor of a model chunk is a copy of the embedding. */
bool mfs_torch_is_copy(const struct mfs_torch_reader *r, const struct mfs_name *name,
		       uint32_t chunk);
/* Remembers the embedding, or compares a copy with it. model: the state dict of the copy. -EINVAL:
 * they differ. */
int mfs_torch_check_copy(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			 const struct mfs_torch_param *p, uint32_t storage, mfs_value model);

#endif
