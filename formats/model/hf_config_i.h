/* Private to formats/model/hf_config.c and hf_ref.c. */
#ifndef MFS_MODEL_HF_CONFIG_I_H
#define MFS_MODEL_HF_CONFIG_I_H

#include "formats/model/hf_config.h"
#include "formats/hf/hf_json.h"

/* Checks a model's config against the reference's and adds what only the reference knows. */
int mfs_hf_ref_merge(const struct mfs_hf_ref *ref, struct mfs_model *model, json_t *config,
		     struct mfs_error *err);

#endif
