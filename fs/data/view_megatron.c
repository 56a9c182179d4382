/* A dataset as Megatron reads it: NAME.bin and NAME.idx. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/dataset/files/idx_image.h"
#include "formats/dataset/files/rows_files.h"
#include "fs/data/data_i.h"
#include "fs/view/build.h"

static int add_file(struct mfs_view *v, const char *name, const char *suffix, struct mfs_vfile *f,
		    struct mfs_error *err)
{
	char *file;
	int rc;

	if (asprintf(&file, "%s%s", name, suffix) < 0) {
		mfs_vfile_free(f);
		return mfs_fail_nomem(err);
	}
	rc = mfs_view_add(v, file, f, err);
	free(file);
	return rc;
}

static int new_idx(const struct mfs_dataset *d, struct mfs_vfile **ret, struct mfs_error *err)
{
	return d->indexed ? mfs_idx_image_merged_idx(d->indexed, ret, err)
			  : mfs_idx_image_idx(d->rows, ret, err);
}

/* Whether the tokens of all rows are the bytes of the .bin files, none missing and none between
 * them. */
static bool is_rows_alone(const struct mfs_dataset *d)
{
	const struct mfs_indexed_info *info = mfs_indexed_dataset_info(d->indexed);

	return info->pointers != MFS_POINTERS_AS_WRITTEN && !info->bin_short &&
	       info->bin_size == d->rows->tokens * d->rows->token_size;
}

/* Tokens that are compared with a vocabulary are read as rows. */
static int new_bin(const struct mfs_dataset *d, struct mfs_vfile **ret, struct mfs_error *err)
{
	if (!d->indexed)
		return mfs_idx_image_bin(d->rows, ret, err);
	return d->rows->vocab_size && is_rows_alone(d)
		       ? mfs_raw_tokens(d->rows, ret, err)
		       : mfs_idx_image_merged_bin(d->indexed, ret, err);
}

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	struct mfs_vfile *f;
	int rc = new_idx(d, &f, err);

	(void)spec;
	if (!rc)
		rc = add_file(&v->public, d->name, ".idx", f, err);
	if (!rc)
		rc = new_bin(d, &f, err);
	if (!rc)
		rc = add_file(&v->public, d->name, ".bin", f, err);
	return rc;
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_megatron = {
	.name = "megatron",
	.help = ".bin and .idx, as Megatron reads them",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
