/* Private to formats/hf_config.c and hf_ref.c. */
#ifndef MFS_HF_CONFIG_I_H
#define MFS_HF_CONFIG_I_H

#include "formats/hf_config.h"
#include "formats/hf_json_i.h"

/* Checks a model's config against the reference's and adds what only the reference knows. */
int mfs_hf_ref_merge(const struct mfs_hf_ref *ref, struct mfs_model *model, json_t *config,
		     struct mfs_error *err);

#endif
