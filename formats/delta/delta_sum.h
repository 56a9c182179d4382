/* Checksums of tensors' bytes, as deltas have them: hexadecimal digits, as the hexdigest() of
 * Python's xxhash prints them, or "%08x" of zlib's adler32. */
#ifndef MFS_DELTA_SUM_H
#define MFS_DELTA_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "formats/delta/delta_rules.h"

#define MFS_DELTA_SUM_TEXT 33 /* the longest, with its NUL */

/* The state of a sum; one may begin again. */
struct mfs_delta_sum {
	enum mfs_delta_sum_kind kind;
	uint32_t adler;
	void *xxh; /* XXH3_state_t */
};

/* -ENOMEM. A zero-filled one may be released. */
int mfs_delta_sum_init(struct mfs_delta_sum *s, enum mfs_delta_sum_kind kind,
		       struct mfs_error *err);
void mfs_delta_sum_release(struct mfs_delta_sum *s);

void mfs_delta_sum_begin(struct mfs_delta_sum *s);
void mfs_delta_sum_add(struct mfs_delta_sum *s, const void *bytes, size_t len);
/* Returns ret. */
const char *mfs_delta_sum_text(const struct mfs_delta_sum *s, char ret[MFS_DELTA_SUM_TEXT]);

#endif
