#define _GNU_SOURCE
#include "fs/data/hf_directory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <xxhash.h>

#include "formats/base/buf.h"
#include "formats/dataset/files/text_lines.h"
#include "formats/io/fileset.h"
#include "fs/data/data.h"
#include "fs/view/build.h"

#define NAME_SIZE 64

/* Takes the text over. */
static int add_text(struct mfs_view *v, const char *dir, const char *name, struct mfs_buf *text,
		    struct mfs_error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", name);
	if (text->failed) {
		mfs_buf_release(text);
		return mfs_fail_nomem(err);
	}
	return mfs_view_add_bytes(v, path, text->data, text->len, err);
}

/* ---- dataset_info.json ---- */

/*
 * Every version of `datasets` reads "Sequence". Versions from 4.0 on write "List", which earlier
 * ones do not know (features/features.py).
 */
static void add_features(struct mfs_buf *b, const struct mfs_rows *r, bool text)
{
	mfs_buf_adds(b, "  \"features\": {\n    ");
	mfs_buf_add_json(b, MFS_ARROW_TOKENS);
	mfs_buf_printf(b, ": {\n      \"feature\": {\"dtype\": \"%s\", \"_type\": \"Value\"},\n",
		       mfs_dtype_torch(r->dtype));
	if (r->row_length)
		mfs_buf_printf(b, "      \"length\": %llu,\n", (unsigned long long)r->row_length);
	mfs_buf_adds(b, "      \"_type\": \"Sequence\"\n    }");
	for (size_t i = 0; i < r->column_count; i++) {
		mfs_buf_adds(b, ",\n    ");
		mfs_buf_add_json(b, r->columns[i].name);
		mfs_buf_printf(b, ": {\"dtype\": \"%s\", \"_type\": \"Value\"}",
			       mfs_dtype_torch(r->columns[i].dtype));
	}
	if (text)
		mfs_buf_adds(b, ",\n    \"" MFS_TEXT_COLUMN "\": {\"dtype\": \"string\", "
				"\"_type\": \"Value\"}");
	mfs_buf_adds(b, "\n  }");
}

static int add_info(struct mfs_view *v, const struct mfs_data_hf_dir *d, struct mfs_error *err)
{
	struct mfs_buf b = {0};

	mfs_buf_adds(&b, "{\n  \"citation\": \"\",\n  \"description\": \"\",\n");
	add_features(&b, d->rows, d->arrow.text);
	mfs_buf_adds(&b, ",\n  \"homepage\": \"\",\n  \"license\": \"\"\n}\n");
	return add_text(v, d->dir, "dataset_info.json", &b, err);
}

/* ---- state.json ---- */

static void file_name(char name[NAME_SIZE], uint32_t i, uint32_t count)
{
	snprintf(name, NAME_SIZE, "data-%05u-of-%05u.arrow", i, count);
}

void mfs_data_add_options(const struct mfs_data_options *opt, struct mfs_buf *spec)
{
	if (opt->column)
		mfs_buf_printf(spec, "column %s\n", opt->column);
	if (opt->has_eod)
		mfs_buf_printf(spec, "%lld behind each\n", (long long)opt->eod);
}

void mfs_data_describe_rows(const struct mfs_rows *r, const char *spec, struct mfs_buf *ret)
{
	for (size_t i = 0; i < r->set_count; i++)
		for (uint32_t f = 0; f < mfs_fileset_count(r->sets[i]); f++)
			mfs_buf_printf(ret, "%s %llu %lld\n", mfs_fileset_name(r->sets[i], f),
				       (unsigned long long)mfs_fileset_size(r->sets[i], f),
				       (long long)mfs_fileset_mtime(r->sets[i], f));
	mfs_buf_printf(ret, "%s\n%llu rows of %llu tokens, %llu each, %s", spec,
		       (unsigned long long)r->rows, (unsigned long long)r->tokens,
		       (unsigned long long)r->row_length, mfs_dtype_torch(r->dtype));
}

/* A hash of what the source files are, and of what is made of them and how. */
static uint64_t fingerprint(const struct mfs_data_hf_dir *d)
{
	struct mfs_buf b = {0};
	uint64_t hash;

	mfs_data_describe_rows(d->rows, d->spec, &b);
	hash = XXH3_64bits(b.failed ? "" : b.data, b.failed ? 0 : b.len);
	mfs_buf_release(&b);
	return hash;
}

/* load_from_disk needs all of the keys (arrow_dataset.py). */
static int add_state(struct mfs_view *v, const struct mfs_data_hf_dir *d, uint32_t files,
		     struct mfs_error *err)
{
	struct mfs_buf b = {0};
	char name[NAME_SIZE];

	mfs_buf_adds(&b, "{\n  \"_data_files\": [\n");
	for (uint32_t i = 0; i < files; i++) {
		file_name(name, i, files);
		mfs_buf_printf(&b, "    {\"filename\": \"%s\"}%s\n", name,
			       i + 1 < files ? "," : "");
	}
	mfs_buf_printf(&b, "  ],\n  \"_fingerprint\": \"%016llx\",\n",
		       (unsigned long long)fingerprint(d));
	mfs_buf_adds(&b, "  \"_format_columns\": null,\n  \"_format_kwargs\": {},\n"
			 "  \"_format_type\": null,\n  \"_output_all_columns\": false,\n"
			 "  \"_split\": ");
	if (d->split)
		mfs_buf_add_json(&b, d->split);
	else
		mfs_buf_adds(&b, "null");
	mfs_buf_adds(&b, "\n}\n");
	return add_text(v, d->dir, "state.json", &b, err);
}

/* ---- data ---- */

static void free_arrow(void *arrow)
{
	mfs_arrow_image_free(arrow);
}

/* The first file keeps what all of them read from. */
static int add_arrow_files(struct mfs_view *v, const struct mfs_data_hf_dir *d,
			   struct mfs_arrow_image *arrow, struct mfs_error *err)
{
	const uint32_t count = mfs_arrow_image_files(arrow);
	char name[NAME_SIZE], path[PATH_MAX];
	struct mfs_vfile *f = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = mfs_arrow_image_file(arrow, i, &f, err);
		if (rc && !i)
			mfs_arrow_image_free(arrow);
		if (rc)
			return rc;
		if (!i)
			mfs_vfile_keep(f, arrow, free_arrow);
		file_name(name, i, count);
		snprintf(path, sizeof(path), "%s%s%s", d->dir, *d->dir ? "/" : "", name);
		rc = mfs_view_add(v, path, f, err);
	}
	return rc;
}

int mfs_data_add_hf_dir(struct mfs_view *v, const struct mfs_data_hf_dir *d, struct mfs_error *err)
{
	struct mfs_arrow_image *arrow;
	uint32_t files;
	int rc = mfs_arrow_image_new(d->rows, &d->arrow, &arrow, err);

	if (rc)
		return rc;
	files = mfs_arrow_image_files(arrow);
	rc = add_arrow_files(v, d, arrow, err);
	if (!rc)
		rc = add_info(v, d, err);
	return rc ? rc : add_state(v, d, files, err);
}

int mfs_data_add_hf_dict(struct mfs_view *v, const char *const *splits, size_t count,
			 struct mfs_error *err)
{
	struct mfs_buf b = {0};

	mfs_buf_adds(&b, "{\"splits\": [");
	for (size_t i = 0; i < count; i++) {
		mfs_buf_adds(&b, i ? ", " : "");
		mfs_buf_add_json(&b, splits[i]);
	}
	mfs_buf_adds(&b, "]}\n");
	return add_text(v, "", "dataset_dict.json", &b, err);
}
