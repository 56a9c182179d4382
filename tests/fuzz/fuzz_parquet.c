/* Input: a Parquet file, of which two columns of strings are read. */
#include "tests/fuzz/table_file.h"

#include "formats/text/parquet/parquet_text.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const char *const columns[] = {"text", "w"};
	const struct mfs_table_want want = {columns, 2, false};

	return fuzz_table(&mfs_parquet_table, &want, bytes, len, err);
}

FUZZ_TARGET
