#include "formats/dataset/files/text_lines.h"

static const struct mfs_text_layout line = {
	.form = MFS_TEXT_JSON, .head = "{\"" MFS_TEXT_COLUMN "\": \"", .tail = "\"}\n"};

static int read_lines(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	return mfs_row_text_read(object, &line, off, buf, len, err);
}

static const struct mfs_computed_ops computed = {.read = read_lines};

int mfs_text_lines(struct mfs_row_text *text, uint64_t rows, struct mfs_vfile **ret,
		   struct mfs_error *err)
{
	struct mfs_vfile *f;
	uint64_t size;
	int rc = mfs_row_text_at(text, &line, rows, &size, err);

	if (!rc)
		rc = mfs_vfile_new(&f, err);
	if (rc)
		return rc;
	rc = mfs_vfile_add_computed(f, &computed, text, 0, size, err);
	if (rc)
		mfs_vfile_free(f);
	else
		*ret = f;
	return rc;
}
