#include "formats/delta/delta_sum.h"

#include <stdio.h>

#include <xxhash.h>
#include <zlib.h>

int mfs_delta_sum_init(struct mfs_delta_sum *s, enum mfs_delta_sum_kind kind, struct mfs_error *err)
{
	*s = (struct mfs_delta_sum){.kind = kind};
	if (kind == MFS_DELTA_XXH3_128 && !(s->xxh = XXH3_createState()))
		return mfs_fail_nomem(err);
	mfs_delta_sum_begin(s);
	return 0;
}

void mfs_delta_sum_release(struct mfs_delta_sum *s)
{
	XXH3_freeState(s->xxh);
	*s = (struct mfs_delta_sum){0};
}

void mfs_delta_sum_begin(struct mfs_delta_sum *s)
{
	s->adler = 1;
	if (s->xxh)
		XXH3_128bits_reset(s->xxh);
}

void mfs_delta_sum_add(struct mfs_delta_sum *s, const void *bytes, size_t len)
{
	if (s->xxh)
		XXH3_128bits_update(s->xxh, bytes, len);
	else
		s->adler = (uint32_t)adler32_z(s->adler, bytes, len);
}

const char *mfs_delta_sum_text(const struct mfs_delta_sum *s, char ret[MFS_DELTA_SUM_TEXT])
{
	XXH128_hash_t h;

	if (!s->xxh) {
		snprintf(ret, MFS_DELTA_SUM_TEXT, "%08x", s->adler);
		return ret;
	}
	h = XXH3_128bits_digest(s->xxh);
	snprintf(ret, MFS_DELTA_SUM_TEXT, "%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
	return ret;
}
