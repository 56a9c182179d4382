/* Private to formats/model/hf_args*.c: a config.json that is being read. */
#ifndef MFS_MODEL_HF_ARGS_I_H
#define MFS_MODEL_HF_ARGS_I_H

#include <stdbool.h>

#include "formats/hf/hf_json.h"
#include "formats/model/hf_args.h"

/* What is written for no floor under Mamba's time steps: below what a float tells from none, and
 * classes take its logarithm. */
#define MFS_HF_NO_TIME_STEP 1e-37
#define MFS_HF_MAX_NUMBER   (1ll << 31) /* of any key: the product of two fits in int64_t */

struct mfs_hf_reader {
	const char *name; /* of the file, for messages */
	json_t *config, *defaults;
	const struct mfs_family *family;
	struct mfs_arena *arena;
	struct mfs_megatron_args *args;
	struct mfs_error *err;
	int rc; /* the first failure; later calls change nothing */
};

/* The value of a key: the file's, under this or another name that the class has for it; else the
 * class's default. NULL: there is neither. A JSON null is a value. */
json_t *mfs_hf_key(const struct mfs_hf_reader *r, const char *key);
/* Like mfs_hf_key(), but a JSON null gives NULL too. */
json_t *mfs_hf_set_key(const struct mfs_hf_reader *r, const char *key);

/* Records the failure "'key' is FOUND, expected ...". found NULL: "is missing", with -ENODATA. */
void mfs_hf_refuse(struct mfs_hf_reader *r, int code, const char *key, const json_t *found,
		   const char *expected);

/* Converts a value that was found in the file; key is its name for messages. otherwise is returned
 * if found is NULL or a JSON null. */
double mfs_hf_real(struct mfs_hf_reader *r, const char *key, const json_t *found, double otherwise);
int64_t mfs_hf_integer(struct mfs_hf_reader *r, const char *key, const json_t *found, int64_t least,
		       int64_t otherwise);
bool mfs_hf_bool(struct mfs_hf_reader *r, const char *key, const json_t *found, bool otherwise);

/* True if the family has a place for a feature. */
static inline bool mfs_hf_may(const struct mfs_hf_reader *r, mfs_features feature)
{
	return (r->family->required | r->family->optional) & feature;
}

/* Fills args from the family and the keys of its tables. */
void mfs_hf_read_keys(struct mfs_hf_reader *r);
/* Rotary positions with their scaling (hf_args_rope.c), or learned ones. */
void mfs_hf_read_positions(struct mfs_hf_reader *r);

#endif
