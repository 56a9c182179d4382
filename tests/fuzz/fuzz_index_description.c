/* Input: a letter, the version of Megatron that wrote it, then a description.txt of one of its cached indices. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/index/index_description.h"

static const char *const versions[] = {"0.4", "0.6", "0.9", "0.16", "2.6"};
#define VERSIONS (sizeof(versions) / sizeof(*versions))

/* What was accepted has a name, and all that a view needs to serve it. */
static void check(const struct mfs_index_description *d)
{
	fuzz_require(d->count && d->split < MFS_SPLITS);
	fuzz_require(d->run.rules.core >= 4);
	for (size_t i = 0; i < d->count; i++) {
		fuzz_require(d->members[i].path);
		fuzz_require(d->members[i].samples == MFS_GPT_ONE_EPOCH ||
			     d->members[i].samples <= (uint64_t)1 << 53);
	}
	if (!d->blend) {
		fuzz_require(d->count == 1);
		return;
	}
	for (size_t i = 0; i < d->count; i++)
		fuzz_require(d->weights.lengths ? d->weights.lengths[i] > 0
						: d->weights.weights[i] > 0);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_index_description d;
	struct mfs_dataset_rules rules;
	int rc;

	if (!len || bytes[0] < 'a' || bytes[0] >= 'a' + VERSIONS)
		return mfs_fail(err, -EINVAL, "no version");
	fuzz_require(!mfs_dataset_rules_of(versions[bytes[0] - 'a'], &rules, err));
	rc = mfs_index_description_parse((const char *)bytes + 1, len - 1, &rules, &d, err);
	if (rc)
		return rc;
	check(&d);
	mfs_index_description_release(&d);
	return 0;
}

FUZZ_TARGET
