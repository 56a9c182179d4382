/*
 * The files of Megatron views: legacy `torch` at a layout, and torch_dist. Each adds its files to a
 * view through mfs_file_sink, paths relative to the iteration's directory.
 */
#ifndef MFS_MEGATRON_WRITE_FILES_H
#define MFS_MEGATRON_WRITE_FILES_H

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/plan/vfile.h"
#include "formats/megatron/write/common.h"

/* Takes data over, also on failure. */
struct mfs_file_sink {
	int (*add)(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *err);
	void *arg;
};

/* What both need to know. */
struct mfs_megatron_options {
	struct mfs_ckpt *ckpt;	  /* with its optimizer, unless the view is without */
	struct mfs_layout layout; /* of torch_dist: how its chunks are cut */
	enum mfs_layer_spec spec;
	bool spec_said; /* by a person: the arguments follow */
	uint64_t vocab; /* true rows; 0: not known */
	int64_t number; /* of the iteration, -1: release */
	bool optimizer; /* the source has one, and it is wanted */
};

/* What the files are made of, freed behind the files. */
struct mfs_megatron_torch;
struct mfs_megatron_dist;

/* *ret is set on failure as well: files that the sink has taken refer to it. */

/* mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, and distrib_optim.pt where the run's optimizer was
 * distributed. */
int mfs_megatron_torch_new(const struct mfs_megatron_options *options,
			   const struct mfs_file_sink *sink, struct mfs_megatron_torch **ret,
			   struct mfs_error *err);
void mfs_megatron_torch_free(struct mfs_megatron_torch *t);

/* .metadata, metadata.json, common.pt and __R_0.distcp, one for each layer. */
int mfs_megatron_dist_new(const struct mfs_megatron_options *options,
			  const struct mfs_file_sink *sink, struct mfs_megatron_dist **ret,
			  struct mfs_error *err);
void mfs_megatron_dist_free(struct mfs_megatron_dist *d);

#endif
