#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/torch/zip.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_source src = mfs_source_memory(bytes, len, "input.zip");
	struct mfs_zip zip;
	int rc = mfs_zip_open(&src, &zip, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < zip.count; i++) {
		const struct mfs_zip_entry *e = &zip.entries[i];
		uint64_t at;
		int located;

		fuzz_require(i == 0 || strcmp(zip.entries[i - 1].name, e->name) < 0);
		fuzz_require(mfs_zip_find(&zip, e->name) == e);
		located = mfs_zip_locate(&src, e, &at, err);
		fuzz_require(located || (at > e->header && mfs_range_ok(at, e->size, len)));
		rc = rc ? rc : located;
	}
	mfs_zip_release(&zip);
	return rc;
}

FUZZ_TARGET
