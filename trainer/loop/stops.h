/* Tokens that end a response. */
#ifndef MFT_TRAINER_LOOP_STOPS_H
#define MFT_TRAINER_LOOP_STOPS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

/* eos_token_id of generation_config.json, a number or a list of them, in the first of the
 * directories that has such a file (one that is NULL or empty is passed over), and the numbers
 * given that are not below 0. *ret is for the caller to free. -EINVAL: the file is wrong. */
struct mft_stops_of {
	const char *dirs[2];
	int64_t eod, eos;
};
int mft_stops_find(const struct mft_stops_of *of, uint32_t **ret, size_t *ret_count,
		   struct mfs_error *err);

#endif
