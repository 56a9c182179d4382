/*
 * A view: the files of one directory that the mount shows, built once and never changed.
 * Front ends (FUSE, export, ls, verify) know views and virtual files, nothing below.
 */
#ifndef MFS_FS_VIEW_VIEW_H
#define MFS_FS_VIEW_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/io/access.h"
#include "formats/model/vocab.h"
#include "formats/plan/vfile.h"

struct mfs_data_options;
struct mfs_fileset;
struct mfs_model;
struct mfs_ckpt;

struct mfs_view_file {
	char *name; /* relative to the view; '/' in it stands between directories */
	struct mfs_vfile *data;
};

struct mfs_view {
	/* Ascending by strcmp() of the names, which puts the files of a directory next to each
	 * other; no name is another's directory (mfs_view_finish() in view_build.h sees to all
	 * this). */
	struct mfs_view_file *files;
	uint32_t count;
	uint32_t tensor_count; /* in all files, for messages */
	int64_t mtime_ns;      /* of every file: the newest source file */
	/* Who may read all source files: as far as it was read once and is not kept, and in all. */
	struct mfs_access_fold fixed, access;
	/* what the source files' own modes grant, classes of formats/io/access.h */
	unsigned granted;
	uint32_t source_count;	   /* files that these were taken from */
	struct mfs_fileset **sets; /* and the sets that hold them; borrowed */
	uint32_t set_count;
	bool sets_failed;      /* one could not be kept: no memory */
	uint64_t stamp;	       /* equal for views of one name: the same files of the same sources */
	struct mfs_ckpt *ckpt; /* what it is made of; borrowed; NULL: of a dataset */
	struct mfs_model *model; /* of an HF view; NULL for others */
	/* Frees what the builder has put around the view, the struct included; NULL: free() does.
	 * Files and names are gone by then. */
	void (*release)(struct mfs_view *view);
};

/* Names of a rank's modules in a Megatron view. */
enum mfs_view_layer_spec {
	MFS_VIEW_LAYER_SPEC_SOURCE, /* not said: as the source's run had them */
	MFS_VIEW_LAYER_SPEC_LOCAL,  /* megatron.core's own */
	MFS_VIEW_LAYER_SPEC_TE,	    /* Transformer Engine's */
};

/* What a person may say about how a checkpoint is to be shown (-o). NULL or 0: not said. */
struct mfs_view_options {
	const char *arch;    /* family, where the arguments leave a choice */
	const char *ref;     /* HF directory that supplies or checks config and tokenizer */
	uint64_t vocab_size; /* true vocabulary size; MFS_VOCAB_TOKENIZER: the tokenizer's length */
	uint64_t shard_size; /* bytes; 0: MFS_SHARD_SIZE */
	const struct mfs_data_options *data; /* of datasets (fs/data/data.h) */
	enum mfs_view_layer_spec spec;	     /* of Megatron views */
	bool no_optim;			     /* Megatron views without the optimizer's state */
	/* SOURCE may be the directory of a run that has not saved yet (fs/source/root.h) */
	bool may_be_empty;
};

#define MFS_SHARD_SIZE 5000000000ull /* huggingface_hub's default: 5 GB, decimal */

/* Of a copy of its files: all that the sources' own modes grant to group and others; its owner
 * reads and writes. */
mode_t mfs_view_copy_mode(const struct mfs_view *view);

/* -ESTALE if a source file is no longer the one that was opened. */
int mfs_view_check_sources(const struct mfs_view *view, struct mfs_error *err);

/* While somebody has a file of it open: sources are read on when they are deleted
 * (mfs_fileset_hold()). Any thread. */
void mfs_view_hold_sources(const struct mfs_view *view);
void mfs_view_drop_sources(const struct mfs_view *view);

void mfs_view_free(struct mfs_view *view);

/* Calls fn for each directory that a view's names have, parents first ("iter_0000040", then
 * "iter_0000040/mp_rank_00"), until it returns non-zero; the value is returned. */
int mfs_view_each_dir(const struct mfs_view *view, int (*fn)(void *arg, const char *dir),
		      void *arg);

#endif
