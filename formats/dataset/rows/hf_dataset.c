#include "formats/dataset/rows/hf_dataset.h"

#include <errno.h>

#include "formats/dataset/rows/arrow_rows.h"
#include "formats/dataset/rows/hf_files.h"
#include "formats/dataset/rows/rows_eod.h"
#include "formats/dataset/rows/rows_permuted.h"
#include "formats/io/fileset.h"

#define THREADS 8 /* that open files: they wait for the disk, mostly */

static int open_files(const char *dir, const char *const *names, uint32_t count,
		      const struct mfs_arrow_rows_config *config, struct mfs_rows **ret,
		      struct mfs_error *err)
{
	struct mfs_fileset *set;
	uint32_t file;
	int rc = mfs_fileset_new(dir, &set, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = mfs_fileset_add(set, names[i], &file, err);
	if (!rc)
		rc = mfs_arrow_rows_open(set, dir, config, ret, err);
	if (rc)
		mfs_fileset_free(set);
	return rc;
}

static int check_rows(const struct mfs_hf_files *files, const struct mfs_rows *rows,
		      struct mfs_error *err)
{
	if (files->rows == MFS_HF_ROWS_UNKNOWN || files->rows == rows->rows)
		return 0;
	return mfs_fail(err, -EINVAL, "%s: dataset_info.json says %llu rows, '%s'%s has %llu",
			files->dir, (unsigned long long)files->rows, files->names[0],
			files->count > 1 ? " and its like" : "", (unsigned long long)rows->rows);
}

/* Puts *rows in the order that files of indices give them. */
static int apply_indices(const struct mfs_hf_files *files, struct mfs_rows **rows,
			 struct mfs_error *err)
{
	const struct mfs_arrow_rows_config config = {.column = "indices", .integers = true};
	struct mfs_rows *numbers;
	int rc = open_files(files->dir, files->indices, files->index_count, &config, &numbers, err);

	if (rc)
		return rc;
	rc = mfs_rows_permuted(*rows, numbers, rows, err);
	if (rc)
		mfs_rows_free(numbers);
	return rc;
}

static int finish(const struct mfs_hf_files *files, const struct mfs_hf_dataset_options *opt,
		  struct mfs_rows **rows, struct mfs_error *err)
{
	int rc = check_rows(files, *rows, err);

	if (!rc && files->index_count)
		rc = apply_indices(files, rows, err);
	if (!rc && opt && opt->has_eod)
		rc = mfs_rows_eod(*rows, opt->eod, rows, err);
	return rc;
}

int mfs_hf_dataset_open(const char *path, const char *split,
			const struct mfs_hf_dataset_options *opt, struct mfs_rows **ret,
			struct mfs_error *err)
{
	const struct mfs_arrow_rows_config config = {.column = opt ? opt->column : NULL,
						     .threads = THREADS};
	struct mfs_arena arena = {0};
	struct mfs_hf_files files;
	struct mfs_rows *rows;
	int rc = mfs_hf_dataset_files(path, split, &arena, &files, err);

	if (!rc)
		rc = open_files(files.dir, files.names, files.count, &config, &rows, err);
	if (!rc) {
		rc = finish(&files, opt, &rows, err);
		if (rc)
			mfs_rows_free(rows);
	}
	mfs_arena_release(&arena);
	if (!rc)
		*ret = rows;
	return rc;
}
