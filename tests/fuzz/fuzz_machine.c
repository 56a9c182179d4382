/* Input: a file that describes machines. One that is taken has all that a time needs. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "trainer/simulate/machine.h"

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const struct mft_machine_group group = {64, 8};
	const struct mfk_work gemm = {.kind = MFK_WORK_GEMM,
				      .dtype = MFK_F16,
				      .m = 100,
				      .n = 100,
				      .k = 100,
				      .groups = 2,
				      .flops = 2e6,
				      .bytes = 1000};
	struct mfk_work w = {
		.name = "norm", .bytes = 1000, .qk_dim = 100, .v_dim = 100, .flops = 1};
	struct mft_machine m;
	const int rc = mft_machine_parse("input.yaml", bytes, len, &m, err);

	if (rc)
		return rc;
	fuzz_require(mft_machine_time(&m, &gemm, NULL) > 0);
	for (w.kind = MFK_WORK_ATTENTION; w.kind <= MFK_WORK_EXCHANGE; w.kind++)
		fuzz_require(mft_machine_time(&m, &w, &group) > 0);
	return 0;
}

FUZZ_TARGET
