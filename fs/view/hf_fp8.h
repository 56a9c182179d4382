/* Views with weights of 8-bit floats: which of a model's are, and what config.json says of it. */
#ifndef MFS_FS_VIEW_HF_FP8_H
#define MFS_FS_VIEW_HF_FP8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_ckpt;
struct mfs_family;
struct mfs_hf_builder;
struct mfs_hf_target;

/* What such views look like: the form of a flavour (fs/view/hf.h). */
struct mfs_fp8_form {
	uint64_t block[2];  /* rows and columns that have one scale; 0: a matrix has one */
	const char *suffix; /* of the scales' names */
};

extern const struct mfs_fp8_form mfs_fp8_blocks; /* DeepSeek's */
extern const struct mfs_fp8_form mfs_fp8_whole;	 /* a matrix has one scale */

/* -ENOTSUP: models of the family have no weights to show so, or the source has them already. */
int mfs_fp8_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		     struct mfs_error *err);
bool mfs_fp8_is_shown(const struct mfs_hf_target *t);
/* A flavour's config(): its form must be a struct mfs_fp8_form. */
int mfs_fp8_set_config(const struct mfs_hf_builder *b, char **config, size_t *len);

#endif
