/* Input: a pickle of any protocol, as mcorefs fsck reads it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/torch/pickle_globals.h"
#include "fs/fsck/verdict.h"

struct input {
	const char *bytes;
	size_t len;
	unsigned imports;
};

/* A name stands in the stream, or nobody knows it. */
static void found(void *arg, const char *module, size_t module_len, const char *name,
		  size_t name_len)
{
	struct input *in = arg;

	in->imports++;
	fuzz_require(!module == !name);
	fuzz_require(mfs_verdict(module, module_len, name, name_len) != MFS_HARMLESS || module);
	if (!module)
		return;
	fuzz_require(module >= in->bytes && module + module_len <= in->bytes + in->len);
	fuzz_require(name >= in->bytes && name + name_len <= in->bytes + in->len);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct input in = {(const char *)bytes, len, 0}, again = in;
	struct mfs_error other;
	size_t end, other_end;
	int rc = mfs_pickle_globals(bytes, len, found, &in, &end, err);

	fuzz_require(end <= len);
	if (rc)
		return rc;
	/* What follows STOP does not matter. */
	fuzz_require(end && bytes[end - 1] == '.');
	fuzz_require(!mfs_pickle_globals(bytes, end, found, &again, &other_end, &other));
	fuzz_require(other_end == end && again.imports == in.imports);
	return 0;
}

FUZZ_TARGET
