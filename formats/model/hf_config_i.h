/* Private to formats/model/hf_config.c and hf_ref.c. */
#ifndef MFS_MODEL_HF_CONFIG_I_H
#define MFS_MODEL_HF_CONFIG_I_H

#include "formats/model/hf_config.h"
#include "formats/hf/hf_json.h"

/* The factor of its rotary scaling, if that is llama3's; else 0. */
double mfs_hf_ref_llama3_factor(const struct mfs_hf_ref *ref);

/* Checks a model's config against the reference's, and adds keys that only the reference has. */
int mfs_hf_ref_merge(const struct mfs_hf_ref *ref, struct mfs_model *model, json_t *config,
		     struct mfs_error *err);

#endif
