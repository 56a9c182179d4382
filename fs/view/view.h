/*
 * A view is the files of one directory that the mount shows. It is built once and does not change.
 * Front ends (FUSE, export, ls, verify) use views and virtual files, and nothing below these.
 */
#ifndef MFS_FS_VIEW_VIEW_H
#define MFS_FS_VIEW_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/ckpt/proof.h"
#include "formats/io/access.h"
#include "formats/model/vocab.h"
#include "formats/plan/vfile.h"

struct mfs_data_options;
struct mfs_fileset;
struct mfs_model;
struct mfs_ckpt;

struct mfs_view_file {
	char *name; /* path in the view */
	struct mfs_vfile *data;
};

struct mfs_view {
	/* Sorted by strcmp() of the names, so the files of a directory are neighbours. No name is
	 * another's directory. mfs_view_finish() (build.h) does and checks this. */
	struct mfs_view_file *files;
	uint32_t count;
	uint32_t tensor_count; /* in all files, for messages */
	bool cast;	       /* weights have another type than the source's */
	int64_t mtime_ns;      /* of every file: the time of the newest source file */
	/* Who may read: fixed: all sources that were read once and are not kept; access: all
	 * sources. */
	struct mfs_access_fold fixed, access;
	/* what the source files' own modes grant, classes of formats/io/access.h */
	unsigned granted;
	uint32_t source_count;	   /* files that these were taken from */
	struct mfs_fileset **sets; /* and the sets that hold them; borrowed */
	uint32_t set_count;
	bool sets_failed; /* one could not be kept: no memory */
	uint64_t stamp;	  /* equal for views of one name: the same files of the same sources */
	/* The same, on all machines that see the sources: devices and inodes do not count. */
	uint64_t identity;
	_Atomic int64_t checked; /* monotonic ns of the last check that found no change */
	struct mfs_ckpt *ckpt;	 /* what it is made of; borrowed; NULL: of a dataset */
	struct mfs_model *model; /* of an HF view; NULL for others */
	uint32_t own_warnings;	 /* how many of the model's last ones this view alone has */
	/* Frees what the builder has put around the view, the struct included; NULL: free() does.
	 * Files and names are gone by then. */
	void (*release)(struct mfs_view *view);
};

/* The layer spec of a Megatron view. */
enum mfs_view_layer_spec {
	MFS_VIEW_LAYER_SPEC_SOURCE, /* not given: that of the source's run */
	MFS_VIEW_LAYER_SPEC_LOCAL,  /* megatron.core's own */
	MFS_VIEW_LAYER_SPEC_TE,	    /* Transformer Engine's */
};

/* Options of a person for views (-o). NULL or 0: not given. */
struct mfs_view_options {
	const char *arch; /* family, if several fit the arguments */
	const char *ref;  /* HF directory that gives config.json and tokenizer */
	/* directory that gives the tokenizer alone; there is no ref then */
	const char *tokenizer;
	const char *adapter; /* directory of an adapter that is merged into the model */
	const char *base;    /* SOURCE that the first version of a chain of deltas changes */
	uint64_t vocab_size; /* true vocabulary size; MFS_VOCAB_TOKENIZER: the tokenizer's length */
	uint64_t shard_size; /* bytes; 0: MFS_SHARD_SIZE */
	const struct mfs_data_options *data; /* of datasets (fs/data/data.h) */
	enum mfs_view_layer_spec spec;	     /* of Megatron views */
	bool no_optim;			     /* Megatron views without the optimizer's state */
	bool stack_experts; /* HF views with the experts of a layer in one tensor */
	bool language; /* of a vision-language model the language model; no_optim is set, too */
	enum mfs_proof_kind verify; /* sums of the source that its bytes must have */
	/* of sources on other machines (formats/remote/mirror.h) */
	const char *cache;		/* directory */
	uint64_t cache_size;		/* bytes */
	unsigned timeout, open_timeout; /* seconds */
	bool private_redirects;
	/* SOURCE may be the directory of a run that has not saved yet (fs/source/root.h) */
	bool may_be_empty;
	/* SOURCE is one of two, and base is for those that are chains */
	bool base_of_either;
};

#define MFS_SHARD_SIZE 5000000000ull /* huggingface_hub's default: 5 GB, decimal */

/* The i-th warning that this view alone has; NULL after the last. */
const char *mfs_view_warning(const struct mfs_view *view, uint32_t i);

/* The mode for a copy of its files: what the sources' modes grant to group and others; the owner
 * may read and write. */
mode_t mfs_view_copy_mode(const struct mfs_view *view);

/* The HuggingFace directory that gives config.json and tokenizer: the person's, or the one that
 * told which model it is (ckpt/told.h). NULL: there is none. */
const char *mfs_view_ref(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt);

/* True for a directory with files of a tokenizer; the second, if it has no config.json. */
bool mfs_view_has_tokenizer(const char *dir);
bool mfs_view_is_tokenizer(const char *dir);

/* True rows of the vocabulary, as all views decide it (formats/model/vocab.h); 0: not known. */
int mfs_view_true_vocab(const struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
			uint64_t *ret, struct mfs_error *err);

/* -ESTALE: a source file is no longer the one that was opened. */
int mfs_view_check_sources(const struct mfs_view *view, struct mfs_error *err);
/* Like mfs_view_check_sources(), at most once a second for all threads. Reads check what they read
 * in any case. */
int mfs_view_check_lately(const struct mfs_view *view, struct mfs_error *err);

/* Called while a file of the view is open: deleted sources can still be read (mfs_fileset_hold()).
 * Any thread. */
void mfs_view_hold_sources(const struct mfs_view *view);
void mfs_view_drop_sources(const struct mfs_view *view);

void mfs_view_free(struct mfs_view *view);

/* Calls fn for each directory in a view's names, parents first ("iter_0000040", then
 * "iter_0000040/mp_rank_00"). Stops when fn returns non-zero, and returns that value. */
int mfs_view_each_dir(const struct mfs_view *view, int (*fn)(void *arg, const char *dir),
		      void *arg);

#endif
