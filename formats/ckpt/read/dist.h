/* The reader of `.metadata` and what it says of `.distcp` files: torch_dist, also in NeMo's
 * folders, and plain torch.distributed.checkpoint. zarr has no such index, and one is made. The
 * reader lives until the optimizer's reader is done with the index too. */
#ifndef MFS_CKPT_READ_DIST_H
#define MFS_CKPT_READ_DIST_H

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/names.h"
#include "formats/torch/dcp.h"

#define METADATA ".metadata"

struct mfs_dist_reader;
struct mfs_verl;

/* Whose save it is: programs put the same files in other places, and name tensors otherwise. */
struct mfs_dist_maker {
	const char *folder;	/* of the index, below the checkpoint's: "" or "weights/" */
	const char *prefix;	/* of the model's keys in those of an optimizer: "" or "module." */
	bool has_random_states; /* byte items (rng.h) */

	/* Sets folder where a constant cannot say it. NULL: one does. */
	int (*find)(struct mfs_dist_reader *r);
	/* Called when the index is open. NULL: anything can be in it. */
	int (*check)(struct mfs_dist_reader *r);
	/* Reads the arguments, and the common state where ckpt->what asks for it. */
	int (*read_args)(struct mfs_dist_reader *r);
	/* Gives *state, the root of f, what the program has put elsewhere. file: f's name. NULL: no
	 * state is read. */
	int (*complete_state)(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
			      mfs_value *state);
	/* Whether the optimizer's state, if there is one, is read where somebody asks for it.
	 * NULL: it never is. */
	bool (*reads_optimizer)(const struct mfs_dist_reader *r);
	/* See mfs_dist_model_key(). */
	const char *(*model_key)(const char *key);
	/* Gives the parameter groups of a byte item Megatron's names. NULL: they have these. */
	int (*rename_groups)(struct mfs_torch_file *f, const char *key, struct mfs_error *err);
};

struct mfs_dist_reader {
	struct mfs_ckpt *ckpt;
	const struct mfs_dist_maker *maker;
	const char *folder;	     /* the maker's */
	bool bare;		     /* somebody else has told the arguments: there is no state */
	const struct mfs_verl *verl; /* of verl.c alone */
	const char
		*unread; /* folder of an optimizer's state next to the index. NULL: there is none */
	bool arrays;	 /* zarr: items are files of their own, and their bytes the tensors' */
	const char *index;  /* for messages */
	struct mfs_dcp dcp; /* the index */
	uint32_t *files;    /* numbers in the fileset, by number in the index */
	uint64_t slices;    /* how many more tensors stacked ones may become */
	struct mfs_error *err;
};

/* The read() of rows that have a maker (reader.h). */
int mfs_dist_read_model(struct mfs_ckpt *ckpt, struct mfs_error *err);

/* Reads found chunks, arguments and layout of the model, and the common state if ckpt->what asks
 * for it, as ckpt->reader says. The caller releases *r after a failure too. */
int mfs_dist_read(struct mfs_ckpt *ckpt, struct mfs_dist_reader *r, struct mfs_error *err);
void mfs_dist_release(struct mfs_dist_reader *r);

/* What a key is called in Megatron's torch_dist. NULL: it is not of the model. */
const char *mfs_dist_model_key(const struct mfs_dist_reader *r, const char *key);

/* A tensor of the index, with the leading axes that are stacked layers and experts. */
struct mfs_dist_stacked {
	const struct mfs_dcp_tensor *t;
	struct mfs_name name;
	unsigned layer_axis, expert_axis; /* MFS_MAX_DIMS: not stacked */
	unsigned skip;			  /* number of stacked leading axes */
	struct mfs_found_chunk found;	  /* template */
};

/* Describes t as the tensor of key, a key of the model. s->found is a template of its found
 * chunks. */
int mfs_dist_unstack(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
		     struct mfs_dist_stacked *s);
/* Handles a found chunk of a section that is a tensor of its own: gives it the shape of the whole
 * tensor, and returns by how many rows its first row follows that tensor's first. Returns 0 for any
 * other key. */
uint64_t mfs_dist_place_section(const struct mfs_dist_reader *r, const struct mfs_name *name,
				struct mfs_found_chunk *p);
/* Adds the storage of chunk c. -EINVAL: the chunk is empty, or larger than its item. */
int mfs_dist_storage(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
		     const struct mfs_dcp_chunk *c, uint32_t *ret);
/* Adds the found chunks of t, which is a state of the parameter of key, a key of the model. A chunk
 * becomes a found chunk for each stacked layer and expert. */
int mfs_dist_add_tensor(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
			enum mfs_state state);
/* Adds a file of the index's folder to the checkpoint's. -errno as of mfs_fileset_add(). */
int mfs_dist_add_file(struct mfs_dist_reader *r, const char *name, uint32_t *ret,
		      struct mfs_error *err);
/* The bytes of a byte item. */
struct mfs_source mfs_dist_item(const struct mfs_dist_reader *r, const struct mfs_dcp_item *item);
/* The object in a byte item: torch_dist has a list around it, zarr has not. */
mfs_value mfs_dist_object(const struct mfs_dist_reader *r, const struct mfs_pickle *doc);

#endif
