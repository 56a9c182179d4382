#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/torch/dcp.h"

static int check_tensor(const struct mfs_dcp *dcp, const struct mfs_dcp_tensor *t,
			struct mfs_error *err)
{
	uint64_t volume, sum = 0, part;
	int rc = mfs_dcp_check(t, "input", err);

	fuzz_require(t->ndim <= MFS_MAX_DIMS);
	if (rc)
		return rc;
	fuzz_require(mfs_shape_count(t->shape, t->ndim, &volume) && t->dtype);
	for (uint32_t i = 0; i < t->chunk_count; i++) {
		const struct mfs_dcp_chunk *c = &t->chunks[i];

		fuzz_require(c->item.file < dcp->file_count);
		for (unsigned d = 0; d < t->ndim; d++)
			fuzz_require(mfs_range_ok(c->lo[d], c->size[d], t->shape[d]));
		fuzz_require(mfs_shape_count(c->size, t->ndim, &part));
		sum += part;
	}
	fuzz_require(sum == volume);
	return 0;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_dcp dcp;
	int rc = mfs_dcp_parse(bytes, len, ".metadata", &dcp, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < dcp.tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &dcp.tensors[i];

		fuzz_require(!i || strcmp(dcp.tensors[i - 1].key, t->key) <= 0);
		fuzz_require(!strcmp(mfs_dcp_tensor(&dcp, t->key)->key, t->key));
		rc = check_tensor(&dcp, t, err);
	}
	for (uint32_t i = 0; i < dcp.bytes_count; i++) {
		fuzz_require(!i || strcmp(dcp.bytes[i - 1].key, dcp.bytes[i].key) <= 0);
		fuzz_require(mfs_dcp_bytes(&dcp, dcp.bytes[i].key));
		fuzz_require(dcp.bytes[i].item.file < dcp.file_count ||
			     dcp.bytes[i].item.file == MFS_DCP_FILE_NONE);
	}
	for (uint32_t i = 0; i < dcp.file_count; i++)
		fuzz_require(dcp.files[i][0]);
	mfs_dcp_release(&dcp);
	return rc;
}

FUZZ_TARGET
