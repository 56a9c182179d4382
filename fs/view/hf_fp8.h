/* Private to fs/view/hf.c: a model with matrices of 8-bit floats (base/fp8.h). */
#ifndef MFS_FS_VIEW_HF_FP8_H
#define MFS_FS_VIEW_HF_FP8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_ckpt;
struct mfs_family;
struct mfs_hf_weights;
struct mfs_model;

/* What such views look like. */
struct mfs_hf_fp8_form {
	uint64_t block[2];  /* rows and columns that have one scale; 0: a matrix has one */
	const char *suffix; /* of the scales' names */
};

struct mfs_hf_fp8;

/* -ENOTSUP: models of the family have no weights to show so, or the source has them already. */
int mfs_hf_fp8_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			struct mfs_error *err);

/* Lists the tensors of a model, some with scales. They point into *ret, which the caller frees
 * after them. */
int mfs_hf_fp8_list(const struct mfs_model *model, const struct mfs_hf_fp8_form *form,
		    struct mfs_hf_weights *w, struct mfs_hf_fp8 **ret, struct mfs_error *err);
void mfs_hf_fp8_free(struct mfs_hf_fp8 *fp8);

/* Makes config.json say so. *config is replaced; it stays the caller's. */
int mfs_hf_fp8_config(const struct mfs_model *model, const struct mfs_hf_fp8_form *form,
		      char **config, size_t *len, struct mfs_error *err);

#endif
