/*
 * Deltas of weights on disk, as slime, miles and SGLang share them (docs/formats/deltas.md). A
 * directory of them is a chain: weight_v000001/ holds what has changed since the base, which is
 * version 0, weight_v000002/ what has changed since version 1, and so on. A version is a
 * HuggingFace directory without config.json: model-*.safetensors, whose tensors are compressed
 * changes of the tensors of that name, and an index whose metadata says how to read them.
 */
#ifndef MFS_DELTA_RULES_H
#define MFS_DELTA_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_DELTA_INDEX	   "model.safetensors.index.json"
#define MFS_DELTA_DIR_SIZE 32

enum mfs_delta_encoding_kind {
	MFS_DELTA_XOR, /* new ^ old */
	/* how many bytes change (32 bits, little-endian), their positions (32 bits each,
	 * ascending), their new values */
	MFS_DELTA_OVERWRITE,
	MFS_DELTA_ENCODINGS,
};

enum mfs_delta_sum_kind { MFS_DELTA_XXH3_128, MFS_DELTA_ADLER32, MFS_DELTA_SUMS };

/* What the index says of a version. */
struct mfs_delta_meta {
	uint32_t version, base_version; /* base_version: what it changes */
	enum mfs_delta_encoding_kind encoding;
	enum mfs_delta_sum_kind sum; /* of each tensor after the change */
};

/* Their words in the index. -ENOTSUP: no such word is known; what: the key, for the message. */
const char *mfs_delta_encoding_word(enum mfs_delta_encoding_kind kind);
const char *mfs_delta_sum_word(enum mfs_delta_sum_kind kind);
int mfs_delta_encoding_parse(const char *word, enum mfs_delta_encoding_kind *ret,
			     struct mfs_error *err);
int mfs_delta_sum_parse(const char *word, enum mfs_delta_sum_kind *ret, struct mfs_error *err);

/* Writes the name of a version's directory, "weight_v000012". Returns ret. */
const char *mfs_delta_dir_name(uint32_t version, char ret[MFS_DELTA_DIR_SIZE]);
/* Whether a name is one of these. */
bool mfs_delta_dir_version(const char *name, uint32_t *ret);

#endif
