/* Input: an Arrow stream or file. A column of strings is read; then columns of all types. */
#include "tests/fuzz/table_file.h"

#include "formats/text/arrow/arrow_text.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const char *const columns[] = {"text", "messages", "input_ids", "more"};
	const struct mfs_table_want text = {columns, 1, false}, any = {columns, 4, true};
	int rc = fuzz_table(&mfs_arrow_table, &text, bytes, len, err);

	return rc ? rc : fuzz_table(&mfs_arrow_table, &any, bytes, len, err);
}

FUZZ_TARGET
