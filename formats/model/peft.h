/*
 * Adapters of PEFT: adapter_config.json and adapter_model.safetensors (peft/tuners/lora/config.py,
 * peft/utils/save_and_load.py). A module NAME of the HF model has two matrices,
 * "base_model.model.NAME.lora_A.weight" [r, in] and "...lora_B.weight" [out, r], and its weight
 * becomes W + scale * B * A with scale = lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
 */
#ifndef MFS_MODEL_PEFT_H
#define MFS_MODEL_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

#define MFS_PEFT_CONFIG	    "adapter_config.json"
#define MFS_PEFT_CONFIG_MAX (1u << 20) /* bytes */

struct mfs_peft_config {
	uint64_t rank;
	float scale;
};

/* Parses adapter_config.json. name: for messages. -EINVAL: it is no JSON, or a key has a value that
 * it cannot have; -ENOTSUP: it asks for something else than plain LoRA, which the message names. */
int mfs_peft_config_parse(const char *bytes, size_t len, const char *name,
			  struct mfs_peft_config *ret, struct mfs_error *err);

/* True if dir has an adapter_config.json, which is not read. */
bool mfs_peft_looks_like_one(const char *dir);

/*
 * Attaches the adapter in dir to a checkpoint that was just opened (ckpt/delta.h). HF's names are
 * those of the family that fits the arguments, or of arch. -ENODATA: a file or a matrix is missing;
 * -EINVAL: a file is damaged, or a matrix does not fit the model; -ENOTSUP: no family fits, or a
 * tensor is none of a module's of it.
 */
int mfs_peft_attach(struct mfs_ckpt *ckpt, const char *arch, const char *dir,
		    struct mfs_error *err);

#endif
