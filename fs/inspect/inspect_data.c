#include "fs/inspect/inspect_data.h"

#include <string.h>

#include "formats/base/buf.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/io/fileset.h"
#include "fs/data/data.h"
#include "fs/data/data_splits.h"
#include "fs/cli/json.h"

static const char *const pointers[] = {
	[MFS_POINTERS_CONTIGUOUS] = "contiguous",
	[MFS_POINTERS_REPAIRED] = "repaired",
	[MFS_POINTERS_AS_WRITTEN] = "as written",
};

static uint32_t count_files(const struct mfs_rows *r, uint64_t *ret_bytes)
{
	uint32_t count = 0;

	*ret_bytes = 0;
	for (size_t i = 0; i < r->set_count; i++)
		for (uint32_t f = 0; f < mfs_fileset_count(r->sets[i]); f++, count++)
			*ret_bytes += mfs_fileset_size(r->sets[i], f);
	return count;
}

static const char *format_of(const struct mfs_dataset *d)
{
	return mfs_dataset_indexed(d) ? "indexed" : mfs_dataset_rows(d) ? "arrow" : "blend";
}

/* NULL: the dataset is not made of .idx and .bin. */
static const struct mfs_indexed_info *info_of(const struct mfs_dataset *d)
{
	return mfs_dataset_indexed(d) ? mfs_indexed_dataset_info(mfs_dataset_indexed(d)) : NULL;
}

static void token_row(struct mfs_frame *frame, const struct mfs_rows *r)
{
	char human[MFS_HUMAN], exact[MFS_HUMAN];

	mfs_frame_row(frame, "tokens", MFS_PLAIN, "%s (%s), %s", mfs_human_count(r->tokens, human),
		      mfs_grouped(r->tokens, exact), mfs_dtype_torch(r->dtype));
}

static void rows_row(struct mfs_frame *frame, const struct mfs_dataset *d)
{
	const struct mfs_indexed_info *info = info_of(d);
	const struct mfs_rows *r = mfs_dataset_rows(d);
	char rows[MFS_HUMAN], documents[MFS_HUMAN], mean[MFS_HUMAN];
	struct mfs_buf b = {0};

	mfs_buf_printf(&b, "%s", mfs_grouped(r->rows, rows));
	if (info && info->document_entries - 1 != info->sequences)
		mfs_buf_printf(&b, " in %s documents",
			       mfs_grouped(info->document_entries - 1, documents));
	if (r->rows)
		mfs_buf_printf(&b, ", %s tokens each on average",
			       mfs_grouped(r->tokens / r->rows, mean));
	mfs_frame_row(frame, "rows", MFS_PLAIN, "%s", b.failed ? "?" : b.data);
	mfs_buf_release(&b);
}

static void split_row(struct mfs_frame *frame, const struct mfs_dataset *d)
{
	const struct mfs_data_options *options = mfs_dataset_options(d);
	struct mfs_splits splits;
	struct mfs_buf b = {0};

	if (!options->split || mfs_data_splits_parse(options, &splits, NULL))
		return;
	for (int i = 0; i < MFS_SPLITS; i++) {
		uint64_t first = 0, end = 0;
		char rows[MFS_HUMAN];

		mfs_splits_range(&splits, i, mfs_dataset_rows(d)->rows, &first, &end, NULL);
		mfs_buf_printf(&b, "%s%s %s", i ? ", " : "", mfs_split_name(i),
			       mfs_grouped(end - first, rows));
	}
	mfs_frame_row(frame, "split", MFS_PLAIN, "%s", b.failed ? "?" : b.data);
	mfs_buf_release(&b);
}

static void dataset_rows(struct mfs_frame *frame, const struct mfs_dataset *d)
{
	const struct mfs_rows *r = mfs_dataset_rows(d);
	char size[MFS_HUMAN];
	uint64_t bytes;
	uint32_t files;

	if (!r) {
		mfs_frame_row(frame, "format", MFS_PLAIN, "a blend: samples/SPEC and cache/SPEC");
		return;
	}
	files = count_files(r, &bytes);
	mfs_frame_row(frame, "format", MFS_PLAIN, "%s, %u file%s, %s", format_of(d), files,
		      files == 1 ? "" : "s", mfs_human_bytes(bytes, size));
	rows_row(frame, d);
	token_row(frame, r);
	split_row(frame, d);
	if (*mfs_dataset_warning(d))
		mfs_frame_row(frame, "worth knowing", MFS_YELLOW, "%s", mfs_dataset_warning(d));
}

void mfs_inspect_data_rows(struct mfs_frame *frame, const struct mfs_data *data)
{
	struct mfs_buf heading = {0};

	for (uint32_t i = 0; data && i < mfs_data_count(data); i++) {
		const struct mfs_dataset *d = mfs_data_at(data, i);

		mfs_buf_printf(&heading, "data/%s", mfs_dataset_name(d));
		mfs_frame_heading(frame, heading.failed ? "data" : heading.data);
		mfs_buf_release(&heading);
		dataset_rows(frame, d);
	}
}

static json_t *dataset_json(const struct mfs_dataset *d)
{
	const struct mfs_indexed_info *info = info_of(d);
	const struct mfs_rows *r = mfs_dataset_rows(d);
	json_t *o = json_object();
	uint64_t bytes;

	json_object_set_new(o, "name", mfs_json_string(mfs_dataset_name(d)));
	json_object_set_new(o, "path", mfs_json_string(mfs_dataset_path(d)));
	json_object_set_new(o, "format", mfs_json_string(format_of(d)));
	json_object_set_new(
		o, "warning",
		mfs_json_string(*mfs_dataset_warning(d) ? mfs_dataset_warning(d) : NULL));
	if (!r)
		return o;
	json_object_set_new(o, "files", json_integer(count_files(r, &bytes)));
	json_object_set_new(o, "bytes", mfs_json_number(bytes));
	json_object_set_new(o, "rows", mfs_json_number(r->rows));
	json_object_set_new(o, "tokens", mfs_json_number(r->tokens));
	json_object_set_new(o, "dtype", mfs_json_string(mfs_dtype_torch(r->dtype)));
	json_object_set_new(o, "documents",
			    info ? mfs_json_number(info->document_entries - 1) : json_null());
	json_object_set_new(o, "pointers", mfs_json_string(info ? pointers[info->pointers] : NULL));
	json_object_set_new(o, "multimodal", json_boolean(info && info->multimodal));
	return o;
}

json_t *mfs_inspect_data_json(const struct mfs_data *data)
{
	json_t *array = json_array();

	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		json_array_append_new(array, dataset_json(mfs_data_at(data, i)));
	return array;
}
