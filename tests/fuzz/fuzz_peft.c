#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "formats/model/peft.h"

/* An adapter_config.json. */
int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_peft_config config;
	int rc = mfs_peft_config_parse((const char *)bytes, len, "adapter_config.json", &config,
				       err);

	fuzz_require(rc || (config.rank && config.rank <= 65536));
	return rc;
}

FUZZ_TARGET
