/* Input: a Parquet file, of which two columns of strings are read; then columns of all types. */
#include "tests/fuzz/table_file.h"

#include "formats/text/parquet/parquet_text.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const char *const columns[] = {"text", "w", "messages", "input_ids", "flags"};
	const struct mfs_table_want text = {columns, 2, false}, any = {columns, 5, true};
	int rc = fuzz_table(&mfs_parquet_table, &text, bytes, len, err);

	return rc ? rc : fuzz_table(&mfs_parquet_table, &any, bytes, len, err);
}

FUZZ_TARGET
