/*
 * The files of Megatron views: legacy `torch` at a layout, and torch_dist. They are added to a view
 * through mfs_file_sink. Paths are relative to the iteration's directory.
 */
#ifndef MFS_MEGATRON_WRITE_FILES_H
#define MFS_MEGATRON_WRITE_FILES_H

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/plan/vfile.h"
#include "formats/megatron/write/common.h"

/* add() owns data from the call on, even if it fails. */
struct mfs_file_sink {
	int (*add)(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *err);
	void *arg;
};

/* Options of both kinds. */
struct mfs_megatron_options {
	struct mfs_ckpt *ckpt;	  /* opened with its optimizer if the view has one */
	struct mfs_layout layout; /* in torch_dist it says how tensors are cut into chunks */
	enum mfs_layer_spec spec;
	bool spec_given; /* a person chose spec: it is written into the arguments */
	uint64_t vocab;	 /* true rows; 0: not known */
	int64_t number;	 /* of the iteration; -1: release */
	bool optimizer;	 /* the source has an optimizer, and it is wanted */
	/* legacy files of a layer-wise optimizer: a rank's 'optimizer' is its share, as Megatron
	 * saves it, and not all of the state, which a run of plain Muon can load */
	bool shares;
};

/* What the files are made of. It is freed after the files. */
struct mfs_megatron_torch;
struct mfs_megatron_dist;

/* Both functions set *ret on failure too, since files that the sink has taken point to it. */

/* mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, and distrib_optim.pt if the run's optimizer was
 * distributed, or layer_wise_optimizer_N.pt of each data-parallel rank N if it was layer-wise. */
int mfs_megatron_torch_new(const struct mfs_megatron_options *options,
			   const struct mfs_file_sink *sink, struct mfs_megatron_torch **ret,
			   struct mfs_error *err);
void mfs_megatron_torch_free(struct mfs_megatron_torch *t);

/* .metadata, metadata.json, common.pt and the .distcp files of each layer. */
int mfs_megatron_dist_new(const struct mfs_megatron_options *options,
			  const struct mfs_file_sink *sink, struct mfs_megatron_dist **ret,
			  struct mfs_error *err);
void mfs_megatron_dist_free(struct mfs_megatron_dist *d);

/* Content of common.pt that tells Megatron which keys and shapes there are: the pair
 * 'content_metadata' of the state dict. */
void mfs_megatron_dist_content(struct mfs_pickle_writer *w, bool distributed);
/* metadata.json of any torch_dist save. */
extern const char mfs_megatron_dist_json[];

#endif
