/* Private to formats/model/hf_args*.c: a config.json being read. */
#ifndef MFS_MODEL_HF_ARGS_I_H
#define MFS_MODEL_HF_ARGS_I_H

#include <stdbool.h>

#include "formats/hf/hf_json.h"
#include "formats/model/hf_args.h"

#define MFS_HF_MAX_NUMBER (1ll << 31) /* of anything: products of two fit everywhere */

struct mfs_hf_reader {
	const char *name; /* of the file, for messages */
	json_t *config, *defaults;
	const struct mfs_family *family;
	struct mfs_arena *arena;
	struct mfs_megatron_args *args;
	struct mfs_error *err;
	int rc; /* the first failure; later calls change nothing */
};

/* Value of a key: the file's, under the key or another name that the class has for it, or the
 * class's default. NULL: neither; null is a value. */
json_t *mfs_hf_key(const struct mfs_hf_reader *r, const char *key);
/* The same, but NULL for null as well. */
json_t *mfs_hf_set_key(const struct mfs_hf_reader *r, const char *key);

/* Records the failure "'key' is FOUND, expected ..." (or "is missing", -ENODATA, if found is
 * NULL). */
void mfs_hf_refuse(struct mfs_hf_reader *r, int code, const char *key, const json_t *found,
		   const char *expected);

/* Numbers of an object that was found in the file (or the file's own) under a name for messages:
 * otherwise is the value if the key is absent or null. */
double mfs_hf_real(struct mfs_hf_reader *r, const char *key, const json_t *found, double otherwise);
int64_t mfs_hf_integer(struct mfs_hf_reader *r, const char *key, const json_t *found, int64_t least,
		       int64_t otherwise);
bool mfs_hf_bool(struct mfs_hf_reader *r, const char *key, const json_t *found, bool otherwise);

/* True if the family has a place for a feature. */
static inline bool mfs_hf_may(const struct mfs_hf_reader *r, uint64_t feature)
{
	return (r->family->required | r->family->optional) & feature;
}

/* Fills args from the family and the keys of its tables. */
void mfs_hf_read_keys(struct mfs_hf_reader *r);
/* Rotary positions with their scaling (hf_args_rope.c), or learned ones. */
void mfs_hf_read_positions(struct mfs_hf_reader *r);

#endif
