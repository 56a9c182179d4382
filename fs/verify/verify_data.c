#include "fs/verify/verify_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/cli/commands.h"
#include "fs/data/data.h"
#include "fs/cli/json.h"
#include "fs/cli/progress.h"
#include "fs/cli/text.h"

#define READ_BYTES   (1u << 20)
#define MAX_PROBLEMS 20 /* printed for a dataset; more are only counted */

struct reading {
	const struct mfs_dataset *dataset;
	struct mfs_progress progress;
	uint64_t problems;
	json_t *sentences; /* printed ones, for --json; NULL: text */
};

static void report(struct reading *r, const struct mfs_error *err)
{
	if (r->problems++ >= MAX_PROBLEMS)
		return;
	mfs_progress_clear(&r->progress);
	mfs_command_failed("data/%s: %s", mfs_dataset_name(r->dataset), err->msg);
	if (r->sentences)
		json_array_append_new(r->sentences, mfs_json_string(err->msg));
}

/* Reads many rows at once. If that fails, it reads row by row, so that each bad row is named. */
static int read_rows(struct reading *r, const struct mfs_rows *rows, uint64_t first, uint64_t count,
		     void *buf, uint64_t room)
{
	for (uint64_t t = first, n; t < first + count; t += n) {
		uint64_t row, end = 0;
		struct mfs_error err;
		int rc = mfs_rows_find(rows, t, &row, &err);

		if (!rc)
			rc = mfs_rows_start(rows, row + 1, &end, &err);
		if (rc) {
			report(r, &err);
			return rc;
		}
		n = mfs_min_u64(mfs_min_u64(end, first + count) - t, room);
		if (mfs_rows_read(rows, t, n, buf, &err))
			report(r, &err);
	}
	return 0;
}

static void read_tokens(struct reading *r, const struct mfs_rows *rows, void *buf)
{
	const uint64_t room = READ_BYTES / rows->token_size;

	mfs_progress_init(&r->progress, stderr, 0, rows->tokens * rows->token_size);
	for (uint64_t t = 0, n; t < rows->tokens; t += n) {
		struct mfs_error err;

		n = mfs_min_u64(room, rows->tokens - t);
		if (mfs_rows_read(rows, t, n, buf, &err) && read_rows(r, rows, t, n, buf, room))
			break;
		mfs_progress_update(&r->progress, mfs_dataset_name(r->dataset),
				    (t + n) * rows->token_size);
		mfs_rows_drop(rows);
	}
	mfs_progress_clear(&r->progress);
}

static void verify_index(struct reading *r)
{
	const struct mfs_indexed_dataset *indexed = mfs_dataset_indexed(r->dataset);
	struct mfs_indexed_report found;
	struct mfs_error err;

	if (indexed && mfs_indexed_dataset_validate(indexed, &found, &err))
		report(r, &err);
}

static int verify_tokens(struct reading *r)
{
	void *buf = malloc(READ_BYTES);

	if (!buf)
		return mfs_command_failed("out of memory");
	read_tokens(r, mfs_dataset_rows(r->dataset), buf);
	free(buf);
	return MFS_EXIT_OK;
}

/* The warning of opening the dataset. With deep, rows with wrong tokens were named one by one. */
static const char *warning_of(const struct mfs_dataset *d, bool deep)
{
	if (!deep)
		return mfs_dataset_warning(d);
	return mfs_dataset_indexed(d) ? mfs_indexed_dataset_warning(mfs_dataset_indexed(d)) : "";
}

static void describe(const struct reading *r, bool deep, json_t *json)
{
	const struct mfs_rows *rows = mfs_dataset_rows(r->dataset);
	const char *warning = warning_of(r->dataset, deep);
	json_t *o = json_object();

	json_object_set_new(o, "name", mfs_json_string(mfs_dataset_name(r->dataset)));
	json_object_set_new(o, "ok", json_boolean(!r->problems));
	json_object_set_new(o, "rows", mfs_json_number(rows->rows));
	json_object_set_new(o, "tokens", mfs_json_number(rows->tokens));
	json_object_set_new(o, "dtype", mfs_json_string(mfs_dtype_torch(rows->dtype)));
	json_object_set_new(o, "bytes", mfs_json_number(rows->tokens * rows->token_size));
	json_object_set_new(o, "warning", mfs_json_string(*warning ? warning : NULL));
	json_object_set_new(o, "problem_count", mfs_json_number(r->problems));
	json_object_set(o, "problems", r->sentences);
	json_array_append_new(json, o);
}

static void print_right(const struct reading *r, bool deep)
{
	const struct mfs_rows *rows = mfs_dataset_rows(r->dataset);
	char size[MFS_HUMAN], shown[MFS_SHOWN];

	printf("data/%s: %llu row%s, %llu tokens of %s, %s: %s\n",
	       mfs_shown(mfs_dataset_name(r->dataset), shown), (unsigned long long)rows->rows,
	       rows->rows == 1 ? "" : "s", (unsigned long long)rows->tokens,
	       mfs_dtype_torch(rows->dtype), mfs_human_bytes(rows->tokens * rows->token_size, size),
	       deep ? "complete, and every token was read"
		    : "complete (--deep reads the tokens too)");
}

/* Prints the result. */
static int conclude(const struct reading *r, bool deep, json_t *json)
{
	const char *warning = warning_of(r->dataset, deep);

	mfs_print_flush();
	if (*warning)
		mfs_command_failed("data/%s: %s", mfs_dataset_name(r->dataset), warning);
	if (json)
		describe(r, deep, json);
	if (r->problems)
		return mfs_command_failed(
			"data/%s: %llu problem%s found", mfs_dataset_name(r->dataset),
			(unsigned long long)r->problems, r->problems > 1 ? "s" : "");
	if (!json)
		print_right(r, deep);
	return MFS_EXIT_OK;
}

int mfs_verify_dataset(const struct mfs_dataset *d, bool deep, json_t *json)
{
	struct reading r = {.dataset = d};
	const struct mfs_rows *rows = mfs_dataset_rows(d);
	int exit_code;

	if (!rows)
		return mfs_command_failed("data/%s is a blend: name its datasets, or a view of it",
					  mfs_dataset_name(d));
	r.sentences = json ? json_array() : NULL;
	verify_index(&r);
	exit_code = deep ? verify_tokens(&r) : MFS_EXIT_OK;
	/* A deep check has met every bad row. */
	if (!deep)
		r.problems += rows->bad.count;
	if (!exit_code)
		exit_code = conclude(&r, deep, json);
	json_decref(r.sentences);
	return exit_code;
}

int mfs_verify_data(const struct mfs_data *data, bool deep, json_t *json)
{
	int exit_code = MFS_EXIT_OK;

	for (uint32_t i = 0; i < mfs_data_count(data); i++)
		if (mfs_dataset_rows(mfs_data_at(data, i)) &&
		    mfs_verify_dataset(mfs_data_at(data, i), deep, json))
			exit_code = MFS_EXIT_FAILED;
	return exit_code;
}
