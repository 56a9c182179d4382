/*
 * Keys of a config.json for which a family has no row: what they mean to readers, and whether a
 * view may say them too. Sources: transformers/configuration_utils.py, masking_utils.py,
 * cache_utils.py and what models' code there and in vLLM reads of a config
 * (tests/interop/config_keys.py compares).
 */
#ifndef MFS_MODEL_HF_KNOWN_H
#define MFS_MODEL_HF_KNOWN_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/base/arena.h"
#include "formats/model/families/family.h"

enum mfs_hf_meaning {
	MFS_HF_UNKNOWN,	 /* nothing here knows it: it may change what a model computes */
	MFS_HF_READ,	 /* a row, another name of one, or a key that stands elsewhere */
	MFS_HF_COPIED,	 /* says nothing about computing; a view may say it, too */
	MFS_HF_LEFT,	 /* of training, generating or a reader's own ways: no view says it */
	MFS_HF_STORES,	 /* says that the file's weights are stored as nothing here reads */
	MFS_HF_COMPUTES, /* changes the result, and no argument of Megatron says it */
};

/*
 * What a key means in a model of the family that has these arguments. A key that changes the result
 * is LEFT where its value is the one that all classes take without it (is_causal true). *ret_usual:
 * of COMPUTES and STORES, that value in words.
 */
enum mfs_hf_meaning mfs_hf_meaning_of(const struct mfs_family *f, const struct mfs_megatron_args *a,
				      const char *key, const json_t *value, const char **ret_usual);

/* The key in quotes, cut where it is long, without control characters. */
const char *mfs_hf_key_in_words(const char *key, char *text, size_t size);

/* Collects keys for one sentence: "'a', 'b' and 3 more". */
struct mfs_hf_key_list {
	char text[300];
	unsigned more; /* that had no room */
};
void mfs_hf_key_list_add(struct mfs_hf_key_list *list, const char *key);
/* Ends the list. */
const char *mfs_hf_key_list_text(struct mfs_hf_key_list *list);

/* The one name of an activation that several names mean (transformers/activations.py): "silu" of
 * "swish", "gelu_pytorch_tanh" of "gelu_new". Others are their own. NULL stays NULL. */
const char *mfs_hf_activation(const char *name);

#endif
